"""Copying: a word is generated from the vocabulary or copied from the source (a pointer-generator).

p(word) = (1 - g) p(word | generated) + g Σ a(i), over all i where the source has that word. The gate g and
the attention a to the source come from the same query as the generated word. A model that copies can write
words that its vocabulary lacks.
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
