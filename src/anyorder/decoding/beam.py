"""The beam: hypotheses under way, side by side as tensors, and the finished ones that have left it.

It knows nothing of text, nor of where candidates come from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from anyorder import config
from anyorder.insertion import BOUNDARIES, NEG_INF, insert, reading_order
from anyorder.text.tokenizer import BOS, EOS, PAD


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
    """The divisor of log p for a number of steps, by the length penalty."""
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


# S sentences under way, K hypotheses of each, n tokens on the canvas, B hypotheses to go on with


def padded_canvas(values: Tensor, more: int, *, value: float = 0) -> Tensor:
    """Put padding behind the boundaries. values: (S, K, n); returns (S, K, n + more)."""
    padding = values.new_full((*values.shape[:2], more), value)
    return torch.cat([values[..., :BOUNDARIES], padding, values[..., BOUNDARIES:]], dim=2)


def trimmed_canvas(values: Tensor, columns: int) -> Tensor:
    """Remove padding from behind the boundaries. values: (S, K, n); returns (S, K, n - columns)."""
    return torch.cat([values[..., :BOUNDARIES], values[..., BOUNDARIES + columns :]], dim=2)


class Parents:
    """The hypotheses that go on, B of each sentence's K. parent: (S, B)."""

    def __init__(self, parent: Tensor, *, among: int) -> None:
        self.hypotheses = parent
        first = torch.arange(0, len(parent) * among, among, device=parent.device)  # row of each sentence
        self.rows = (parent + first[:, None]).flatten()

    def select(self, values: Tensor) -> Tensor:
        """Take the values of these hypotheses. values: (S, K, ...); returns (S, B, ...)."""
        return values.flatten(0, 1).index_select(0, self.rows).unflatten(0, self.hypotheses.shape)


@dataclass(frozen=True)
class Extension:
    """One more token for each of B hypotheses a sentence. All: (S, B)."""

    parent: Tensor  # the hypothesis that is continued
    word: Tensor
    gap: Tensor
    word_score: Tensor
    gap_score: Tensor
    log_prob: Tensor  # of the whole hypothesis; NEG_INF where there was nothing more to choose


@dataclass(frozen=True)
class Beam:
    """Hypotheses under way. Their first two tokens are the boundaries, which cost nothing.

    A sentence that joined later has fewer tokens than the others. What it lacks is padding, which follows the
    boundaries and stands to the right of `</s>`, where it can't come between two real tokens.
    """

    sentences: Tensor  # (S,), which sentences of the batch these are
    words: Tensor  # (S, K, n), in the order written
    indices: Tensor  # (S, K, n), where each token stands on the canvas
    word_scores: Tensor  # (S, K, n), log p
    gap_scores: Tensor  # (S, K, n), log p
    log_prob: Tensor  # (S, K), of each hypothesis; NEG_INF where there is none
    padding: Tensor | None = None  # (S,), number of padding tokens; None for none

    @classmethod
    def start(cls, sentences: int, *, hypotheses: int = 1, device: torch.device) -> Beam:
        """Empty canvases, `<s> </s>`."""
        shape = (sentences, hypotheses, BOUNDARIES)
        return cls(
            sentences=torch.arange(sentences, device=device),
            words=torch.tensor([BOS, EOS], device=device).expand(shape),
            indices=torch.arange(BOUNDARIES, device=device).expand(shape),
            word_scores=torch.zeros(shape, device=device),
            gap_scores=torch.zeros(shape, device=device),
            log_prob=torch.zeros(shape[:2], device=device),
        )

    @property
    def length(self) -> int:
        """Number of tokens written, without the boundaries; of those who joined later, with padding."""
        return self.words.shape[2] - BOUNDARIES

    @property
    def lengths(self) -> Tensor | int:
        """Number of tokens written in each sentence, (S,), or one number if it is the same for all."""
        return self.length if self.padding is None else self.length - self.padding

    @property
    def each_length(self) -> list[int]:
        """Number of tokens written in each sentence, as a list."""
        if self.padding is None:
            return [self.length] * len(self.sentences)
        return [self.length - padding for padding in self.padding.tolist()]

    def grow(self, extension: Extension) -> Beam:
        """Write one more token into each hypothesis that goes on."""
        inherited = Parents(extension.parent, among=self.log_prob.shape[1]).select
        indices = insert(inherited(self.indices).flatten(0, 1), extension.gap.flatten())
        return Beam(
            sentences=self.sentences,
            words=torch.cat([inherited(self.words), extension.word[..., None]], dim=2),
            indices=indices.unflatten(0, extension.parent.shape),
            word_scores=torch.cat([inherited(self.word_scores), extension.word_score[..., None]], dim=2),
            gap_scores=torch.cat([inherited(self.gap_scores), extension.gap_score[..., None]], dim=2),
            log_prob=extension.log_prob,
            padding=self.padding,
        )

    def keep(self, sentences: Tensor) -> Beam:
        """Keep some of the sentences; sentences: (S',), indices, rising."""
        if len(sentences) == len(self.sentences):
            return self
        kept: dict[str, Any] = {
            name: None if value is None else value[sentences] for name, value in vars(self).items()
        }
        return Beam(**kept)

    def join(self, other: Beam) -> Beam:
        """Put the sentences of another beam behind these; all are numbered anew.

        The shorter ones get padding, and the narrower ones hypotheses of probability zero.
        """
        longest = max(self.length, other.length)
        widest = max(self.log_prob.shape[1], other.log_prob.shape[1])
        both = [one._widened(widest)._padded(longest - one.length) for one in (self, other)]
        joined = {
            name: torch.cat([getattr(one, name) for one in both])
            for name in ("words", "indices", "word_scores", "gap_scores", "log_prob", "padding")
        }
        sentences = torch.arange(len(joined["words"]), device=self.words.device)
        return Beam(sentences=sentences, **joined)

    def _widened(self, hypotheses: int) -> Beam:
        missing = hypotheses - self.log_prob.shape[1]
        if not missing:
            return self

        def widened(values: Tensor) -> Tensor:
            return torch.cat([values, values[:, :1].expand(-1, missing, *values.shape[2:])], dim=1)

        return replace(
            self,
            words=widened(self.words),
            indices=widened(self.indices),
            word_scores=widened(self.word_scores),
            gap_scores=widened(self.gap_scores),
            log_prob=functional.pad(self.log_prob, (0, missing), value=NEG_INF),
        )

    def _padded(self, more: int) -> Beam:
        """Give all sentences more padding."""
        known = torch.zeros_like(self.sentences) if self.padding is None else self.padding
        if not more:
            return replace(self, padding=known)
        # The foremost has the highest index, so that `trimmed` leaves no holes.
        beyond = torch.arange(more, device=self.words.device).flip(0) + self.words.shape[2]
        left, right = self.indices[..., :BOUNDARIES], self.indices[..., BOUNDARIES:]
        return replace(
            self,
            words=padded_canvas(self.words, more, value=PAD),
            indices=torch.cat([left, beyond.expand(*left.shape[:2], -1), right], dim=2),
            word_scores=padded_canvas(self.word_scores, more),
            gap_scores=padded_canvas(self.gap_scores, more),
            padding=known + more,
        )

    def trimmed(self, columns: int) -> Beam:
        """Remove padding that all sentences have. columns: how much."""
        assert self.padding is not None
        left = self.padding - columns
        names = ("words", "indices", "word_scores", "gap_scores") if columns else ()
        kept = {name: trimmed_canvas(getattr(self, name), columns) for name in names}
        if kept:
            # A hypothesis that has ended may hold tokens behind the padding; any canvas will do for it.
            indices = kept["indices"]
            anywhere = torch.arange(indices.shape[2], device=indices.device).expand_as(indices)
            kept["indices"] = anywhere.where((self.log_prob == NEG_INF)[..., None], indices)
        return replace(self, padding=left if bool(left.any()) else None, **kept)

    def merged(self) -> Beam:
        """Of hypotheses with the same canvas, let only the best go on, with the probability of all.

        This is an approximation: the states of the others, which another order led to, are given up.
        """
        read = self.words.gather(2, reading_order(self.indices))  # (S, K, n), left to right
        same = (read[:, :, None] == read[:, None, :]).all(dim=-1)  # (S, K, K)
        # The best of each group is the one that no better one equals.
        rank = self.log_prob.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        better = same & (rank[:, None, :] < rank[:, :, None])
        merged = torch.where(same, self.log_prob[:, None, :], NEG_INF).logsumexp(dim=2)
        return replace(self, log_prob=torch.where(better.any(dim=2), NEG_INF, merged))

    def hypotheses(self, chosen: Tensor, *, ends: Tensor, end_is_word: bool) -> Iterator[TokenHypothesis]:
        """Take some hypotheses as they stand, sentence by sentence. chosen: (S, K), bool.

        ends: (S, K), log p of their ends, NEG_INF where one is not finished; end_is_word: whether the end is
        chosen as a word or as a gap.
        """
        histories = (self.words, self.indices, self.word_scores, self.gap_scores)
        written = (each[chosen][:, BOUNDARIES:].tolist() for each in histories)
        rows = chosen.nonzero()[:, 0].tolist()
        lengths = self.each_length
        for row, *columns, so_far, end in zip(
            rows, *written, self.log_prob[chosen].tolist(), ends[chosen].tolist(), strict=True
        ):
            tokens, positions, words, gaps = (column[self.length - lengths[row] :] for column in columns)
            finished = end > NEG_INF
            if finished:
                (words if end_is_word else gaps).append(end)
            log_prob = so_far + end if finished else so_far
            yield TokenHypothesis(
                tokens=tuple(tokens),
                positions=tuple(positions),
                word_scores=tuple(words),
                gap_scores=tuple(gaps),
                finished=finished,
                merged_log_prob=log_prob,
                score=log_prob,
                iterations=lengths[row],
            )
