"""Write model cards: what a model is for, its data, its training and its scores, from the files of its run.

A card leaves out what the files don't say. Results of other weights than the folder's are refused.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from anyorder.adaptive.schedule import SearchSummary
from anyorder.config.data import Side, Splits
from anyorder.config.decode import Decode
from anyorder.config.recipe import Recipe
from anyorder.config.template import recipe_toml
from anyorder.data.corpus import Statistics
from anyorder.evaluation.results import TUNED_ON, EvaluationReport, RunResults, evaluated_splits, load_results
from anyorder.evaluation.significance import bootstrap_interval
from anyorder.inference.model_folder import (
    CARD_FILE,
    Trained,
    card_title,
    describe_model,
    load_trained,
    usage_example,
)
from anyorder.metrics import DEFAULT, Options, evaluate
from anyorder.pretrained import is_shipped, located
from anyorder.system.files import read_text
from anyorder.training.estimate import duration
from anyorder.training.metrics_log import LastUpdate, last_update, searches
from anyorder.training.run_folder import sizes_of_run

OF_ONE_MACHINE = ("run", "data.root", "data.cache")  # keys that mean something on one machine only


@dataclass(frozen=True)
class _Facts:
    """Everything that a card is made from."""

    run: Path
    trained: Trained
    sizes: Mapping[Splits, Statistics]
    last: LastUpdate | None
    searches: Mapping[int, SearchSummary]  # for orders of the training targets, by update
    results: Sequence[RunResults]

    @property
    def recipe(self) -> Recipe:
        return self.trained.recipe

    @property
    def name(self) -> str:
        return Path(os.path.realpath(self.run)).name


def model_card(run: Path) -> str:
    """A model card in Markdown: what the model can and can't do, and how to train it again."""
    if is_shipped(run):  # its run isn't here, but the card that was made from it
        return read_text(located(run) / CARD_FILE)
    facts = _Facts(
        run=run,
        trained=load_trained(run, device=torch.device("cpu")),
        sizes=sizes_of_run(run),
        last=last_update(run),
        searches=searches(run),
        results=[load_results(run, split) for split in reversed(evaluated_splits(run))],
    )
    sections = {
        "What it is for": _purpose(facts),
        "Data": _data(facts),
        "Model": describe_model(facts.trained),
        "Training": _training(facts),
        "Scores": _scores(facts),
        "Limits": [f"- {limit}" for limit in _limits(facts)],
        "Use": usage_example(facts.name, facts.trained),
        "Made again": _again(facts),
    }
    head = [
        f"{card_title(facts.name, version=facts.trained.version)} "
        "`anyorder card` made this page from the files of the run.",
    ]
    parts = [*head, *(line for title, body in sections.items() for line in ("", f"## {title}", "", *body))]
    return "\n".join(parts) + "\n"


def _purpose(facts: _Facts) -> list[str]:
    text, features = facts.recipe.text, facts.trained.model.shape.features
    read = f"feature vectors of width {features}" if features else f"a line of text ({_side(text.source)})"
    if text.bag:
        read = f"a bag of words ({_side(text.source)}), in whatever order they are given"
    task = f"{facts.recipe.data.name}. " if facts.recipe.data.name else ""
    if facts.recipe.editing:
        beside = "" if facts.recipe.sourceless else f" beside {read}"
        return [f"{task}It changes a draft, a line of text ({_side(text.target)}){beside}."]
    return [f"{task}It reads {read} and writes a line of text ({_side(text.target)})."]


def _side(side: Side) -> str:
    words = {
        "moses": f"{side.language}, split by Moses",
        "spaces": "split at spaces",
        "mecab": "Japanese, split by MeCab",
    }
    return words[side.split] + (", in lower case" if side.lowercase else "")


def _data(facts: _Facts) -> list[str]:
    data = facts.recipe.data
    licence = [
        f"Licence of the data: {data.licence}."
        if data.licence
        else "The recipe names no licence for the data."
    ]
    if not facts.sizes:
        return licence
    rows = [
        f"| {split} | {size.pairs:,} | {size.skipped:,} | {size.mean_source:.1f} | {size.mean_target:.1f} | "
        f"{size.unknown_target:.2%} |"
        for split, size in facts.sizes.items()
    ]
    header = "| split | pairs | left out | tokens a source | tokens a target | of them unknown |"
    return [header, "|---|---:|---:|---:|---:|---:|", *rows, "", *licence]


def _training(facts: _Facts) -> list[str]:
    train, scores = facts.recipe.train, facts.trained.scores
    lines = []
    if facts.last is not None:
        lines.append(
            f"- {facts.last.step:,} updates of at most {train.batch_tokens:,} tokens, in epoch "
            f"{facts.last.epoch + 1} at the end, {duration(facts.last.seconds)} without validations"
        )
    if "averaged_steps" in scores:
        steps = ", ".join(map(str, scores["averaged_steps"]))
        lines.append(f"- these weights: the mean of the checkpoints at steps {steps}")
    elif "step" in scores:
        lines.append(f"- these weights: step {scores['step']:,}, the best on dev by {train.select}")
    lines += _searched(facts)
    on_dev = {name.removeprefix("dev_"): score for name, score in scores.items() if name.startswith("dev_")}
    numbers = [f"{name.replace('_', ' ')} {score:.4g}" for name, score in on_dev.items() if _is_number(score)]
    if numbers:
        lines.append(f"- dev, while training: {', '.join(numbers)}")
    return [*lines, f"- seed {train.seed}, dropout {facts.recipe.model.dropout:g}, {train.precision}"]


def _searched(facts: _Facts) -> list[str]:
    """How many targets keep the bootstrap order after each search."""
    stay = [
        f"{summary.in_bootstrap_order:,} of {summary.targets:,} before update {step:,}"
        for step, summary in facts.searches.items()
        if summary.in_bootstrap_order is not None
    ]
    bootstrap = facts.recipe.search.bootstrap
    return [f"- training targets whose best order is `{bootstrap}`: {', '.join(stay)}"] if stay else []


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _scores(facts: _Facts) -> list[str]:
    if not facts.results:
        return [f"There are no results yet: `anyorder evaluate {facts.name} --split test` makes them."]
    parts = [_scores_of_split(one) for one in facts.results]
    return [line for number, part in enumerate(parts) for line in ([""] if number else []) + part]


def _scores_of_split(results: RunResults) -> list[str]:
    report = results.report
    found = _intervals(results)
    rows = [
        f"| {score.label} | {score.score:.2f} | {found.get(name, '')} | `{_in_cell(score.signature)}` |"
        for name, score in report.scores.items()
    ]
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return [
        f"{report.lines:,} lines of {report.split}, {_decoding(report)}. In the third column: where 95 % of "
        "bootstrap samples of the lines have the score.",
        "",
        "| metric | score | 95 % | signature |",
        "|---|---:|---:|---|",
        *rows,
        "",
        *(f"- {remark}" for remark in report.remarks),
        *([""] if report.remarks else []),
        f"Decoded in {report.decoding_seconds:.0f} s, finished {report.finished_at}, with anyorder "
        f"{report.anyorder}, {versions}.",
    ]


def _intervals(results: RunResults) -> dict[str, str]:
    """Confidence intervals of the metrics that need no extra package, by name."""
    names = [name for name in results.report.scores if name in DEFAULT]
    scored = evaluate(results.hypotheses, results.references, metrics=names, options=results.report.options)
    estimates = {name: bootstrap_interval(result) for name, result in scored.items()}
    return {name: f"{estimate.low:.2f} to {estimate.high:.2f}" for name, estimate in estimates.items()}


def _in_cell(text: str) -> str:
    return text.replace("|", "\\|")


def _decoding(report: EvaluationReport) -> str:
    if report.sweep is None:
        picked = f"beam {report.decode.beam}"
    else:
        beams = ", ".join(map(str, sorted(report.sweep.scores[TUNED_ON])))
        picked = f"beam {report.sweep.beam}, the best of {beams} on {TUNED_ON} by {report.sweep.metric}"
    others = _options(report.decode)
    return picked + (f", {others}" if others else "")


def _options(decode: Decode) -> str:
    """The keys of [decode] that differ from their defaults, except the beam."""
    given = decode.model_dump(mode="json", exclude_defaults=True, exclude={"beam", "n_best"})
    return ", ".join(f"{key} {json.dumps(value)}" for key, value in given.items())


def _limits(facts: _Facts) -> Iterator[str]:
    recipe = facts.recipe
    yield f"It has seen no target of more than {recipe.data.max_length} tokens."
    if recipe.text.unit == "words" and not recipe.model.copying:
        yield "A word that is not in its vocabulary is written as `<unk>`."
    for one in facts.results:
        report = one.report
        of_all = f"of {report.lines:,} hypotheses for {report.split}"
        if report.unfinished:
            yield f"{report.unfinished:,} {of_all} were cut off before their end."
        if report.unknown:
            yield f"{report.unknown:,} {of_all} hold a word that it does not know."
    if facts.results:
        yield "Scores are of one training: the intervals cover other lines, not other seeds or other text."


def _again(facts: _Facts) -> list[str]:
    averaged = facts.trained.scores.get("averaged_steps", [])
    if len(averaged) in (0, facts.recipe.train.average):
        commands = ["anyorder train recipe.toml data.root=FOLDER run=" + facts.name]
    else:  # which training alone would not make
        commands = [
            f"anyorder train recipe.toml data.root=FOLDER run={facts.name}-trained",
            f"anyorder average {facts.name}-trained --last {len(averaged)} --output {facts.name}",
        ]
    commands += [_evaluation(facts, one.report) for one in facts.results]
    return [
        "With this as `recipe.toml`, and the data in `FOLDER`:",
        "",
        "```toml",
        recipe_toml(facts.recipe, without=OF_ONE_MACHINE).rstrip("\n"),
        "```",
        "",
        "```sh",
        *commands,
        "```",
    ]


def _evaluation(facts: _Facts, report: EvaluationReport) -> str:
    """The command that repeats an evaluation."""
    beams = [report.decode.beam] if report.sweep is None else sorted(report.sweep.scores[TUNED_ON])
    usual = facts.recipe.decode.model_dump(mode="json")
    changed = [
        shlex.quote(f"decode.{key}={value if isinstance(value, str) else json.dumps(value)}")
        for key, value in report.decode.model_dump(mode="json").items()
        if key not in ("beam", "n_best") and value != usual[key]
    ]
    flags = ["--split", report.split, "--beam", ",".join(map(str, beams))]
    flags += [] if report.sweep is None else ["--by", report.sweep.by]
    flags += ["--metrics", ",".join(report.scores), *_word_flags(report)]
    return " ".join(["anyorder evaluate", facts.name, *changed, *flags])


def _word_flags(report: EvaluationReport) -> list[str]:
    """The flags for reading text before scoring, where they differ from the recipe's."""
    options, usual = report.options, Options.for_side(report.recipe.text.target)
    flags = ["--lowercase"] if options.lowercase and not usual.lowercase else []
    named = {
        "--tokenize": (options.tokenize, usual.tokenize),
        "--lang": (options.language, usual.language),
        "--cider-tokenize": (options.cider_tokenize, usual.cider_tokenize),
    }
    for flag, (given, follows) in named.items():
        flags += [flag, given] if given != follows else []
    return flags
