"""Curves of runs: scores by beam, and losses and scores by update."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from anyorder.config.data import Splits
from anyorder.errors import UserError
from anyorder.evaluation.compare import check_comparable, group_trainings, row_labels
from anyorder.evaluation.results import TUNED_ON, BeamSweep, RunResults
from anyorder.training.metrics_log import entries
from anyorder.viz.charts import Curve, line_chart

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class BeamCurve:
    """The score of a system with each beam, the mean of its trainings."""

    label: str
    scores: dict[int, float]  # by beam, from the smallest; none: it was evaluated with one beam only
    picked: int | None  # that it was decoded with in the end; None: trainings differ in it, or no scores


@dataclass(frozen=True)
class BeamCurves:
    """How scores depend on the beam, on the same lines."""

    split: Splits
    metric: str  # as people know it
    curves: list[BeamCurve]


def beam_curves(results: Sequence[RunResults]) -> BeamCurves:
    """The sweeps of all runs: on the split that they are compared on, or else on dev."""
    check_comparable(results)
    sweeps = [_sweep(one) for one in results]
    for one, sweep in zip(results, sweeps, strict=True):
        if sweep.signature != sweeps[0].signature:
            raise UserError(
                f"{results[0].run} and {one.run}: their beams were picked by different metrics: "
                f"{sweeps[0].by} ({sweeps[0].signature}) and {sweep.by} ({sweep.signature})"
            )
    return _curves(results, sweeps)


def beam_curves_if_any(results: Sequence[RunResults]) -> BeamCurves | None:
    """The same of those runs that have a sweep; None if there are none, or if metrics differ."""
    sweeps = [one.report.sweep for one in results if one.report.sweep is not None]
    if len({sweep.signature for sweep in sweeps}) != 1:
        return None
    return _curves(results, sweeps)


def _curves(results: Sequence[RunResults], sweeps: Sequence[BeamSweep]) -> BeamCurves:
    """Of all systems, whichever of them the sweeps belong to."""
    split = results[0].report.split
    if not all(split in sweep.scores for sweep in sweeps):
        split = TUNED_ON
    groups = group_trainings(results)
    return BeamCurves(
        split=split,
        metric=sweeps[0].metric,
        curves=[
            _curve(label, [one.report.sweep for one in group if one.report.sweep is not None], split=split)
            for label, group in zip(row_labels(groups), groups, strict=True)
        ],
    )


def _sweep(results: RunResults) -> BeamSweep:
    if results.report.sweep is None:
        raise UserError(
            f"{results.run}: was evaluated with one beam only; "
            f"`anyorder evaluate {results.run} --split {results.report.split} --beam 1-20` tries several"
        )
    return results.report.sweep


def _curve(label: str, sweeps: Sequence[BeamSweep], *, split: Splits) -> BeamCurve:
    # Trainings of one system were swept over the same beams, or none was: group_trainings sees to that.
    if not sweeps:
        return BeamCurve(label=label, scores={}, picked=None)
    scores = {
        beam: fmean(one.scores[split][beam] for one in sweeps) for beam in sorted(sweeps[0].scores[split])
    }
    picked = {one.beam for one in sweeps}
    return BeamCurve(label=label, scores=scores, picked=picked.pop() if len(picked) == 1 else None)


_MOST_POINTS = 200  # of a curve; a chart can't show more
_FIGURES = {
    "dev_bleu": "BLEU on dev",
    "dev_exact": "exact match on dev, %",
    "dev_loss": "loss on dev",
    "loss": "loss on train",
    "dev_word_loss": "loss of words on dev",
    "dev_gap_loss": "loss of gaps on dev",
}
Points = dict[int, float]  # by update, from the first


@dataclass(frozen=True)
class TrainingCurve:
    """The logged values of one system by update, the mean of its trainings."""

    label: str
    points: Points  # none: not every training has logged the figure


@dataclass(frozen=True)
class TrainingFigure:
    """One logged quantity, by update."""

    title: str
    curves: list[TrainingCurve]  # of all systems


def training_curves(results: Sequence[RunResults]) -> list[TrainingFigure]:
    """The logged quantities of all runs; those that no run has logged are left out."""
    groups = group_trainings(results)
    labels = row_labels(groups)
    logs = [[_logged(one.run) for one in group] for group in groups]
    figures = [
        TrainingFigure(
            title=title,
            curves=[
                TrainingCurve(label, _thinned(_mean([log.get(name, {}) for log in of_group])))
                for label, of_group in zip(labels, logs, strict=True)
            ],
        )
        for name, title in _FIGURES.items()
    ]
    return [figure for figure in figures if any(curve.points for curve in figure.curves)]


def _logged(run: Path) -> dict[str, Points]:
    """The finite values of a run's log, by name and update."""
    logged: dict[str, Points] = {name: {} for name in _FIGURES}
    for entry in entries(run):
        for name in _FIGURES & entry.keys():
            if math.isfinite(entry[name]):
                logged[name][int(entry["step"])] = entry[name]
    return logged


def _mean(trainings: Sequence[Points]) -> Points:
    """The mean over trainings at the updates that all have: one that stopped early would cause a jump."""
    common = set.intersection(*(set(points) for points in trainings))
    return {step: fmean(points[step] for points in trainings) for step in sorted(common)}


def _thinned(points: Points) -> Points:
    """At most _MOST_POINTS points: means of neighbours, each at the last of its updates."""
    at_once = math.ceil(len(points) / _MOST_POINTS) or 1
    steps = list(points)
    chunks = [steps[start : start + at_once] for start in range(0, len(steps), at_once)]
    return {chunk[-1]: fmean(points[step] for step in chunk) for chunk in chunks}


_MOST_BEAMS = 20  # that the axis is marked with
_PICKED = "large: picked on dev"


def beam_chart(found: BeamCurves) -> Figure:
    """Score against beam, one curve a system; a large point is the beam that was picked."""
    beams = sorted({beam for curve in found.curves for beam in curve.scores})
    return line_chart(
        [Curve(label=curve.label, points=curve.scores, large=curve.picked) for curve in found.curves],
        title=f"{found.metric} on {found.split} by beam",
        x_label="beam",
        y_label=found.metric,
        x_ticks=beams[:: math.ceil(len(beams) / _MOST_BEAMS)],
        large_means=_PICKED,
    )


def training_chart(figure: TrainingFigure) -> Figure:
    """What was logged against the update, one curve a system."""
    return line_chart(
        [Curve(label=curve.label, points=curve.points) for curve in figure.curves],
        title=figure.title,
        x_label="update",
    )
