"""Two beam searches: in two steps as in the paper, or over word and gap at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anyorder.decoding.beam import Extension, Parents
from anyorder.decoding.step_scorer import EndScore, StepScorer, top_scores
from anyorder.insertion import NEG_INF
from anyorder.models.choices import END, word_and_gap
from anyorder.models.indigo import Indigo
from anyorder.models.kernels.vocabulary import TopChoices

# S sentences under way, K hypotheses of each, B of them to go on with, C first choices of a hypothesis,
# N hypotheses asked for M second choices each


@dataclass(frozen=True)
class Expansion:
    """What a step does to a beam: which hypotheses end, and the best B ways to go on, best first."""

    end_scores: Tensor  # (S, K), log p of ending
    ends: Tensor  # (S, K), bool
    extension: Extension
    rank: Tensor  # (S, B), what they are sorted by; differs from log_prob only under constraints


def make_extension(
    model: Indigo,
    choices: tuple[Tensor, Tensor],
    scores: tuple[Tensor, Tensor],
    *,
    parent: Tensor,
    log_prob: Tensor,
) -> Extension:
    """Turn first and second choices into words and gaps. All: (S, B)."""
    word, gap = word_and_gap(model, *choices)
    word_score, gap_score = reversed(scores) if model.position_first else scores
    # A hypothesis that ended has no gap; its log_prob is NEG_INF, so any gap will do.
    return Extension(parent, word, gap.clamp(min=0), word_score, gap_score, log_prob)


def search_two_step(scorer: StepScorer, width: int) -> Expansion:
    """The search of the paper: the best B first choices overall, then the best B of their second choices."""
    first, end_score = scorer.top_first(width)  # (S, K, C)
    rank = (scorer.rank[..., None] + first.rank).flatten(1)
    rank, kept = rank.topk(min(width, rank.shape[1]), dim=1)  # (S, B)
    of_kept = first._replace(
        rank=first.rank.flatten(1).gather(1, kept)[..., None],
        choices=first.choices.flatten(1).gather(1, kept)[..., None],
        log_probs=first.log_probs.flatten(1).gather(1, kept)[..., None],
    )
    # Second choices are scored for these alone: of a beam of five, for five instead of twenty-five.
    parents = Parents(kept // first.choices.shape[2], among=first.choices.shape[1])
    return _expand(scorer, of_kept, rank[..., None], width, end_score=end_score, parents=parents)


def search_joint(scorer: StepScorer, width: int) -> Expansion:
    """Find the best B pairs of choices exactly.

    log p of a second choice is at most 0, so a first choice bounds all pairs with it. More first choices are
    looked at until the best one left out can't reach the B pairs found. (Position first, required words rank
    higher than their log p, so one in a gap that was left out may be missed.)
    """
    first_scores = scorer.first_scores()
    choices = first_scores.log_probs.shape[2]
    looked_at = 2 * width
    while True:
        looked_at = min(looked_at, choices)
        first = top_scores(first_scores, looked_at)
        rank = scorer.rank[..., None] + first.rank  # (S, K, C)
        expansion = _expand(scorer, first, rank, width, end_score=scorer.end_score)
        worst = expansion.rank[:, -1] if expansion.rank.shape[1] == width else rank.new_tensor(NEG_INF)
        left_out = rank[..., -1].amax(dim=1)
        if looked_at == choices or bool((left_out <= worst).all()):
            break
        looked_at *= 2
    # An end competes with the pairs for a place among the best B.
    ends = scorer.beam.log_prob + expansion.end_scores
    among_best = _is_best(torch.cat([expansion.rank, ends], dim=1), width)[:, expansion.rank.shape[1] :]
    return replace(expansion, ends=expansion.ends & among_best)


def _expand(
    scorer: StepScorer,
    first: TopChoices,
    rank: Tensor,
    width: int,
    *,
    end_score: EndScore | None,
    parents: Parents | None = None,
) -> Expansion:
    """Find the best B pairs with these first choices. rank: (S, N, C), of each first choice's hypothesis.

    end_score, parents: as for `StepScorer.top_second`.
    """
    all_hypotheses = torch.arange(scorer.beam.log_prob.shape[1], device=rank.device)
    asked = all_hypotheses.expand(len(rank), -1) if parents is None else parents.hypotheses  # (S, N)
    second = scorer.top_second(first.choices, width, end_score=end_score, parents=parents)  # (S, N, C, M)
    pairs = (rank.masked_fill(first.choices == END, NEG_INF)[..., None] + second.rank).flatten(1)
    pair_rank, chosen = pairs.topk(min(width, pairs.shape[1]), dim=1)  # (S, B)
    choices, seconds = second.choices.shape[2:]
    parent = asked.gather(1, chosen // (choices * seconds))
    first_score = first.log_probs.flatten(1).gather(1, chosen // seconds)
    second_score = second.log_probs.flatten(1).gather(1, chosen)
    log_prob = scorer.beam.log_prob.gather(1, parent) + first_score + second_score
    may_end = (first.choices == END).any(dim=2)  # (S, N)
    ends = (may_end[..., None] & (asked[..., None] == all_hypotheses)).any(dim=1)  # (S, K)
    return Expansion(
        end_scores=first.end,
        ends=ends & (scorer.beam.log_prob + first.end > NEG_INF),
        extension=make_extension(
            scorer.model,
            (
                first.choices.flatten(1).gather(1, chosen // seconds),
                second.choices.flatten(1).gather(1, chosen),
            ),
            (first_score, second_score),
            parent=parent,
            log_prob=log_prob.where(pair_rank > NEG_INF, NEG_INF),
        ),
        rank=pair_rank,
    )


def _is_best(scores: Tensor, width: int) -> Tensor:
    """Mark the best scores of each sentence. scores: (S, ...); returns the same shape, bool."""
    flat = scores.flatten(1)
    best = flat.topk(min(width, flat.shape[1]), dim=1).indices
    return torch.zeros_like(flat, dtype=torch.bool).scatter_(1, best, True).view_as(scores)
