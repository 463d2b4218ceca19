"""Curves over a common axis, as a picture with a legend."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from anyorder.viz.drawing import escape, picture, text

# Lengths are in pixels. All is narrow, with the legend below, so that a telephone can show it.
_LEFT, _TOP, _RIGHT, _BOTTOM = 64, 84, 464, 372  # of the field that curves are drawn in
_WIDTH, _MARGIN = 488, 28
_LEGEND_TOP, _LEGEND_LINE, _LEGEND_ROW, _LEGEND_GAP, _CHARACTER = 452, 24, 24, 20, 8
_MOST_STEPS = 8  # that an axis is marked with
_MOST_DOTS = 40  # of a curve; more would hide it
_DOT, _LARGE_DOT = 3, 6
_ROUND = (1, 2, 5, 10)  # steps between marks, times a power of ten


# Each with its shade on dark paper; beyond them curves begin anew with dashes.
_COLOURS = [
    ("#4f46e5", "#8b87ff"),
    ("#bc4c00", "#f0883e"),
    ("#1a7f37", "#3fb950"),
    ("#bf3989", "#f778ba"),
    ("#59636e", "#9198a1"),
    ("#0b7285", "#39c5cf"),
]


def _colour_rules(shades: Iterable[str]) -> str:
    return "\n".join(
        f".line{number}{{stroke:{shade}}}.dot{number}{{fill:{shade}}}"
        for number, shade in enumerate(shades, start=1)
    )


_LIGHT = f"""
.grid{{stroke:#d8dee4}}
path{{fill:none;stroke-width:2.5;stroke-linejoin:round}}
.dashed{{stroke-dasharray:6 4}}
{_colour_rules(light for light, _ in _COLOURS)}
"""
_DARK = f"""
.grid{{stroke:#30363d}}
{_colour_rules(dark for _, dark in _COLOURS)}
"""


@dataclass(frozen=True)
class Curve:
    """What one system does along the axis; without points it isn't drawn, but others keep their colours."""

    label: str
    points: Mapping[int, float]  # from the smallest
    large: int | None = None  # the point that is drawn as a large dot


@dataclass(frozen=True)
class Axis:
    """What curves are drawn over, and where it is marked."""

    name: str
    low: float
    high: float
    marks: Sequence[float]


@dataclass(frozen=True)
class _Scale:
    """How values of an axis become lengths."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low)


def line_chart(
    curves: Sequence[Curve],
    *,
    title: str,
    axis: Axis,
    upward: str | None = None,
    large_means: str | None = None,
) -> str:
    """An SVG with a curve for each system, some of which have points.

    upward: what is measured, unless the title says it. large_means: what a large dot says.
    """
    values = [value for curve in curves for value in curve.points.values()]
    marks = round_marks(min(values), max(values))
    across = _Scale(axis.low, axis.high, start=_LEFT, end=_RIGHT)
    height = _Scale(marks[0], marks[-1], start=_BOTTOM, end=_TOP)
    large = any(curve.large is not None for curve in curves)
    rows = _legend_rows(curves, note=large_means if large else None)
    return picture(
        [
            text(_MARGIN, 36, title, kind="title"),
            *([] if upward is None else [text(_MARGIN, 62, upward, kind="head")]),
            *_axes(axis, marks, across=across, upward=height),
            *_drawn(curves, axis=axis, across=across, upward=height),
            *(part for number, row in enumerate(rows) for part in _legend(row, y=_legend_y(number))),
        ],
        title=title,
        width=_WIDTH,
        height=_legend_y(len(rows)),
        light=_LIGHT,
        dark=_DARK,
    )


def round_marks(low: float, high: float) -> list[float]:
    """Round numbers at equal steps, two or more, from below the lowest value to above the highest."""
    finest = max(high - low, 0.01) / _MOST_STEPS
    power = 10 ** math.floor(math.log10(finest))
    step = next(factor * power for factor in _ROUND if factor * power >= finest)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def _axes(axis: Axis, marks: Sequence[float], *, across: _Scale, upward: _Scale) -> Iterator[str]:
    decimals = max(0, -math.floor(math.log10(marks[1] - marks[0]) + 1e-9))
    for mark in marks:
        y = round(upward(mark), 1)
        yield f'<line class="grid" x1="{_LEFT}" y1="{y}" x2="{_RIGHT}" y2="{y}"/>'
        yield text(_LEFT - 10, y + 4, f"{mark:.{decimals}f}", kind="quiet end")
    for mark in axis.marks:
        yield text(across(mark), _BOTTOM + 22, f"{mark:.0f}", kind="quiet middle")
    yield text((_LEFT + _RIGHT) / 2, _BOTTOM + 46, axis.name, kind="head middle")


def _drawn(curves: Sequence[Curve], *, axis: Axis, across: _Scale, upward: _Scale) -> Iterator[str]:
    for number, curve in enumerate(curves):
        if not curve.points:
            continue
        points = (f"{across(at):.1f} {upward(value):.1f}" for at, value in curve.points.items())
        yield f'<path class="{_kind(number)}" d="M{"L".join(points)}"/>'
        if len(curve.points) > _MOST_DOTS:
            continue
        for at, value in curve.points.items():
            yield (
                f'<circle class="dot{_colour(number)}" cx="{across(at):.1f}" cy="{upward(value):.1f}" '
                f'r="{_LARGE_DOT if at == curve.large else _DOT}">'
                f"<title>{escape(curve.label)}, {axis.name} {at}: {value:.2f}</title></circle>"
            )


@dataclass(frozen=True)
class _Entry:
    """Something that the legend explains."""

    label: str
    kind: str | None  # CSS classes of the line beside it; None: it has none

    @property
    def width(self) -> float:
        line = 0 if self.kind is None else _LEGEND_LINE + 8
        return line + _CHARACTER * len(self.label) + _LEGEND_GAP


def _legend_rows(curves: Sequence[Curve], *, note: str | None) -> list[list[_Entry]]:
    """What is drawn, and a note, as many beside each other as fit."""
    entries = [_Entry(curve.label, _kind(number)) for number, curve in enumerate(curves) if curve.points]
    if note is not None:
        entries.append(_Entry(note, kind=None))
    rows: list[list[_Entry]] = [[]]
    for entry in entries:
        if rows[-1] and sum(one.width for one in rows[-1]) + entry.width > _WIDTH - _MARGIN:
            rows.append([])
        rows[-1].append(entry)
    return rows


def _legend_y(row: int) -> float:
    return _LEGEND_TOP + row * _LEGEND_ROW


def _legend(row: Sequence[_Entry], *, y: float) -> Iterator[str]:
    x: float = _MARGIN
    for entry in row:
        if entry.kind is None:
            yield text(x, y + 4, entry.label, kind="quiet")
        else:
            yield f'<path class="{entry.kind}" d="M{x} {y}h{_LEGEND_LINE}"/>'
            yield text(x + _LEGEND_LINE + 8, y + 4, entry.label, kind="label")
        x += entry.width


def _colour(number: int) -> int:
    return number % len(_COLOURS) + 1


def _kind(number: int) -> str:
    return f"line{_colour(number)}" + (" dashed" if number >= len(_COLOURS) else "")
