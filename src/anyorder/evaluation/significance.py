"""Significance tests: is one system better than another, or is the difference due to chance?

Two tests use the lines of the test set: paired bootstrap resampling (Koehn, 2004) and approximate
randomisation (Riezler and Maxwell, 2005). Both draw the same random numbers as sacreBLEU. With its seed,
BLEU, chrF and TER therefore get the p-values and intervals that sacreBLEU prints. Other metrics are tested in
the same way with one exception: a random difference that equals the observed one counts towards the p-value.
sacreBLEU counts only larger ones, which would make exact match differ significantly after a single line.

Both tests ask whether the difference would persist on other lines. Whether it would persist after training
again with other seeds is a different question, which a permutation test over several trainings answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from anyorder.metrics.metric import Metric, Numbers, Result

# S samples, L lines, C counts on each line, R results of each group

SEED = 12345  # the default of sacreBLEU
_TOLERANCE = 1e-9  # scores that differ by less are equal
_TAIL = 40  # 1/40 of the samples is cut off at either end, which leaves 95 %
_MAX_PERMUTATIONS = 200_000  # ways to divide trainings into two groups that are enumerated at most


@dataclass(frozen=True)
class Estimate:
    """A score with its bootstrap confidence interval of 95 %."""

    score: float
    mean: float  # mean of the bootstrap samples
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the width of the interval, which sacreBLEU prints after ±."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class PairedTests:
    """The outcome of both paired tests of a system against a baseline on the same lines."""

    system: Estimate
    baseline: Estimate
    difference: Estimate  # system minus baseline
    bootstrap_p: float
    randomisation_p: float
    samples: int  # number of samples of each test
    seed: int


def bootstrap_interval(result: Result, *, samples: int = 1000, seed: int = SEED) -> Estimate:
    """Estimate the confidence interval of a score by bootstrap resampling of its lines."""
    sums = _bootstrap(*_paired_statistics([result], [result]), samples=samples, seed=seed)
    return _estimate(result.score, _mean_scores(result.metric, sums)[0])


def paired_tests(system: Result, baseline: Result, *, samples: int = 1000, seed: int = SEED) -> PairedTests:
    """Test whether two scores by the same metric on the same lines differ."""
    return paired_tests_of_means([system], [baseline], samples=samples, seed=seed)


def paired_tests_of_means(
    systems: Sequence[Result], baselines: Sequence[Result], *, samples: int = 1000, seed: int = SEED
) -> PairedTests:
    """Test whether the mean scores of two groups of results differ, e.g. of trainings with different seeds.

    All hypotheses for a line are drawn, or swapped, together, because they are not independent of each other.
    The variance between trainings is not tested here; see `permutation_p_value`.
    """
    assert len({result.signature for result in (*systems, *baselines)}) == 1
    metric = systems[0].metric
    system_counts, baseline_counts = _paired_statistics(systems, baselines)
    score, baseline_score = (_mean(group) for group in (systems, baselines))
    resampled = _mean_scores(metric, _bootstrap(system_counts, baseline_counts, samples=samples, seed=seed))
    differences = resampled[0] - resampled[1]
    spread = np.abs(differences)
    shuffled = _mean_scores(metric, _randomise(system_counts, baseline_counts, samples=samples, seed=seed))
    same = np.array_equal(system_counts, baseline_counts)
    difference = score - baseline_score
    return PairedTests(
        system=_estimate(score, resampled[0]),
        baseline=_estimate(baseline_score, resampled[1]),
        difference=_estimate(difference, differences),
        bootstrap_p=1.0 if same else _p_value(metric, difference, spread - spread.mean()),
        randomisation_p=1.0 if same else _p_value(metric, difference, np.abs(shuffled[0] - shuffled[1])),
        samples=samples,
        seed=seed,
    )


def permutation_p_value(scores: Sequence[float], baseline_scores: Sequence[float]) -> float | None:
    """Compute the exact two-sided p-value of a permutation test on the scores of two groups of trainings.

    It is the share of all divisions into two groups of these sizes whose means differ at least as much.
    None if a group has a single training, or if there are too many divisions.
    """
    pooled = np.array([*scores, *baseline_scores])
    size = len(scores)
    if min(size, len(baseline_scores)) < 2 or math.comb(len(pooled), size) > _MAX_PERMUTATIONS:
        return None
    groups = np.array(list(combinations(range(len(pooled)), size)))
    sums = pooled[groups].sum(axis=1)
    means, other_means = sums / size, (pooled.sum() - sums) / len(baseline_scores)
    differences = np.abs(means - other_means)  # the first division is the observed one
    return float((differences >= differences[0] - _TOLERANCE).mean())


def _paired_statistics(systems: Sequence[Result], baselines: Sequence[Result]) -> tuple[Numbers, Numbers]:
    """Return the statistics of both groups, each (L, R, C).

    The smaller group is repeated until the groups have equal sizes, which does not change its mean.
    """
    results = math.lcm(len(systems), len(baselines))
    system_counts, baseline_counts = (
        np.stack([result.statistics for result in group] * (results // len(group)), axis=1)
        for group in (systems, baselines)
    )
    return system_counts, baseline_counts


def _bootstrap(system_counts: Numbers, baseline_counts: Numbers, *, samples: int, seed: int) -> Numbers:
    """Sum the statistics of lines drawn with replacement, the same lines for both groups: (2, S, R, C)."""
    generator = np.random.default_rng(seed)
    both = np.stack([system_counts, baseline_counts], axis=1)  # (L, 2, R, C)
    draws = (generator.choice(len(both), size=len(both)) for _ in range(samples))
    return np.stack([both[lines].sum(axis=0) for lines in draws], axis=1)


def _randomise(system_counts: Numbers, baseline_counts: Numbers, *, samples: int, seed: int) -> Numbers:
    """Sum the statistics of two groups that swap each line with probability 1/2: (2, S, R, C)."""
    generator = np.random.default_rng(seed)
    swaps = generator.integers(2, size=(samples, len(system_counts)), dtype=bool)[
        :, :, None, None
    ]  # (S, L, 1, 1)
    return np.stack(
        [
            [np.where(swap, baseline_counts, system_counts).sum(axis=0) for swap in swaps],
            [np.where(swap, system_counts, baseline_counts).sum(axis=0) for swap in swaps],
        ]
    )


def _mean(results: Sequence[Result]) -> float:
    return math.fsum(result.score for result in results) / len(results)


def _mean_scores(metric: Metric, sums: Numbers) -> Numbers:
    """Average the scores over the results of each group, (2, S, R, C) to (2, S)."""
    counts = sums.shape[-1]
    return metric.scores(sums.reshape(-1, counts)).reshape(sums.shape[:-1]).mean(axis=2)


def _estimate(score: float, resampled: Numbers) -> Estimate:
    ordered = np.sort(resampled)
    tail = len(ordered) // _TAIL
    return Estimate(
        score=score, mean=float(resampled.mean()), low=float(ordered[tail]), high=float(ordered[-1 - tail])
    )


def _p_value(metric: Metric, difference: float, random_differences: Numbers) -> float:
    """Compute the share of random differences as large as the observed one, which counts as one of them."""
    if metric.ties_are_chance:
        as_large = random_differences >= abs(difference) - _TOLERANCE
    else:
        as_large = random_differences > abs(difference)
    return float((as_large.sum() + 1) / (len(random_differences) + 1))
