"""Compare runs: their scores on the same lines, and whether the differences are significant.

Runs that differ only in their seed are trainings of one system and make up one row of the table.
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
from anyorder.evaluation.results import TUNED_ON, EvaluationReport, RunResults
from anyorder.evaluation.significance import SEED, PairedTests, paired_tests_of_means, permutation_p_value
from anyorder.metrics import Result, evaluate

DECIMALS = 2  # decimals of a score in a table; scores that round to the same value are equally good
BASELINE_ORDER = "l2r"
TESTED_BY_DEFAULT = ("bleu", "exact")


# Keys of a recipe in which trainings of one system may differ: they do not change what is learned.
_KEYS_OF_A_TRAINING = frozenset(
    {"run", "data.root", "data.cache", "data.test", "decode", "train.seed", "train.device"}
    | {"train.log_every", "train.keep", "data.name", "data.licence"}
)


@dataclass(frozen=True)
class MeanScore:
    """The mean score of the trainings of a system."""

    mean: float
    deviation: float | None  # standard deviation between trainings; None for a single training
    best: bool  # whether no other row is better and some are worse


@dataclass(frozen=True)
class Difference:
    """The significance tests of a system against the baseline by one metric."""

    over_lines: PairedTests  # would the difference persist on other lines?
    seeds_p: float | None  # p-value of the permutation test over trainings; None if there are too few


@dataclass(frozen=True)
class SystemRow:
    """One system: a run, or several runs that differ only in their seed."""

    label: str
    order: str
    runs: list[str]
    seeds: list[int]
    beams: list[int]  # beam size of each run
    scores: dict[str, MeanScore]  # by key of METRICS
    unseen_scores: dict[str, float]  # mean scores without `seen_lines`; empty if there are none
    differences: dict[str, Difference]  # by key of METRICS; empty for the baseline


@dataclass(frozen=True)
class RunComparison:
    """The scores of runs that were evaluated on the same lines."""

    split: Splits
    lines: int
    seen_lines: int  # number of lines that also occur in train; 0 if unknown for a run, or if all do
    metrics: dict[str, str]  # key of METRICS → display name, with an arrow if lower is better
    signatures: dict[str, str]
    baseline: str | None  # label of the baseline's row
    rows: list[SystemRow]


@dataclass(frozen=True)
class SignificanceSettings:
    """Which differences are tested, and with how many samples."""

    metrics: Sequence[str] | None = None  # None: the compared ones among TESTED_BY_DEFAULT
    samples: int = 1000
    seed: int = SEED


def compare_runs(
    results: Sequence[RunResults],
    *,
    metrics: Sequence[str] | None = None,
    baseline: Path | None = None,
    significance: SignificanceSettings | None = None,
) -> RunComparison:
    """Compare the scores of runs on the same lines, with a row for each system in the given order.

    metrics: None for all metrics that every run was scored by.
    baseline: a run of the row to test against; None for the first row that writes left to right. Nothing is
    tested if there is no such row.
    """
    check_comparable(results)
    names = _common_metrics(results, wanted=metrics)
    _check_signatures(results, names)
    groups = group_trainings(results)
    baseline_row = _baseline_row(groups, given=baseline)
    differences = _differences(
        groups,
        baseline_row=baseline_row,
        names=names,
        significance=significance or SignificanceSettings(),
    )
    best = {name: _best_mean(groups, name) for name in names}
    seen_lines = _seen_lines(results)
    labels = row_labels(groups)
    rows = [
        SystemRow(
            label=label,
            order=group[0].report.recipe.order_label,
            runs=[str(one.run) for one in group],
            seeds=[one.report.recipe.train.seed for one in group],
            beams=[one.report.decode.beam for one in group],
            scores={name: _mean_score(group, name, best=best[name]) for name in names},
            unseen_scores=_unseen_scores(group, names) if seen_lines else {},
            differences=tested,
        )
        for label, group, tested in zip(labels, groups, differences, strict=True)
    ]
    report = results[0].report
    return RunComparison(
        split=report.split,
        lines=report.lines,
        seen_lines=seen_lines,
        metrics={name: report.scores[name].label for name in names},
        signatures={name: report.scores[name].signature for name in names},
        baseline=None if baseline_row is None else labels[baseline_row],
        rows=rows,
    )


def check_comparable(results: Sequence[RunResults]) -> None:
    """Refuse runs that are given twice or were evaluated on different references."""
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
    """Group the runs by system; a second run with the same seed belongs to another system."""
    groups: dict[tuple[str, int], list[RunResults]] = {}
    seen: Counter[tuple[str, int]] = Counter()
    for one in results:
        system, seed = _system_key(one.report), one.report.recipe.train.seed
        groups.setdefault((system, seen[system, seed]), []).append(one)
        seen[system, seed] += 1
    return list(groups.values())


def _system_key(report: EvaluationReport) -> str:
    """Return a text that is equal for runs of one system, whatever their seed and their picked beam."""
    recipe = report.recipe.model_dump(mode="json")
    decode = report.decode.model_dump(mode="json")
    if report.sweep is not None:
        decode["beam"] = sorted(report.sweep.scores[TUNED_ON])
    return json.dumps([sorted(_flattened(recipe)), decode])


def _flattened(values: Mapping[str, object], *, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted keys that define a system, with their values as JSON."""
    for key, value in values.items():
        name = prefix + key
        if name in _KEYS_OF_A_TRAINING:
            continue
        if isinstance(value, dict):
            yield from _flattened(value, prefix=f"{name}.")
        else:
            yield name, json.dumps(value)


def row_labels(groups: Sequence[Sequence[RunResults]]) -> list[str]:
    """Label each system by its order or kind of model, and if that is ambiguous by its first run as well."""
    kinds = [_kind(group[0].report.recipe) for group in groups]
    times = Counter(kinds)
    names = _distinct_names([group[0].run.resolve() for group in groups])
    return [kind if times[kind] == 1 else f"{kind} {name}" for kind, name in zip(kinds, names, strict=True)]


def _distinct_names(folders: Sequence[Path]) -> list[str]:
    """Shorten the paths of folders to the last parts that distinguish them."""
    for parts in range(1, max(len(folder.parts) for folder in folders)):
        names = ["/".join(folder.parts[-parts:]) for folder in folders]
        if len(set(names)) == len(names):
            return names
    return list(map(str, folders))


def _kind(recipe: Recipe) -> str:
    abilities = recipe.model.abilities
    if not abilities.any_order:
        return abilities.name
    by_method = recipe.adaptive and recipe.search.method != "guided"
    return recipe.order.name.upper() + (f" ({recipe.search.method})" if by_method else "")


def _common_metrics(results: Sequence[RunResults], *, wanted: Sequence[str] | None) -> list[str]:
    common = [name for name in results[0].report.scores if all(name in one.report.scores for one in results)]
    if wanted is None:
        if not common:
            raise UserError(f"{results[0].run} and the others: have no metric in common")
        return common
    for name in wanted:
        for one in results:
            if name not in one.report.scores:
                raise UserError(
                    f"{one.run}: was not scored by {name}; `anyorder evaluate {one.run} --split "
                    f"{one.report.split} --metrics {','.join([*one.report.scores, name])}` does it"
                )
    return list(wanted)


def _baseline_row(groups: Sequence[Sequence[RunResults]], *, given: Path | None) -> int | None:
    """Return the index of the group that the others are tested against."""
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
    baseline_row: int | None,
    names: Sequence[str],
    significance: SignificanceSettings,
) -> list[dict[str, Difference]]:
    """Test each group against the baseline, by metric; the baseline itself has no tests."""
    differences: list[dict[str, Difference]] = [{} for _ in groups]
    tested = _tested_metrics(significance.metrics, names=names)
    if baseline_row is None or len(groups) == 1 or not tested:
        return differences
    scored = [[_scored_again(one, tested) for one in group] for group in groups]
    for number, group in enumerate(scored):
        if number == baseline_row:
            continue
        for name in tested:
            systems, baselines = ([one[name] for one in side] for side in (group, scored[baseline_row]))
            differences[number][name] = Difference(
                over_lines=paired_tests_of_means(
                    systems, baselines, samples=significance.samples, seed=significance.seed
                ),
                seeds_p=permutation_p_value([one.score for one in systems], [one.score for one in baselines]),
            )
    return differences


def _tested_metrics(wanted: Sequence[str] | None, *, names: Sequence[str]) -> Sequence[str]:
    if wanted is None:
        return [name for name in TESTED_BY_DEFAULT if name in names]
    for name in wanted:
        if name not in names:
            raise UserError(f"--tested {name}: is none of the compared metrics: {', '.join(names)}")
    return wanted


def _scored_again(results: RunResults, names: Sequence[str]) -> dict[str, Result]:
    """Score the text of a run once more, because its report lacks the statistics of single lines."""
    return evaluate(
        results.hypotheses,
        results.references,
        metrics=names,
        options=results.report.options,
        drafts=results.drafts,
    )


def _seen_lines(results: Sequence[RunResults]) -> int:
    """Count the lines that also occur in train; 0 if the runs disagree or if no line remains."""
    counts = {
        0 if one.report.unseen is None else one.report.lines - one.report.unseen.lines for one in results
    }
    count = counts.pop()
    return count if not counts and count < results[0].report.lines else 0


def _unseen_scores(group: Sequence[RunResults], names: Sequence[str]) -> dict[str, float]:
    """Average the scores of the lines that do not occur in train."""
    found = [one.report.unseen.scores for one in group if one.report.unseen is not None]
    return {name: fmean(scores[name] for scores in found) for name in names}


def _scores_of_runs(group: Sequence[RunResults], name: str) -> list[float]:
    return [one.report.scores[name].score for one in group]


def _best_mean(groups: Sequence[Sequence[RunResults]], name: str) -> float | None:
    """Return the best mean score, rounded as in the tables, or None if all rows are equal."""
    means = [round(fmean(_scores_of_runs(group, name)), DECIMALS) for group in groups]
    if len(set(means)) == 1:
        return None
    return max(means) if groups[0][0].report.scores[name].higher_is_better else min(means)


def _mean_score(group: Sequence[RunResults], name: str, *, best: float | None) -> MeanScore:
    scores = _scores_of_runs(group, name)
    mean = fmean(scores)
    return MeanScore(
        mean=mean,
        deviation=stdev(scores) if len(scores) > 1 else None,
        best=round(mean, DECIMALS) == best,
    )
