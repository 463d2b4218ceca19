"""Score against beam, as a picture: a curve for each system."""

from __future__ import annotations

import math
from collections.abc import Sequence

from anyorder.runs.beam_curves import BeamCurve
from anyorder.views.line_chart import Axis, Curve, line_chart

_MOST_BEAMS = 20  # that the axis is marked with
_PICKED = "large: picked on dev"


def plot(curves: Sequence[BeamCurve], *, title: str, metric: str) -> str:
    """An SVG with a curve for each system, the beam that was picked as a large dot. Some have some beam."""
    beams = sorted({beam for curve in curves for beam in curve.scores})
    return line_chart(
        [Curve(label=curve.label, points=curve.scores, large=curve.picked) for curve in curves],
        title=title,
        axis=Axis(
            name="beam",
            low=beams[0],
            high=max(beams[-1], beams[0] + 1),
            marks=beams[:: math.ceil(len(beams) / _MOST_BEAMS)],
        ),
        upward=metric,
        large_means=_PICKED,
    )
