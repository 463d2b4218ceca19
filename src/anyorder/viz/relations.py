"""How written tokens relate: the matrix of an order in the terminal, and step by step as a still picture.

Tokens stand in the order written, the boundaries first. A row belongs to the token that stands left of (−),
is (0) or stands right of (+) that of a column. What two tokens are to each other never changes: a step adds
a row and a column, while places move on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from rich.cells import cell_len
from rich.text import Text

from anyorder.insertion import canvas_indices, relations
from anyorder.viz.drawing import escape, picture, text

BOUNDARIES = ("<s>", "</s>")
LARGEST = 40  # words of a picture: it grows by their cube
SIGNS = {-1: "−", 0: "0", 1: "+"}
_STYLES = {-1: "blue", 0: "dim", 1: "yellow"}


# Lengths are in pixels.
_MARGIN, _TOP, _MOST_WIDTH = 28, 84, 1200
_CELL, _CHARACTER, _PLACES, _BETWEEN = 24, 7.5, 36, 28
_HEAD, _FOOT = 30, 56  # above and below a matrix
_LIGHT = """
.left{fill:#c7d2fe}.itself{fill:#eaeef2}.right{fill:#fed7aa}
.cell{stroke:#fff;stroke-width:2}
.new{fill:none;stroke:#4f46e5;stroke-width:2}
.newest{font-weight:700;fill:#4f46e5}
"""
_DARK = """
.left{fill:#3730a3}.itself{fill:#21262d}.right{fill:#7c3a0a}
.cell{stroke:#0d1117}
.new{stroke:#8b87ff}
.newest{fill:#8b87ff}
"""
_KINDS = {-1: "left", 0: "itself", 1: "right"}


@dataclass(frozen=True)
class Relations:
    """The finished matrix, which holds those of all steps, and where each token stands at each step."""

    tokens: tuple[str, ...]  # in the order written, boundaries first
    signs: list[list[int]]
    indices: list[
        list[int]
    ]  # of the tokens that are there after each step, from step 0; the last are positions


def relations_of(words: Sequence[str], positions: Sequence[int]) -> Relations:
    """words: in the order written; positions: that each of them fills, counted from 1."""
    signs = relations(torch.tensor([0, len(positions) + 1, *positions]))
    return Relations(
        tokens=(*BOUNDARIES, *words),
        signs=signs.tolist(),
        indices=[canvas_indices(signs[:size, :size]).tolist() for size in range(2, len(signs) + 1)],
    )


# --- in the terminal ---


def draw_relations(found: Relations) -> Text:
    """The matrix, and below it the places; lines are as long as they are."""
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
            Text("places after each step; the last ones are the positions", style="bold"),
            *_lines(found.tokens, indices, heads=["0", *steps]),
        ]
    )


def _lines(tokens: Sequence[str], cells: Sequence[Sequence[Text]], *, heads: Sequence[str]) -> Iterator[Text]:
    """Cells below their heads, each row with the step and the word that it belongs to."""
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


# --- as a picture ---


def relations_svg(found: Relations, *, title: str) -> str:
    """An SVG with the matrix of each step and the places beside it; what the step has added is framed."""
    drawn: list[str] = []
    widest = top = 0.0
    for row in _in_rows(found):
        left = float(_MARGIN)
        for size in row:
            drawn += [f'<g transform="translate({left:.0f} {_TOP + top:.0f})">', *_panel(found, size), "</g>"]
            left += _panel_width(found, size) + _BETWEEN
        widest = max(widest, left - _BETWEEN)
        top += _HEAD + row[-1] * _CELL + _FOOT
    meaning = "A row's word stands left of (−) or right of (+) a column's. Right of each row: its place."
    return picture(
        [text(_MARGIN, 36, title, kind="title"), text(_MARGIN, 60, meaning, kind="quiet"), *drawn],
        title=title,
        width=max(widest, _text_width(meaning), 1.4 * _text_width(title)) + _MARGIN,
        height=_TOP + top,
        light=_LIGHT,
        dark=_DARK,
    )


def _in_rows(found: Relations) -> list[list[int]]:
    """The sizes of all matrices, as many beside each other as fit."""
    rows: list[list[int]] = []
    used = 0.0
    for size in map(len, found.indices):
        width = _panel_width(found, size) + _BETWEEN
        if not rows or used + width > _MOST_WIDTH:
            rows.append([])
            used = 0.0
        rows[-1].append(size)
        used += width
    return rows


def _panel(found: Relations, size: int) -> Iterator[str]:
    step, labels = size - len(BOUNDARIES), _label_width(found, size)
    indices = found.indices[step]
    yield text(0, 14, f"step {step}", kind="head")
    for row in range(size):
        middle = _HEAD + row * _CELL + _CELL / 2 + 5
        kind = "newest" if step and row == size - 1 else "label"
        yield text(labels - 8, middle, found.tokens[row], kind=f"{kind} end")
        for column in range(size):
            yield from _cell(found.signs[row][column], x=labels + column * _CELL, y=_HEAD + row * _CELL)
        yield text(labels + size * _CELL + 12, middle, str(indices[row]), kind="quiet")
    if step:
        yield from _frames(left=labels, size=size)
    sentence = sorted(range(size), key=indices.__getitem__)
    yield _sentence(
        [found.tokens[token] for token in sentence], newest=indices[-1] if step else None, size=size
    )


def _cell(sign: int, *, x: float, y: float) -> Iterator[str]:
    yield f'<rect class="cell {_KINDS[sign]}" x="{x}" y="{y}" width="{_CELL}" height="{_CELL}"/>'
    yield text(x + _CELL / 2, y + _CELL / 2 + 5, SIGNS[sign], kind="middle")


def _frames(*, left: float, size: int) -> Iterator[str]:
    """Around the last row and the last column."""
    last, length = (size - 1) * _CELL, size * _CELL
    yield f'<rect class="new" x="{left}" y="{_HEAD + last}" width="{length}" height="{_CELL}"/>'
    yield f'<rect class="new" x="{left + last}" y="{_HEAD}" width="{_CELL}" height="{length}"/>'


def _sentence(tokens: Sequence[str], *, newest: int | None, size: int) -> str:
    """The partial sentence below its matrix, with the newest token marked."""
    parts = [
        f'<tspan class="newest">{escape(token)}</tspan>' if index == newest else escape(token)
        for index, token in enumerate(tokens)
    ]
    return f'<text class="quiet" x="0" y="{_HEAD + size * _CELL + 24}">{" ".join(parts)}</text>'


def _panel_width(found: Relations, size: int) -> float:
    matrix = _label_width(found, size) + size * _CELL + _PLACES
    return max(matrix, _text_width(" ".join(found.tokens[:size])))


def _label_width(found: Relations, size: int) -> float:
    return max(map(_text_width, found.tokens[:size])) + 8


def _text_width(content: str) -> float:
    """At most, whatever font the reader's machine has."""
    return _CHARACTER * cell_len(content)
