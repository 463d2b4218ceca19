"""The choices of one decoding step: words and gaps, and their log-probabilities.

A step chooses twice: first a word and then its gap, or, position first, first a gap and then its word. The
end is always one of the first choices: `<eod>` among the words, or *finish* among the gaps (Eq. 8, 9 and 11).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.insertion import gap_neighbours
from anyorder.models.decoder_state import DecoderState
from anyorder.models.indigo import Indigo
from anyorder.models.kernels.vocabulary import TopChoices, top_choices

# R rows (sentences × hypotheses), n tokens on the canvas, D width, V words, C choices asked for

END = 0  # the first choice that ends a sentence


@dataclass(frozen=True)
class StepChoices:
    """What a model makes of the next step of some hypotheses.

    First choices count from END: the words, or *finish* and then the gaps from left to right. Second choices
    count from 0: the gaps, or the words without `<eod>`.
    """

    model: Indigo
    decoder_state: DecoderState
    state: Tensor  # (R, D), decoder output of the newest token
    indices: Tensor  # (R, n), where each token stands on the canvas

    def first_log_probs(self) -> Tensor:
        """log p of every first choice: (R, V), or (R, 1 + gaps) position first."""
        model = self.model
        if not model.position_first:
            return self._word_log_probs(model.word_query(self.state)[:, None]).squeeze(1)
        query = model.gap_query(self.state[:, None], None)  # (R, 1, D)
        gaps, normaliser = self._gap_logits(query)
        finish = model.gap_head.finish_logit(query)
        return torch.cat([finish, gaps[:, 0]], dim=1) - normaliser

    def second_log_probs(self, first: Tensor) -> Tensor:
        """log p of every second choice after each of C first ones; meaningless after END.

        first: (R, C); returns (R, C, gaps), or (R, C, V) position first.
        """
        if self.model.position_first:
            return self._word_log_probs(self._word_query_in_gap(first))
        gaps, normaliser = self._gap_logits(self._gap_query_of_word(first))
        return gaps - normaliser[..., None]

    def second_log_prob_of(self, first: Tensor, second: Tensor) -> Tensor:
        """log p of one second choice after each first one, without all the others. All: (R, C)."""
        left, right = gap_neighbours(self.indices)  # (R, gaps)
        if self.model.position_first:
            # Many tokens lie in the same gap, where all words are scored at once.
            gaps = torch.arange(1, left.shape[1] + 1, device=first.device).expand(len(first), -1)
            words = self.second_log_probs(gaps)  # (R, gaps, V)
            return words.flatten(1).gather(1, (first - 1) * words.shape[2] + second)
        query = self._gap_query_of_word(first)
        logits = self._key_logits(query)
        chosen = self.model.gap_head.pick(
            logits,
            left=left.gather(1, second)[..., None],
            right=right.gather(1, second)[..., None],
        )
        return chosen.squeeze(2) - self.model.gap_head.normaliser(logits, query)

    def top_first(self, count: int) -> TopChoices:
        """The best first choices, (R, count)."""
        if not self.can_skip_softmax:
            return top_choices(self.first_log_probs(), count)
        return self.decoder_state.vocabulary.best(self.model.word_query(self.state), count=count)

    def top_second(self, first: Tensor, count: int) -> TopChoices:
        """The best second choices after each of C first ones. first: (R, C); returns (R, C, count)."""
        if not self.model.position_first or self.model.copy_head is not None:
            return top_choices(self.second_log_probs(first), count)
        query = self._word_query_in_gap(first)  # (R, C, D)
        best = self.decoder_state.vocabulary.best(query.flatten(0, 1), count=count)
        return best.map(lambda values: values.unflatten(0, first.shape))

    def top_words_and(self, words: Tensor, *, without_end: Tensor, count: int) -> tuple[TopChoices, Tensor]:
        """The best first choices, and log p of some given ones, good or not.

        words: (R, Q), first choices; without_end: (R,), bool, where the end is not to be among the best.
        """
        query = self.model.word_query(self.state)
        return self.decoder_state.vocabulary.best_and(query, words, without_end=without_end, count=count)

    @property
    def can_skip_softmax(self) -> bool:
        """Whether the best words can be found without log p of all words."""
        return not self.model.position_first and self.model.copy_head is None

    # --- queries ---

    def _gap_query_of_word(self, first: Tensor) -> Tensor:
        """first: (R, C), words; returns (R, C, D)."""
        return self.model.gap_query(self.state[:, None], first + self.model.word_head.first)

    def _word_query_in_gap(self, first: Tensor) -> Tensor:
        """first: (R, C), gaps counted from 1; returns (R, C, D)."""
        decoder_state = self.decoder_state
        tokens, gap = decoder_state.tokens.flatten(0, 1), (first - 1).clamp(min=0)
        left, right = (
            tokens.gather(1, side.gather(1, gap)).reshape(decoder_state.sentences, -1)
            for side in gap_neighbours(self.indices)
        )
        vectors = self.model.gap_vector(decoder_state.gap_keys, left=left, right=right)  # (S, K · C, D)
        return self.model.word_query(self.state[:, None], vectors.reshape(*first.shape, -1))

    # --- scores ---

    def _word_log_probs(self, query: Tensor) -> Tensor:
        """log p of every word that can be generated or copied. query: (R, C, D); returns (R, C, V)."""
        model = self.model
        generated = model.word_logits(query).log_softmax(dim=-1)
        if model.copy_head is None:
            return generated
        assert self.decoder_state.copyable is not None
        by_source = (self.decoder_state.sentences, -1)
        scores = model.copy_head.mixed_with_all(
            generated.reshape(*by_source, generated.shape[-1]),
            query.reshape(*by_source, query.shape[-1]),
            self.decoder_state.copyable,
            first=model.word_head.first,
        )
        return scores.reshape(*generated.shape[:2], -1)

    def _gap_logits(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """query: (R, C, D); returns unnormalised log p, (R, C, gaps), and its normaliser, (R, C)."""
        logits = self._key_logits(query)
        left, right = (side[:, None].expand(-1, query.shape[1], -1) for side in gap_neighbours(self.indices))
        head = self.model.gap_head
        return head.pick(logits, left=left, right=right), head.normaliser(logits, query)

    def _key_logits(self, query: Tensor) -> Tensor:
        """Logits of the left and right keys of a hypothesis. query: (R, C, D); returns (R, C, 2, n)."""
        rows, choices, width = query.shape
        decoder_state, head = self.decoder_state, self.model.gap_head
        shared = head.products(query.reshape(decoder_state.sentences, -1, width), decoder_state.gap_keys)
        tokens = decoder_state.tokens.flatten(0, 1)[:, None, None].expand(-1, choices, 2, -1)
        padding = decoder_state.is_padding
        if padding is not None:
            padding = padding.repeat_interleave(rows // len(padding), dim=0)[:, None]  # (R, 1, n)
        products = shared.reshape(rows, choices, 2, decoder_state.size).gather(3, tokens)
        return head.logits(products, blocked=padding)


def word_and_gap(model: Indigo, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """The word id and the gap that two choices mean; END has no gap, which counts as -1."""
    if model.position_first:
        return second + model.word_head.first, first - 1
    return first + model.word_head.first, second


def first_and_second(model: Indigo, word: Tensor, gap: Tensor) -> tuple[Tensor, Tensor]:
    """The two choices that mean a word id and a gap."""
    if model.position_first:
        return gap + 1, word - model.word_head.first
    return word - model.word_head.first, gap
