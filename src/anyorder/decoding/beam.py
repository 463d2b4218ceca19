"""Hypotheses: sentences under way, side by side as tensors, and the finished ones that leave.

The beam knows nothing of text, nor of where its candidates come from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anyorder.insertion import NEG_INF, insert, reading_order
from anyorder.text.tokenizer import BOS, EOS

# S sentences under way, K hypotheses of each, n tokens on the canvas, B hypotheses to go on with

BOUNDARIES = 2


@dataclass(frozen=True)
class TokenHypothesis:
    """A sentence as it was written."""

    tokens: tuple[int, ...]  # in the order written, without boundaries and `<eod>`
    positions: tuple[int, ...]  # where each stands in the end, counted from 1
    word_scores: tuple[float, ...]  # log p; that of `<eod>` comes last if it was reached (word first)
    gap_scores: tuple[float, ...]  # log p; that of finishing comes last if it was reached (position first)
    finished: bool  # False: cut off at the longest length allowed
    merged_log_prob: float  # log p in all the orders merged into this one; without merging, log_prob
    score: float  # what ranks
    iterations: int  # that wrote something; fewer than tokens only where several are written at once
    owners: tuple[int, ...] = ()  # whose each token is, as `constraints` has it; (): nothing was given
    given: int = 0  # how many of the tokens, the first ones, a template gave; they cost nothing

    @property
    def log_prob(self) -> float:
        """Of this sentence in this order."""
        return sum(self.word_scores) + sum(self.gap_scores)

    @property
    def sentence(self) -> tuple[int, ...]:
        """The tokens in the order that they are read in."""
        read: list[int] = [0] * len(self.tokens)
        for token, position in zip(self.tokens, self.positions, strict=True):
            read[position - 1] = token
        return tuple(read)


class Parents:
    """Hypotheses to go on with, B of each sentence's K. parent: (S, B)."""

    def __init__(self, parent: Tensor, *, among: int) -> None:
        self.hypotheses = parent
        first = torch.arange(0, len(parent) * among, among, device=parent.device)  # row of each sentence
        self.rows = (parent + first[:, None]).flatten()

    def of(self, values: Tensor) -> Tensor:
        """What is theirs. values: (S, K, ...); returns (S, B, ...)."""
        return values.flatten(0, 1).index_select(0, self.rows).unflatten(0, self.hypotheses.shape)


@dataclass(frozen=True)
class Beam:
    """Hypotheses under way. Their first two tokens are the boundaries, which cost nothing."""

    sentences: Tensor  # (S,), which sentences of the batch these are
    words: Tensor  # (S, K, n), in the order written
    indices: Tensor  # (S, K, n), where each stands now
    word_scores: Tensor  # (S, K, n)
    gap_scores: Tensor  # (S, K, n)
    log_prob: Tensor  # (S, K), what ranks them; NEG_INF where there is no hypothesis

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
        """Tokens written, without the boundaries."""
        return self.words.shape[2] - BOUNDARIES

    def grow(
        self,
        *,
        parent: Tensor,
        word: Tensor,
        gap: Tensor,
        word_score: Tensor,
        gap_score: Tensor,
        log_prob: Tensor,
    ) -> Beam:
        """Write one more token into each of B hypotheses chosen a sentence. All arguments: (S, B)."""
        inherited = Parents(parent, among=self.log_prob.shape[1]).of
        indices = insert(inherited(self.indices).flatten(0, 1), gap.flatten())
        return Beam(
            sentences=self.sentences,
            words=torch.cat([inherited(self.words), word[..., None]], dim=2),
            indices=indices.unflatten(0, parent.shape),
            word_scores=torch.cat([inherited(self.word_scores), word_score[..., None]], dim=2),
            gap_scores=torch.cat([inherited(self.gap_scores), gap_score[..., None]], dim=2),
            log_prob=log_prob,
        )

    def keep(self, sentences: Tensor) -> Beam:
        """Only some of the sentences; sentences: (S',), indices, rising."""
        if len(sentences) == len(self.sentences):
            return self
        return Beam(**{name: value[sentences] for name, value in vars(self).items()})

    def merged(self) -> Beam:
        """Of hypotheses with the same canvas only the best goes on, with the probability of all.

        An approximation: the others' states, which a different order led to, are given up.
        """
        read = self.words.gather(2, reading_order(self.indices))  # (S, K, n), as it is read
        same = (read[:, :, None] == read[:, None, :]).all(dim=-1)  # (S, K, K)
        # The best of each group is the one that no better one equals.
        rank = self.log_prob.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        better = same & (rank[:, None, :] < rank[:, :, None])
        merged = torch.where(same, self.log_prob[:, None, :], NEG_INF).logsumexp(dim=2)
        return replace(self, log_prob=torch.where(better.any(dim=2), NEG_INF, merged))

    def hypotheses(self, chosen: Tensor, *, ends: Tensor, end_is_word: bool) -> Iterator[TokenHypothesis]:
        """Some of them as they stand, from the first sentence to the last. chosen: (S, K), bool.

        ends: (S, K), log p of their ends, NEG_INF where one is not finished; end_is_word: the end is chosen
        as a word is, not as a gap.
        """
        histories = (self.words, self.indices, self.word_scores, self.gap_scores)
        written = (each[chosen][:, BOUNDARIES:].tolist() for each in histories)
        for tokens, positions, words, gaps, so_far, end in zip(
            *written, self.log_prob[chosen].tolist(), ends[chosen].tolist(), strict=True
        ):
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
                iterations=self.length,
            )
