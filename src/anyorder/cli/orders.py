"""The command that studies the orders of a trained model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anyorder.cli.options import AS_JSON
from anyorder.cli.order_tables import figures_table, first_tokens_table, group_table, meanings, numbered
from anyorder.cli.output import check_output_file, print_json, results
from anyorder.cli.progress import Watcher
from anyorder.config.data import Splits
from anyorder.config.recipe import Recipe
from anyorder.errors import UserError
from anyorder.orders.statistics import Compared, compare

if TYPE_CHECKING:
    from anyorder.data.readers import Files
    from anyorder.evaluation.order_study import FoundOrders, OrderedSentence
    from anyorder.orders.syntax import SpacyParser
    from anyorder.text.tokenizer import Tokenizer


DEFAULT_SPLIT: Splits = "dev"
DEFAULT_BEAM = 8
DEFINITIONS = f"""What the figures mean:

{meanings()}

Sentences of one token count nowhere. A mean step, 0 first to 1 last in its sentence, is that of the tokens
of a part of speech, or of a quarter of the running words of the training targets; pieces go with their word.
"""


def orders(
    run: Annotated[Path, typer.Argument(help="Folder of a trained model.", show_default=False)],
    split: Splits | None = typer.Option(
        None, "--split", help=f"Pairs of the run's recipe; default {DEFAULT_SPLIT}."
    ),
    source: Path | None = typer.Option(
        None, "--source", help="Other sources, a line each, or .npy features."
    ),
    target: Path | None = typer.Option(None, "--target", help="The targets that go with them."),
    lines: int | None = typer.Option(None, "--lines", min=1, help="Only the first so many."),
    beam: int | None = typer.Option(
        None, "--beam", min=1, help=f"Orders kept while searching; default {DEFAULT_BEAM}."
    ),
    written: bool = typer.Option(
        False, "--written", help="How the model writes its own outputs, by the recipe's [decode]."
    ),
    kept: bool = typer.Option(
        False, "--kept", help="What training learns from: the last search of the training targets."
    ),
    parser: str | None = typer.Option(None, "--parser", help="spaCy pipeline, for parts of speech."),
    conllu: Path | None = typer.Option(
        None, "--conllu", help="CoNLL-U of the targets, for parts of speech: sentence n is line n."
    ),
    examples: int = typer.Option(3, "--examples", min=0, help="Sentences to show with their steps."),
    svg: Path | None = typer.Option(
        None, "--svg", help="File for a chart of which positions are written when: .svg, .png or .pdf."
    ),
    as_json: bool = AS_JSON,
    device: str | None = typer.Option(None, "--device", help="auto, cpu, cuda, ..."),
) -> None:
    """Study the orders that a model finds best for given targets, beside left to right and chance.

    With --written, those in which it writes; with --kept, those that it learned from last.

    Example: `anyorder orders runs/sao --split dev --svg orders.svg`
    """
    from anyorder.viz.charts import check_chart, save_chart
    from anyorder.viz.orders import order_chart

    asked = _Asked(
        run=run, split=split, source=source, target=target, lines=lines, beam=beam, written=written, kept=kept
    )
    _refuse_what_does_not_fit(asked)
    _refuse_tags_that_do_not_fit(parser=parser, conllu=conllu, written=written)
    check_output_file("--svg", svg)
    check_chart("--svg", svg)
    tagger = _tagger(parser)
    with Watcher() as watcher:
        found = _found_in_training(asked, watcher) if kept else _found(asked, watcher, device=device)
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
    """Which orders to look at."""

    run: Path
    split: Splits | None
    source: Path | None
    target: Path | None
    lines: int | None
    beam: int | None
    written: bool
    kept: bool


@dataclass(frozen=True)
class _Found:
    """The orders, and what else their study needs."""

    orders: FoundOrders
    title: str
    recipe: Recipe
    tokenizer: Tokenizer


@dataclass(frozen=True)
class _Counted:
    """How often words occur."""

    words: Counter[str]
    where: str  # in which text


@dataclass(frozen=True)
class _Study:
    """All that the command has found out."""

    title: str
    found: FoundOrders
    compared: Compared
    counted_in: str


def _refuse_what_does_not_fit(asked: _Asked) -> None:
    if (asked.source is None) != (asked.target is None):
        raise UserError("--source and --target go together: give both or neither")
    if asked.split is not None and asked.source is not None:
        raise UserError(f"--split {asked.split} and --source {asked.source}: give one of them, not both")
    if asked.beam is not None and asked.written:
        raise UserError(
            f"--beam {asked.beam}: is for searched orders; with --written the recipe's [decode] decides"
        )
    if asked.kept:
        flags = {"split": asked.split, "source": asked.source, "beam": asked.beam, "written": asked.written}
        given = next((f"--{name}" for name, value in flags.items() if value), None)
        if given is not None:
            raise UserError(
                f"--kept and {given}: give one of them, not both; --kept has the training's targets and beam"
            )


def _refuse_tags_that_do_not_fit(*, parser: str | None, conllu: Path | None, written: bool) -> None:
    if conllu is None:
        return
    if parser is not None:
        raise UserError(f"--parser {parser} and --conllu {conllu}: give one of them, not both")
    if written:
        raise UserError(f"--conllu {conllu}: is of the targets; for --written give --parser")
    if not conllu.is_file():
        raise UserError(f"--conllu {conllu}: no such file")


def _found(asked: _Asked, watcher: Watcher, *, device: str | None) -> _Found:
    """What the model finds for targets, or how it writes."""
    from anyorder.evaluation.order_study import decode_orders, search_target_orders
    from anyorder.inference.model_folder import load_trained
    from anyorder.system.devices import pick_device

    picked = pick_device(device or "auto")
    trained = load_trained(asked.run, device=picked)
    files = _files(trained.recipe, split=asked.split, source=asked.source, target=asked.target)
    beam = asked.beam or DEFAULT_BEAM
    find = decode_orders if asked.written else partial(search_target_orders, beam=beam)
    how = "how it writes its own outputs" if asked.written else f"the best orders found, beam {beam}"
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
    """What training's last search found: needs the training pairs, but no weights."""
    from anyorder.data.dataset import prepare
    from anyorder.evaluation.order_study import load_training_orders
    from anyorder.training.run_folder import recipe_of_run

    recipe = recipe_of_run(asked.run)
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
    list(tagger.tags([]))  # loads it: what is wrong with it should not be told after a long search
    return tagger


def _tags(
    sentences: Sequence[OrderedSentence],
    *,
    tagger: SpacyParser | None,
    conllu: Path | None,
    tokenizer: Tokenizer,
) -> list[list[str]] | None:
    """The part of speech of each word, if there is something that tells it."""
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
    return _Counted(words, where="these sentences, as the training targets are gone")


def _study(
    found: FoundOrders, *, tags: Sequence[Sequence[str]] | None, counted: _Counted, title: str
) -> _Study:
    from anyorder.evaluation.order_study import frequency_labels

    labels = {}
    if tags is not None:
        both = zip(found.sentences, tags, strict=True)
        labels["part of speech"] = [sentence.by_token(of_words) for sentence, of_words in both]
    labels["frequency"] = frequency_labels(found.sentences, counted.words)
    compared = compare(
        [sentence.positions for sentence in found.sentences],
        [sentence.tokens for sentence in found.sentences],
        labels=labels,
    )
    if compared is None:
        reasons = "".join(f"; left out: {count:,} ({reason})" for reason, count in found.left_out.items())
        raise UserError(f"{title}: none has two tokens or more, so there is no order to study{reasons}")
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
    """How the orders found compare with left to right and with second best ones, where these are known."""
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
