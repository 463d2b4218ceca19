"""The search for the best orders of a known target by a beam: the paper's, or guided by a known order.

The paper's beam compares beginnings by their own log p. It puts off words that are hard to predict for as
long as it can, and loses orders that are far better in the end. The guided search adds what the remaining
words would cost in a known order, which makes beginnings comparable.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from anyorder.adaptive.candidates import Candidates, NextTokens, Orders, write_targets
from anyorder.data.batches import Batch
from anyorder.decoding.beam import Beam
from anyorder.insertion import NEG_INF
from anyorder.models.encoder_decoder import Memory
from anyorder.models.indigo import Indigo
from anyorder.models.loss import score_steps

# S sentences, K hypotheses of each, B orders to go on with, T tokens of the longest target

ROUNDS = 2  # of a thorough search: the second starts from the best orders of the first


@torch.no_grad()
def search_orders(
    model: Indigo,
    memory: Memory,
    targets: Tensor,
    lengths: Tensor,
    *,
    width: int,
    known: Tensor | None = None,
    noise: float = 0.0,
    generator: torch.Generator | None = None,
) -> Orders:
    """Find the B best orders of each target, best first, or all T! where these are fewer.

    targets: (S, T), in sentence order; lengths: (S,); width: B. Dropout is on if the model is in training.
    known: (S, T), log p of each token in a known order, for the guided search. noise: scale of Gumbel noise
    on the choice of candidates; the log p returned are free of it.
    """

    def choose(beam: Beam, candidates: Candidates) -> NextTokens:
        later = None if known is None else known[beam.sentences]
        return _best_tokens(beam, candidates, width=width, later=later, noise=noise, generator=generator)

    found = write_targets(model, memory, targets, lengths, choose=choose, orders=width)
    log_probs, rank = found.log_probs.sort(dim=1, descending=True, stable=True)
    positions = found.positions.gather(1, rank[..., None].expand_as(found.positions))
    return Orders(positions=positions, log_probs=log_probs)


def _best_tokens(
    beam: Beam,
    candidates: Candidates,
    *,
    width: int,
    later: Tensor | None,
    noise: float,
    generator: torch.Generator | None,
) -> NextTokens:
    """Choose the best B ways to go on. later: (S, T), log p of each token if it were written later."""
    log_prob = beam.log_prob[..., None] + candidates.word_score + candidates.gap_score  # (S, K, T)
    log_prob = log_prob.masked_fill(~candidates.open, NEG_INF)
    rank = log_prob
    if later is not None:
        remaining = (later[:, None] * candidates.open).sum(dim=2)  # (S, K)
        rank = log_prob + remaining[..., None] - later[:, None]
    log_prob, rank = log_prob.flatten(1), rank.flatten(1)
    if noise:
        uniform = torch.rand(log_prob.shape, generator=generator, device=log_prob.device).clamp(min=1e-20)
        rank = rank - noise * (-uniform.log()).log()
    chosen = rank.topk(min(width, log_prob.shape[1]), dim=1).indices
    longest = candidates.open.shape[2]
    return NextTokens(parent=chosen // longest, token=chosen % longest, log_prob=log_prob.gather(1, chosen))


# --- searches of a batch ---


@torch.no_grad()
def search_unguided(model: Indigo, memory: Memory, batch: Batch, *, width: int, noise: float = 0.0) -> Orders:
    """Search as the paper does: beginnings are compared by their own log p."""
    return _search(model, memory, batch, known=None, width=width, noise=noise)


@torch.no_grad()
def search_guided(model: Indigo, memory: Memory, batch: Batch, *, width: int, noise: float = 0.0) -> Orders:
    """Search guided by the orders of the batch, which are among those found unless all found are better."""
    known = _score_known(model, memory, batch)
    found = _search(model, memory, batch, known=known.tokens, width=width, noise=noise)
    return merge_orders(found, Orders(batch.order[:, None], known.log_probs[:, None]), width=width)


@torch.no_grad()
def search_thoroughly(model: Indigo, memory: Memory, batch: Batch, *, width: int) -> Orders:
    """Search without a known order to trust: unguided first, then guided by the best orders so far."""
    own = Orders(batch.order[:, None], _score_known(model, memory, batch).log_probs[:, None])
    found = merge_orders(search_unguided(model, memory, batch, width=width), own, width=width)
    for _ in range(ROUNDS):
        best = batch.reordered(found.positions[:, :1], torch.ones_like(batch.weights)[:, None])
        found = merge_orders(found, search_guided(model, memory, best, width=width), width=width)
    return found


def merge_orders(some: Orders, others: Orders, *, width: int) -> Orders:
    """Take the best of both, best first, no order twice."""
    known = (others.positions[:, :, None] == some.positions[:, None]).all(dim=3)  # (S, B', B)
    repeated = (known & (some.log_probs > NEG_INF)[:, None]).any(dim=2)
    positions = torch.cat([some.positions, others.positions], dim=1)
    log_probs = torch.cat(
        [some.log_probs, others.log_probs.to(some.log_probs).masked_fill(repeated, NEG_INF)], dim=1
    )
    log_probs, rank = log_probs.sort(dim=1, descending=True, stable=True)
    positions = positions.gather(1, rank[..., None].expand_as(positions))
    return Orders(positions=positions[:, :width], log_probs=log_probs[:, :width])


@dataclass(frozen=True)
class _KnownScores:
    """log p of targets in the orders of a batch."""

    tokens: Tensor  # (S, T), of each token, in sentence order; 0 for padding
    log_probs: Tensor  # (S,), of the whole target, its end included


def _score_known(model: Indigo, memory: Memory, batch: Batch) -> _KnownScores:
    scores = score_steps(model, memory, batch)
    steps = scores.word + scores.gap  # (S, T + 1)
    tokens = torch.zeros_like(steps).scatter(1, batch.order, steps[:, :-1])  # by position, counted from 1
    return _KnownScores(tokens=tokens[:, 1:].where(batch.supervision.mask, 0.0), log_probs=steps.sum(dim=1))


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
