"""How runs learned, update by update, from their metrics.jsonl."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from anyorder.runs.comparison import group_trainings, row_labels
from anyorder.runs.metrics_log import entries
from anyorder.runs.results import RunResults

_MOST_POINTS = 200  # of a curve: a picture can't show more
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
    """A figure of one system by update, the mean of its trainings."""

    label: str
    points: Points  # none: not every training has logged the figure


@dataclass(frozen=True)
class TrainingFigure:
    """Something that was logged while systems learned."""

    title: str
    curves: list[TrainingCurve]  # of all systems


def training_curves(results: Sequence[RunResults]) -> list[TrainingFigure]:
    """What is known of how the runs learned; a figure that none of them has logged is left out."""
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
    """Finite figures by name and update."""
    logged: dict[str, Points] = {name: {} for name in _FIGURES}
    for entry in entries(run):
        for name in _FIGURES & entry.keys():
            if math.isfinite(entry[name]):
                logged[name][int(entry["step"])] = entry[name]
    return logged


def _mean(trainings: Sequence[Points]) -> Points:
    """Over trainings, at the updates that all of them have: one that stopped early would make a jump."""
    common = set.intersection(*(set(points) for points in trainings))
    return {step: fmean(points[step] for points in trainings) for step in sorted(common)}


def _thinned(points: Points) -> Points:
    """Means of neighbours where there are too many, each at the last of its updates."""
    at_once = math.ceil(len(points) / _MOST_POINTS) or 1
    steps = list(points)
    chunks = [steps[start : start + at_once] for start in range(0, len(steps), at_once)]
    return {chunk[-1]: fmean(points[step] for step in chunk) for chunk in chunks}
