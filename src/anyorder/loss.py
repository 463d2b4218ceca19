"""The log-probability of targets in given orders, step by step, and the loss that is made of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.batch import Batch
from anyorder.encoder_decoder import Memory
from anyorder.heads import at_least_float
from anyorder.insertion import Supervision
from anyorder.model import Indigo
from anyorder.tokens import EOD

# B batch, T tokens of the longest target, N = T + 2, D width, V words, M real steps of the batch


@dataclass(frozen=True)
class StepScores:
    """log p of each step's word and gap: T steps for tokens and one for the end, zero where there is none.

    Word first, the end is the word `<eod>` and has no gap; position first, it is the gap `finish` and has
    no word.
    """

    word: Tensor  # (B, T + 1)
    gap: Tensor  # (B, T + 1)
    uniform: Tensor  # (B, T + 1), the mean of log p over all words: what label smoothing pulls up
    word_mask: Tensor  # (B, T + 1), bool
    gap_mask: Tensor  # (B, T + 1), bool


@dataclass(frozen=True)
class Loss:
    """Sums over a batch; `words` and `gaps` count what was summed."""

    objective: Tensor  # what is minimised: words with label smoothing, and gaps
    word: Tensor  # -log p of the words alone, unsmoothed
    gap: Tensor
    words: float  # by weight
    gaps: float


def batch_loss(model: Indigo, batch: Batch, *, label_smoothing: float = 0.0) -> Loss:
    """Minus the log-likelihood of a batch of targets in their orders."""
    scores = score_steps(model, model.encode(batch.source, batch.source_mask), batch)
    weights = batch.weights[:, None]
    word, gap, uniform = (-(score * weights).sum() for score in (scores.word, scores.gap, scores.uniform))
    return Loss(
        objective=(1 - label_smoothing) * word + label_smoothing * uniform + gap,
        word=word.detach(),
        gap=gap.detach(),
        words=float((scores.word_mask * weights).sum()),
        gaps=float((scores.gap_mask * weights).sum()),
    )


def score_steps(model: Indigo, memory: Memory, batch: Batch) -> StepScores:
    """Teacher forcing: every step of every target at once."""
    given = _given_tokens(batch) if model.given_mark is not None else None
    states = model.states(memory, batch.words, batch.supervision.slots, given=given)  # (B, N, D)
    steps = torch.arange(states.shape[1] - 1, device=states.device)
    lengths = batch.lengths[:, None]
    token, end = steps < lengths, steps == lengths  # (B, T + 1)
    word_mask = token if model.position_first else token | end
    gap_mask = token | end if model.position_first else token
    word_mask = word_mask & (steps >= batch.given_words[:, None])
    gap_mask = gap_mask & (steps >= batch.given_gaps[:, None])

    next_words = torch.where(end, EOD, _one_more(batch.words[:, 2:]))  # (B, T + 1)
    gap, gap_vectors = _gap_scores(model, states, next_words, batch.supervision, end=end)
    word, uniform = _word_scores(
        model,
        states[:, 1:][word_mask],
        next_words[word_mask],
        None if gap_vectors is None else gap_vectors[word_mask],
    )
    blank = torch.zeros(word_mask.shape, dtype=word.dtype, device=word.device)
    return StepScores(
        word=blank.masked_scatter(word_mask, word),
        gap=gap.masked_fill(~gap_mask, 0.0),
        uniform=blank.masked_scatter(word_mask, uniform),
        word_mask=word_mask,
        gap_mask=gap_mask,
    )


def _word_scores(
    model: Indigo, states: Tensor, words: Tensor, gap_vectors: Tensor | None
) -> tuple[Tensor, Tensor]:
    """states: (M, D), of real steps only, for the vocabulary is large; words: (M,); returns two (M,)."""
    logits = at_least_float(model.word_logits(states, gap_vectors))  # (M, V)
    normaliser = logits.logsumexp(dim=-1)
    chosen = logits.gather(-1, (words - model.word_head.first)[:, None]).squeeze(-1)
    return chosen - normaliser, logits.mean(dim=-1) - normaliser


def _gap_scores(
    model: Indigo, states: Tensor, next_words: Tensor, supervision: Supervision, *, end: Tensor
) -> tuple[Tensor, Tensor | None]:
    """log p of each step's gap, (B, T + 1), and the gap's vector, (B, T + 1, D), where it comes first."""
    left, right = _one_more(supervision.left), _one_more(supervision.right)  # (B, T + 1)
    keys = model.gap_head.keys_of(states)
    query = model.gap_query(states[:, 1:], None if model.position_first else next_words)  # (B, T + 1, D)
    length = states.shape[1]
    later = torch.ones(length, length, dtype=torch.bool, device=states.device).triu(diagonal=1)[1:]
    products = model.gap_head.products(query, keys)
    logits = model.gap_head.logits(products, blocked=later)  # (B, T + 1, 2, N)
    chosen = model.gap_head.pick(logits, left=left[..., None], right=right[..., None]).squeeze(-1)
    normaliser = model.gap_head.normaliser(logits, query)
    if not model.position_first:
        return chosen - normaliser, None
    chosen = torch.where(end, model.gap_head.finish_logit(query), chosen)
    return chosen - normaliser, model.gap_vector(keys, left=left, right=right)


def _given_tokens(batch: Batch) -> Tensor:
    """Which written tokens are given; the two boundaries, which come first, are not. Returns (B, N), bool."""
    tokens = torch.arange(batch.words.shape[1], device=batch.words.device)
    return (tokens >= 2) & (tokens < 2 + batch.given_words[:, None])


def _one_more(steps: Tensor) -> Tensor:
    """Room for the last step. steps: (B, T); returns (B, T + 1)."""
    return torch.nn.functional.pad(steps, (0, 1))
