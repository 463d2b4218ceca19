"""The best words of a large vocabulary and their log p, without log p of all other words.

The logits of all words are a large matrix, and memory is slower than arithmetic. So the vocabulary is taken
block by block: a block adds its share to the normaliser while its logits are still in the processor's cache,
and the best words are searched only in groups whose best word is good enough. The plain twin is
`top_choices` of a log-softmax over all words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from anyorder.models import kernels
from anyorder.models.heads import at_least_float

# R rows, D width, V words, C of them looked for

BLOCK = 2048  # words, so that a block of the embedding and its logits fit into a cache
FEW_LOGITS = 2**15  # of a block: with few rows, more words at once cost fewer calls
GROUP = 64  # words
Product = Callable[[Tensor], Tensor]  # from a query, (R, D), to the logits of a block of words, (R, words)


class TopChoices(NamedTuple):
    """The best choices, best first, and log p of choice 0, which is the end where there is one to choose.

    Under constraints the rank of a choice may differ from its log p.
    """

    rank: Tensor  # (..., C), what the choices are sorted by
    choices: Tensor  # (..., C)
    end: Tensor  # (...), log p of choice 0
    log_probs: Tensor  # (..., C)

    def map(self, change: Callable[[Tensor], Tensor]) -> TopChoices:
        """Change all tensors alike."""
        return TopChoices(*map(change, self))


def top_choices(log_probs: Tensor, count: int) -> TopChoices:
    """Pick the best of few choices, whose log p are all known. log_probs: (..., M); returns (..., C)."""
    best, choices = log_probs.topk(min(count, log_probs.shape[-1]), dim=-1)
    return TopChoices(best, choices, end=log_probs[..., 0], log_probs=best)


class Vocabulary:
    """The output embedding, to look for the best words.

    embedding: (V, D); packed: products with its blocks, in another layout.
    """

    def __init__(self, embedding: Tensor, *, packed: Sequence[Product] | None = None) -> None:
        self.embedding = embedding
        self.packed = packed

    def best(self, query: Tensor, *, count: int) -> TopChoices:
        """Find the best words. query: (R, D); count: C."""
        return self._best_and(query, None, None, count=count)[0]

    def best_and(
        self, query: Tensor, asked: Tensor, *, without_end: Tensor, count: int
    ) -> tuple[TopChoices, Tensor]:
        """Find the best words, and log p of some given ones, good or not.

        asked: (R, Q), the given words; without_end: (R,), bool, where the end is kept out of the best words.
        No log p changes by that.
        """
        best, found = self._best_and(query, asked, without_end, count=count)
        assert found is not None
        return best, found

    def _best_and(
        self, query: Tensor, asked: Tensor | None, without_end: Tensor | None, *, count: int
    ) -> tuple[TopChoices, Tensor | None]:
        logits, words, shares, begin = [], [], [], 0
        end, found = None, None
        for block in self._products(query):
            end = block[:, 0] if end is None else end
            if asked is not None:
                found = _looked_up(block, asked - begin, found)
            # A fused softmax is one pass over the block; a sum of exponentials would be four.
            shares.append(block[:, 0] - block.log_softmax(dim=1)[:, 0])
            if without_end is not None and begin == 0:
                end = end.clone()
                block[:, 0].masked_fill_(without_end, float("-inf"))
            best, indices = top_logits(block, count)
            logits.append(best)
            words.append(indices + begin)
            begin += block.shape[1]
        assert end is not None
        normaliser = torch.stack(shares, dim=1).logsumexp(dim=1)
        best, chosen = torch.cat(logits, dim=1).topk(min(count, begin), dim=1)
        log_probs = best - normaliser[:, None]
        best_words = torch.cat(words, dim=1).gather(1, chosen)
        return (
            TopChoices(log_probs, best_words, end=end - normaliser, log_probs=log_probs),
            None if found is None else found - normaliser[:, None],
        )

    def _products(self, query: Tensor) -> Iterator[Tensor]:
        """Multiply with one block of words after the other. query: (R, D)."""
        if self.packed is not None:
            for multiply in self.packed:
                yield multiply(query)
            return
        on_cpu = query.device.type == "cpu" and kernels.enabled()
        words = max(BLOCK, FEW_LOGITS // len(query)) if on_cpu else len(self.embedding)
        for block in self.embedding.split(words):
            yield at_least_float(torch.matmul(query, block.mT))


def _looked_up(block: Tensor, asked: Tensor, found: Tensor | None) -> Tensor:
    """Update the logits of given words with those of a block. asked, found: (R, Q)."""
    here = block.gather(1, asked.clamp(0, block.shape[1] - 1))
    return here if found is None else torch.where((asked >= 0) & (asked < block.shape[1]), here, found)


def top_logits(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Find the largest logits of each row and their indices, unsorted. logits: (R, words)."""
    words = logits.shape[1]
    whole = words - words % GROUP
    if whole <= count * GROUP:
        return logits.topk(min(count, words), dim=1)
    groups = logits[:, :whole].unflatten(1, (-1, GROUP))
    promising = groups.amax(dim=2).topk(count, dim=1).indices  # (R, C)
    indices = promising[..., None] * GROUP + torch.arange(GROUP, device=logits.device)  # (R, C, GROUP)
    indices = indices.flatten(1)
    if whole < words:  # and all words that are in no group
        rest = torch.arange(whole, words, device=logits.device).expand(len(logits), -1)
        indices = torch.cat([indices, rest], dim=1)
    best, chosen = logits.gather(1, indices).topk(count, dim=1)
    return best, indices.gather(1, chosen)
