"""Grid beam search (Hokamp and Liu, 2017): what users of left-to-right models have for required words.

Hypotheses are compared only with those that hold as many tokens of the required words, so that none of these
is put off until it is too late. It is here to compare with; decoding knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anyorder.errors import UserError
from anyorder.insertion import insert
from anyorder.models.indigo import END, Indigo
from anyorder.text.tokenizer import BOS, EOS

# K hypotheses under way, n tokens on the canvas


@dataclass(frozen=True)
class Partial:
    """A beginning of a sentence."""

    row: int  # which of the hypotheses before it goes on from
    log_prob: float
    tokens: tuple[int, ...] = ()
    waiting: tuple[tuple[int, ...], ...] = ()  # required words that are still to come
    begun: tuple[int, ...] = ()  # the rest of a required word that must follow now

    @property
    def missing(self) -> int:
        """Tokens of required words that are still to come."""
        return len(self.begun) + sum(map(len, self.waiting))


def check_searchable(model: Indigo) -> None:
    """Refuse models that this search knows nothing of."""
    if model.position_first:  # left to right, the gap is no choice
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
    """The best sentence that holds all required words, from left to right. source, mask: of one sentence."""
    check_searchable(model)
    decoder_state = model.start(model.encode(source, mask))
    beam = [Partial(row=0, log_prob=0.0, waiting=tuple(required))]
    newest = torch.tensor([[BOS, EOS]], device=source.device)
    indices = torch.tensor([[0, 1]], device=source.device)
    ended: list[Partial] = []
    for _ in range(limit + 1):
        state = model.advance(decoder_state, newest, indices)
        scores = model.first_log_probs(decoder_state, state, indices)  # (K, V)
        best_words = scores.topk(min(width + 1, scores.shape[1]), dim=1).indices.tolist()
        banks: dict[int, list[Partial]] = {}
        for row, partial in enumerate(beam):
            by_word = scores[row]
            if not partial.missing:
                ended.append(replace(partial, log_prob=partial.log_prob + float(by_word[END])))
            for word, after in _ways_on(
                partial, best_words[row], first=model.word_head.first, ends=ends_word
            ):
                log_prob = partial.log_prob + float(by_word[word - model.word_head.first])
                grown = replace(after, row=row, log_prob=log_prob, tokens=(*partial.tokens, word))
                banks.setdefault(grown.missing, []).append(grown)
        left = limit - len(beam[0].tokens) - 1
        beam = [
            partial
            for missing, bank in banks.items()
            if missing <= left
            for partial in sorted(bank, key=lambda one: -one.log_prob)[:width]
        ]
        if not beam:
            break
        parents = torch.tensor([[partial.row for partial in beam]], device=source.device)
        decoder_state.follow(parents, torch.zeros(1, dtype=torch.long, device=source.device))
        newest = torch.tensor([[partial.tokens[-1]] for partial in beam], device=source.device)
        last_gap = torch.full((len(beam),), indices.shape[1] - 2, device=source.device)
        indices = insert(indices[parents[0]], last_gap)
        # The score of whatever goes on is at most what it has now, spread over the longest sentence.
        if ended and max(map(_score, ended)) > max(one.log_prob / (limit + 1) for one in beam):
            break
    assert ended, "the limit leaves room for all required words"
    return max(ended, key=_score).tokens


def _score(partial: Partial) -> float:
    return partial.log_prob / (len(partial.tokens) + 1)


def _ways_on(
    partial: Partial, best_words: Sequence[int], *, first: int, ends: Tensor
) -> Iterator[tuple[int, Partial]]:
    """Each next word, and what is left to do then."""
    if partial.begun:
        yield partial.begun[0], replace(partial, begun=partial.begun[1:])
        return
    for choice in best_words:
        if choice != END:
            yield choice + first, partial
    # A required word is whole: it can't begin inside another.
    if not partial.tokens or bool(ends[partial.tokens[-1]]):
        for number, word in enumerate(partial.waiting):
            others = (*partial.waiting[:number], *partial.waiting[number + 1 :])
            yield word[0], replace(partial, waiting=others, begun=word[1:])
