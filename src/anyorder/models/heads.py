"""What is predicted from the state of the last written token: the next word and the gap that it goes into.

Every written token offers two keys, one for its left and one for its right side, so each gap has two names.
Its probability is the sum of both: loss, search and decoding know gaps, never single keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from anyorder.insertion import NEG_INF, legal_keys
from anyorder.text.tokenizer import EOD

# R rows (sentences, beams or training steps), n tokens on the canvas, D width, V words, G gaps asked for


class GapKeys(NamedTuple):
    """Both keys of each written token, (R, n, D) each."""

    left: Tensor
    right: Tensor


class WordHead(nn.Module):
    """p(word): the projected state against the output embedding (Eq. 8).

    `<pad>`, `<s>` and `</s>` are not words: the ids before `first` have no score at all.
    """

    def __init__(self, *, width: int, first: int) -> None:
        super().__init__()
        self.first = first
        self.project = nn.Linear(width, width, bias=False)  # F

    def query(self, states: Tensor, *, hint: Tensor | None = None) -> Tensor:
        """states, hint: (..., D); returns (..., D)."""
        query: Tensor = self.project(states)
        return query if hint is None else query + hint

    def forward(self, query: Tensor, embedding: Tensor) -> Tensor:
        """query: (..., D); embedding: (ids, D); returns (..., V), counted from the first word on."""
        return torch.matmul(query, embedding[self.first :].mT)


class GapHead(nn.Module, ABC):
    """p(gap), from how well a query fits both keys of each written token, summed over a gap's two names.

    With `finish`, there is one more key, a learned one, that ends the sentence instead.
    """

    scale: float  # of the products
    finish: nn.Parameter | None

    @abstractmethod
    def keys_of(self, states: Tensor) -> GapKeys:
        """states: (..., n, D)."""

    @abstractmethod
    def query(self, states: Tensor, words: Tensor | None) -> Tensor:
        """states, words: broadcast to (..., D), the words embedded where they come first."""

    @abstractmethod
    def allowed_keys(self, n: int, *, device: torch.device) -> Tensor:
        """Which keys of n tokens may be chosen: (2, n), bool, left keys and right keys."""

    def products(self, query: Tensor, keys: GapKeys) -> Tensor:
        """Of queries and all keys, whether they name a gap or not.

        query: (R, Q, D); keys: (R, n, D); returns (R, Q, 2, n).
        """
        return at_least_float(torch.stack([torch.matmul(query, key.mT) for key in keys], dim=2) * self.scale)

    def logits(self, products: Tensor, *, blocked: Tensor | None = None) -> Tensor:
        """-inf for keys that may not be chosen. products: (R, Q, 2, n); blocked: broadcast to (R, Q, n)."""
        never = ~self.allowed_keys(products.shape[-1], device=products.device)
        if blocked is not None:
            never = never | blocked[..., None, :]
        return products.masked_fill(never, NEG_INF)

    def normaliser(self, logits: Tensor, query: Tensor) -> Tensor:
        """Log of the sum over all keys, `finish` among them. logits: (R, Q, 2, n); returns (R, Q)."""
        total = logits.flatten(-2).logsumexp(dim=-1)
        if self.finish is None:
            return total
        return torch.logaddexp(total, self.finish_logit(query))

    def finish_logit(self, query: Tensor) -> Tensor:
        """query: (R, Q, D); returns (R, Q)."""
        assert self.finish is not None
        return at_least_float(torch.matmul(query, self.finish) * self.scale)

    @staticmethod
    def pick(logits: Tensor, *, left: Tensor, right: Tensor) -> Tensor:
        """Log of the unnormalised probability of gaps, given by their neighbours.

        logits: (R, Q, 2, n); left, right: (R, Q, G), tokens; returns (R, Q, G).
        """
        left_side, right_side = logits.unbind(dim=2)
        return torch.logaddexp(right_side.gather(-1, left), left_side.gather(-1, right))


class Pointer(GapHead):
    """The paper's: it points to one side of a written token (Eq. 9)."""

    def __init__(self, *, width: int, finish: bool) -> None:
        super().__init__()
        self.scale = width**-0.5
        self.project = nn.Linear(width, width, bias=False)  # E
        self.keys = nn.Linear(width, 2 * width, bias=False)  # C and D
        self.finish = nn.Parameter(torch.randn(width) * self.scale) if finish else None

    def keys_of(self, states: Tensor) -> GapKeys:
        """states: (..., n, D)."""
        left, right = self.keys(states).chunk(2, dim=-1)
        return GapKeys(left, right)

    def query(self, states: Tensor, words: Tensor | None) -> Tensor:
        """states, words: broadcast to (..., D); returns (..., D)."""
        query: Tensor = self.project(states)
        return query if words is None else query + words

    def allowed_keys(self, n: int, *, device: torch.device) -> Tensor:
        """All that name a gap."""
        return legal_keys(n, device=device)


class LastGap(GapHead):
    """For a model that writes left to right: the gap before `</s>` is certain, and there is nothing to learn.

    Its keys and queries are zeros of width 1, so that whoever asks a pointer can ask this one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0
        self.finish = None

    def keys_of(self, states: Tensor) -> GapKeys:
        """states: (..., n, D); returns (..., n, 1) each."""
        zeros = states.new_zeros(*states.shape[:-1], 1)
        return GapKeys(zeros, zeros)

    def query(self, states: Tensor, words: Tensor | None) -> Tensor:
        """states, words: broadcast to (..., D); returns (..., 1)."""
        assert words is not None, "the word comes first"
        return states.new_zeros(*torch.broadcast_shapes(states.shape, words.shape)[:-1], 1)

    def allowed_keys(self, n: int, *, device: torch.device) -> Tensor:
        """Left of `</s>`, which is token 1."""
        allowed = torch.zeros(2, n, dtype=torch.bool, device=device)
        allowed[0, 1] = True
        return allowed


def at_least_float(logits: Tensor) -> Tensor:
    """Half-precision logits in single precision: sums of many small probabilities need it."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def first_word(*, position_first: bool) -> int:
    """The lowest id that the word head scores: where the gap comes first, `finish` stands for `<eod>`."""
    return EOD + 1 if position_first else EOD
