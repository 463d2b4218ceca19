"""Sampling: words and gaps drawn at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from anyorder import config
from anyorder.decoding.beam_search import Expansion, make_extension
from anyorder.decoding.step_scorer import Scores, StepScorer
from anyorder.insertion import NEG_INF
from anyorder.models.choices import END

# S sentences under way, K hypotheses of each, M second choices, V words or other choices

SAMPLED_AT_ONCE = 8  # hypotheses of a source; more would mostly attend to each other's masked tokens
LOWEST_TEMPERATURE = 1e-30  # single precision has hardly any smaller number to divide by


def sample(scorer: StepScorer, uniform: Tensor, settings: config.Decode) -> Expansion:
    """Draw the next step of each hypothesis by itself. uniform: (S, K, 2), in [0, 1)."""
    model, beam = scorer.model, scorer.beam
    first_scores = scorer.first_scores()
    first = draw(
        first_scores.rank if model.position_first else truncate(first_scores.rank, settings),
        uniform[..., 0],
        temperature=settings.temperature,
    )
    second_scores = scorer.second_scores(first[..., None], end_score=scorer.end_score)
    second_scores = Scores(*(each.squeeze(2) for each in second_scores))  # (S, K, M)
    second = draw(
        truncate(second_scores.rank, settings) if model.position_first else second_scores.rank,
        uniform[..., 1],
        temperature=settings.temperature,
    )
    first_score = first_scores.log_probs.gather(2, first[..., None]).squeeze(2)
    second_score = second_scores.log_probs.gather(2, second[..., None]).squeeze(2)
    log_prob = (beam.log_prob + first_score + second_score).masked_fill(first == END, NEG_INF)
    parent = torch.arange(first.shape[1], device=first.device).expand_as(first)
    return Expansion(
        end_scores=first_scores.log_probs[..., END],
        ends=(first == END) & (beam.log_prob > NEG_INF),
        extension=make_extension(
            model, (first, second), (first_score, second_score), parent=parent, log_prob=log_prob
        ),
        rank=log_prob,
    )


def truncate(scores: Tensor, settings: config.Decode) -> Tensor:
    """Rule out all but the best words: the top k, and the fewest that make up p. scores: (..., V)."""
    if settings.top_k:
        worst = scores.topk(min(settings.top_k, scores.shape[-1]), dim=-1).values[..., -1:]
        scores = scores.masked_fill(scores < worst, NEG_INF)
    if settings.top_p < 1:
        temperature = max(settings.temperature, LOWEST_TEMPERATURE)
        falling, words = (scores / temperature).softmax(dim=-1).sort(dim=-1, descending=True)
        before = falling.cumsum(dim=-1) - falling  # the word that crosses p still counts
        unlikely = torch.zeros_like(before, dtype=torch.bool).scatter_(-1, words, before >= settings.top_p)
        scores = scores.masked_fill(unlikely, NEG_INF)
    return scores


def draw(scores: Tensor, uniform: Tensor, *, temperature: float) -> Tensor:
    """Draw one choice each by inverting cumulative probabilities. scores: (..., V); uniform: (...)."""
    # With the best score at 0, hardly any temperature is too low to divide by; below that, the best is drawn.
    relative = scores - scores.amax(dim=-1, keepdim=True)
    cumulative = (relative / max(temperature, LOWEST_TEMPERATURE)).softmax(dim=-1).cumsum(dim=-1)
    total = cumulative[..., -1:]
    # Less than the total even where the product is rounded up: no choice without probability comes last.
    wanted = torch.minimum(uniform[..., None] * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, wanted, right=True).squeeze(-1).clamp(max=scores.shape[-1] - 1)


def uniform_numbers(settings: config.Decode, lines: Sequence[int], limits: Tensor) -> Tensor:
    """Random numbers for each line, step, sample and choice, (lines, steps, K, 2).

    They depend on the seed and on the number of a line, not on what else is in the batch.
    """
    steps = int(limits.max()) + 1
    shape = (steps, settings.n_best, 2)
    drawn = [np.random.default_rng([settings.seed, line]).random(shape, dtype=np.float32) for line in lines]
    return torch.from_numpy(np.stack(drawn))
