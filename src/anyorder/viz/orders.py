"""Statistics of orders as a picture: which positions are written when, and what kinds of tokens come late.

One SVG without scripts, fonts or links; it brings its own paper, light or dark as the reader's screen is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anyorder.orders.statistics import TENTHS, Compared, Group
from anyorder.viz.drawing import picture, text

# Lengths are in pixels.
_WIDTH, _MARGIN, _TOP = 920, 28, 96
_CELL, _HEAT_LEFT = 34, 64
_BARS_LEFT, _BAR_LENGTH, _BAR_HEIGHT, _ROW = 620, 210, 12, 24
_LEGEND_STEPS = 24
_BY_CHANCE = 1 / TENTHS  # share of a cell of the heat map


# A share that is drawn in full colour, unless there are larger ones: chance alone looks pale, not full.
_FULL_SHARE = 4 * _BY_CHANCE
_LIGHT = """
.track{fill:#eaeef2}
.heat,.bar{fill:#4f46e5}
.reading{stroke:#bc4c00;stroke-width:2.5}
.chance{stroke:#59636e;stroke-dasharray:3 3}
"""
_DARK = """
.track{fill:#21262d}
.heat,.bar{fill:#8b87ff}
.reading{stroke:#f0883e}
.chance{stroke:#9198a1}
"""


def plot(compared: Compared, *, title: str) -> str:
    """An SVG with a heat map of positions by steps, and bars of the mean step of each group of tokens."""
    heat_bottom = _TOP + TENTHS * _CELL
    bars, bars_bottom = _bars(compared)
    height = max(heat_bottom + 116, bars_bottom + 56)
    return picture(
        [
            text(_MARGIN, 36, title, kind="title"),
            text(_MARGIN, 60, _summary(compared), kind="quiet"),
            *_heat_map(compared.found.heat),
            *_scale(compared.found.heat, top=heat_bottom + 52),
            *bars,
            *_bars_key(top=bars_bottom),
        ],
        title=title,
        width=_WIDTH,
        height=height,
        light=_LIGHT,
        dark=_DARK,
    )


def heat_picture(heat: list[list[float]], *, title: str) -> str:
    """An SVG of the heat map alone."""
    return picture(
        [
            text(_MARGIN, 36, title, kind="title"),
            text(_MARGIN, 60, "which positions are written when", kind="quiet"),
            *_heat_map(heat),
            *_scale(heat, top=_TOP + TENTHS * _CELL + 52),
        ],
        title=title,
        width=_HEAT_LEFT + TENTHS * _CELL + _MARGIN,
        height=_TOP + TENTHS * _CELL + 116,
        light=_LIGHT,
        dark=_DARK,
    )


def _summary(compared: Compared) -> str:
    found, by_chance = compared.found, compared.by_chance
    return "  ·  ".join(
        [
            f"{found.sentences:,} sentences, {found.tokens:,} tokens",
            f"Kendall's tau {found.figures.kendall:.2f}",
            f"exactly left to right {found.figures.left_to_right:.0%}",
            f"next position {found.figures.next_position:.0%} "
            f"(by chance {by_chance.figures.next_position:.0%})",
        ]
    )


def _heat_map(heat: list[list[float]]) -> Iterator[str]:
    size = TENTHS * _CELL
    full = _full_share(heat)
    yield f'<rect class="track" x="{_HEAT_LEFT}" y="{_TOP}" width="{size}" height="{size}"/>'
    for row, shares in enumerate(heat):
        for column, share in enumerate(shares):
            meaning = f"tenth {row + 1} of the steps, tenth {column + 1} of the positions: {share:.1%}"
            yield (
                f'<rect class="heat" x="{_HEAT_LEFT + column * _CELL}" y="{_TOP + row * _CELL}" '
                f'width="{_CELL}" height="{_CELL}" opacity="{share / full:.3f}">'
                f"<title>{meaning}</title></rect>"
            )
    below, middle = _TOP + size + 20, _HEAT_LEFT + size / 2
    yield text(_HEAT_LEFT, below, "leftmost", kind="quiet")
    yield text(middle, below, "position", kind="head middle")
    yield text(_HEAT_LEFT + size, below, "rightmost", kind="quiet end")
    yield text(_HEAT_LEFT - 8, _TOP + 14, "first", kind="quiet end")
    yield text(_HEAT_LEFT - 8, _TOP + size / 2 + 4, "step", kind="head end")
    yield text(_HEAT_LEFT - 8, _TOP + size - 4, "last", kind="quiet end")


def _scale(heat: list[list[float]], *, top: float) -> Iterator[str]:
    """What the colours of the heat map stand for."""
    full, length = _full_share(heat), TENTHS * _CELL
    yield f'<rect class="track" x="{_HEAT_LEFT}" y="{top - 10}" width="{length}" height="10"/>'
    part = length / _LEGEND_STEPS
    for number in range(_LEGEND_STEPS):
        yield (
            f'<rect class="heat" x="{_HEAT_LEFT + number * part:.1f}" y="{top - 10}" width="{part:.1f}" '
            f'height="10" opacity="{(number + 0.5) / _LEGEND_STEPS:.3f}"/>'
        )
    chance = _HEAT_LEFT + length * _BY_CHANCE / full
    yield _line("chance", x=chance, top=top - 14, bottom=top + 4)
    yield text(chance, top + 18, f"{_BY_CHANCE:.0%} by chance", kind="quiet")
    yield text(_HEAT_LEFT + length, top + 18, f"{full:.0%}", kind="quiet end")
    yield text(
        _HEAT_LEFT, top + 40, "of a tenth of the steps, what fills a tenth of the positions", kind="quiet"
    )


def _full_share(heat: list[list[float]]) -> float:
    return max(_FULL_SHARE, *(share for row in heat for share in row))


def _bars(compared: Compared) -> tuple[list[str], float]:
    """All groups one below the other, and where they end."""
    drawn: list[str] = []
    top: float = _TOP
    for name, groups in compared.found.groups.items():
        drawn.append(text(_BARS_LEFT, top + 12, f"mean step by {name}", kind="head"))
        top += 24
        drawn += _rows(groups, compared.left_to_right.groups[name], top=top)
        top += len(groups) * _ROW + 24
    return drawn, top


def _rows(groups: Mapping[str, Group], reading: Mapping[str, Group], *, top: float) -> Iterator[str]:
    for number, (label, group) in enumerate(groups.items()):
        y = top + number * _ROW + 6
        yield text(_BARS_LEFT - 10, y + 10, label, kind="end")
        yield f'<rect class="track" x="{_BARS_LEFT}" y="{y}" width="{_BAR_LENGTH}" height="{_BAR_HEIGHT}"/>'
        yield (
            f'<rect class="bar" x="{_BARS_LEFT}" y="{y}" width="{_BAR_LENGTH * group.step:.1f}" '
            f'height="{_BAR_HEIGHT}"><title>{group.tokens:,} tokens</title></rect>'
        )
        beside = _BARS_LEFT + _BAR_LENGTH * reading[label].step
        yield _line("reading", x=beside, top=y - 3, bottom=y + _BAR_HEIGHT + 3)
        yield text(_BARS_LEFT + _BAR_LENGTH + 10, y + 10, f"{group.step:.2f}", kind="quiet")
    middle = _BARS_LEFT + _BAR_LENGTH / 2
    yield _line("chance", x=middle, top=top, bottom=top + len(groups) * _ROW)


def _bars_key(*, top: float) -> Iterator[str]:
    """What the ends of the bars and the lines across them stand for."""
    y = top - 4
    yield text(_BARS_LEFT, y, "0 first", kind="quiet")
    yield text(_BARS_LEFT + _BAR_LENGTH, y, "1 last", kind="quiet end")
    yield _line("reading", x=_BARS_LEFT + 2, top=y + 14, bottom=y + 30)
    yield text(_BARS_LEFT + 12, y + 27, "left to right", kind="quiet")
    yield _line("chance", x=_BARS_LEFT + 124, top=y + 14, bottom=y + 30)
    yield text(_BARS_LEFT + 134, y + 27, "by chance", kind="quiet")


def _line(kind: str, *, x: float, top: float, bottom: float) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>'
