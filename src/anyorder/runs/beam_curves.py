"""How scores depend on the beam, for several runs on the same lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from anyorder.config.data import Splits
from anyorder.errors import UserError
from anyorder.runs.comparison import check_comparable, group_trainings, row_labels
from anyorder.runs.results import TUNED_ON, RunResults, Sweep


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


def _curves(results: Sequence[RunResults], sweeps: Sequence[Sweep]) -> BeamCurves:
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


def _sweep(results: RunResults) -> Sweep:
    if results.report.sweep is None:
        raise UserError(
            f"{results.run}: was evaluated with one beam only; "
            f"`anyorder evaluate {results.run} --split {results.report.split} --beam 1-20` tries several"
        )
    return results.report.sweep


def _curve(label: str, sweeps: Sequence[Sweep], *, split: Splits) -> BeamCurve:
    # Trainings of one system were swept over the same beams, or none was: group_trainings sees to that.
    if not sweeps:
        return BeamCurve(label=label, scores={}, picked=None)
    scores = {
        beam: fmean(one.scores[split][beam] for one in sweeps) for beam in sorted(sweeps[0].scores[split])
    }
    picked = {one.beam for one in sweeps}
    return BeamCurve(label=label, scores=scores, picked=picked.pop() if len(picked) == 1 else None)
