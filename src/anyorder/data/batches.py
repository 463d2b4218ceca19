"""Batches: pairs of similar length, padded, each with the order in which its target is written.

The plan of an epoch (which pairs belong to which update) depends only on the seed and the epoch's number. So
all processes compute the same plan without communication, and an interrupted run can continue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder.insertion import Supervision, supervise
from anyorder.text.tokenizer import BOS, EOS, PAD

# B pairs, S source vectors, H required tokens, T tokens of the longest target, N = T + 2 with the boundaries

Ids = NDArray[np.int32]


@dataclass(frozen=True)
class Example:
    """One training pair."""

    source: NDArray[np.generic]  # (S,) token ids, or (S, features) feature vectors
    target: Ids  # (T,), from left to right
    order: Ids  # (T,), the position that each step fills, counted from 1
    weight: float = 1.0  # factor of its loss


@dataclass(frozen=True)
class Batch:
    """Padded pairs. A target may have several orders, in consecutive rows, but its source is there once."""

    source: Tensor  # (B, S) or (B, S, features)
    source_mask: Tensor  # (B, S), bool: True for real tokens, False for padding
    words: Tensor  # (B, N), tokens by step, `<s>` and `</s>` first
    order: Tensor  # (B, T), position that each step fills, counted from 1
    lengths: Tensor  # (B,), number of tokens of each target
    weights: Tensor  # (B,), factor of each row's loss
    given: Tensor  # (B,), number of first steps that are given and have no loss
    required: Tensor  # (B, H), words that must appear, which the encoder reads; padded

    @cached_property
    def supervision(self) -> Supervision:
        """The insertions that write these targets in these orders."""
        return supervise(self.order, self.lengths)

    @property
    def steps(self) -> float:
        """Weighted number of steps with a loss, `<eod>` included; all orders of a target count as one."""
        return float((self.weights * (self.lengths + 1 - self.given)).sum())

    @property
    def read(self) -> Tensor:
        """Number of tokens or vectors that the encoder reads of each pair, required words included, (B,)."""
        return self.source_mask.sum(dim=1) + (self.required != PAD).sum(dim=1)

    @cached_property
    def targets(self) -> Tensor:
        """The targets from left to right, (B, T)."""
        read = self.words.gather(1, self.supervision.positions.argsort(dim=1))  # `<s>`, the sentence, `</s>`
        return read[:, 1:-1].where(self.supervision.mask, PAD)

    def pairs(self, chosen: Tensor) -> Batch:
        """Select pairs, each of which has a single order. chosen: their rows."""
        return Batch(**{one.name: getattr(self, one.name)[chosen] for one in fields(self)})

    def with_orders(self, chosen: Tensor) -> Batch:
        """Select pairs with all their orders. chosen: which sources."""
        orders = len(self.lengths) // len(self.source_mask)
        rows = (orders * chosen[:, None] + torch.arange(orders, device=chosen.device)).flatten()
        of_sources = ("source", "source_mask", "required")
        return Batch(
            **{
                one.name: getattr(self, one.name)[chosen if one.name in of_sources else rows]
                for one in fields(self)
            }
        )

    def without_loss(self) -> Batch:
        """The same pairs, none of which counts."""
        return replace(self, weights=torch.zeros_like(self.weights))

    def reordered(self, positions: Tensor, weights: Tensor) -> Batch:
        """Replace each target's order by several orders, in consecutive rows; sources are not repeated.

        positions: (B, orders, T), counted from 1; weights: (B, orders), share of the target's weight. No
        steps are given in the result, because other steps come first in another order.
        """
        orders = positions.shape[1]
        mask = self.supervision.mask[:, None].expand_as(positions)
        targets = self.targets[:, None].expand_as(positions)
        words = targets.gather(2, (positions - 1).clamp(min=0)).where(mask, PAD)
        boundaries = self.words[:, None, :2].expand(-1, orders, -1)
        return replace(
            self,
            words=torch.cat([boundaries, words], dim=2).flatten(0, 1),
            order=positions.where(mask, 0).flatten(0, 1),
            lengths=self.lengths.repeat_interleave(orders),
            weights=(self.weights[:, None] * weights).flatten(),
            given=self.lengths.new_zeros(orders * len(self.lengths)),
        )

    def to(self, device: torch.device) -> Batch:
        """Copy all tensors to a device."""
        return Batch(**{one.name: getattr(self, one.name).to(device) for one in fields(self)})


class LearnedBatch(Protocol):
    """What an update learns from, and how it is split."""

    @property
    def source_mask(self) -> Tensor:
        """Which source tokens are real, (B, S), bool."""

    @property
    def lengths(self) -> Tensor:
        """Number of steps of each row without its end."""

    @property
    def steps(self) -> float:
        """Weighted number of steps with a loss."""

    @property
    def read(self) -> Tensor:
        """Number of tokens that the encoder reads of each source, (B,)."""

    def with_orders(self, chosen: Tensor) -> Self:
        """Select sources with all that belongs to them. chosen: which sources."""

    def without_loss(self) -> Self:
        """The same rows, none of which counts."""


@dataclass(frozen=True)
class Part:
    """The pairs of an update's batch that are learned at once: by one process, in one go.

    What is random is drawn for the whole batch, so that an update does not depend on how it is split.
    """

    batch: LearnedBatch  # padded as the whole batch is
    whole: LearnedBatch
    sources: Tensor  # (b,), which sources of the whole batch these are

    @classmethod
    def all_of(cls, batch: LearnedBatch) -> Part:
        """A batch that is not split."""
        return cls(batch, batch, torch.arange(len(batch.source_mask), device=batch.lengths.device))

    @classmethod
    def of(cls, whole: LearnedBatch, sources: Tensor) -> Part:
        """Some of the pairs of a batch."""
        return cls(whole.with_orders(sources), whole, sources)

    @property
    def is_whole(self) -> bool:
        """Whether the batch is not split."""
        return self.batch is self.whole

    def drawn_shape(self, shape: torch.Size) -> torch.Size:
        """The shape for the whole batch. shape: for this part, a row for each source or for each order."""
        rows = shape[0] // len(self.sources) * len(self.whole.source_mask)
        return torch.Size((rows, *shape[1:]))

    def taken(self, drawn: Tensor) -> Tensor:
        """This part's rows of what was drawn for the whole batch."""
        sources = len(self.whole.source_mask)
        return drawn.unflatten(0, (sources, -1))[self.sources].flatten(0, 1)


def collate(examples: Sequence[Example]) -> Batch:
    """Pad and stack pairs. Text sources get an end token, so that none is empty."""
    source, source_mask = collate_sources([example.source for example in examples])
    lengths = torch.tensor([len(example.target) for example in examples])
    longest = int(lengths.max())
    order = np.zeros((len(examples), longest), dtype=np.int64)
    words = np.full((len(examples), longest + 2), PAD, dtype=np.int64)
    words[:, 0], words[:, 1] = BOS, EOS
    for row, example in enumerate(examples):
        order[row, : len(example.order)] = example.order
        words[row, 2 : 2 + len(example.target)] = example.target[example.order - 1]
    return Batch(
        source=source,
        source_mask=source_mask,
        words=torch.from_numpy(words),
        order=torch.from_numpy(order),
        lengths=lengths,
        weights=torch.tensor([example.weight for example in examples]),
        given=torch.zeros_like(lengths),
        required=lengths.new_zeros(len(lengths), 0),
    )


def collate_sources(sources: Sequence[NDArray[np.generic]]) -> tuple[Tensor, Tensor]:
    """Pad and stack sources: token ids, (S,) each, or feature vectors, (S, features) each.

    Returns the stacked sources and their mask, (B, S), which is True for real tokens.
    """
    if sources[0].ndim == 1:
        sources = [np.append(source, EOS) for source in sources]
    longest = max(len(source) for source in sources)
    kind = np.int64 if sources[0].ndim == 1 else np.float32
    stacked = np.zeros((len(sources), longest, *sources[0].shape[1:]), dtype=kind)
    mask = np.zeros((len(sources), longest), dtype=np.bool_)
    for row, source in enumerate(sources):
        stacked[row, : len(source)] = source
        mask[row, : len(source)] = True
    return torch.from_numpy(stacked), torch.from_numpy(mask)


def plan_epoch(
    sizes: NDArray[np.int64], *, batch_tokens: int, seed: int, epoch: int
) -> list[NDArray[np.int64]]:
    """Distribute the pairs over the updates of an epoch.

    sizes: (pairs,), source + target tokens. A batch holds pairs of similar size, as many as fit into
    batch_tokens when all are padded to the longest.
    """
    generator = np.random.default_rng([seed, epoch])
    shuffled = generator.permutation(len(sizes))
    by_size = shuffled[np.argsort(sizes[shuffled], kind="stable")]
    batches = list(_fill(by_size, sizes, batch_tokens))
    return [batches[index] for index in generator.permutation(len(batches))]


def _fill(
    by_size: NDArray[np.int64], sizes: NDArray[np.int64], batch_tokens: int
) -> Iterator[NDArray[np.int64]]:
    start = 0
    for end in range(1, len(by_size) + 1):
        # Pairs are sorted by size, so the last one is the longest.
        if end == len(by_size) or int(sizes[by_size[end]]) * (end + 1 - start) > batch_tokens:
            yield by_size[start:end]
            start = end


def shares(batch: NDArray[np.int64], parts: int) -> list[NDArray[np.int64]]:
    """Split an update's batch into parts of similar size, for processes or for gradient accumulation.

    A part may be empty.
    """
    return [batch[part::parts] for part in range(parts)]


def mixed_seed(*numbers: int) -> int:
    """Combine several numbers into one random seed."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint32)[0])
