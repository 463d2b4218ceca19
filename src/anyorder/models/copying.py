"""Copying: a word is generated from the vocabulary or taken over from the source (a pointer-generator).

p(word) = (1 - g) p(word | generated) + g Σ a(i), over all i where the source has that word. The share g that
is copied and the attention a to the source's tokens follow from the same query as the generated word. So
words can be written that the vocabulary lacks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from anyorder.insertion import NEG_INF
from anyorder.models.heads import at_least_float
from anyorder.text.tokenizer import UNK

# B sources, S source tokens, D width, Q queries of a source, V generated words, C words with the copied ones

TINY = 1e-30  # instead of a probability of zero, whose logarithm has no gradient


@dataclass(frozen=True)
class Copyable:
    """What targets may take over from their sources."""

    keys: Tensor  # (B, S, D)
    words: Tensor  # (B, S), ids as targets have them
    ids: int  # one more than the highest id that can be written at all

    @property
    def mask(self) -> Tensor:
        """(B, S), bool: neither padding nor the source's end."""
        return self.words >= UNK

    def keep(self, staying: Tensor) -> Copyable:
        """Only some of the sources; staying: (B',), indices."""
        return Copyable(keys=self.keys[staying], words=self.words[staying], ids=self.ids)


class CopyHead(nn.Module):
    """How much to copy, and which token of the source."""

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.scale = width**-0.5
        self.query = nn.Linear(width, width, bias=False)
        self.keys = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, 1)

    def forward(self, query: Tensor, copyable: Copyable) -> tuple[Tensor, Tensor]:
        """The logit of g, (B, Q), and a, (B, Q, S). query: (B, Q, D), what words are generated from."""
        logits = at_least_float(torch.matmul(self.query(query), copyable.keys.mT) * self.scale)
        # A blank source has nothing to copy: its g is 0, and where it looks does not matter.
        nothing = ~copyable.mask.any(dim=1, keepdim=True)
        attention = logits.masked_fill(~(copyable.mask | nothing)[:, None], NEG_INF).softmax(dim=-1)
        return at_least_float(self.gate(query).squeeze(-1)).masked_fill(nothing, NEG_INF), attention

    def mixed(self, generated: Tensor, query: Tensor, copyable: Copyable, words: Tensor) -> Tensor:
        """log p of one word for each query, some of them copied.

        generated: (B, Q), log p as generated, NEVER where it can't be; words: (B, Q); returns (B, Q).
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
        copied = functional.logsigmoid(gate)[..., None] + copied  # (B, Q, S), of each token's word
        # What can't be copied is written into a last column, which nobody reads.
        nobody = copyable.ids - first
        beyond = nobody + 1 - generated.shape[-1]
        scores = functional.pad(
            generated + functional.logsigmoid(-gate)[..., None], (0, beyond), value=NEG_INF
        )
        column = (copyable.words - first).where(copyable.mask, nobody)[:, None].expand_as(copied)
        scores = scores.scatter(-1, column, torch.logaddexp(scores.gather(-1, column), copied))
        return scores[..., :nobody]
