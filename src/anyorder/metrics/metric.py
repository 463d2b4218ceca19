"""The interface of a metric, and its result.

Every metric computes statistics of each line, adds them up and turns the sums into a score. So significance
tests can score thousands of resampled texts without reading the text again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from anyorder.config.data import Side

# L lines, C statistics per line, N texts
Numbers = NDArray[np.float64]
References = Sequence[Sequence[str]]  # one or more texts, each with as many lines as the hypotheses

# The sacreBLEU tokeniser for each value of text.target.split.
_TOKENIZERS = {"moses": "13a", "spaces": "none", "mecab": "ja-mecab"}


@dataclass(frozen=True)
class Options:
    """How metrics split and normalise text."""

    tokenize: str = "13a"  # sacreBLEU tokeniser, for BLEU, RIBES and some languages of METEOR
    lowercase: bool = False
    language: str = "en"  # for METEOR's stems and synonyms
    cider_tokenize: str = "ptb"  # ptb, as published, or a sacreBLEU tokeniser

    @classmethod
    def for_side(cls, side: Side) -> Self:
        """Split words as a side of a recipe does."""
        return cls(tokenize=_TOKENIZERS[side.split], lowercase=side.lowercase, language=side.language)


class Metric(ABC):
    """A score of hypotheses against references."""

    name: str  # for tables
    higher_is_better: bool = True
    # Whether an equally large difference counts as evidence for chance in significance tests.
    ties_are_chance: bool = True
    needs_drafts: bool = False  # whether it judges edits, and so must know what was edited

    def for_drafts(self, drafts: Sequence[str]) -> Metric:
        """The metric of texts that were made from these drafts, a line for each."""
        return self

    @abstractmethod
    def statistics(self, written: Sequence[str], references: References) -> Numbers:
        """Compute the statistics of each line, (L, C)."""

    @abstractmethod
    def scores(self, sums: Numbers) -> Numbers:
        """Score several texts, (N,), from the sums of their lines' statistics, (N, C)."""

    @abstractmethod
    def signature(self, *, references: int) -> str:
        """Everything that one needs to reproduce the score. references: their number."""

    def score(self, statistics: Numbers) -> float:
        """Score one text from its lines' statistics, (L, C)."""
        return float(self.scores(statistics.sum(axis=0, keepdims=True))[0])

    def sentence_scores(self, statistics: Numbers) -> Numbers:
        """Score each line by itself, (L,), from the lines' statistics, (L, C)."""
        return self.scores(statistics)

    def sentence_signature(self, *, references: int) -> str:
        """The signature of `sentence_scores`, which may be computed differently."""
        return self.signature(references=references)


@dataclass(frozen=True)
class Mean(Metric):
    """A metric that is the mean of the lines' scores, in per cent."""

    name: str
    details: str  # the signature, without the number of references
    judge: Callable[[Sequence[str], References], Sequence[float]]  # scores of the lines, usually from 0 to 1

    def statistics(self, written: Sequence[str], references: References) -> Numbers:
        """The score of each line, and 1 to count the line."""
        scores = np.asarray(self.judge(written, references), dtype=np.float64)
        return np.stack([scores, np.ones(len(scores))], axis=1)

    def scores(self, sums: Numbers) -> Numbers:
        """Divide the sum of the scores by the number of lines."""
        return 100 * sums[:, 0] / sums[:, 1]

    def signature(self, *, references: int) -> str:
        """In the form of sacreBLEU: key:value, separated by bars."""
        return f"nrefs:{references}|{self.details}"


@dataclass(frozen=True)
class Result:
    """A metric's score of one system's text."""

    metric: Metric
    score: float
    signature: str
    statistics: Numbers  # (L, C)
    references: int  # number of references

    def score_of(self, lines: NDArray[np.bool_]) -> float:
        """Score a subset of the lines, at least one. lines: (L,)."""
        return self.metric.score(self.statistics[lines])

    def sentence_scores(self) -> Numbers:
        """Score each line, (L,)."""
        return self.metric.sentence_scores(self.statistics)

    @property
    def sentence_signature(self) -> str:
        """The signature of `sentence_scores`."""
        return self.metric.sentence_signature(references=self.references)


def case_of(*, lowercase: bool) -> str:
    """How a signature says whether case matters."""
    return "lc" if lowercase else "mixed"
