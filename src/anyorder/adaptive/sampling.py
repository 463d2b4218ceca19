"""Orders of a known target, drawn as likely as the model finds them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.adaptive.beam import Candidates, NextTokens, Orders, _written
from anyorder.decoding.beam import Beam
from anyorder.decoding.sampling import draw
from anyorder.insertion import NEG_INF
from anyorder.models.encoder_decoder import Memory
from anyorder.models.indigo import Indigo


@dataclass(frozen=True)
class DrawnOrders(Orders):
    """Orders drawn by chance, each by itself."""

    log_proposals: Tensor  # (S, B), log q of having drawn that order


@torch.no_grad()
def draw_orders(
    model: Indigo, memory: Memory, targets: Tensor, lengths: Tensor, *, chance: Tensor
) -> DrawnOrders:
    """B orders of each target: at each step one of its unplaced tokens, as likely as the model finds it.

    q of a token is p(word) p(gap) over the sum of this product for all tokens unplaced, so that every order
    may be drawn and the q of all orders add up to one.
    targets: (S, T), in sentence order; lengths: (S,); chance: (S, B, T), uniform in [0, 1).
    """
    log_proposals = memory.states.new_zeros(chance.shape[:2])

    def drawn(beam: Beam, candidates: Candidates) -> NextTokens:
        choice, log_proposal = _drawn(beam, candidates, chance[beam.sentences, :, beam.length])
        log_proposals[beam.sentences] += log_proposal.to(log_proposals)
        return choice

    orders = chance.shape[1]
    found = _written(model, memory, targets, lengths, choose=drawn, orders=orders, at_first=orders)
    return DrawnOrders(positions=found.positions, log_probs=found.log_probs, log_proposals=log_proposals)


def _drawn(beam: Beam, candidates: Candidates, chance: Tensor) -> tuple[NextTokens, Tensor]:
    """One way to go on for each hypothesis, and log q of it, (S, K). chance: (S, K)."""
    scores = (candidates.word_score + candidates.gap_score).masked_fill(
        ~candidates.open, NEG_INF
    )  # (S, K, T)
    # A target that is all written is on its way out: it may draw anything, and that counts for nothing.
    whole = ~candidates.open.any(dim=2)
    scores = scores.masked_fill(whole[..., None], 0.0)
    token = draw(scores, chance, temperature=1.0)
    score, log_proposal = (
        each.gather(2, token[..., None]).squeeze(2) for each in (scores, scores.log_softmax(dim=2))
    )
    parent = torch.arange(token.shape[1], device=token.device).expand_as(token)
    choice = NextTokens(parent=parent, token=token, log_prob=beam.log_prob + score)
    return choice, log_proposal.masked_fill(whole, 0.0)
