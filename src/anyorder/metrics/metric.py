"""What a metric is, and what it says about a text.

Every metric counts something on each line, adds the counts up and makes one score of the sums. So the score
of any other choice of lines, which tests of significance ask for thousands of times, needs no second look at
the text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from anyorder.config.data import Side

# L lines, C counts on each, N texts
Numbers = NDArray[np.float64]
References = Sequence[Sequence[str]]  # one or more, each with as many lines as the text

# sacreBLEU's tokenisers, by what a recipe splits by.
_TOKENIZERS = {"moses": "13a", "spaces": "none", "mecab": "ja-mecab"}


@dataclass(frozen=True)
class Options:
    """How text is read before it is compared."""

    tokenize: str = "13a"  # one of sacreBLEU's tokenisers, for BLEU, RIBES and METEOR's minor languages
    lowercase: bool = False
    language: str = "en"  # METEOR's stems and synonyms
    cider_tokenize: str = "ptb"  # as published, or one of sacreBLEU's tokenisers

    @classmethod
    def for_side(cls, side: Side) -> Self:
        """Words as a side of a recipe has them."""
        return cls(tokenize=_TOKENIZERS[side.split], lowercase=side.lowercase, language=side.language)


class Metric(ABC):
    """One way to say how good a text is."""

    name: str  # as people know it
    higher_is_better: bool = True
    # Whether a difference that chance makes as well counts for chance in tests of significance.
    ties_are_chance: bool = True

    @abstractmethod
    def statistics(self, written: Sequence[str], references: References) -> Numbers:
        """What is counted on each line, (L, C)."""

    @abstractmethod
    def scores(self, sums: Numbers) -> Numbers:
        """Scores of several texts, (N,), each from its lines' statistics added up, (N, C)."""

    @abstractmethod
    def signature(self, *, references: int) -> str:
        """All that another needs to know to get the same score, with so many references a line."""

    def score(self, statistics: Numbers) -> float:
        """Of one text, from its lines' statistics, (L, C)."""
        return float(self.scores(statistics.sum(axis=0, keepdims=True))[0])

    def sentence_scores(self, statistics: Numbers) -> Numbers:
        """Score of each line as a text of its own, (L, C) to (L,)."""
        return self.scores(statistics)

    def sentence_signature(self, *, references: int) -> str:
        """The signature of `sentence_scores`, which may smooth what a longer text doesn't need smoothed."""
        return self.signature(references=references)


@dataclass(frozen=True)
class Mean(Metric):
    """A metric whose score of a text is the mean of its lines' scores, in per cent."""

    name: str
    details: str  # the signature, without the number of references
    judge: Callable[[Sequence[str], References], Sequence[float]]  # of each line, usually from 0 to 1

    def statistics(self, written: Sequence[str], references: References) -> Numbers:
        """The line's score, and 1 for the line."""
        scores = np.asarray(self.judge(written, references), dtype=np.float64)
        return np.stack([scores, np.ones(len(scores))], axis=1)

    def scores(self, sums: Numbers) -> Numbers:
        """Total score by the number of lines."""
        return 100 * sums[:, 0] / sums[:, 1]

    def signature(self, *, references: int) -> str:
        """As sacreBLEU writes its own: key:value, with bars between."""
        return f"nrefs:{references}|{self.details}"


@dataclass(frozen=True)
class Result:
    """What a metric says about one system's text."""

    metric: Metric
    score: float
    signature: str
    statistics: Numbers  # (L, C)
    references: int  # to each line

    def score_of(self, lines: NDArray[np.bool_]) -> float:
        """Of some lines alone, at least one. lines: (L,)."""
        return self.metric.score(self.statistics[lines])

    def sentence_scores(self) -> Numbers:
        """Score of each line, (L,)."""
        return self.metric.sentence_scores(self.statistics)

    @property
    def sentence_signature(self) -> str:
        """Of the sentences' scores."""
        return self.metric.sentence_signature(references=self.references)


def case_of(*, lowercase: bool) -> str:
    """Whether capitals count, as signatures say it."""
    return "lc" if lowercase else "mixed"
