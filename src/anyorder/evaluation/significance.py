"""Whether one system is better than another, or the difference is chance.

Two tests on the same lines: paired bootstrap (Koehn, 2004) and approximate randomisation (Riezler and
Maxwell, 2005). Both draw as sacreBLEU draws, so that with its seed BLEU, chrF and TER get the p-values and
intervals that it prints. Other metrics are tested in the same way, but for them a difference that chance
makes as well counts for chance. sacreBLEU counts only larger ones, by which two systems that differ on a
single line would differ significantly in exact match.

Both ask whether the difference would be there on other lines. Whether it would be there after other trainings
is another question, which only several trainings can answer: a permutation test over them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from anyorder.metrics.metric import Metric, Numbers, Result

# S samples, L lines, C counts on each, R results of each group

SEED = 12345  # sacreBLEU's
_ROUNDING = 1e-9  # of scores; less makes no difference
_CUT = 40  # a fortieth of the samples is cut off at either end: 95 % are left
_MOST_SPLITS = 200_000  # of trainings into two groups that can be gone through


@dataclass(frozen=True)
class Estimate:
    """A figure, and where 95 % of the samples have it."""

    score: float
    mean: float  # of the samples
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """What sacreBLEU prints after ±."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Comparison:
    """One system against a baseline on the same lines."""

    system: Estimate
    baseline: Estimate
    difference: Estimate  # system − baseline
    bootstrap_p: float
    randomisation_p: float
    samples: int  # of each test
    seed: int


def interval(result: Result, *, samples: int = 1000, seed: int = SEED) -> Estimate:
    """Where the score would be on other lines: a bootstrap, which draws as sacreBLEU draws."""
    sums = _bootstrap(*_side_by_side([result], [result]), samples=samples, seed=seed)
    return _estimate(result.score, _mean_scores(result.metric, sums)[0])


def compare(system: Result, baseline: Result, *, samples: int = 1000, seed: int = SEED) -> Comparison:
    """Test two results of the same metric on the same lines."""
    return compare_means([system], [baseline], samples=samples, seed=seed)


def compare_means(
    systems: Sequence[Result], baselines: Sequence[Result], *, samples: int = 1000, seed: int = SEED
) -> Comparison:
    """Test the mean scores of two groups of results, e.g. of trainings that differ in their seed.

    Lines are drawn, or change sides, with all their outputs at once: outputs for the same line are no more
    independent of each other than two systems' are. How much trainings differ is not tested here.
    """
    assert len({result.signature for result in (*systems, *baselines)}) == 1
    metric = systems[0].metric
    one, other = _side_by_side(systems, baselines)
    score, baseline_score = (_mean_score(group) for group in (systems, baselines))
    resampled = _mean_scores(metric, _bootstrap(one, other, samples=samples, seed=seed))
    differences = resampled[0] - resampled[1]
    spread = np.abs(differences)
    shuffled = _mean_scores(metric, _randomise(one, other, samples=samples, seed=seed))
    same = np.array_equal(one, other)
    difference = score - baseline_score
    return Comparison(
        system=_estimate(score, resampled[0]),
        baseline=_estimate(baseline_score, resampled[1]),
        difference=_estimate(difference, differences),
        bootstrap_p=1.0 if same else _p_value(metric, difference, spread - spread.mean()),
        randomisation_p=1.0 if same else _p_value(metric, difference, np.abs(shuffled[0] - shuffled[1])),
        samples=samples,
        seed=seed,
    )


def trainings_p(scores: Sequence[float], baseline_scores: Sequence[float]) -> float | None:
    """How often chance makes such a difference of means when it deals the trainings to the two groups.

    Exact, over all ways to deal them. None where a group has a single training, or there are too many ways.
    """
    everyone = np.array([*scores, *baseline_scores])
    size = len(scores)
    if min(size, len(baseline_scores)) < 2 or math.comb(len(everyone), size) > _MOST_SPLITS:
        return None
    groups = np.array(list(combinations(range(len(everyone)), size)))
    sums = everyone[groups].sum(axis=1)
    means, other_means = sums / size, (everyone.sum() - sums) / len(baseline_scores)
    differences = np.abs(means - other_means)  # the first way is how they really are
    return float((differences >= differences[0] - _ROUNDING).mean())


def _side_by_side(systems: Sequence[Result], baselines: Sequence[Result]) -> tuple[Numbers, Numbers]:
    """Statistics of both groups, (L, R, C); a smaller group is repeated, which leaves its mean as it is."""
    results = math.lcm(len(systems), len(baselines))
    one, other = (
        np.stack([result.statistics for result in group] * (results // len(group)), axis=1)
        for group in (systems, baselines)
    )
    return one, other


def _bootstrap(one: Numbers, other: Numbers, *, samples: int, seed: int) -> Numbers:
    """Sums of lines drawn with replacement, the same lines of both groups: (2, S, R, C)."""
    generator = np.random.default_rng(seed)
    both = np.stack([one, other], axis=1)  # (L, 2, R, C)
    draws = (generator.choice(len(both), size=len(both)) for _ in range(samples))
    return np.stack([both[lines].sum(axis=0) for lines in draws], axis=1)


def _randomise(one: Numbers, other: Numbers, *, samples: int, seed: int) -> Numbers:
    """Sums of two groups that swap lines by the toss of a coin: (2, S, R, C)."""
    generator = np.random.default_rng(seed)
    swaps = generator.integers(2, size=(samples, len(one)), dtype=bool)[:, :, None, None]  # (S, L, 1, 1)
    return np.stack(
        [
            [np.where(swap, other, one).sum(axis=0) for swap in swaps],
            [np.where(swap, one, other).sum(axis=0) for swap in swaps],
        ]
    )


def _mean_score(results: Sequence[Result]) -> float:
    return math.fsum(result.score for result in results) / len(results)


def _mean_scores(metric: Metric, sums: Numbers) -> Numbers:
    """Of both groups, (2, S, R, C) to (2, S)."""
    counts = sums.shape[-1]
    return metric.scores(sums.reshape(-1, counts)).reshape(sums.shape[:-1]).mean(axis=2)


def _estimate(score: float, resampled: Numbers) -> Estimate:
    ordered = np.sort(resampled)
    cut = len(ordered) // _CUT
    return Estimate(
        score=score, mean=float(resampled.mean()), low=float(ordered[cut]), high=float(ordered[-1 - cut])
    )


def _p_value(metric: Metric, difference: float, by_chance: Numbers) -> float:
    """How often chance makes a difference like the real one, which itself counts as one more sample."""
    if metric.ties_are_chance:
        as_large = by_chance >= abs(difference) - _ROUNDING
    else:
        as_large = by_chance > abs(difference)
    return float((as_large.sum() + 1) / (len(by_chance) + 1))
