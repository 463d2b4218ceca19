"""What a benchmark measured along an axis, as a picture: a curve for each variant."""

from __future__ import annotations

from collections.abc import Sequence

from anyorder.bench.measure import Row
from anyorder.views.line_chart import Axis, Curve, line_chart


def plot(rows: Sequence[Row], *, title: str, axis: str, upward: str) -> str:
    """An SVG of the rows that belong to a curve; some do."""
    curves: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.curve is not None and row.at is not None:
            curves.setdefault(row.curve, {})[row.at] = row.value
    marks = sorted({at for points in curves.values() for at in points})
    return line_chart(
        [Curve(label=label, points=dict(sorted(points.items()))) for label, points in curves.items()],
        title=title,
        axis=Axis(name=axis, low=marks[0], high=max(marks[-1], marks[0] + 1), marks=marks),
        upward=upward,
    )
