"""The best words of a large vocabulary and their log p, without log p of all the others.

Logits of all words are a large matrix, and memory is slower than arithmetic. So the vocabulary is taken block
by block: a block adds its share to the normaliser while its logits are still in the processor's cache, and
its best words are looked for in those groups only whose best is among the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from anyorder.models.heads import at_least_float

# R rows, D width, V words, C of them looked for

BLOCK = 2048  # words, so that a block of the embedding and its logits fit into a cache
FEW_LOGITS = 2**15  # of a block: with few rows, more words at once cost fewer calls
GROUP = 64  # words
Product = Callable[[Tensor], Tensor]  # of a query, (R, D), and a block of words, (R, words)


class Best(NamedTuple):
    """The best choices, best first, and choice 0, which is the end where there is one to choose."""

    log_probs: Tensor  # (..., C), what they are chosen by
    choices: Tensor  # (..., C)
    end: Tensor  # (...), log p
    paid: Tensor  # (..., C), log p; another than what they are chosen by only where something is required


def top_choices(log_probs: Tensor, count: int) -> Best:
    """Of few enough choices to know log p of them all. log_probs: (..., M); returns (..., C)."""
    best, choices = log_probs.topk(min(count, log_probs.shape[-1]), dim=-1)
    return Best(best, choices, end=log_probs[..., 0], paid=best)


class Vocabulary:
    """The vectors of all words that can be generated.

    embedding: (V, D); packed: the product with it in another form, block by block.
    """

    def __init__(self, embedding: Tensor, *, packed: Sequence[Product] | None = None) -> None:
        self.embedding = embedding
        self.packed = packed

    def best(self, query: Tensor, *, count: int) -> Best:
        """query: (R, D); count: C."""
        return self._best_and(query, None, None, count=count)[0]

    def best_and(self, query: Tensor, asked: Tensor, *, no_end: Tensor, count: int) -> tuple[Best, Tensor]:
        """And log p of some words, whether they are good or not. asked: (R, Q); no_end: (R,), bool.

        Where there is no end it is not among the best; all log p are as they were.
        """
        best, found = self._best_and(query, asked, no_end, count=count)
        assert found is not None
        return best, found

    def _best_and(
        self, query: Tensor, asked: Tensor | None, no_end: Tensor | None, *, count: int
    ) -> tuple[Best, Tensor | None]:
        logits, words, shares, begin = [], [], [], 0
        end, found = None, None
        for block in self._products(query):
            end = block[:, 0] if end is None else end
            if asked is not None:
                found = _looked_up(block, asked - begin, found)
            # A fused softmax is one pass over the block; a sum of exponentials would be four.
            shares.append(block[:, 0] - block.log_softmax(dim=1)[:, 0])
            if no_end is not None and begin == 0:
                end = end.clone()
                block[:, 0].masked_fill_(no_end, float("-inf"))
            best, places = leading(block, count)
            logits.append(best)
            words.append(places + begin)
            begin += block.shape[1]
        assert end is not None
        normaliser = torch.stack(shares, dim=1).logsumexp(dim=1)
        best, chosen = torch.cat(logits, dim=1).topk(min(count, begin), dim=1)
        log_probs = best - normaliser[:, None]
        best_words = torch.cat(words, dim=1).gather(1, chosen)
        return (
            Best(log_probs, best_words, end=end - normaliser, paid=log_probs),
            None if found is None else found - normaliser[:, None],
        )

    def _products(self, query: Tensor) -> Iterator[Tensor]:
        """Logits of the words, block by block. query: (R, D)."""
        if self.packed is not None:
            for multiply in self.packed:
                yield multiply(query)
            return
        on_cpu = query.device.type == "cpu"
        words = max(BLOCK, FEW_LOGITS // len(query)) if on_cpu else len(self.embedding)
        for block in self.embedding.split(words):
            yield at_least_float(torch.matmul(query, block.mT))


def _looked_up(block: Tensor, asked: Tensor, found: Tensor | None) -> Tensor:
    """Logits of the words that this block has, and of others as they were. asked, found: (R, Q)."""
    here = block.gather(1, asked.clamp(0, block.shape[1] - 1))
    return here if found is None else torch.where((asked >= 0) & (asked < block.shape[1]), here, found)


def leading(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The best of each row and where they are, in no order. logits: (R, words); returns (R, C or fewer)."""
    words = logits.shape[1]
    whole = words - words % GROUP
    if whole <= count * GROUP:
        return logits.topk(min(count, words), dim=1)
    groups = logits[:, :whole].unflatten(1, (-1, GROUP))
    promising = groups.amax(dim=2).topk(count, dim=1).indices  # (R, C)
    places = promising[..., None] * GROUP + torch.arange(GROUP, device=logits.device)  # (R, C, GROUP)
    places = places.flatten(1)
    if whole < words:  # and all of what no group holds
        rest = torch.arange(whole, words, device=logits.device).expand(len(logits), -1)
        places = torch.cat([places, rest], dim=1)
    best, chosen = logits.gather(1, places).topk(count, dim=1)
    return best, places.gather(1, chosen)
