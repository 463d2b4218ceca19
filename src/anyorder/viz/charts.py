"""Static charts by matplotlib: how they look, how they are saved, and the line chart.

matplotlib comes with the extra `viz`. It is imported where a chart is made, so that everything else works
without it. Charts are `Figure` objects without pyplot, which would keep global state.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax import saxutils

from anyorder.errors import UserError
from anyorder.system.files import write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

INK, QUIET, GRID = "#1f2328", "#59636e", "#d8dee4"
ACCENT, SECOND = "#0072B2", "#D55E00"
# Okabe and Ito's colours, which people with any kind of colour vision tell apart.
COLOURS = (ACCENT, SECOND, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vPX"
_MOST_MARKERS = 40  # of a curve; more would hide it
_MOST_STEPS = 8  # between the lowest and the highest tick
_WIDTH, _HEIGHT = 5.2, 3.6  # inches of a line chart without its legend
_LEGEND_ROW, _LABEL_LENGTH, _LEGEND_CHARACTERS = 0.24, 44, 60
# Curves that are closer than this share of the chart's height look like one.
_SAME = 0.005
_SUFFIXES = (".svg", ".png", ".pdf")
_CJK_FONTS = ("Noto Sans CJK JP", "Noto Sans CJK SC", "Hiragino Sans", "Yu Gothic", "Microsoft YaHei")
_STYLE: dict[Any, Any] = {
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.1,
    "figure.constrained_layout.h_pad": 0.1,
    "font.size": 10,
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign is a dollar sign
    "axes.labelcolor": INK,
    "axes.labelweight": "bold",
    "axes.edgecolor": GRID,
    "axes.axisbelow": True,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "grid.color": GRID,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": QUIET,
    "ytick.labelcolor": QUIET,
    "ytick.left": False,
    "figure.titlesize": 14,
    "figure.titleweight": "bold",
    "legend.frameon": False,
    "lines.linewidth": 2.2,
    "lines.markersize": 5,
    "savefig.dpi": 160,
    # The same chart is the same file, byte for byte, and its text stays text.
    "svg.hashsalt": "anyorder",
    "svg.fonttype": "none",
}
# Characters that XML can't hold.
_UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Curve:
    """The values of one system. A curve without points isn't drawn, but others keep their colours."""

    label: str
    points: Mapping[int, float]  # value by x, smallest x first
    large: int | None = None  # x of the point that is drawn large


def check_chart(flag: str, path: Path | None) -> None:
    """Refuse a file that no chart can be saved to, before any work is done for it."""
    if path is None:
        return
    if path.suffix and path.suffix.lower() not in _SUFFIXES:
        raise UserError(f"{flag} {path}: a chart must end in {', '.join(_SUFFIXES[:-1])} or {_SUFFIXES[-1]}")
    check_matplotlib(f"{flag} {path}")


def check_matplotlib(what: str) -> None:
    """Refuse to draw where matplotlib is missing. what: the flag and the file that need it."""
    if find_spec("matplotlib") is None:
        raise UserError(f"{what}: charts need matplotlib; pip install 'anyorder[viz]'")


def line_chart(
    curves: Sequence[Curve],
    *,
    title: str,
    x_label: str,
    y_label: str = "",
    x_ticks: Sequence[int] | None = None,
    large_means: str = "",
) -> Figure:
    """A chart with one curve a system, at least one of which has points; its legend stands below.

    x_ticks: None for round numbers. large_means: what a large point says. Curves that coincide are named
    below the legend, because the last one hides the others.
    """
    drawn = [(number, curve) for number, curve in enumerate(curves) if curve.points]
    y_ticks = _round_ticks([value for _, curve in drawn for value in curve.points.values()])
    low, high = y_ticks[0], y_ticks[-1]
    notes = [large_means] if large_means and any(curve.large is not None for curve in curves) else []
    notes += [
        f"{listed(labels)} coincide"
        for labels in coinciding([curve for _, curve in drawn], tolerance=_SAME * (high - low))
    ]
    labels = [textwrap.fill(plain(curve.label), _LABEL_LENGTH) for _, curve in drawn]
    columns = max(1, _LEGEND_CHARACTERS // (max(map(len, labels)) + 8))
    note = textwrap.fill(plain("; ".join(notes)), _LEGEND_CHARACTERS)
    rows = math.ceil(len(labels) / columns) + (note.count("\n") + 1 if note else 0)
    with chart_style():
        figure = new_figure(title, width=_WIDTH, height=_HEIGHT + rows * _LEGEND_ROW)
        axes = figure.add_subplot()
        lines = [_draw_curve(axes, number, curve) for number, curve in drawn]
        axes.set(xlabel=x_label, ylabel=y_label, yticks=y_ticks, ylim=(low, high))
        if x_ticks is not None:
            axes.set_xticks(x_ticks, [f"{tick:,}" for tick in x_ticks])
        axes.grid(axis="y")
        legend = figure.legend(lines, labels, loc="outside lower left", ncols=columns, title=note or None)
        legend.get_title().set(color=QUIET)
        legend.set_alignment("left")
    return figure


def coinciding(curves: Sequence[Curve], *, tolerance: float) -> list[list[str]]:
    """Groups of labels whose curves hide one another: equal wherever the shorter one has points."""
    groups: list[list[Curve]] = []
    for curve in curves:
        for group in groups:
            if all(_coincide(curve, other, tolerance=tolerance) for other in group):
                group.append(curve)
                break
        else:
            groups.append([curve])
    return [[curve.label for curve in group] for group in groups if len(group) > 1]


def _coincide(one: Curve, other: Curve, *, tolerance: float) -> bool:
    shorter, longer = sorted((one.points, other.points), key=len)
    return shorter.keys() <= longer.keys() and all(
        abs(value - longer[x]) <= tolerance for x, value in shorter.items()
    )


def _draw_curve(axes: Axes, number: int, curve: Curve) -> Line2D:
    """Draw one curve and return what the legend shows of it."""
    colour = COLOURS[number % len(COLOURS)]
    marker = _MARKERS[number % len(_MARKERS)] if len(curve.points) <= _MOST_MARKERS else None
    (line,) = axes.plot(
        list(curve.points),
        list(curve.points.values()),
        color=colour,
        linestyle="-" if number < len(COLOURS) else "--",
        marker=marker,
        clip_on=False,
        gid=f"curve{number + 1}",
    )
    if curve.large is not None:
        axes.plot([curve.large], [curve.points[curve.large]], color=colour, marker=marker, markersize=11)
    return line


def _round_ticks(values: Sequence[float]) -> list[float]:
    """Round numbers at equal steps, from below the lowest value to above the highest."""
    from matplotlib.ticker import MaxNLocator

    locator = MaxNLocator(nbins=_MOST_STEPS, steps=[1, 2, 5, 10])
    low = min(values)
    return [float(tick) for tick in locator.tick_values(low, max(*values, low + 0.01))]


# --- every chart ---


@contextmanager
def chart_style() -> Iterator[None]:
    """Let what is drawn inside look like all charts here."""
    check_matplotlib("this")
    import matplotlib
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    fonts = ["sans-serif", *(font for font in _CJK_FONTS if font in installed)]
    with matplotlib.rc_context({**_STYLE, "font.family": fonts}):
        yield


def new_figure(title: str, *, width: float, height: float) -> Figure:
    """An empty figure with its title at the top left; width and height in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    figure.suptitle(plain(title), x=0.02, horizontalalignment="left")
    return figure


def render(figure: Figure, *, kind: str = "svg") -> bytes:
    """The figure as a file. kind: svg, png or pdf."""
    stamps: dict[str, dict[str, str | None]] = {
        "svg": {"Date": None, "Creator": None},
        "pdf": {"CreationDate": None},
    }
    if kind != "png":
        stamps[kind]["Title"] = figure.get_suptitle()
    with chart_style(), io.BytesIO() as file, warnings.catch_warnings():
        # A PNG shows a box for a character that no installed font has; SVG leaves it to the browser.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(file, format=kind, metadata=stamps.get(kind))
        return file.getvalue()


def save_chart(figure: Figure, path: Path) -> None:
    """Write the figure as the file's suffix says; SVG without one."""
    write_file(path, render(figure, kind=path.suffix.lower().lstrip(".") or "svg"))


def listed(names: Sequence[str]) -> str:
    """Names as a sentence lists them: "a, b and c"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def plain(text: str) -> str:
    """Text with a replacement sign for every character that an SVG can't hold."""
    return _UNWRITABLE.sub("\ufffd", text)


def escape(text: str) -> str:
    """Text that can stand between the tags of an SVG."""
    return saxutils.escape(plain(text))
