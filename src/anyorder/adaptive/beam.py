"""Adaptive orders: how the model itself would write a target that is known.

Orders of a target are searched by a beam or drawn by chance. Both differ from decoding only in their
candidates: each token that is not yet placed, in the one gap that it belongs in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.decoding.beam import Beam, Parents
from anyorder.decoding.step_scorer import StepScorer
from anyorder.insertion import NEG_INF
from anyorder.models.encoder_decoder import Memory
from anyorder.models.indigo import END, Indigo

# S sentences, K hypotheses of each, B orders to go on with, T tokens of the longest target


@dataclass(frozen=True)
class Orders:
    """Some orders of each target, no two of a search alike."""

    positions: Tensor  # (S, B, T), the position that each step fills, counted from 1; 0 for padding
    log_probs: (
        Tensor  # (S, B), of the target in that order, its end included; NEG_INF where there is no order
    )


@dataclass(frozen=True)
class Candidates:
    """Every token of a target as the next one to write."""

    gap: Tensor  # (S, K, T), where it belongs; so are the others
    word_score: Tensor
    gap_score: Tensor
    open: Tensor  # bool: a real token that is not yet written


@dataclass(frozen=True)
class NextTokens:
    """The hypotheses to go on with and the token that each writes next, (S, B) each."""

    parent: Tensor
    token: Tensor  # its position, counted from 0
    log_prob: Tensor  # NEG_INF where there was nothing more to choose


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
    """The B best orders of each target, best first, or all T! where these are fewer.

    targets: (S, T), in sentence order; lengths: (S,). Dropout is on if the model is in training.
    known: (S, T), log p of each token in an order that is known. A part of a sentence is then ranked by its
    own log p and that of what remains, in the known order. Without it words that are hard to foresee are put
    off for as long as the beam can, and with them orders that are far better in the end.
    noise: scale of Gumbel noise on the choice of candidates; the log p returned are free of it.
    """

    def best(beam: Beam, candidates: Candidates) -> NextTokens:
        ahead = None if known is None else known[beam.sentences]
        return _best(beam, candidates, width=width, ahead=ahead, noise=noise, generator=generator)

    found = _written(model, memory, targets, lengths, choose=best, orders=width)
    log_probs, rank = found.log_probs.sort(dim=1, descending=True, stable=True)
    return Orders(
        positions=found.positions.gather(1, rank[..., None].expand_as(found.positions)), log_probs=log_probs
    )


def _written(
    model: Indigo,
    memory: Memory,
    targets: Tensor,
    lengths: Tensor,
    *,
    choose: Callable[[Beam, Candidates], NextTokens],
    orders: int,
    at_first: int = 1,
) -> Orders:
    """Write all targets, token by token as `choose` says. orders: B; at_first: hypotheses to begin with."""
    sentences, longest = targets.shape
    found = Orders(
        positions=targets.new_zeros(sentences, orders, longest),
        log_probs=memory.states.new_full((sentences, orders), NEG_INF),
    )
    decoder_state = model.start(memory)
    beam = Beam.start(sentences, hypotheses=at_first, device=targets.device)
    positions = targets.new_zeros(sentences, at_first, 0)  # (S, K, tokens written), of the finished sentence
    newest = beam.words
    while len(beam.sentences):
        state = model.advance(decoder_state, newest.flatten(0, 1), beam.indices.flatten(0, 1))
        scorer = StepScorer(model, decoder_state, state, beam)
        first_scores = scorer.first_log_probs
        whole = lengths[beam.sentences] == beam.length
        _collect(found, beam, positions, end_scores=first_scores[..., END], whole=whole)
        if bool(whole.all()):
            break
        candidates = _candidates(
            scorer, first_scores, positions, targets[beam.sentences], lengths[beam.sentences]
        )
        choice = choose(beam, candidates)
        beam, positions = _grown(beam, positions, candidates, choice, targets[beam.sentences])
        staying = (~whole).nonzero().squeeze(1)
        decoder_state.follow(choice.parent, staying)
        beam, positions = beam.keep(staying), positions[staying]
        newest = beam.words[..., -1:]
    return found


def _candidates(
    scorer: StepScorer, first_scores: Tensor, positions: Tensor, targets: Tensor, lengths: Tensor
) -> Candidates:
    """positions: (S, K, written); targets: (S, T); lengths: (S,)."""
    model = scorer.model
    hypotheses, longest = positions.shape[1], targets.shape[1]
    written = torch.zeros(len(targets), hypotheses, longest, dtype=torch.bool, device=targets.device)
    written.scatter_(2, positions - 1, True)
    real = torch.arange(longest, device=targets.device) < lengths[:, None]
    # The tokens written left of a position, `<s>` not counted, number the gap that it lies in.
    gap = written.cumsum(dim=2)
    words = targets[:, None].expand(-1, hypotheses, -1)
    first, second = model.first_and_second(words.clamp(min=model.word_head.first), gap)
    first_score = first_scores.gather(2, first)
    second_score = scorer.scores_of_second(first, second)
    word_score, gap_score = (
        (second_score, first_score) if model.position_first else (first_score, second_score)
    )
    return Candidates(gap=gap, word_score=word_score, gap_score=gap_score, open=real[:, None] & ~written)


def _best(
    beam: Beam,
    candidates: Candidates,
    *,
    width: int,
    ahead: Tensor | None,
    noise: float,
    generator: torch.Generator | None,
) -> NextTokens:
    """The B best ways to go on. ahead: (S, T), what each token would cost if it came later."""
    mass = beam.log_prob[..., None] + candidates.word_score + candidates.gap_score  # (S, K, T)
    mass = mass.masked_fill(~candidates.open, NEG_INF)
    rank = mass
    if ahead is not None:
        remaining = (ahead[:, None] * candidates.open).sum(dim=2)  # (S, K)
        rank = mass + remaining[..., None] - ahead[:, None]
    mass, rank = mass.flatten(1), rank.flatten(1)
    if noise:
        uniform = torch.rand(mass.shape, generator=generator, device=mass.device).clamp(min=1e-20)
        rank = rank - noise * (-uniform.log()).log()
    chosen = rank.topk(min(width, mass.shape[1]), dim=1).indices
    longest = candidates.open.shape[2]
    return NextTokens(parent=chosen // longest, token=chosen % longest, log_prob=mass.gather(1, chosen))


def _grown(
    beam: Beam, positions: Tensor, candidates: Candidates, choice: NextTokens, targets: Tensor
) -> tuple[Beam, Tensor]:
    """The hypotheses with one more token each. positions: (S, K, written); targets: (S, T)."""
    chosen = choice.parent * targets.shape[1] + choice.token  # (S, B), among K · T
    grown = beam.grow(
        parent=choice.parent,
        word=targets.gather(1, choice.token),
        gap=candidates.gap.flatten(1).gather(1, chosen),
        word_score=candidates.word_score.flatten(1).gather(1, chosen),
        gap_score=candidates.gap_score.flatten(1).gather(1, chosen),
        log_prob=choice.log_prob,
    )
    inherited = Parents(choice.parent, among=positions.shape[1]).of(positions)
    return grown, torch.cat([inherited, choice.token[..., None] + 1], dim=2)


def _collect(found: Orders, beam: Beam, positions: Tensor, *, end_scores: Tensor, whole: Tensor) -> None:
    """Take out the orders of targets that are all written. end_scores: (S, K); whole: (S,)."""
    sentences, hypotheses = beam.sentences[whole], positions.shape[1]
    found.log_probs[sentences, :hypotheses] = (beam.log_prob + end_scores)[whole]
    found.positions[sentences, :hypotheses, : positions.shape[2]] = positions[whole]
