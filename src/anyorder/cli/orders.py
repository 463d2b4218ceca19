"""The command that shows an order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import typer

from anyorder.cli.input import stdin_lines
from anyorder.cli.output import AS_JSON, print_json, results
from anyorder.errors import UserError


def order(
    name: str = typer.Argument(help="l2r, r2l, odd, blt, syn, cf, rf, rnd or package.module:function"),
    text: list[str] | None = typer.Argument(
        None, help="A sentence, its words apart; default: lines of stdin."
    ),
    parser: str | None = typer.Option(None, "--parser", help="spaCy pipeline for syn."),
    trees: Path | None = typer.Option(
        None, "--trees", help="CoNLL-U file with the trees of the lines, for syn."
    ),
    corpus: Path | None = typer.Option(None, "--corpus", help="Text to count words in, for cf and rf."),
    seed: int = typer.Option(1, "--seed", min=0, help="For rnd."),
    as_json: bool = AS_JSON,
) -> None:
    """Show the order in which a sentence would be written, step by step.

    Example: `anyorder order blt "the cat sat on the mat"`
    """
    import numpy as np

    from anyorder.config import Order
    from anyorder.orders import Line, common_words, count_words, order_rule, prepare_order
    from anyorder.reading import read_lines

    common = None
    if order_rule(name).needs == "counts":
        if corpus is None:
            raise UserError(f"order {name} needs word counts: --corpus FILE, a text to count them in")
        common = common_words(count_words(line.split() for _, line in read_lines(corpus)))
    section = Order(name=name, parser=parser, files={"test": trees} if trees else {})
    orderer = prepare_order(section, split="test", common=common)
    lines = (Line(number, words, [1] * len(words)) for number, words in enumerate(_sentences(text), start=1))
    shown = list(lines)
    for line, slots in zip(shown, orderer.slots(shown, generator=np.random.default_rng(seed)), strict=True):
        _show(name, list(line.words), slots, as_json=as_json)


def _sentences(text: list[str] | None) -> Iterator[list[str]]:
    if text:
        yield " ".join(text).split()
        return
    for line in stdin_lines():
        yield line.split()


def _show(name: str, words: list[str], slots: list[int], *, as_json: bool) -> None:
    from anyorder.replay import steps
    from anyorder.trace import draw

    written = [words[slot - 1] for slot in slots]
    if as_json:
        print_json({"order": name, "slots": slots, "words": written})
    else:
        results.print(draw(steps(written, slots), f"{name}: {' '.join(words)}"))
