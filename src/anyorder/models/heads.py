"""The heads that predict the next word and its gap from the state of the last written token.

Every written token offers two keys, one for its left and one for its right side, so each gap has two names.
The probability of a gap is the sum of both (Eq. 11). Loss, search and decoding work on gaps, never on keys.

A model that copies mixes generated words with words of the source (a pointer-generator):
p(word) = (1 - g) p(word | generated) + g Σ a(i), over all i where the source has that word. The gate g and
the attention a to the source come from the same query as the generated word. So a model can write words that
its vocabulary lacks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from anyorder.insertion import NEG_INF, legal_keys
from anyorder.text.tokenizer import EOD, PAD, UNK

# R rows (sentences, beams or training steps), n tokens on the canvas, D width, V words, G gaps asked for


class GapKeys(NamedTuple):
    """Left and right keys of the written tokens, (R, n, D) each."""

    left: Tensor
    right: Tensor


class WordHead(nn.Module):
    """p(word): the projected state times the output embedding (Eq. 8).

    `<pad>`, `<s>` and `</s>` are not words: ids below `first` are not scored.
    """

    def __init__(self, *, width: int, first: int) -> None:
        super().__init__()
        self.first = first
        self.project = nn.Linear(width, width, bias=False)  # F

    def query(self, states: Tensor, *, hint: Tensor | None = None) -> Tensor:
        """Query of the words. states, hint: (..., D); returns (..., D)."""
        query: Tensor = self.project(states)
        return query if hint is None else query + hint

    def forward(self, query: Tensor, embedding: Tensor) -> Tensor:
        """Logits of the words from `first` on. query: (..., D); embedding: (ids, D); returns (..., V)."""
        return torch.matmul(query, embedding[self.first :].mT)


class GapHead(nn.Module, ABC):
    """p(gap), from the products of a query and the two keys of each gap.

    With `finish` there is one more, learned key: choosing it ends the sentence.
    """

    scale: float  # of the products
    finish: nn.Parameter | None

    @abstractmethod
    def keys_of(self, states: Tensor) -> GapKeys:
        """Compute the keys of tokens. states: (..., n, D)."""

    @abstractmethod
    def query(self, states: Tensor, words: Tensor | None) -> Tensor:
        """Query of the gaps. states: (..., D); words: (..., D), embedded, or None position first."""

    @abstractmethod
    def allowed_keys(self, n: int, *, device: torch.device) -> Tensor:
        """Keys of n tokens that may be chosen: (2, n), bool, left keys and right keys."""

    def products(self, query: Tensor, keys: GapKeys) -> Tensor:
        """Multiply queries with all keys, whether they name a gap or not.

        query: (R, Q, D); keys: (R, n, D); returns (R, Q, 2, n).
        """
        return at_least_float(torch.stack([torch.matmul(query, key.mT) for key in keys], dim=2) * self.scale)

    def logits(self, products: Tensor, *, blocked: Tensor | None = None) -> Tensor:
        """Mask the keys that may not be chosen. products: (R, Q, 2, n); blocked: broadcast to (R, Q, n)."""
        never = ~self.allowed_keys(products.shape[-1], device=products.device)
        if blocked is not None:
            never = never | blocked[..., None, :]
        return products.masked_fill(never, NEG_INF)

    def normaliser(self, logits: Tensor, query: Tensor) -> Tensor:
        """Log of the sum over all keys and `finish`. logits: (R, Q, 2, n); returns (R, Q)."""
        total = logits.flatten(-2).logsumexp(dim=-1)
        if self.finish is None:
            return total
        return torch.logaddexp(total, self.finish_logit(query))

    def finish_logit(self, query: Tensor) -> Tensor:
        """Logit of ending the sentence. query: (R, Q, D); returns (R, Q)."""
        assert self.finish is not None
        return at_least_float(torch.matmul(query, self.finish) * self.scale)

    @staticmethod
    def pick(logits: Tensor, *, left: Tensor, right: Tensor) -> Tensor:
        """Add up the two keys of each gap: the log of its unnormalised probability.

        logits: (R, Q, 2, n); left, right: (R, Q, G), neighbours of the gaps; returns (R, Q, G).
        """
        left_side, right_side = logits.unbind(dim=2)
        return torch.logaddexp(right_side.gather(-1, left), left_side.gather(-1, right))


class Pointer(GapHead):
    """The pointer network of the paper: it points to one side of a written token (Eq. 9)."""

    def __init__(self, *, width: int, finish: bool) -> None:
        super().__init__()
        self.scale = width**-0.5
        self.project = nn.Linear(width, width, bias=False)  # E
        self.keys = nn.Linear(width, 2 * width, bias=False)  # C and D
        self.finish = nn.Parameter(torch.randn(width) * self.scale) if finish else None

    def keys_of(self, states: Tensor) -> GapKeys:
        """Compute the keys of tokens. states: (..., n, D)."""
        left, right = self.keys(states).chunk(2, dim=-1)
        return GapKeys(left, right)

    def query(self, states: Tensor, words: Tensor | None) -> Tensor:
        """Query of the gaps. states, words: broadcast to (..., D); returns (..., D)."""
        query: Tensor = self.project(states)
        return query if words is None else query + words

    def allowed_keys(self, n: int, *, device: torch.device) -> Tensor:
        """All keys that name a gap."""
        return legal_keys(n, device=device)


class LastGap(GapHead):
    """The head of a left-to-right model: it always chooses the gap before `</s>`, and has no weights.

    Its keys and queries are zeros of width 1, so that it can stand in for a pointer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0
        self.finish = None

    def keys_of(self, states: Tensor) -> GapKeys:
        """Zeros. states: (..., n, D); returns (..., n, 1) each."""
        zeros = states.new_zeros(*states.shape[:-1], 1)
        return GapKeys(zeros, zeros)

    def query(self, states: Tensor, words: Tensor | None) -> Tensor:
        """Zeros. states, words: broadcast to (..., D); returns (..., 1)."""
        assert words is not None, "the word comes first"
        return states.new_zeros(*torch.broadcast_shapes(states.shape, words.shape)[:-1], 1)

    def allowed_keys(self, n: int, *, device: torch.device) -> Tensor:
        """The left key of `</s>`, which is token 1."""
        allowed = torch.zeros(2, n, dtype=torch.bool, device=device)
        allowed[0, 1] = True
        return allowed


def at_least_float(logits: Tensor) -> Tensor:
    """Convert half-precision logits to single precision, which sums of many small probabilities need."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def first_word(*, position_first: bool) -> int:
    """The lowest id that the word head scores; position first, `finish` takes the role of `<eod>`."""
    return EOD + 1 if position_first else EOD


# B sources, S source tokens, D width, Q queries of a source, V generated words, C words with the copied ones

TINY = 1e-30  # stands for a probability of zero, whose logarithm has no gradient


@dataclass(frozen=True)
class Copyable:
    """What targets can copy from their sources."""

    keys: Tensor  # (B, S, D)
    words: Tensor  # (B, S), ids as targets have them
    ids: int  # one more than the highest id that can be written

    @property
    def mask(self) -> Tensor:
        """Words that can be copied, (B, S), bool: neither padding nor the end of the source."""
        return self.words >= UNK

    def keep(self, staying: Tensor) -> Copyable:
        """Keep some of the sources; staying: (B',), indices."""
        return Copyable(keys=self.keys[staying], words=self.words[staying], ids=self.ids)

    def join(self, other: Copyable) -> Copyable:
        """Put other sources behind these, padded to the longest of all."""
        longest = max(self.words.shape[1], other.words.shape[1])
        missing = [longest - one.words.shape[1] for one in (self, other)]
        return Copyable(
            keys=torch.cat(
                [
                    functional.pad(one.keys, (0, 0, 0, more))
                    for one, more in zip((self, other), missing, strict=True)
                ]
            ),
            words=torch.cat(
                [
                    functional.pad(one.words, (0, more), value=PAD)
                    for one, more in zip((self, other), missing, strict=True)
                ]
            ),
            ids=max(self.ids, other.ids),
        )


class CopyHead(nn.Module):
    """The gate between generating and copying, and the attention to the source."""

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.scale = width**-0.5
        self.query = nn.Linear(width, width, bias=False)
        self.keys = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, 1)

    def forward(self, query: Tensor, copyable: Copyable) -> tuple[Tensor, Tensor]:
        """The logit of g, (B, Q), and a, (B, Q, S). query: (B, Q, D), the query of the word head."""
        logits = at_least_float(torch.matmul(self.query(query), copyable.keys.mT) * self.scale)
        # An empty source has nothing to copy: its g is 0, and its attention does not matter.
        nothing = ~copyable.mask.any(dim=1, keepdim=True)
        attention = logits.masked_fill(~(copyable.mask | nothing)[:, None], NEG_INF).softmax(dim=-1)
        return at_least_float(self.gate(query).squeeze(-1)).masked_fill(nothing, NEG_INF), attention

    def mixed(self, generated: Tensor, query: Tensor, copyable: Copyable, words: Tensor) -> Tensor:
        """log p of one word for each query, generated or copied.

        generated: (B, Q), log p of generating it, NEG_INF if it can't be; words: (B, Q); returns (B, Q).
        """
        gate, attention = self(query, copyable)
        same = words[:, :, None] == copyable.words[:, None]  # (B, Q, S)
        copied = (attention * same).sum(dim=-1).clamp(min=TINY).log()
        return torch.logaddexp(functional.logsigmoid(-gate) + generated, functional.logsigmoid(gate) + copied)

    def mixed_with_all(self, generated: Tensor, query: Tensor, copyable: Copyable, *, first: int) -> Tensor:
        """log p of every word that can be generated or copied.

        generated: (B, Q, V), log p, counted from the id `first`; returns (B, Q, C), counted alike.
        """
        gate, attention = self(query, copyable)
        same = copyable.words[:, :, None] == copyable.words[:, None]  # (B, S, S)
        copied = torch.matmul(attention, same.to(attention)).clamp(min=TINY).log()
        copied = functional.logsigmoid(gate)[..., None] + copied  # (B, Q, S), by token
        # Tokens that can't be copied are written into one more column, which is cut off.
        words = copyable.ids - first
        beyond = words + 1 - generated.shape[-1]
        scores = functional.pad(
            generated + functional.logsigmoid(-gate)[..., None], (0, beyond), value=NEG_INF
        )
        column = (copyable.words - first).where(copyable.mask, words)[:, None].expand_as(copied)
        scores = scores.scatter(-1, column, torch.logaddexp(scores.gather(-1, column), copied))
        return scores[..., :words]
