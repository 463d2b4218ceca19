"""Whether one system is better than another, or the difference is chance.

Two tests on the same lines: paired bootstrap (Koehn, 2004) and approximate randomisation (Riezler and
Maxwell, 2005). Both draw as sacreBLEU draws, so that with its seed BLEU, chrF and TER get the p-values and
intervals that it prints. Other metrics are tested in the same way, but for them a difference that chance
makes as well counts for chance. sacreBLEU counts only larger ones, by which two systems that differ on a
single line would differ significantly in exact match.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anyorder.metrics.metric import Numbers, Result

# S samples, L lines, C counts on each

SEED = 12345  # sacreBLEU's
_ROUNDING = 1e-9  # of scores; less makes no difference
_CUT = 40  # a fortieth of the samples is cut off at either end: 95 % are left


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


def compare(system: Result, baseline: Result, *, samples: int = 1000, seed: int = SEED) -> Comparison:
    """Test two results of the same metric on the same lines."""
    assert system.signature == baseline.signature
    resampled = _scores(system, _bootstrap(system, baseline, samples=samples, seed=seed))
    differences = resampled[0] - resampled[1]
    spread = np.abs(differences)
    shuffled = _scores(system, _randomise(system, baseline, samples=samples, seed=seed))
    return Comparison(
        system=_estimate(system.score, resampled[0]),
        baseline=_estimate(baseline.score, resampled[1]),
        difference=_estimate(system.score - baseline.score, differences),
        bootstrap_p=_p_value(system, baseline, spread - spread.mean()),
        randomisation_p=_p_value(system, baseline, np.abs(shuffled[0] - shuffled[1])),
        samples=samples,
        seed=seed,
    )


def _bootstrap(system: Result, baseline: Result, *, samples: int, seed: int) -> Numbers:
    """Sums of lines drawn with replacement, the same lines of both systems: (2, S, C)."""
    generator = np.random.default_rng(seed)
    both = np.stack([system.statistics, baseline.statistics], axis=1)  # (L, 2, C)
    draws = (generator.choice(len(both), size=len(both)) for _ in range(samples))
    return np.stack([both[lines].sum(axis=0) for lines in draws], axis=1)


def _randomise(system: Result, baseline: Result, *, samples: int, seed: int) -> Numbers:
    """Sums of two systems that swap lines by the toss of a coin: (2, S, C)."""
    generator = np.random.default_rng(seed)
    one, other = system.statistics, baseline.statistics
    swaps = generator.integers(2, size=(samples, len(one)), dtype=bool)[:, :, None]  # (S, L, 1)
    return np.stack(
        [
            [np.where(swap, other, one).sum(axis=0) for swap in swaps],
            [np.where(swap, one, other).sum(axis=0) for swap in swaps],
        ]
    )


def _scores(result: Result, sums: Numbers) -> Numbers:
    """Of both systems, (2, S, C) to (2, S)."""
    systems, samples, counts = sums.shape
    return result.metric.scores(sums.reshape(systems * samples, counts)).reshape(systems, samples)


def _estimate(score: float, resampled: Numbers) -> Estimate:
    ordered = np.sort(resampled)
    cut = len(ordered) // _CUT
    return Estimate(
        score=score, mean=float(resampled.mean()), low=float(ordered[cut]), high=float(ordered[-1 - cut])
    )


def _p_value(system: Result, baseline: Result, by_chance: Numbers) -> float:
    """How often chance makes a difference like the real one, which itself counts as one more sample."""
    if np.array_equal(system.statistics, baseline.statistics):
        return 1.0
    difference = abs(system.score - baseline.score)
    if system.metric.ties_are_chance:
        as_large = by_chance >= difference - _ROUNDING
    else:
        as_large = by_chance > difference
    return float((as_large.sum() + 1) / (len(by_chance) + 1))
