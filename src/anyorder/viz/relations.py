"""The relation matrix of an order: in the terminal, and step by step as a chart.

Rows and columns follow the order of writing, the boundaries first. A row's token stands left of (−), is (0)
or stands right of (+) a column's token. The relation of two tokens never changes: a step adds one row and
one column. Their indices on the canvas do change. The chart needs matplotlib (`anyorder[viz]`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from rich.cells import cell_len
from rich.text import Text

from anyorder.insertion import canvas_indices, relations
from anyorder.viz.charts import ACCENT, INK, QUIET, chart_style, new_figure, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BOUNDARIES = ("<s>", "</s>")
LARGEST = 40  # words of a chart, which grows by their cube
SIGNS = {-1: "−", 0: "0", 1: "+"}
_STYLES = {-1: "blue", 0: "dim", 1: "yellow"}
_MARKERS = {-1: "_", 0: "o", 1: "+"}  # matplotlib's, which look like the signs
_COLOURS = ("#bfdcf0", "#eaeef2", "#fbd3b8")  # of −1, 0 and +1
# Lengths are in inches.
_CELL, _CHARACTER, _MARGIN, _MOST_WIDTH = 0.27, 0.09, 0.2, 13.0
_HEAD, _PANEL_HEAD = 0.9, 0.55  # above all panels; above a matrix


@dataclass(frozen=True)
class RelationMatrix:
    """The relations of all tokens, and the index of each token on the canvas of each step.

    The matrix of a step is the top left corner of `signs`.
    """

    tokens: tuple[str, ...]  # in the order written, boundaries first
    signs: list[list[int]]  # r[i, j] by row i and column j
    indices: list[list[int]]  # by step, from step 0, and by token; those of the last step are positions


def relations_of(words: Sequence[str], positions: Sequence[int]) -> RelationMatrix:
    """The relations of words in the order written, given the position of each, counted from 1."""
    signs = relations(torch.tensor([0, len(positions) + 1, *positions]))
    return RelationMatrix(
        tokens=(*BOUNDARIES, *words),
        signs=signs.tolist(),
        indices=[canvas_indices(signs[:size, :size]).tolist() for size in range(2, len(signs) + 1)],
    )


# --- in the terminal ---


def draw_relations(found: RelationMatrix) -> Text:
    """The matrix, and below it the indices on the canvas; long lines are not wrapped."""
    steps = [str(step) for step in range(1, len(found.tokens) - 1)]
    signs = [[Text(SIGNS[sign], style=_STYLES[sign]) for sign in row] for row in found.signs]
    indices = [
        [Text(str(of_step[token]) if token < len(of_step) else "") for of_step in found.indices]
        for token in range(len(found.tokens))
    ]
    return Text("\n").join(
        [
            Text("relations: a row's word stands left of (−) or right of (+) a column's", style="bold"),
            *_lines(found.tokens, signs, heads=[*BOUNDARIES, *steps]),
            Text(""),
            Text("index on the canvas after each step; the last column holds the positions", style="bold"),
            *_lines(found.tokens, indices, heads=["0", *steps]),
        ]
    )


def _lines(tokens: Sequence[str], cells: Sequence[Sequence[Text]], *, heads: Sequence[str]) -> Iterator[Text]:
    """Cells below their column heads; each row begins with the step and the word that it belongs to."""
    widths = [
        max(cell_len(head), *(row[column].cell_len for row in cells)) for column, head in enumerate(heads)
    ]
    label_width = max(cell_len("word"), *map(cell_len, tokens))
    yield _line("step", "word", [Text(head) for head in heads], label_width, widths, style="dim")
    for number, (token, row) in enumerate(zip(tokens, cells, strict=True), start=1 - len(BOUNDARIES)):
        yield _line(str(number) if number > 0 else "", token, row, label_width, widths)


def _line(
    step: str, word: str, cells: Sequence[Text], label_width: int, widths: Sequence[int], *, style: str = ""
) -> Text:
    line = Text(f"{step:>4}  {word}{' ' * (label_width - cell_len(word))}", style=style)
    for cell, width in zip(cells, widths, strict=True):
        line.append(" " * (2 + width - cell.cell_len)).append_text(cell)
    line.rstrip()
    return line


# --- as a chart ---


def relations_chart(found: RelationMatrix, *, title: str) -> Figure:
    """The matrix of each step with the indices beside it; a frame marks what the step has added."""
    meaning = (
        "A row's word stands left of (−) or right of (+) a column's. On the right: its index on the canvas."
    )
    panel_width = _panel_width(found)
    columns = max(1, min(len(found.indices), int(_MOST_WIDTH / panel_width)))
    steps = range(len(found.indices))
    rows = [steps[start : start + columns] for start in range(0, len(steps), columns)]
    width = max(columns * panel_width, _text_width(meaning), 1.5 * _text_width(title)) + _MARGIN
    height = _HEAD + sum(_panel_height(row[-1]) for row in rows)
    with chart_style():
        figure = new_figure(title, width=width, height=height)
        figure.set_layout_engine("none")  # the size of each panel is known
        figure.text(_MARGIN / width, 1 - 0.6 / height, meaning, color=QUIET)
        bottom = height - _HEAD
        for row in rows:
            bottom -= _panel_height(row[-1])
            for column, step in enumerate(row):
                side = _matrix_side(step)
                left = _MARGIN + column * panel_width + _label_width(found)
                low = bottom + _panel_height(row[-1]) - _PANEL_HEAD - side
                axes = figure.add_axes((left / width, low / height, side / width, side / height))
                _draw_step(axes, found, step)
    return figure


def _draw_step(axes: Axes, found: RelationMatrix, step: int) -> None:
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Rectangle

    size, indices = step + len(BOUNDARIES), found.indices[step]
    signs = [row[:size] for row in found.signs[:size]]
    axes.pcolormesh(signs, cmap=ListedColormap(_COLOURS), vmin=-1, vmax=1, edgecolors="white", linewidth=1.5)
    axes.set(xlim=(0, size), ylim=(size, 0), gid=f"step{step}")
    axes.set_axis_off()
    for row, token in enumerate(found.tokens[:size]):
        colour, weight = (ACCENT, "bold") if step > 0 and row == size - 1 else (INK, "normal")
        axes.text(
            -0.3, row + 0.5, plain(token), ha="right", va="center_baseline", color=colour, weight=weight
        )
        axes.text(size + 0.3, row + 0.5, str(indices[row]), va="center_baseline", color=QUIET)
    _draw_signs(axes, signs)
    for corner, wide, high in (((0, size - 1), size, 1), ((size - 1, 0), 1, size)) if step else ():
        axes.add_patch(
            Rectangle(corner, wide, high, fill=False, edgecolor=ACCENT, linewidth=1.5, clip_on=False)
        )
    canvas = sorted(range(size), key=indices.__getitem__)
    left = -_label_width(found) / _CELL
    axes.text(left, -1.15, f"step {step}", weight="bold")
    axes.text(left, -0.35, " ".join(plain(found.tokens[token]) for token in canvas), color=QUIET)


def _draw_signs(axes: Axes, signs: Sequence[Sequence[int]]) -> None:
    """A marker in each cell: text would take seconds for a long sentence."""
    for sign, marker in _MARKERS.items():
        cells = [(x, y) for y, row in enumerate(signs) for x, found in enumerate(row) if found == sign]
        axes.plot(
            [x + 0.5 for x, _ in cells],
            [y + 0.5 for _, y in cells],
            linestyle="none",
            marker=marker,
            markersize=7,
            markeredgewidth=1.2,
            markerfacecolor="none",
            color=INK,
            label=SIGNS[sign],
        )


def _panel_width(found: RelationMatrix) -> float:
    matrix = _label_width(found) + _matrix_side(len(found.indices) - 1) + 1.5 * _CELL
    return max(matrix, _text_width(" ".join(found.tokens))) + _MARGIN


def _panel_height(step: int) -> float:
    return _PANEL_HEAD + _matrix_side(step) + 2 * _MARGIN


def _matrix_side(step: int) -> float:
    return _CELL * (step + len(BOUNDARIES))


def _label_width(found: RelationMatrix) -> float:
    return max(map(_text_width, found.tokens)) + _MARGIN


def _text_width(content: str) -> float:
    """The width that text takes at most."""
    return _CHARACTER * cell_len(content)
