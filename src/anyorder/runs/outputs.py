"""What a trained model has written, with every step of the way."""

from __future__ import annotations

from dataclasses import dataclass

from anyorder.ground.replay import Step, steps
from anyorder.runs.filling import Fill


@dataclass(frozen=True)
class Output:
    """One way that a model would write the answer to a source."""

    text: str
    score: float  # what ranks: log p, of all merged orders, by length
    log_prob: float  # of this text in this order
    finished: bool  # False: cut off at the longest length allowed
    tokens: tuple[str, ...]  # in the order written
    slots: tuple[int, ...]  # where each stands in the end, counted from 1
    word_scores: tuple[float, ...]  # log p, that of `<eod>` last
    gap_scores: tuple[float, ...]
    iterations: int  # that wrote something; fewer than tokens only where several are written at once

    @property
    def steps(self) -> list[Step]:
        """How it was written."""
        both = zip(self.word_scores, self.gap_scores, strict=False)  # the end is no insertion
        return steps(self.tokens, self.slots, [word + gap for word, gap in both][: len(self.tokens)])


@dataclass(frozen=True)
class Completion(Output):
    """One way that a model would write around what is given."""

    fills: tuple[Fill, ...]  # what was written between given words, in reading order
    given: int  # how many of the tokens were given or required
