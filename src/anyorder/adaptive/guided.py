"""Searches of orders that are guided by orders already known.

A beam that compares beginnings by themselves puts off the words that are hard to foresee, and loses orders
that are far better in the end. What the rest would cost in a known order makes beginnings comparable.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from anyorder.adaptive.beam import Orders, search_orders
from anyorder.data.batches import Batch
from anyorder.insertion import NEG_INF
from anyorder.models.encoder_decoder import Memory
from anyorder.models.indigo import Indigo
from anyorder.models.loss import score_steps

# S pairs of a batch, B orders of each, T tokens of the longest target

ROUNDS = 2  # of a thorough search: the second starts from what the first has found


@torch.no_grad()
def search_unguided(model: Indigo, memory: Memory, batch: Batch, *, width: int, noise: float = 0.0) -> Orders:
    """Beginnings are compared by themselves, as in the paper."""
    return _search(model, memory, batch, known=None, width=width, noise=noise)


@torch.no_grad()
def search_guided(model: Indigo, memory: Memory, batch: Batch, *, width: int, noise: float = 0.0) -> Orders:
    """Guided by the orders that the batch has, which are among those found unless all are better."""
    known = _costs(model, memory, batch)
    found = _search(model, memory, batch, known=known.tokens, width=width, noise=noise)
    return merge_orders(found, Orders(batch.order[:, None], known.log_probs[:, None]), width=width)


@torch.no_grad()
def search_thoroughly(model: Indigo, memory: Memory, batch: Batch, *, width: int) -> Orders:
    """For models whose orders are not known beforehand: unguided first, then guided by the best so far."""
    own = Orders(batch.order[:, None], _costs(model, memory, batch).log_probs[:, None])
    found = merge_orders(search_unguided(model, memory, batch, width=width), own, width=width)
    for _ in range(ROUNDS):
        best = batch.reordered(found.positions[:, :1], torch.ones_like(batch.weights)[:, None])
        found = merge_orders(found, search_guided(model, memory, best, width=width), width=width)
    return found


def merge_orders(some: Orders, others: Orders, *, width: int) -> Orders:
    """The best of both, no order twice, best first."""
    known = (others.positions[:, :, None] == some.positions[:, None]).all(dim=3)  # (S, B', B)
    again = (known & (some.log_probs > NEG_INF)[:, None]).any(dim=2)
    positions = torch.cat([some.positions, others.positions], dim=1)
    log_probs = torch.cat(
        [some.log_probs, others.log_probs.to(some.log_probs).masked_fill(again, NEG_INF)], dim=1
    )
    log_probs, rank = log_probs.sort(dim=1, descending=True, stable=True)
    positions = positions.gather(1, rank[..., None].expand_as(positions))
    return Orders(positions=positions[:, :width], log_probs=log_probs[:, :width])


@dataclass(frozen=True)
class _Costs:
    """log p of targets in the orders that they have."""

    tokens: Tensor  # (S, T), of each token, in sentence order; 0 for padding
    log_probs: Tensor  # (S,), of the whole, its end included


def _costs(model: Indigo, memory: Memory, batch: Batch) -> _Costs:
    scores = score_steps(model, memory, batch)
    steps = scores.word + scores.gap  # (S, T + 1)
    tokens = torch.zeros_like(steps).scatter(1, batch.order, steps[:, :-1])  # by position, counted from 1
    return _Costs(tokens=tokens[:, 1:].where(batch.supervision.mask, 0.0), log_probs=steps.sum(dim=1))


def _search(
    model: Indigo, memory: Memory, batch: Batch, *, known: Tensor | None, width: int, noise: float
) -> Orders:
    longest = int(batch.lengths.max())
    found = search_orders(
        model,
        memory,
        batch.targets[:, :longest],
        batch.lengths,
        width=width,
        known=None if known is None else known[:, :longest],
        noise=noise,
    )
    padding = batch.order.shape[1] - longest
    return Orders(positions=functional.pad(found.positions, (0, padding)), log_probs=found.log_probs)
