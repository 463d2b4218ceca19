"""The best words of a large vocabulary and their log p, without log p of all the others.

Logits of all words are a large matrix, and memory is slower than arithmetic. So the vocabulary is taken block
by block: a block adds its share to the normaliser while its logits are still in the processor's cache. The
best words are then looked for in those groups only whose best is among the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

# R rows, D width, V words, C of them looked for

BLOCK = 2048  # words, so that a block of the embedding and its logits fit into a cache
FEW_LOGITS = 2**15  # of a block: with few rows, more words at once cost fewer calls
GROUP = 64  # words
NEVER = float("-inf")

Product = Callable[[Tensor], Tensor]  # of a query, (R, D), and a block of words, (R, words)


class Best(NamedTuple):
    """The best choices, best first, and choice 0, which is the end where there is one to choose."""

    log_probs: Tensor  # (..., C)
    choices: Tensor  # (..., C)
    end: Tensor  # (...), log p


def best_of(log_probs: Tensor, count: int) -> Best:
    """Of few enough choices to know log p of them all. log_probs: (..., M); returns (..., C)."""
    return Best(*log_probs.topk(min(count, log_probs.shape[-1]), dim=-1), end=log_probs[..., 0])


class Vocabulary:
    """The vectors of all words that can be generated, and room for their logits.

    embedding: (V, D); packed: the product with it in another form, block by block.
    """

    def __init__(self, embedding: Tensor, *, packed: Sequence[Product] | None = None) -> None:
        self.embedding = embedding
        self.packed = packed
        self._room = embedding.new_empty(0, dtype=torch.promote_types(embedding.dtype, torch.float32))

    def best(self, query: Tensor, *, count: int) -> Best:
        """query: (R, D); count: C."""
        logits, normaliser = self._logits(query)
        groups = logits.unflatten(1, (-1, GROUP))  # (R, groups, GROUP)
        leading = groups.amax(dim=2).topk(min(count, groups.shape[1]), dim=1).indices
        among = groups.gather(1, leading[..., None].expand(-1, -1, GROUP)).flatten(1)
        scores, chosen = among.topk(min(count, len(self.embedding)), dim=1)
        words = leading.gather(1, chosen // GROUP) * GROUP + chosen % GROUP
        return Best(scores - normaliser[:, None], words, end=logits[:, 0] - normaliser)

    def _logits(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """Of all words, with NEVER for those that a last group lacks; and the normaliser, (R,)."""
        logits = self._reserved(len(query))
        peaks, shares, begin = [], [], 0
        for product in self._products(query):
            block = logits[:, begin : begin + product.shape[1]].copy_(product)
            peak = block.amax(dim=1, keepdim=True)
            peaks.append(peak)
            shares.append((block - peak).exp_().sum(dim=1, keepdim=True))
            begin += product.shape[1]
        logits[:, begin:] = NEVER
        return logits, (torch.cat(peaks, dim=1) + torch.cat(shares, dim=1).log_()).logsumexp(dim=1)

    def _products(self, query: Tensor) -> Iterator[Tensor]:
        """Logits of the words, block by block. query: (R, D)."""
        if self.packed is not None:
            for multiply in self.packed:
                yield multiply(query)
            return
        on_cpu = query.device.type == "cpu"
        words = max(BLOCK, FEW_LOGITS // len(query)) if on_cpu else len(self.embedding)
        for block in self.embedding.split(words):
            yield torch.matmul(query, block.mT)

    def _reserved(self, rows: int) -> Tensor:
        """The same memory at each step: to be given new one costs as much as to fill it."""
        columns = -(-len(self.embedding) // GROUP) * GROUP
        if self._room.numel() < rows * columns:
            self._room = self._room.new_empty(rows * columns)
        return self._room[: rows * columns].view(rows, columns)
