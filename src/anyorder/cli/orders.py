"""orders: study the orders of a trained model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import typer

from anyorder.cli.options import AS_JSON, DEVICE, RUN, TRUST_CODE
from anyorder.cli.order_tables import figures_table, first_tokens_table, group_table, meanings, numbered
from anyorder.cli.output import check_output_file, print_json, results
from anyorder.cli.progress import Watcher
from anyorder.config.data import Splits
from anyorder.config.recipe import Recipe
from anyorder.errors import UserError
from anyorder.orders.statistics import Compared, compare_orders

if TYPE_CHECKING:
    from anyorder.data.readers import Files
    from anyorder.evaluation.order_study import FoundOrders, OrderedSentence
    from anyorder.orders.syntax import SpacyParser
    from anyorder.text.tokenizer import Tokenizer


DEFAULT_SPLIT: Splits = "dev"
DEFAULT_BEAM = 8
DEFINITIONS = f"""What the figures mean:

{meanings()}

Sentences of one token are left out. A mean step runs from 0, first in the sentence, to 1, last. It is given
for the tokens of each part of speech and of each frequency quarter. For the quarters, words are sorted by
their frequency in the training targets and cut into four parts with equally many running words. The pieces of
a word belong to the groups of the word.
"""


def orders(
    run: RUN,
    split: Splits | None = typer.Option(
        None, "--split", help=f"Split of the run's recipe; default: {DEFAULT_SPLIT}."
    ),
    source: Path | None = typer.Option(
        None, "--source", help="Other sources, one per line, or .npy features."
    ),
    target: Path | None = typer.Option(None, "--target", help="The targets of --source."),
    lines: int | None = typer.Option(None, "--lines", min=1, help="Study only this many lines."),
    beam: int | None = typer.Option(
        None, "--beam", min=1, help=f"Beam of the search; default: {DEFAULT_BEAM}."
    ),
    written: bool = typer.Option(
        False,
        "--written",
        help="Study how the model writes its own hypotheses, with the recipe's [decode].",
    ),
    stored: bool = typer.Option(
        False, "--stored", help="Study the orders that the last search of training found and stored."
    ),
    parser: str | None = typer.Option(None, "--parser", help="A spaCy pipeline, for parts of speech."),
    conllu: Path | None = typer.Option(
        None, "--conllu", help="CoNLL-U of the targets, for parts of speech; sentence n belongs to line n."
    ),
    examples: int = typer.Option(
        3, "--examples", min=0, help="Number of sentences to show with their steps."
    ),
    svg: Path | None = typer.Option(
        None, "--svg", help="File for a chart of when positions are written: .svg, .png or .pdf."
    ),
    as_json: bool = AS_JSON,
    device: str | None = DEVICE,
    trust_code: bool = TRUST_CODE,
) -> None:
    """Study the orders that a model finds best for targets, compared with left to right and random ones.

    With --written, study the orders in which it writes; with --stored, those that it learned from last.

    Example: `anyorder orders runs/sao --split dev --svg orders.svg`
    """
    from anyorder.viz.charts import check_chart, save_chart
    from anyorder.viz.orders import order_chart

    asked = _Asked(
        run=run,
        split=split,
        source=source,
        target=target,
        lines=lines,
        beam=beam,
        written=written,
        stored=stored,
        trust_code=trust_code,
    )
    _check_flags(asked)
    _check_tag_flags(parser=parser, conllu=conllu, written=written)
    check_output_file("--svg", svg)
    check_chart("--svg", svg)
    tagger = _tagger(parser)
    with Watcher() as watcher:
        found = _found_in_training(asked, watcher) if stored else _found(asked, watcher, device=device)
        tags = _tags(found.orders.sentences, tagger=tagger, conllu=conllu, tokenizer=found.tokenizer)
        counted = _counted(
            found.orders.sentences, found.recipe, progress=partial(watcher.preparing, "counting words")
        )
    study = _study(found.orders, tags=tags, counted=counted, title=f"{run}, {found.title}")
    if svg is not None:
        save_chart(order_chart(study.compared, title=study.title), svg)
    if as_json:
        print_json(_as_json(study))
    else:
        _show(study, examples=examples)


@dataclass(frozen=True)
class _Asked:
    """The flags that say which orders to study."""

    run: Path
    split: Splits | None
    source: Path | None
    target: Path | None
    lines: int | None
    beam: int | None
    written: bool
    stored: bool
    trust_code: bool


@dataclass(frozen=True)
class _Found:
    """Orders of a run, with its recipe and tokenizer."""

    orders: FoundOrders
    title: str
    recipe: Recipe
    tokenizer: Tokenizer


@dataclass(frozen=True)
class _Counted:
    """How often each word occurs in some text."""

    words: Counter[str]
    where: str  # the text, as results name it


@dataclass(frozen=True)
class _Study:
    """The results of the command."""

    title: str
    found: FoundOrders
    compared: Compared
    counted_in: str


def _check_flags(asked: _Asked) -> None:
    if (asked.source is None) != (asked.target is None):
        raise UserError("--source and --target go together: give both or neither")
    if asked.split is not None and asked.source is not None:
        raise UserError(f"--split {asked.split} and --source {asked.source}: give one of them, not both")
    if asked.beam is not None and asked.written:
        raise UserError(
            f"--beam {asked.beam}: is for searched orders; with --written the recipe's [decode] decides"
        )
    if asked.stored:
        flags = {"split": asked.split, "source": asked.source, "beam": asked.beam, "written": asked.written}
        given = next((f"--{name}" for name, value in flags.items() if value), None)
        if given is not None:
            raise UserError(
                f"--stored and {given}: give one of them, not both; --stored uses training's targets and beam"
            )


def _check_tag_flags(*, parser: str | None, conllu: Path | None, written: bool) -> None:
    if conllu is None:
        return
    if parser is not None:
        raise UserError(f"--parser {parser} and --conllu {conllu}: give one of them, not both")
    if written:
        raise UserError(f"--conllu {conllu}: is of the targets; for --written give --parser")
    if not conllu.is_file():
        raise UserError(f"--conllu {conllu}: no such file")


def _found(asked: _Asked, watcher: Watcher, *, device: str | None) -> _Found:
    """Search the best orders of targets, or decode and take the orders of the hypotheses."""
    from anyorder.evaluation.order_study import decode_orders, search_target_orders
    from anyorder.inference.model_folder import load_trained
    from anyorder.system.devices import pick_device

    picked = pick_device(device or "auto")
    trained = load_trained(asked.run, device=picked)
    files = _files(trained.recipe, split=asked.split, source=asked.source, target=asked.target)
    beam = asked.beam or DEFAULT_BEAM
    find = decode_orders if asked.written else partial(search_target_orders, beam=beam)
    how = "how it writes its own hypotheses" if asked.written else f"the best orders found, beam {beam}"
    return _Found(
        find(
            trained,
            files,
            lines=asked.lines,
            device=picked,
            progress=partial(watcher.preparing, "writing" if asked.written else "searching orders"),
        ),
        title=f"{_named(asked.split, asked.target)}: {how}",
        recipe=trained.recipe,
        tokenizer=trained.tokenizer,
    )


def _found_in_training(asked: _Asked, watcher: Watcher) -> _Found:
    """Read the orders that the last search of training stored; needs the training pairs, but no weights."""
    from anyorder.data.dataset import prepare
    from anyorder.evaluation.order_study import load_training_orders
    from anyorder.inference.trust import check_code
    from anyorder.training.run_folder import recipe_of_run

    recipe = recipe_of_run(asked.run)
    check_code(recipe, trust_code=asked.trust_code)
    prepared = prepare(recipe, progress=watcher.preparing)
    step, orders = load_training_orders(
        recipe, prepared, lines=asked.lines, progress=partial(watcher.preparing, "reading orders")
    )
    title = f"train: the best orders found before update {step:,}, beam {recipe.search.beam}"
    return _Found(orders, title=title, recipe=recipe, tokenizer=prepared.tokenizer)


def _files(recipe: Recipe, *, split: Splits | None, source: Path | None, target: Path | None) -> Files:
    from anyorder.data.readers import split_files
    from anyorder.evaluation.order_study import files_of_pairs

    if source is not None and target is not None:
        return files_of_pairs(source=source, target=target)
    return split_files(recipe, split or DEFAULT_SPLIT)


def _named(split: Splits | None, target: Path | None) -> str:
    return str(target) if target is not None else split or DEFAULT_SPLIT


def _tagger(parser: str | None) -> SpacyParser | None:
    from anyorder.orders.syntax import SpacyParser

    if parser is None:
        return None
    tagger = SpacyParser(parser, key="--parser")
    list(tagger.tags([]))  # loads the pipeline, so that a wrong one is refused before a long search
    return tagger


def _tags(
    sentences: Sequence[OrderedSentence],
    *,
    tagger: SpacyParser | None,
    conllu: Path | None,
    tokenizer: Tokenizer,
) -> list[list[str]] | None:
    """Tag each word with its part of speech; None without a tagger or a CoNLL-U file."""
    from anyorder.orders.syntax import ConlluFile

    if conllu is not None:
        trees = ConlluFile(conllu, normalise=tokenizer.normalised)
        return [trees.word_tags(sentence.line, sentence.words) for sentence in sentences]
    if tagger is not None:
        return list(tagger.tags(sentence.words for sentence in sentences))
    return None


def _counted(
    sentences: Sequence[OrderedSentence], recipe: Recipe, *, progress: Callable[[int, int], None]
) -> _Counted:
    from anyorder.evaluation.order_study import training_counts
    from anyorder.orders.fixed import count_words

    in_training = training_counts(recipe, progress=progress)
    if in_training is not None:
        return _Counted(in_training, where="the training targets")
    words = count_words(sentence.words for sentence in sentences)
    return _Counted(words, where="these sentences, because the training targets are missing")


def _study(
    found: FoundOrders, *, tags: Sequence[Sequence[str]] | None, counted: _Counted, title: str
) -> _Study:
    from anyorder.evaluation.order_study import frequency_labels

    labels = {}
    if tags is not None:
        both = zip(found.sentences, tags, strict=True)
        labels["part of speech"] = [sentence.by_token(of_words) for sentence, of_words in both]
    labels["frequency"] = frequency_labels(found.sentences, counted.words)
    compared = compare_orders(
        [sentence.positions for sentence in found.sentences],
        [sentence.tokens for sentence in found.sentences],
        labels=labels,
    )
    if compared is None:
        reasons = "".join(f"; left out: {count:,} ({reason})" for reason, count in found.left_out.items())
        raise UserError(
            f"{title}: no sentence has two tokens or more, so there is no order to study{reasons}"
        )
    return _Study(title=title, found=found, compared=compared, counted_in=counted.where)


def _as_json(study: _Study) -> dict[str, Any]:
    return {
        "title": study.title,
        "left_out": study.found.left_out,
        "counted_in": study.counted_in,
        **asdict(study.compared),
        "sentences": [asdict(sentence) for sentence in study.found.sentences],
    }


def _show(study: _Study, *, examples: int) -> None:
    compared = study.compared
    results.print(study.title, style="bold")
    for reason, count in study.found.left_out.items():
        results.print(f"left out: {count:,} ({reason})")
    results.print(
        f"{compared.found.sentences:,} sentences of two tokens or more, {compared.found.tokens:,} tokens\n"
    )
    results.print(figures_table(compared), "")
    if probabilities := _probabilities(study.found.sentences):
        results.print(*probabilities, "", sep="\n")
    results.print(first_tokens_table(compared), "")
    results.print("mean step, 0 first to 1 last")
    for name in compared.found.groups:
        results.print(group_table(compared, name), "")
    results.print(f"Words were counted in {study.counted_in}.")
    longer = [sentence for sentence in study.found.sentences if len(sentence.positions) > 1]
    for sentence in longer[:examples]:
        results.print(f"\nline {sentence.line}, log p {sentence.log_prob:.2f}", style="dim")
        results.print(numbered(sentence, width=results.width), end="")


def _probabilities(sentences: Sequence[OrderedSentence]) -> list[str]:
    """Compare log p of the orders found with that of left to right and of the second best, if known."""
    lines = []
    both = [
        (sentence.log_prob, sentence.left_to_right_log_prob)
        for sentence in sentences
        if sentence.left_to_right_log_prob is not None
    ]
    if both:
        found, left_to_right = (fmean(column) for column in zip(*both, strict=True))
        lines.append(f"mean log p: {found:.2f} as found, {left_to_right:.2f} left to right")
    gains = [
        sentence.log_prob - sentence.second_log_prob
        for sentence in sentences
        if sentence.second_log_prob is not None
    ]
    if gains:
        lines.append(f"second best order: e^{median(gains):.1f} times less likely (median of {len(gains):,})")
    return lines
