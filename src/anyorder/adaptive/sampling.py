"""Orders of a known target, drawn as the model would write it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from anyorder.adaptive.candidates import Candidates, NextTokens, Orders, write_targets
from anyorder.data.batches import Batch
from anyorder.decoding.beam import Beam
from anyorder.decoding.sampling import draw
from anyorder.insertion import NEG_INF
from anyorder.models.encoder_decoder import Memory
from anyorder.models.indigo import Indigo

# S sentences, B orders of each, T tokens of the longest target


@dataclass(frozen=True)
class DrawnOrders(Orders):
    """Orders drawn at random, each by itself; one may be drawn twice."""

    log_proposals: Tensor  # (S, B), log q of drawing that order


@torch.no_grad()
def draw_orders(
    model: Indigo,
    memory: Memory,
    targets: Tensor,
    lengths: Tensor,
    *,
    uniform: Tensor,
    temperature: float = 1.0,
) -> DrawnOrders:
    """Draw B orders of each target, one unwritten token after the other.

    q of a token is p(word) p(gap), to the power of 1 / temperature, over the sum of this for all unwritten
    tokens. So every order may be drawn, and q of all orders sums to one.
    targets: (S, T), in sentence order; lengths: (S,); uniform: (S, B, T), random numbers in [0, 1).
    """
    log_proposals = memory.states.new_zeros(uniform.shape[:2])

    def choose(beam: Beam, candidates: Candidates) -> NextTokens:
        chosen, log_proposal = _draw_tokens(
            beam, candidates, uniform[beam.sentences, :, beam.length], temperature=temperature
        )
        log_proposals[beam.sentences] += log_proposal.to(log_proposals)
        return chosen

    orders = uniform.shape[1]
    found = write_targets(model, memory, targets, lengths, choose=choose, orders=orders, start_with=orders)
    return DrawnOrders(positions=found.positions, log_probs=found.log_probs, log_proposals=log_proposals)


@torch.no_grad()
def draw_for_batch(
    model: Indigo,
    memory: Memory,
    batch: Batch,
    *,
    count: int,
    temperature: float,
    uniform: Tensor | None = None,
) -> Orders:
    """Draw orders for a batch, each scored by its log importance weight, log p - log q.

    On average, p / q of an order drawn is p of the target in all orders together.
    uniform: random numbers to draw by, (S, count, T or more); None for new ones.
    """
    longest = int(batch.lengths.max())
    if uniform is None:
        uniform = torch.rand(len(batch.lengths), count, longest, device=batch.lengths.device)
    uniform = uniform[:, :, :longest]
    drawn = draw_orders(
        model, memory, batch.targets[:, :longest], batch.lengths, uniform=uniform, temperature=temperature
    )
    padding = batch.order.shape[1] - longest
    return Orders(
        positions=functional.pad(drawn.positions, (0, padding)),
        log_probs=drawn.log_probs - drawn.log_proposals,
    )


def _draw_tokens(
    beam: Beam, candidates: Candidates, uniform: Tensor, *, temperature: float
) -> tuple[NextTokens, Tensor]:
    """Draw the next token of each hypothesis, and compute log q of it, (S, B). uniform: (S, B)."""
    scores = (candidates.word_score + candidates.gap_score).masked_fill(
        ~candidates.open, NEG_INF
    )  # (S, B, T)
    # A target that is all written leaves after this step: it may draw anything, and that counts for nothing.
    whole = ~candidates.open.any(dim=2)
    scores = scores.masked_fill(whole[..., None], 0.0)
    token = draw(scores, uniform, temperature=temperature)
    score, log_proposal = (
        each.gather(2, token[..., None]).squeeze(2)
        for each in (scores, (scores / temperature).log_softmax(dim=2))
    )
    parent = torch.arange(token.shape[1], device=token.device).expand_as(token)
    chosen = NextTokens(parent=parent, token=token, log_prob=beam.log_prob + score)
    return chosen, log_proposal.masked_fill(whole, 0.0)
