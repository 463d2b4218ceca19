"""Hypotheses that have left the beam, in token ids, and how they are ranked."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from anyorder import config


@dataclass(frozen=True)
class TokenHypothesis:
    """A decoded sentence, with the steps that wrote it."""

    tokens: tuple[int, ...]  # in the order written, without boundaries and `<eod>`
    positions: tuple[int, ...]  # final position of each token, counted from 1
    word_scores: tuple[float, ...]  # log p of each word; word first, `<eod>` comes last if it was reached
    gap_scores: tuple[float, ...]  # log p of each gap; position first, *finish* comes last
    finished: bool  # False: cut off at the length limit
    merged_log_prob: float  # log p in all the orders merged into this one; without merging, log_prob
    score: float  # what hypotheses are ranked by
    iterations: int  # decoding steps; fewer than tokens only where several are written at once
    owners: tuple[int, ...] = ()  # who asked for each token (`constraint_state`); empty without constraints
    given: int = 0  # number of template tokens; they come first and cost nothing

    @property
    def log_prob(self) -> float:
        """log p of this sentence in this order."""
        return sum(self.word_scores) + sum(self.gap_scores)

    @property
    def sentence(self) -> tuple[int, ...]:
        """The tokens from left to right."""
        read: list[int] = [0] * len(self.tokens)
        for token, position in zip(self.tokens, self.positions, strict=True):
            read[position - 1] = token
        return tuple(read)

    def ranked_by(self, settings: config.Decode) -> float:
        """log p / steps ** length_penalty; a step is a token that was not given, or the end."""
        steps = len(self.tokens) - self.given + self.finished
        return self.merged_log_prob / length_divisor(steps, settings)


def length_divisor(steps: int, settings: config.Decode) -> float:
    """What the log p of so many steps is divided by."""
    return float(max(1, steps) ** settings.length_penalty)


def rank(hypotheses: list[TokenHypothesis], settings: config.Decode) -> list[TokenHypothesis]:
    """Sort hypotheses, best first: finished before cut off, then by score. Returns the n best."""
    if settings.merge:
        hypotheses = _merge(hypotheses)
    scored = [replace(one, score=one.ranked_by(settings)) for one in hypotheses]
    return sorted(scored, key=lambda one: (not one.finished, -one.score))[: settings.n_best]


def _merge(hypotheses: list[TokenHypothesis]) -> list[TokenHypothesis]:
    """Keep each sentence once, in its likeliest order, with the probability of all its orders found."""
    # Sampling may find the same order twice, which makes the sentence no likelier.
    different = {(one.finished, one.tokens, one.positions): one for one in hypotheses}
    groups: dict[tuple[bool, tuple[int, ...]], list[TokenHypothesis]] = {}
    for one in different.values():
        groups.setdefault((one.finished, one.sentence), []).append(one)
    return [
        replace(
            max(group, key=lambda one: one.log_prob),
            merged_log_prob=float(np.logaddexp.reduce([one.merged_log_prob for one in group])),
        )
        for group in groups.values()
    ]
