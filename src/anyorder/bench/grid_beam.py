"""Grid beam search (Hokamp and Liu, 2017), the usual way to require words of a left-to-right model.

A hypothesis competes only with those that contain equally many tokens of the required words, so that required
words are not postponed until it is too late. The search serves as a baseline; `decoding` does not use it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anyorder.errors import UserError
from anyorder.insertion import insert
from anyorder.models.choices import END, StepChoices
from anyorder.models.indigo import Indigo
from anyorder.text.tokenizer import BOS, EOS

# K hypotheses in the beam, V words, n tokens on the canvas


@dataclass(frozen=True)
class GridHypothesis:
    """The beginning of a sentence."""

    row: int  # row of its parent in the previous beam
    log_prob: float
    tokens: tuple[int, ...] = ()
    waiting: tuple[tuple[int, ...], ...] = ()  # required words that are not begun
    begun: tuple[int, ...] = ()  # remaining tokens of the required word that is being written

    @property
    def missing(self) -> int:
        """Number of tokens of required words that are not written yet."""
        return len(self.begun) + sum(map(len, self.waiting))

    @property
    def score(self) -> float:
        """Log-probability per token, with <eod>."""
        return self.log_prob / (len(self.tokens) + 1)


def check_searchable(model: Indigo) -> None:
    """Refuse models that grid beam search does not support."""
    if model.position_first:  # left to right, there is no choice of gaps
        raise UserError('grid beam: the model has model.first = "position"; must be "word"')
    if model.copy_head is not None:
        raise UserError("grid beam: the model has model.copying = true; must be false")


@torch.inference_mode()
def grid_beam(
    model: Indigo,
    source: Tensor,
    mask: Tensor,
    *,
    required: Sequence[tuple[int, ...]],
    ends_word: Tensor,
    width: int,
    limit: int,
) -> tuple[int, ...]:
    """Find the best sentence that contains all required words, written from left to right.

    source, mask: (1, S). required: token ids of each required word. ends_word: (V,), whether a token ends a
    word. width: beam size. limit: maximum number of tokens.
    """
    check_searchable(model)
    decoder_state = model.start(model.encode(source, mask))
    beam = [GridHypothesis(row=0, log_prob=0.0, waiting=tuple(required))]
    newest = torch.tensor([[BOS, EOS]], device=source.device)
    indices = torch.tensor([[0, 1]], device=source.device)  # (K, n)
    ended: list[GridHypothesis] = []
    for _ in range(limit + 1):
        state = model.advance(decoder_state, newest, indices)
        scores = StepChoices(model, decoder_state, state, indices).first_log_probs()  # (K, V)
        ended += [
            replace(hypothesis, log_prob=hypothesis.log_prob + float(scores[row, END]))
            for row, hypothesis in enumerate(beam)
            if not hypothesis.missing
        ]
        remaining = limit - len(beam[0].tokens) - 1
        beam = _next_beam(
            beam,
            scores,
            first_word=model.word_head.first,
            ends_word=ends_word,
            width=width,
            remaining=remaining,
        )
        if not beam:
            break
        parents = torch.tensor([[hypothesis.row for hypothesis in beam]], device=source.device)
        decoder_state.follow(parents, torch.zeros(1, dtype=torch.long, device=source.device))
        newest = torch.tensor([[hypothesis.tokens[-1]] for hypothesis in beam], device=source.device)
        last_gap = torch.full((len(beam),), indices.shape[1] - 2, device=source.device)
        indices = insert(indices[parents[0]], last_gap)
        # A hypothesis can reach at most its present log-probability, divided by the greatest length.
        if ended and max(one.score for one in ended) > max(one.log_prob / (limit + 1) for one in beam):
            break
    assert ended, "the limit leaves room for all required words"
    return max(ended, key=lambda hypothesis: hypothesis.score).tokens


def _next_beam(
    beam: Sequence[GridHypothesis],
    scores: Tensor,
    *,
    first_word: int,
    ends_word: Tensor,
    width: int,
    remaining: int,
) -> list[GridHypothesis]:
    """Extend every hypothesis and keep the best ones for each number of missing tokens.

    scores: (K, V), log-probabilities of words. first_word: token id of the first of them.
    remaining: number of tokens that may still be written after this step.
    """
    best_words = scores.topk(min(width + 1, scores.shape[1]), dim=1).indices.tolist()
    banks: dict[int, list[GridHypothesis]] = {}
    for row, hypothesis in enumerate(beam):
        by_word = scores[row]
        for word, after in _extensions(hypothesis, best_words[row], first_word=first_word, ends=ends_word):
            log_prob = hypothesis.log_prob + float(by_word[word - first_word])
            extended = replace(after, row=row, log_prob=log_prob, tokens=(*hypothesis.tokens, word))
            banks.setdefault(extended.missing, []).append(extended)
    return [
        hypothesis
        for missing, bank in banks.items()
        if missing <= remaining
        for hypothesis in sorted(bank, key=lambda one: -one.log_prob)[:width]
    ]


def _extensions(
    hypothesis: GridHypothesis, best_words: Sequence[int], *, first_word: int, ends: Tensor
) -> Iterator[tuple[int, GridHypothesis]]:
    """Yield each possible next token with the required words that remain after it."""
    if hypothesis.begun:
        yield hypothesis.begun[0], replace(hypothesis, begun=hypothesis.begun[1:])
        return
    for choice in best_words:
        if choice != END:
            yield choice + first_word, hypothesis
    # A required word can't begin inside another word.
    if not hypothesis.tokens or bool(ends[hypothesis.tokens[-1]]):
        for number, word in enumerate(hypothesis.waiting):
            others = (*hypothesis.waiting[:number], *hypothesis.waiting[number + 1 :])
            yield word[0], replace(hypothesis, waiting=others, begun=word[1:])
