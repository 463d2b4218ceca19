"""Statistics of orders as tables, and sentences with the step that wrote each word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from anyorder.cli.output import table
from anyorder.orders.statistics import Compared, Figures, OrderStatistics

if TYPE_CHECKING:
    from anyorder.evaluation.order_study import OrderedSentence


FIRST_TOKENS = 8  # rows of the table
COLUMNS = ("found", "left to right", "by chance")


def meanings() -> str:
    """Explain each figure, as a list in Markdown."""
    return "\n".join(
        f"- {figure.metadata['title']}: {figure.metadata['meaning']}" for figure in fields(Figures)
    )


def figures_table(compared: Compared) -> Table:
    """Show all figures of the orders found and of both baselines."""
    drawn = table("", *COLUMNS)
    columns = [asdict(one.figures) for one in _columns(compared)]
    for figure in fields(Figures):
        shown = _percent if figure.metadata["share"] else "{:.3f}".format
        drawn.add_row(figure.metadata["title"], *(shown(column[figure.name]) for column in columns))
    return drawn


def first_tokens_table(compared: Compared) -> Table:
    """Show the tokens that are most often written first."""
    drawn = table("first token", *COLUMNS)
    for token in list(compared.found.first_tokens)[:FIRST_TOKENS]:
        shares = (one.first_tokens.get(token, 0.0) for one in _columns(compared))
        drawn.add_row(Text(token), *map(_percent, shares))
    return drawn


def group_table(compared: Compared, name: str) -> Table:
    """Show the mean step of each group."""
    drawn = table(name, "tokens", *COLUMNS)
    for label, group in compared.found.groups[name].items():
        steps = (one.groups[name][label].step for one in _columns(compared))
        drawn.add_row(Text(label), f"{group.tokens:,}", *map("{:.3f}".format, steps))
    return drawn


def numbered(sentence: OrderedSentence, *, width: int) -> Text:
    """Print a sentence, and below each token the step that writes it; lines are at most `width` wide."""
    steps = [
        str(sentence.positions.index(position) + 1) for position in range(1, len(sentence.positions) + 1)
    ]
    widths = [max(cell_len(token), len(step)) for token, step in zip(sentence.tokens, steps, strict=True)]
    drawn = Text()
    for start, end in _wrapped(widths, width=width):
        for row, style in ((sentence.tokens, ""), (steps, "dim")):
            cells = (
                cell + " " * (room - cell_len(cell))
                for cell, room in zip(row[start:end], widths[start:end], strict=True)
            )
            drawn.append(" ".join(cells).rstrip() + "\n", style=style)
    return drawn


def _columns(compared: Compared) -> tuple[OrderStatistics, ...]:
    return compared.found, compared.left_to_right, compared.by_chance


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _wrapped(widths: Sequence[int], *, width: int) -> list[tuple[int, int]]:
    """Break cells into lines and return the first cell and the last cell + 1 of each line.

    Cells are one space apart; a cell wider than `width` has a line of its own.
    """
    starts, used = [0], 0
    for cell, room in enumerate(widths):
        if used and used + 1 + room > width:
            starts.append(cell)
            used = 0
        used += room + bool(used)
    return list(zip(starts, [*starts[1:], len(widths)], strict=True))
