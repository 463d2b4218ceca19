"""Score against beam, as a picture: a curve for each system."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from anyorder.beam_curves import BeamCurve
from anyorder.drawing import picture, text

# Lengths are in pixels.
_LEFT, _TOP, _RIGHT, _BOTTOM = 76, 84, 560, 396  # of the field that curves are drawn in
_HEIGHT, _MARGIN = 460, 28
_LEGEND_LEFT, _LEGEND_LINE, _LEGEND_ROW, _CHARACTER = 590, 24, 24, 9
_MOST_STEPS, _MOST_BEAMS = 8, 20  # that an axis is marked with
_DOT, _LARGE_DOT = 3, 6
_PICKED = "large: picked on dev"
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
class _Scale:
    """How values of an axis become lengths."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low)


def plot(curves: Sequence[BeamCurve], *, title: str, metric: str) -> str:
    """An SVG with a curve for each system, the beam that was picked as a large dot. All have some beam."""
    beams = sorted({beam for curve in curves for beam in curve.scores})
    scores = [score for curve in curves for score in curve.scores.values()]
    marks = round_marks(min(scores), max(scores))
    across = _Scale(beams[0], max(beams[-1], beams[0] + 1), start=_LEFT, end=_RIGHT)
    upward = _Scale(marks[0], marks[-1], start=_BOTTOM, end=_TOP)
    widest = max(len(_PICKED), *(len(curve.label) for curve in curves))
    return picture(
        [
            text(_MARGIN, 36, title, kind="title"),
            text(_MARGIN, 62, metric, kind="head"),
            *_axes(beams, marks, across=across, upward=upward),
            *_drawn(curves, across=across, upward=upward),
        ],
        title=title,
        width=_LEGEND_LEFT + _LEGEND_LINE + 10 + _CHARACTER * widest,
        height=max(_HEIGHT, _TOP + (len(curves) + 1) * _LEGEND_ROW + _MARGIN),
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


def _axes(beams: Sequence[int], marks: Sequence[float], *, across: _Scale, upward: _Scale) -> Iterator[str]:
    decimals = max(0, -math.floor(math.log10(marks[1] - marks[0]) + 1e-9))
    for mark in marks:
        y = round(upward(mark), 1)
        yield f'<line class="grid" x1="{_LEFT}" y1="{y}" x2="{_RIGHT}" y2="{y}"/>'
        yield text(_LEFT - 10, y + 4, f"{mark:.{decimals}f}", kind="quiet end")
    for beam in beams[:: math.ceil(len(beams) / _MOST_BEAMS)]:
        yield text(across(beam), _BOTTOM + 22, str(beam), kind="quiet middle")
    yield text((_LEFT + _RIGHT) / 2, _BOTTOM + 46, "beam", kind="head middle")


def _drawn(curves: Sequence[BeamCurve], *, across: _Scale, upward: _Scale) -> Iterator[str]:
    for number, curve in enumerate(curves):
        colour = number % len(_COLOURS) + 1
        kind = f"line{colour}" + (" dashed" if number >= len(_COLOURS) else "")
        points = (f"{across(beam):.1f} {upward(score):.1f}" for beam, score in curve.scores.items())
        yield f'<path class="{kind}" d="M{"L".join(points)}"/>'
        for beam, score in curve.scores.items():
            yield (
                f'<circle class="dot{colour}" cx="{across(beam):.1f}" cy="{upward(score):.1f}" '
                f'r="{_LARGE_DOT if beam == curve.picked else _DOT}">'
                f"<title>{escape(curve.label)}, beam {beam}: {score:.2f}</title></circle>"
            )
        yield from _legend(curve.label, row=number, kind=kind)
    if any(curve.picked is not None for curve in curves):
        yield text(_LEGEND_LEFT, _TOP + 14 + len(curves) * _LEGEND_ROW, _PICKED, kind="quiet")


def _legend(label: str, *, row: int, kind: str) -> Iterator[str]:
    y = _TOP + 10 + row * _LEGEND_ROW
    yield f'<path class="{kind}" d="M{_LEGEND_LEFT} {y}h{_LEGEND_LINE}"/>'
    yield text(_LEGEND_LEFT + _LEGEND_LINE + 10, y + 4, label, kind="label")
