"""Runs side by side: their scores on the same lines, and whether the differences are chance.

Runs that differ in nothing but their seed are trainings of one system, and one row.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from anyorder.config.data import Splits
from anyorder.config.recipe import Recipe
from anyorder.errors import UserError
from anyorder.evaluation.results import TUNED_ON, Report, RunResults
from anyorder.evaluation.significance import SEED, Comparison, compare_means, trainings_p
from anyorder.metrics import Result, evaluate

DECIMALS = 2  # of the scores that are told; what is equal so far is as good
BASELINE_ORDER = "l2r"
OTHER_KINDS = {"transformer": "Transformer", "insertion": "Insertion Transformer"}  # by model.kind
USUALLY_TESTED = ("bleu", "exact")


# Keys of a recipe in which trainings of one system may differ: they change where and how long a run is
# watched, not what is learned.
_OF_A_TRAINING = frozenset(
    {"run", "data.root", "data.cache", "data.test", "decode", "train.seed", "train.device"}
    | {"train.log_every", "train.keep", "data.name", "data.licence"}
)


@dataclass(frozen=True)
class MeanScore:
    """A score over the trainings of a system."""

    mean: float
    deviation: float | None  # between trainings; None: there is only one
    best: bool  # of all rows


@dataclass(frozen=True)
class Difference:
    """A system against the baseline by one metric."""

    lines: Comparison  # whether it would be there on other lines
    trainings_p: float | None  # whether it would be there after other trainings; None: too few of them


@dataclass(frozen=True)
class Row:
    """One system: a run, or several that differ in nothing but their seed."""

    label: str
    order: str
    runs: list[str]
    seeds: list[int]
    beams: list[int]  # that each run was decoded with
    scores: dict[str, MeanScore]  # by metric
    unseen: dict[str, float]  # mean scores without the lines that stand in train; none: see `seen`
    differences: dict[str, Difference]  # by metric; none for the baseline


@dataclass(frozen=True)
class RunComparison:
    """Runs that were evaluated alike."""

    split: Splits
    lines: int
    seen: int  # of the lines, those that stand in train; 0 also where it isn't known of all runs, or all do
    metrics: dict[str, str]  # as people know them, lower ones with an arrow, by the names of METRICS
    signatures: dict[str, str]
    baseline: str | None  # label of its row
    rows: list[Row]


@dataclass(frozen=True)
class Significance:
    """Which differences are tested, and how."""

    metrics: Sequence[str] | None = None  # None: those of USUALLY_TESTED that are compared
    samples: int = 1000
    seed: int = SEED


def compare_runs(
    results: Sequence[RunResults],
    *,
    metrics: Sequence[str] | None = None,
    baseline: Path | None = None,
    significance: Significance | None = None,
) -> RunComparison:
    """All runs on the same lines, the rows in the order in which their first runs are given.

    metrics: None for all that every run was scored by. baseline: a run of the row to test against; None for
    the first row that writes left to right, and without one there are no tests.
    """
    check_comparable(results)
    names = _common_metrics(results, wanted=metrics)
    _check_signatures(results, names)
    groups = group_trainings(results)
    against = _baseline(groups, given=baseline)
    differences = _differences(
        groups, against=against, names=names, significance=significance or Significance()
    )
    best = {name: _best(groups, name) for name in names}
    seen = _seen(results)
    labels = row_labels(groups)
    rows = [
        Row(
            label=label,
            order=group[0].report.recipe.order_label,
            runs=[str(one.run) for one in group],
            seeds=[one.report.recipe.train.seed for one in group],
            beams=[one.report.decode.beam for one in group],
            scores={name: _mean_score(group, name, best=best[name]) for name in names},
            unseen=_unseen(group, names) if seen else {},
            differences=found,
        )
        for label, group, found in zip(labels, groups, differences, strict=True)
    ]
    report = results[0].report
    return RunComparison(
        split=report.split,
        lines=report.lines,
        seen=seen,
        metrics={name: report.scores[name].label for name in names},
        signatures={name: report.scores[name].signature for name in names},
        baseline=None if against is None else labels[against],
        rows=rows,
    )


def check_comparable(results: Sequence[RunResults]) -> None:
    """Refuse runs whose scores are of different things."""
    repeated = [run for run, times in Counter(one.run.resolve() for one in results).items() if times > 1]
    if repeated:
        raise UserError(f"{repeated[0]}: given twice; each run is compared once")
    first, *others = results
    for other in others:
        if first.report.references != other.report.references:
            raise UserError(
                f"{first.run} and {other.run}: were evaluated on different references, {first.report.lines} "
                f"and {other.report.lines} lines, and can't be compared"
            )


def _check_signatures(results: Sequence[RunResults], names: Sequence[str]) -> None:
    first, *others = results
    for other in others:
        for name in names:
            one, two = (results.report.scores[name].signature for results in (first, other))
            if one != two:
                raise UserError(
                    f"{first.run} and {other.run}: {name} was computed in different ways: {one} and {two}"
                )


def group_trainings(results: Sequence[RunResults]) -> list[list[RunResults]]:
    """Runs of one system together. Of two runs with the same seed, the second is another system's."""
    groups: dict[tuple[str, int], list[RunResults]] = {}
    seen: Counter[tuple[str, int]] = Counter()
    for one in results:
        system, seed = _system(one.report), one.report.recipe.train.seed
        groups.setdefault((system, seen[system, seed]), []).append(one)
        seen[system, seed] += 1
    return list(groups.values())


def _system(report: Report) -> str:
    """The same for runs trained and decoded alike, whatever their seeds and the beams that a sweep picked."""
    recipe = report.recipe.model_dump(mode="json")
    decode = report.decode.model_dump(mode="json")
    if report.sweep is not None:
        decode["beam"] = sorted(report.sweep.scores[TUNED_ON])
    return json.dumps([sorted(_flat(recipe)), decode])


def _flat(values: Mapping[str, object], *, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys of a system with their values as JSON."""
    for key, value in values.items():
        name = prefix + key
        if name in _OF_A_TRAINING:
            continue
        if isinstance(value, dict):
            yield from _flat(value, prefix=f"{name}.")
        else:
            yield name, json.dumps(value)


def row_labels(groups: Sequence[Sequence[RunResults]]) -> list[str]:
    """The order or another kind of model, and where several rows have the same their first run's name too."""
    kinds = [_kind(group[0].report.recipe) for group in groups]
    times = Counter(kinds)
    names = _distinct_names([group[0].run.resolve() for group in groups])
    return [kind if times[kind] == 1 else f"{kind} {name}" for kind, name in zip(kinds, names, strict=True)]


def _distinct_names(folders: Sequence[Path]) -> list[str]:
    """As much of the ends of their paths as tells folders apart."""
    for parts in range(1, max(len(folder.parts) for folder in folders)):
        names = ["/".join(folder.parts[-parts:]) for folder in folders]
        if len(set(names)) == len(names):
            return names
    return list(map(str, folders))


def _kind(recipe: Recipe) -> str:
    other = OTHER_KINDS.get(recipe.model.kind)
    return recipe.order.name.upper() if other is None else other


def _common_metrics(results: Sequence[RunResults], *, wanted: Sequence[str] | None) -> list[str]:
    everywhere = [
        name for name in results[0].report.scores if all(name in one.report.scores for one in results)
    ]
    if wanted is None:
        if not everywhere:
            raise UserError(f"{results[0].run} and the others: have no metric in common")
        return everywhere
    for name in wanted:
        for one in results:
            if name not in one.report.scores:
                raise UserError(
                    f"{one.run}: was not scored by {name}; `anyorder evaluate {one.run} --split "
                    f"{one.report.split} --metrics {','.join([*one.report.scores, name])}` does it"
                )
    return list(wanted)


def _baseline(groups: Sequence[Sequence[RunResults]], *, given: Path | None) -> int | None:
    """Which group the others are tested against."""
    for number, group in enumerate(groups):
        if given is None and group[0].report.recipe.order_label == BASELINE_ORDER:
            return number
        if given is not None and any(one.run.resolve() == given.resolve() for one in group):
            return number
    if given is not None:
        raise UserError(f"--baseline {given}: must be one of the runs")
    return None


def _differences(
    groups: Sequence[Sequence[RunResults]],
    *,
    against: int | None,
    names: Sequence[str],
    significance: Significance,
) -> list[dict[str, Difference]]:
    """Of each group, by metric."""
    differences: list[dict[str, Difference]] = [{} for _ in groups]
    tested = _tested(significance.metrics, names=names)
    if against is None or len(groups) == 1 or not tested:
        return differences
    scored = [[_scored(one, tested) for one in group] for group in groups]
    for number, group in enumerate(scored):
        if number == against:
            continue
        for name in tested:
            systems, baselines = ([one[name] for one in side] for side in (group, scored[against]))
            differences[number][name] = Difference(
                lines=compare_means(systems, baselines, samples=significance.samples, seed=significance.seed),
                trainings_p=trainings_p([one.score for one in systems], [one.score for one in baselines]),
            )
    return differences


def _tested(wanted: Sequence[str] | None, *, names: Sequence[str]) -> Sequence[str]:
    if wanted is None:
        return [name for name in USUALLY_TESTED if name in names]
    for name in wanted:
        if name not in names:
            raise UserError(f"--tested {name}: is none of the metrics that are compared: {', '.join(names)}")
    return wanted


def _scored(results: RunResults, names: Sequence[str]) -> dict[str, Result]:
    """Scored again, because a report has no figures of single lines."""
    return evaluate(results.outputs, results.references, metrics=names, options=results.report.options)


def _seen(results: Sequence[RunResults]) -> int:
    """Lines that stand in the training text of all runs alike, if some others don't."""
    seen = {0 if one.report.unseen is None else one.report.lines - one.report.unseen.lines for one in results}
    count = seen.pop()
    return count if not seen and count < results[0].report.lines else 0


def _unseen(group: Sequence[RunResults], names: Sequence[str]) -> dict[str, float]:
    """Mean scores of the lines that do not."""
    found = [one.report.unseen.scores for one in group if one.report.unseen is not None]
    return {name: fmean(scores[name] for scores in found) for name in names}


def _scores_of(group: Sequence[RunResults], name: str) -> list[float]:
    return [one.report.scores[name].score for one in group]


def _best(groups: Sequence[Sequence[RunResults]], name: str) -> float:
    """The best mean score, rounded as it is told."""
    means = [round(fmean(_scores_of(group, name)), DECIMALS) for group in groups]
    return max(means) if groups[0][0].report.scores[name].higher_is_better else min(means)


def _mean_score(group: Sequence[RunResults], name: str, *, best: float) -> MeanScore:
    scores = _scores_of(group, name)
    mean = fmean(scores)
    return MeanScore(
        mean=mean,
        deviation=stdev(scores) if len(scores) > 1 else None,
        best=round(mean, DECIMALS) == best,
    )
