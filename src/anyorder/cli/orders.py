"""The command that shows an order, and how commands are told of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from anyorder.cli.input import stdin_lines
from anyorder.cli.output import AS_JSON, SVG, print_json, results, write_svg
from anyorder.config import Order
from anyorder.errors import UserError

if TYPE_CHECKING:
    from anyorder.replay import Step

ORDER_FILE = typer.Option(
    None, "--order-file", help="CoNLL-U trees of the lines for syn, or a permutation a line for file."
)


def order(
    name: str = typer.Argument(help="l2r, r2l, odd, blt, syn, cf, rf, rnd, file or package.module:function"),
    text: list[str] | None = typer.Argument(
        None, help="A sentence, its words apart; default: lines of stdin."
    ),
    parser: str | None = typer.Option(None, "--parser", help="spaCy pipeline for syn."),
    order_file: Path | None = ORDER_FILE,
    corpus: Path | None = typer.Option(None, "--corpus", help="Text to count words in, for cf and rf."),
    seed: int = typer.Option(1, "--seed", min=0, help="For rnd."),
    svg: Path | None = SVG,
    as_json: bool = AS_JSON,
) -> None:
    """Show the order in which a sentence would be written, step by step.

    Example: `anyorder order blt "the cat sat on the mat"`
    """
    import numpy as np

    from anyorder.orders import Line, prepare_order
    from anyorder.replay import steps

    section = order_section(name, parser=parser, order_file=order_file)
    orderer = prepare_order(section, split="test", common=_common(name, corpus))
    lines = [Line(number, words, [1] * len(words)) for number, words in enumerate(_sentences(text), start=1)]
    first: list[Step] = []
    for line, slots in zip(lines, orderer.slots(lines, generator=np.random.default_rng(seed)), strict=True):
        history = steps([line.words[slot - 1] for slot in slots], slots)
        _show(name, line.words, slots, history, as_json=as_json)
        first = first or history
    if svg is not None:
        write_svg(svg, first)


def order_section(name: str, *, parser: str | None, order_file: Path | None) -> Order:
    """The [order] that a command's flags stand for; its lines are the split `test`."""
    from anyorder.orders import order_rule

    needs = order_rule(name).needs
    if needs == "file" and order_file is None:
        raise UserError(f"order {name} needs --order-file FILE, a permutation a line, counted from 1")
    if needs == "heads" and not parser and order_file is None:
        raise UserError(
            f"order {name} needs --parser NAME, a spaCy pipeline, or --order-file FILE, a CoNLL-U file"
        )
    if order_file is None:
        return Order(name=name, parser=parser)
    if needs not in ("file", "heads"):
        raise UserError(f"--order-file {order_file}: is for the orders syn and file, not for {name}")
    if not order_file.is_file():
        raise UserError(f"--order-file {order_file}: no such file")
    return Order(name=name, parser=parser, files={"test": order_file})


def _common(name: str, corpus: Path | None) -> frozenset[str] | None:
    """The corpus's frequent words, if the order goes by them."""
    from anyorder.orders import common_words, count_words, order_rule
    from anyorder.reading import read_lines

    if order_rule(name).needs != "counts":
        return None
    if corpus is None:
        raise UserError(f"order {name} needs word counts: --corpus FILE, a text to count them in")
    return common_words(count_words(line.split() for _, line in read_lines(corpus)))


def _sentences(text: list[str] | None) -> Iterator[list[str]]:
    if text:
        yield " ".join(text).split()
        return
    for line in stdin_lines():
        yield line.split()


def _show(
    name: str, words: Sequence[str], slots: list[int], history: Sequence[Step], *, as_json: bool
) -> None:
    from anyorder.trace import draw

    if as_json:
        print_json({"order": name, "slots": slots, "words": [step.token for step in history]})
    else:
        results.print(draw(history, f"{name}: {' '.join(words)}"))
