"""order: show the order in which a sentence would be written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from anyorder.cli.options import AS_JSON, BY_CHANCE, BY_COUNTS, ORDER_FILE, PARSER, SVG, order_section
from anyorder.cli.output import check_output_file, print_json, results, stdin_lines, write_svg
from anyorder.errors import UserError
from anyorder.orders.fixed import order_names

if TYPE_CHECKING:
    from anyorder.inference.hypothesis import Step
    from anyorder.viz.relations import RelationMatrix


LONGEST, LONGEST_RELATED = 10_000, 500  # words of a sentence; relations are a square of them


@dataclass(frozen=True)
class _Shown:
    """How one sentence would be written, ready to be shown."""

    title: str
    positions: list[int]
    history: list[Step]
    relations: RelationMatrix | None  # None without --relations


def order(
    name: str = typer.Argument(help=order_names(without="search")),
    text: list[str] | None = typer.Argument(
        None, help="A sentence, its words separated by spaces; default: lines of stdin."
    ),
    parser: str | None = PARSER,
    order_file: Path | None = ORDER_FILE,
    corpus: Path | None = typer.Option(None, "--corpus", help=f"Text to count words in, for {BY_COUNTS}."),
    seed: int = typer.Option(1, "--seed", min=0, help=f"For {BY_CHANCE}."),
    show_relations: bool = typer.Option(
        False,
        "--relations",
        help="Also show which word stands left or right of which; --svg draws this instead.",
    ),
    svg: Path | None = SVG,
    as_json: bool = AS_JSON,
) -> None:
    """Show the order in which a sentence would be written, step by step.

    Example: `anyorder order blt "the cat sat on the mat" --relations`
    """
    import numpy as np

    from anyorder.data.orderer import Line, prepare_order
    from anyorder.inference.hypothesis import steps
    from anyorder.viz.charts import check_chart
    from anyorder.viz.relations import relations_of

    check_output_file("--svg", svg)
    check_chart("--svg", svg if show_relations else None)
    section = order_section(name, parser=parser, order_file=order_file)
    orderer = prepare_order(section, split="test", common=_common(name, corpus))
    sentences = _sentences(text, show_relations=show_relations)
    lines = [Line(number, words, [1] * len(words)) for number, words in enumerate(sentences, start=1)]
    first: _Shown | None = None
    for line, positions in zip(
        lines, orderer.positions(lines, generator=np.random.default_rng(seed)), strict=True
    ):
        written = [line.words[position - 1] for position in positions]
        one = _Shown(
            title=f"{name}: {' '.join(line.words)}",
            positions=positions,
            history=steps(written, positions),
            relations=relations_of(written, positions) if show_relations else None,
        )
        _show(name, one, as_json=as_json)
        if first is None and positions:
            first = one
    if svg is not None:
        _draw(svg, first)


def _common(name: str, corpus: Path | None) -> frozenset[str] | None:
    """Find the frequent words of a corpus, if the order depends on them."""
    from anyorder.data.readers import read_lines
    from anyorder.orders.fixed import common_words, count_words, order_rule

    if order_rule(name).needs != "counts":
        return None
    if corpus is None:
        raise UserError(f"order {name} needs word counts: --corpus FILE, a text to count them in")
    return common_words(count_words(line.split() for _, line in read_lines(corpus)))


def _sentences(text: list[str] | None, *, show_relations: bool) -> Iterator[list[str]]:
    given: Iterable[tuple[str, str]] = [("TEXT", " ".join(text))] if text else _stdin()
    most = LONGEST_RELATED if show_relations else LONGEST
    for where, line in given:
        words = line.split()
        if len(words) > most:
            raise UserError(f"{where}: {len(words):,} words; at most {most:,} can be shown step by step")
        yield words


def _stdin() -> Iterator[tuple[str, str]]:
    return ((f"stdin:{number}", line) for number, line in enumerate(stdin_lines(), start=1))


def _show(name: str, one: _Shown, *, as_json: bool) -> None:
    from anyorder.viz.relations import draw_relations
    from anyorder.viz.trace import draw_trace

    if as_json:
        shown = {"order": name, "positions": one.positions, "words": [step.token for step in one.history]}
        print_json(shown if one.relations is None else {**shown, "relations": one.relations.signs})
        return
    results.print(draw_trace(one.history, one.title))
    if one.relations is not None:
        results.print(Text("\n"), draw_relations(one.relations), sep="", soft_wrap=True)


def _draw(path: Path, first: _Shown | None) -> None:
    from anyorder.viz.charts import save_chart
    from anyorder.viz.relations import LARGEST, relations_chart

    if first is not None and first.relations is not None:
        if len(first.positions) > LARGEST:
            raise UserError(
                f"--svg {path}: with --relations a picture has room for at most {LARGEST} words, "
                f"and the first sentence has {len(first.positions)}"
            )
        save_chart(relations_chart(first.relations, title=first.title), path)
    else:
        write_svg(path, [] if first is None else first.history)
