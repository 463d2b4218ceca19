"""Sampling: words and gaps drawn at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from anyorder import config
from anyorder.decoding.beam_search import Expansion
from anyorder.decoding.constrained_scores import Scores
from anyorder.decoding.step_scorer import StepScorer
from anyorder.insertion import NEG_INF
from anyorder.models.indigo import END

# S sentences under way, K hypotheses of each, B of them to go on with, R = S · K rows,
# F first choices, C of them looked at, N hypotheses asked for M second choices

SAMPLED_AT_ONCE = (
    8  # outputs of a source: more would mostly look at each other's tokens, which they never read
)
COLDEST = 1e-30  # what a temperature is at least: single precision has no smaller numbers to divide by


def sample(scorer: StepScorer, chance: Tensor, settings: config.Decode) -> Expansion:
    """Each hypothesis goes its own way. chance: (S, K, 2), uniform in [0, 1)."""
    model, beam = scorer.model, scorer.beam
    first_scores = scorer.first_scores()
    first = draw(
        first_scores.chosen_by if model.position_first else shortlisted(first_scores.chosen_by, settings),
        chance[..., 0],
        temperature=settings.temperature,
    )
    second_scores = scorer.second_scores(first[..., None], ending=scorer.ending)
    second_scores = Scores(*(each.squeeze(2) for each in second_scores))  # (S, K, M)
    second = draw(
        shortlisted(second_scores.chosen_by, settings) if model.position_first else second_scores.chosen_by,
        chance[..., 1],
        temperature=settings.temperature,
    )
    first_score = first_scores.paid.gather(2, first[..., None]).squeeze(2)
    second_score = second_scores.paid.gather(2, second[..., None]).squeeze(2)
    ends = (first == END) & (beam.log_prob > NEG_INF)
    log_prob = (beam.log_prob + first_score + second_score).masked_fill(first == END, NEG_INF)
    parent = torch.arange(first.shape[1], device=first.device).expand_as(first)
    return Expansion(
        end_scores=first_scores.paid[..., END],
        ends=ends,
        parent=parent,
        first=first,
        second=second,
        first_score=first_score,
        second_score=second_score,
        log_prob=log_prob,
        chosen_by=log_prob,
    )


def shortlisted(scores: Tensor, settings: config.Decode) -> Tensor:
    """Only the best words stay possible: the top k, the fewest that make up p. scores: (..., V), log p."""
    if settings.top_k:
        worst = scores.topk(min(settings.top_k, scores.shape[-1]), dim=-1).values[..., -1:]
        scores = scores.masked_fill(scores < worst, NEG_INF)
    if settings.top_p < 1:
        falling, words = (
            (scores / max(settings.temperature, COLDEST)).softmax(dim=-1).sort(dim=-1, descending=True)
        )
        before = falling.cumsum(dim=-1) - falling  # the word that crosses p still counts
        unlikely = torch.zeros_like(before, dtype=torch.bool).scatter_(-1, words, before >= settings.top_p)
        scores = scores.masked_fill(unlikely, NEG_INF)
    return scores


def draw(scores: Tensor, chance: Tensor, *, temperature: float) -> Tensor:
    """One index each, by inverting the cumulated probabilities. scores: (..., V), log p; chance: (...)."""
    # The best at 0, so that hardly a temperature is too low to divide by; below, it is the best anyway.
    relative = scores - scores.amax(dim=-1, keepdim=True)
    cumulated = (relative / max(temperature, COLDEST)).softmax(dim=-1).cumsum(dim=-1)
    wanted = chance[..., None] * cumulated[..., -1:]
    return torch.searchsorted(cumulated, wanted, right=True).squeeze(-1).clamp(max=scores.shape[-1] - 1)


def _draws(settings: config.Decode, lines: Sequence[int], limits: Tensor) -> Tensor:
    """A uniform number for each line, step, sample and choice, (lines, steps, K, 2)."""
    steps = int(limits.max()) + 1
    shape = (steps, settings.n_best, 2)
    drawn = [np.random.default_rng([settings.seed, line]).random(shape, dtype=np.float32) for line in lines]
    return torch.from_numpy(np.stack(drawn))
