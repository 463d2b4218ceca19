"""Adaptive orders: how the model itself would write a target that is known.

A beam search over the orders of a target, which differs from decoding only in its candidates: each token that
is not yet placed, in the one gap that it belongs in.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.beam import DEAD, Beam
from anyorder.decode import Moment
from anyorder.model import END, Indigo, Memory

# S sentences, K hypotheses of each, B orders to go on with, T tokens of the longest target


@dataclass(frozen=True)
class Orders:
    """The best orders found of each target, best first."""

    slots: Tensor  # (S, B, T), the slot that each step fills, counted from 1; 0 for padding
    log_probs: Tensor  # (S, B), of the target in that order, its end included; DEAD where there is no order


@dataclass(frozen=True)
class Candidates:
    """Every token of a target as the next one to write."""

    gap: Tensor  # (S, K, T), where it belongs; so are the others
    word_score: Tensor
    gap_score: Tensor
    open: Tensor  # bool: a real token that is not yet written


@torch.no_grad()
def search_orders(
    model: Indigo,
    memory: Memory,
    targets: Tensor,
    lengths: Tensor,
    *,
    width: int,
    noise: float = 0.0,
    generator: torch.Generator | None = None,
) -> Orders:
    """The B best orders of each target, or all T! where these are fewer.

    targets: (S, T), in sentence order; lengths: (S,). Dropout is on if the model is in training.
    noise: scale of Gumbel noise on the choice of candidates; the log p returned are free of it.
    """
    sentences, longest = targets.shape
    found = Orders(
        slots=targets.new_zeros(sentences, width, longest),
        log_probs=memory.states.new_full((sentences, width), DEAD),
    )
    writing = model.start(memory)
    beam = Beam.start(sentences, device=targets.device)
    slots = targets.new_zeros(sentences, 1, 0)  # (S, K, tokens written), of the finished sentence
    newest = beam.words
    while len(beam.sentences):
        state = model.advance(writing, newest.flatten(0, 1), beam.places.flatten(0, 1))
        moment = Moment(model, writing, state, beam)
        first_scores = moment.first_scores()
        whole = lengths[beam.sentences] == beam.length
        _collect(found, beam, slots, end_scores=first_scores[..., END], whole=whole)
        candidates = _candidates(
            moment, first_scores, slots, targets[beam.sentences], lengths[beam.sentences]
        )
        log_mass, parent, token = _best(beam, candidates, width=width, noise=noise, generator=generator)
        chosen = parent * longest + token  # (S, B), among K · T
        grown = beam.grow(
            parent=parent,
            word=targets[beam.sentences].gather(1, token),
            gap=candidates.gap.flatten(1).gather(1, chosen),
            word_score=candidates.word_score.flatten(1).gather(1, chosen),
            gap_score=candidates.gap_score.flatten(1).gather(1, chosen),
            log_mass=log_mass,
        )
        slots = torch.cat(
            [slots.gather(1, parent[..., None].expand(-1, -1, slots.shape[2])), token[..., None] + 1], dim=2
        )
        staying = (~whole).nonzero().squeeze(1)
        writing.follow(parent, staying)
        beam, slots = grown.keep(staying), slots[staying]
        newest = beam.words[..., -1:]
    return found


def _candidates(
    moment: Moment, first_scores: Tensor, slots: Tensor, targets: Tensor, lengths: Tensor
) -> Candidates:
    """slots: (S, K, written); targets: (S, T); lengths: (S,)."""
    model = moment.model
    hypotheses, longest = slots.shape[1], targets.shape[1]
    written = torch.zeros(len(targets), hypotheses, longest, dtype=torch.bool, device=targets.device)
    written.scatter_(2, slots - 1, True)
    real = torch.arange(longest, device=targets.device) < lengths[:, None]
    # The tokens written left of a slot, `<s>` not counted, number the gap that it lies in.
    gap = written.cumsum(dim=2)
    words = targets[:, None].expand(-1, hypotheses, -1)
    first, second = model.first_and_second(words.clamp(min=model.word_head.first), gap)
    first_score = first_scores.gather(2, first)
    second_score = moment.second_scores(first).gather(3, second[..., None]).squeeze(3)
    word_score, gap_score = (
        (second_score, first_score) if model.position_first else (first_score, second_score)
    )
    return Candidates(gap=gap, word_score=word_score, gap_score=gap_score, open=real[:, None] & ~written)


def _best(
    beam: Beam, candidates: Candidates, *, width: int, noise: float, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """log p, parent and token of the B best ways to go on, (S, B) each."""
    mass = beam.log_mass[..., None] + candidates.word_score + candidates.gap_score  # (S, K, T)
    mass = mass.masked_fill(~candidates.open, DEAD).flatten(1)
    rank = mass
    if noise:
        uniform = torch.rand(mass.shape, generator=generator, device=mass.device).clamp(min=1e-20)
        rank = mass - noise * (-uniform.log()).log()
    chosen = rank.topk(min(width, mass.shape[1]), dim=1).indices
    longest = candidates.open.shape[2]
    return mass.gather(1, chosen), chosen // longest, chosen % longest


def _collect(found: Orders, beam: Beam, slots: Tensor, *, end_scores: Tensor, whole: Tensor) -> None:
    """Take out the orders of targets that are all written, best first. end_scores: (S, K); whole: (S,)."""
    if not bool(whole.any()):
        return
    log_probs, rank = (beam.log_mass + end_scores)[whole].sort(dim=1, descending=True)  # (S', K)
    ordered = slots[whole].gather(1, rank[..., None].expand(-1, -1, slots.shape[2]))
    sentences, hypotheses = beam.sentences[whole], rank.shape[1]
    found.log_probs[sentences, :hypotheses] = log_probs
    found.slots[sentences, :hypotheses, : slots.shape[2]] = ordered
