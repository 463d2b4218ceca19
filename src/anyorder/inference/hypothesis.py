"""What a model has written, with every step of the way.

Everything here counts from 1 and leaves the boundaries out: a sentence of n words takes n steps."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Fill:
    """What was written between given words."""

    text: str
    log_prob: float  # of its words and gaps, among what the canvas left possible
    blank: int | None  # which blank of a template or beside a prefix or suffix, counted from 1


@dataclass(frozen=True)
class Step:
    """One insertion, and the partial sentence that it leaves."""

    canvas: tuple[str, ...]  # boundaries left out
    index: int  # of the new token on this canvas, from 1
    token: str
    log_prob: float  # word and gap together; NaN if not known

    @property
    def gap(self) -> int:
        """The gap that the token went into: how many words stood left of it."""
        return self.index - 1


def steps(
    tokens: Sequence[str], positions: Sequence[int], log_probs: Sequence[float] | None = None
) -> list[Step]:
    """Replay the insertions that led to a sentence.

    tokens: in the order written; positions: of each in the finished sentence, from 1; log_probs: of word and
    gap together.
    """
    if len(set(positions)) != len(positions):
        raise ValueError(f"positions {list(positions)}: two tokens can't stand in the same one")
    known = [math.nan] * len(tokens) if log_probs is None else log_probs
    history: list[Step] = []
    filled: list[int] = []
    canvas: list[str] = []
    for token, position, log_prob in zip(tokens, positions, known, strict=True):
        before = bisect_left(filled, position)
        insort(filled, position)
        canvas.insert(before, token)
        history.append(Step(canvas=tuple(canvas), index=before + 1, token=token, log_prob=log_prob))
    return history


def written_at(history: Sequence[Step]) -> list[int]:
    """The step, from 1, that wrote each word of the last canvas."""
    writers: list[int] = []
    for number, step in enumerate(history, start=1):
        writers.insert(step.index - 1, number)
    return writers


@dataclass(frozen=True)
class Hypothesis:
    """One way that a model would write the answer to a source."""

    text: str
    score: float  # what ranks: log p, of all merged orders, by length
    log_prob: float  # of this text in this order
    finished: bool  # False: cut off at the longest length allowed
    tokens: tuple[str, ...]  # in the order written
    positions: tuple[int, ...]  # where each stands in the end, counted from 1
    word_scores: tuple[float, ...]  # log p, that of `<eod>` last
    gap_scores: tuple[float, ...]
    iterations: int  # that wrote something; fewer than tokens only where several are written at once

    @property
    def steps(self) -> list[Step]:
        """How it was written."""
        both = zip(self.word_scores, self.gap_scores, strict=False)  # the end is no insertion
        return steps(self.tokens, self.positions, [word + gap for word, gap in both][: len(self.tokens)])


@dataclass(frozen=True)
class Completion(Hypothesis):
    """One way that a model would write around what is given."""

    fills: tuple[Fill, ...]  # what was written between given words, in reading order
    given: int  # how many of the tokens were given or required
