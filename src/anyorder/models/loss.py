"""The log-probability of targets in given orders, step by step, and the training loss (Eq. 2 and 10)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.data.batches import Batch
from anyorder.insertion import NEG_INF, Supervision
from anyorder.models.encoder_decoder import Memory
from anyorder.models.indigo import Indigo
from anyorder.models.kernels.training import word_scores
from anyorder.text.tokenizer import EOD, UNK

# B batch, T tokens of the longest target, N = T + 2, D width, V words, M real steps of the batch


@dataclass(frozen=True)
class StepScores:
    """log p of the word and the gap of each step: T steps for tokens and one for the end; zero for padding.

    Word first, the end is the word `<eod>` and has no gap. Position first, it is the gap `finish` and has no
    word.
    """

    word: Tensor  # (B, T + 1)
    gap: Tensor  # (B, T + 1)
    uniform: Tensor  # (B, T + 1), mean log p over all words, which label smoothing raises
    word_mask: Tensor  # (B, T + 1), bool
    gap_mask: Tensor  # (B, T + 1), bool


@dataclass(frozen=True)
class Loss:
    """Sums over a batch; `words` and `gaps` count the terms."""

    objective: Tensor  # minimised: words with label smoothing, and gaps
    word: Tensor  # -log p of the words, without label smoothing
    gap: Tensor
    words: float  # weighted
    gaps: float


def batch_loss(model: Indigo, batch: Batch, *, label_smoothing: float = 0.0) -> Loss:
    """Minus the log-likelihood of a batch of targets in their orders."""
    scores = score_steps(model, model.encode(batch.source, batch.source_mask, batch.required), batch)
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
    """Score every step of every target at once (teacher forcing)."""
    given = _given_tokens(batch) if model.given_mark is not None else None
    states = model.states(memory, batch.words, batch.supervision.positions, given=given)  # (B, N, D)
    steps = torch.arange(states.shape[1] - 1, device=states.device)
    lengths = batch.lengths[:, None]
    token, end = steps < lengths, steps == lengths  # (B, T + 1)
    word_mask = token if model.position_first else token | end
    gap_mask = token | end if model.position_first else token
    learned = steps >= batch.given[:, None]
    word_mask, gap_mask = word_mask & learned, gap_mask & learned

    next_words = torch.where(end, EOD, _one_more(batch.words[:, 2:]))  # (B, T + 1)
    gap, gap_vectors = _gap_scores(model, states, next_words, batch.supervision, end=end)
    query = model.word_query(states[:, 1:], gap_vectors)
    word, uniform = _generated_scores(model, query, next_words, word_mask)
    if model.copy_head is not None:
        word = _with_copies(model, memory, word, query, next_words)
    return StepScores(
        word=word.masked_fill(~word_mask, 0.0),
        gap=gap.masked_fill(~gap_mask, 0.0),
        uniform=uniform,
        word_mask=word_mask,
        gap_mask=gap_mask,
    )


def _generated_scores(model: Indigo, query: Tensor, words: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """log p of generating each step's word, and the mean log p over all words.

    query: (B, T + 1, D); words, mask, returns: (B, T + 1).
    """
    logits = model.word_logits(query[mask])  # (M, V), of real steps only, since the vocabulary is large
    copied_only = words >= model.shape.target_vocabulary
    column = words.masked_fill(copied_only, UNK) - model.word_head.first
    blank = torch.zeros(mask.shape, dtype=logits.dtype, device=logits.device)
    word, uniform = (blank.masked_scatter(mask, scores) for scores in word_scores(logits, column[mask]))
    return word.masked_fill(copied_only, NEG_INF), uniform


def _with_copies(model: Indigo, memory: Memory, generated: Tensor, query: Tensor, words: Tensor) -> Tensor:
    """log p of words that are generated or copied. Several orders of a target lie side by side.

    generated, words, returns: (B, T + 1); query: (B, T + 1, D).
    """
    assert model.copy_head is not None
    copyable = model.copyable(memory)
    assert copyable is not None
    by_source = (len(memory.states), -1)
    mixed = model.copy_head.mixed(
        generated.reshape(by_source),
        query.reshape(*by_source, query.shape[-1]),
        copyable,
        words.reshape(by_source),
    )
    return mixed.view_as(generated)


def _gap_scores(
    model: Indigo, states: Tensor, next_words: Tensor, supervision: Supervision, *, end: Tensor
) -> tuple[Tensor, Tensor | None]:
    """log p of each step's gap, (B, T + 1), and, position first, the gap's vector, (B, T + 1, D)."""
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
    """Which written tokens are given; the two boundaries are not. Returns (B, N), bool."""
    tokens = torch.arange(batch.words.shape[1], device=batch.words.device)
    return (tokens >= 2) & (tokens < 2 + batch.given[:, None])


def _one_more(steps: Tensor) -> Tensor:
    """Pad by one step, the end. steps: (B, T); returns (B, T + 1)."""
    return torch.nn.functional.pad(steps, (0, 1))
