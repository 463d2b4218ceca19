"""What a model has written: hypotheses, completions, and the steps that led to them.

Steps, positions and indices count from 1 and leave the boundaries out: a sentence of n tokens takes n steps.
This module is free of torch, so that answers can be read, drawn and stored without a model.
"""

from __future__ import annotations

import html
import math
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

# Draws hypotheses in a notebook; None: as a table. `anyorder.load` sets it, as drawing lies above this layer.
draw_in_notebook: Callable[[Sequence[Hypothesis]], str] | None = None

_CELL = 'style="text-align:left;padding:0 1em 0 0"'
_NEW_TOKEN = 'style="background:#cde8cd;color:#000"'


@dataclass(frozen=True)
class Fill:
    """Words that the model wrote between given ones."""

    text: str
    log_prob: float  # log p of the words and gaps, among those that the canvas allowed
    blank: int | None  # number of the blank, from 1, in a template or beside a prefix or suffix; else None


@dataclass(frozen=True)
class Step:
    """One insertion and the canvas after it.

    >>> from anyorder.inference.hypothesis import steps
    >>> last = steps(["runs", "dog"], positions=[2, 1])[-1]
    >>> last.canvas, last.token, last.gap
    (('dog', 'runs'), 'dog', 0)
    """

    canvas: tuple[str, ...]  # the tokens so far, in reading order, without boundaries
    index: int  # index of the new token on this canvas, from 1
    token: str
    log_prob: float  # log p of the word and its gap together; NaN if unknown

    @property
    def gap(self) -> int:
        """The gap that the token went into: the number of tokens left of it."""
        return self.index - 1


def steps(
    tokens: Sequence[str], positions: Sequence[int], log_probs: Sequence[float] | None = None
) -> list[Step]:
    """Replay the insertions that led to a sentence of T tokens.

    tokens: (T,), in the order written; positions: (T,), the position of each in the finished sentence, from
    1; log_probs: (T,), log p of word and gap together.

    >>> for step in steps(["runs", "dog", "a"], positions=[3, 2, 1]):
    ...     print(" ".join(step.canvas))
    runs
    dog runs
    a dog runs
    """
    if len(set(positions)) != len(positions):
        raise ValueError(f"positions {list(positions)}: two tokens can't have the same position")
    known = [math.nan] * len(tokens) if log_probs is None else log_probs
    history: list[Step] = []
    filled: list[int] = []
    canvas: list[str] = []
    for token, position, log_prob in zip(tokens, positions, known, strict=True):
        left = bisect_left(filled, position)  # tokens left of the new one
        insort(filled, position)
        canvas.insert(left, token)
        history.append(Step(canvas=tuple(canvas), index=left + 1, token=token, log_prob=log_prob))
    return history


def written_at(history: Sequence[Step]) -> list[int]:
    """The number of the step, from 1, that wrote each token of the last canvas, in reading order."""
    numbers: list[int] = []
    for number, step in enumerate(history, start=1):
        numbers.insert(step.index - 1, number)
    return numbers


@dataclass(frozen=True, repr=False)
class Hypothesis:
    """One sentence that a model wrote for a source. In a notebook it draws its steps."""

    text: str
    score: float  # ranks hypotheses: log p of all merged orders / steps ** length_penalty
    log_prob: float  # log p of this sentence in this order
    finished: bool  # False: cut off at the maximum length
    tokens: tuple[str, ...]  # (T,), in the order written
    positions: tuple[int, ...]  # (T,), the position of each token in the finished sentence, from 1
    word_scores: tuple[float, ...]  # log p of the word of each step; that of `<eod>` comes last
    gap_scores: tuple[float, ...]  # log p of the gap of each step
    iterations: int  # decoding iterations; fewer than T where one iteration writes several tokens

    @property
    def steps(self) -> list[Step]:
        """The insertions that wrote this sentence, in order."""
        both = zip(self.word_scores, self.gap_scores, strict=False)  # the end is no insertion
        return steps(self.tokens, self.positions, [word + gap for word, gap in both][: len(self.tokens)])

    def __repr__(self) -> str:
        """Text, score and whether it is finished; the other fields are long."""
        return f"{type(self).__name__}({self._shown()})"

    def _shown(self) -> str:
        return f"text={self.text!r}, score={self.score:.4g}, finished={self.finished}"

    def _repr_html_(self) -> str:
        """The steps for notebooks: as a replay if `anyorder.load` was used, else as a table."""
        return self.table() if draw_in_notebook is None else draw_in_notebook([self])

    def table(self) -> str:
        """An HTML table with a row for each step: its token, the canvas after it, and p."""
        rows = "".join(_row(number, step) for number, step in enumerate(self.steps, start=1))
        head = "".join(f"<th {_CELL}>{name}</th>" for name in ("step", "token", "canvas", "p"))
        ending = "" if self.finished else ", cut off at the maximum length"
        caption = f"{html.escape(self.text)} (score {self.score:.4g}{ending})"
        return f"<p><b>{caption}</b></p><table><tr>{head}</tr>{rows}</table>"


def _row(number: int, step: Step) -> str:
    words = [html.escape(word) for word in step.canvas]
    words[step.index - 1] = f"<b {_NEW_TOKEN}>{words[step.index - 1]}</b>"
    probability = "" if math.isnan(step.log_prob) else f"{math.exp(step.log_prob):.3f}"
    cells = (str(number), html.escape(step.token), " ".join(words), probability)
    return f"<tr>{''.join(f'<td {_CELL}>{cell}</td>' for cell in cells)}</tr>"


@dataclass(frozen=True, repr=False)
class Completion(Hypothesis):
    """One sentence that a model wrote around what a user gave of it."""

    fills: tuple[Fill, ...]  # what the model wrote between given words, in reading order
    given: int  # how many of the tokens were given or required

    def _shown(self) -> str:
        return f"{super()._shown()}, fills={[fill.text for fill in self.fills]}"


AnyHypothesis = TypeVar("AnyHypothesis", bound=Hypothesis)


class Answer(list[AnyHypothesis]):
    """The hypotheses for one source: a list, best first, that is never empty.

    The answer to a blank source is one empty, finished hypothesis. In a notebook an answer draws the steps of
    its best hypothesis.
    """

    @property
    def best(self) -> AnyHypothesis:
        """The hypothesis with the best score."""
        return self[0]

    @property
    def text(self) -> str:
        """The text of the best hypothesis."""
        return self.best.text

    def _repr_html_(self) -> str:
        """The best hypothesis with its steps, then the texts of the others."""
        if draw_in_notebook is not None:
            return draw_in_notebook(self)
        others = "".join(f"<li>{html.escape(repr(one))}</li>" for one in self[1:])
        return self.best._repr_html_() + (f"<ol start=2>{others}</ol>" if others else "")
