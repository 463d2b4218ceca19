"""Charts of orders: which positions are written when, and which kinds of tokens come late.

They need matplotlib (`anyorder[viz]`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from anyorder.orders.statistics import TENTHS, Compared, Group
from anyorder.viz.charts import ACCENT, QUIET, SECOND, chart_style, new_figure, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Heat = Sequence[Sequence[float]]  # a row for each tenth of the steps, by tenths of the positions
_HEAT_SIZE, _BARS_WIDTH, _BAR_HEIGHT, _BETWEEN = 4.6, 4.2, 0.28, 0.9  # inches
_BY_CHANCE = 1 / TENTHS  # share of a cell if all orders are equally likely
# A share of this size has the full colour, unless there are larger ones: chance alone then looks pale.
_FULL_SHARE = 4 * _BY_CHANCE
_SHADES = 40


def order_chart(compared: Compared, *, title: str) -> Figure:
    """A heat map of positions by steps, and the mean step of each group of tokens as bars."""
    groups = compared.found.groups
    if not groups:
        return heat_chart(compared.found.heat, title=title, summary=_summary(compared))
    bars_height = sum(len(group) * _BAR_HEIGHT + _BETWEEN for group in groups.values())
    with chart_style():
        figure = new_figure(
            title, width=_HEAT_SIZE + _BARS_WIDTH, height=max(_HEAT_SIZE + 1.6, bars_height + 1.2)
        )
        sides = figure.add_gridspec(1, 2, width_ratios=[_HEAT_SIZE, _BARS_WIDTH])
        heat_side, bars_side = figure.add_subfigure(sides[0]), figure.add_subfigure(sides[1])
        _draw_heat(heat_side.add_subplot(), compared.found.heat)
        heat_side.suptitle(
            _summary(compared), fontsize=9, fontweight="normal", color=QUIET, x=0.04, ha="left"
        )
        panels = bars_side.subplots(
            len(groups),
            squeeze=False,
            height_ratios=[len(group) * _BAR_HEIGHT + _BETWEEN for group in groups.values()],
        )
        for (axes,), (name, group) in zip(panels, groups.items(), strict=True):
            _draw_bars(axes, group, compared.left_to_right.groups[name], name=name)
        handles, labels = panels[-1][0].get_legend_handles_labels()
        bars_side.legend(handles, labels, loc="outside lower left", ncols=len(labels))
    return figure


def heat_chart(heat: Heat, *, title: str, summary: str = "") -> Figure:
    """The heat map alone, with a summary below its title."""
    with chart_style():
        figure = new_figure(title, width=_HEAT_SIZE, height=_HEAT_SIZE + 1.2)
        axes = figure.add_subplot()
        axes.set_title(summary, fontsize=9, color=QUIET, loc="left")
        _draw_heat(axes, heat)
    return figure


def history_chart(history: Sequence[tuple[int, Mapping[int, float]]], *, title: str, around: bool) -> Figure:
    """A heat map of when each position is written, a row for each checkpoint.

    history: updates made, and the mean step of each position from 0, first, to 1, last; around: positions are
    counted from a marked word.
    """
    import matplotlib

    positions = sorted({position for _, steps in history for position in steps})
    rows = [[steps.get(position, float("nan")) for position in positions] for _, steps in history]
    with chart_style():
        figure = new_figure(title, width=_HEAT_SIZE + 1.2, height=1.9 + 0.28 * len(rows))
        axes = figure.add_subplot()
        cells = axes.pcolormesh(
            rows, cmap=matplotlib.colormaps["Blues_r"].resampled(_SHADES), vmin=0, vmax=1, edgecolors="face"
        )
        axes.set(xlabel="place relative to the marked word" if around else "position", ylabel="updates")
        shown = range(0, len(positions), 1 + len(positions) // 20)
        axes.set_xticks([place + 0.5 for place in shown], [str(positions[place]) for place in shown])
        axes.set_yticks([row + 0.5 for row in range(len(rows))], [f"{step:,}" for step, _ in history])
        axes.invert_yaxis()
        bar = figure.colorbar(cells, ax=axes, location="right", aspect=25)
        bar.outline.set_visible(False)
        bar.set_ticks([0, 0.5, 1], labels=["written first", "by chance", "written last"])
    return figure


def _summary(compared: Compared) -> str:
    found, by_chance = compared.found, compared.by_chance
    return "\n".join(
        [
            f"{found.sentences:,} sentences, {found.tokens:,} tokens  ·  "
            f"Kendall's tau {found.figures.kendall:.2f}",
            f"exactly left to right {found.figures.left_to_right:.0%}  ·  "
            f"next position {found.figures.next_position:.0%} "
            f"(by chance {by_chance.figures.next_position:.0%})",
        ]
    )


def _draw_heat(axes: Axes, heat: Heat) -> None:
    import matplotlib

    full = max(_FULL_SHARE, *(share for row in heat for share in row))
    cells = axes.pcolormesh(
        heat,
        cmap=matplotlib.colormaps["Blues"].resampled(_SHADES),
        vmin=0,
        vmax=full,
        edgecolors="face",
        gid="heat",
    )
    axes.set(xlabel="position", ylabel="step", aspect="equal")
    axes.set_xticks([0, TENTHS], ["leftmost", "rightmost"])
    axes.set_yticks([0, TENTHS], ["first", "last"])
    left, right = axes.get_xticklabels()
    left.set_horizontalalignment("left")
    right.set_horizontalalignment("right")
    axes.invert_yaxis()
    bar = axes.figure.colorbar(cells, ax=axes, location="bottom", shrink=0.9, aspect=30)
    bar.outline.set_visible(False)
    bar.set_ticks([_BY_CHANCE, full], labels=[f"{_BY_CHANCE:.0%} by chance", f"{full:.0%}"])
    bar.set_label(
        "share of a tenth of the steps that fills a tenth of the positions", weight="normal", size=9
    )


def _draw_bars(axes: Axes, groups: Mapping[str, Group], reading: Mapping[str, Group], *, name: str) -> None:
    """One bar a group of tokens: its mean step from 0, written first, to 1, written last."""
    rows = range(len(groups))
    steps = [group.step for group in groups.values()]
    axes.barh(rows, steps, height=0.6, color=ACCENT)
    for row, step in zip(rows, steps, strict=True):
        axes.text(1.06, row, f"{step:.2f}", color=QUIET, va="center")
    left_to_right = [reading[label].step for label in groups]
    axes.scatter(
        left_to_right, rows, marker="|", s=180, linewidth=2.5, color=SECOND, label="left to right", zorder=3
    )
    axes.axvline(0.5, linestyle=":", color=QUIET, label="by chance")
    axes.set_yticks(rows, [plain(label) for label in groups])
    axes.set_xticks([0, 0.5, 1], ["0 first", "0.5", "1 last"])
    axes.set(xlim=(0, 1.2), ylim=(len(groups) - 0.4, -0.6))
    axes.set_title(f"mean step by {plain(name)}", fontsize=10, fontweight="bold", loc="left")
