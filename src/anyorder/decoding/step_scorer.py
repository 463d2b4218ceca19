"""What the next step may be: log-probabilities of words and gaps, under constraints if there are any."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from anyorder.decoding.beam import Beam, Parents
from anyorder.decoding.constrained_scores import ConstrainedStep, Ending, Scores
from anyorder.insertion import NEG_INF
from anyorder.models.decoder_state import DecoderState
from anyorder.models.indigo import END, Indigo
from anyorder.models.kernels.vocabulary import Best, top_choices
from anyorder.text.tokenizer import UNK


@dataclass(frozen=True)
class StepScorer:
    """Everything that a search may ask about the next step."""

    model: Indigo
    decoder_state: DecoderState
    state: Tensor  # (R, D), of the newest tokens
    beam: Beam
    unknown: bool = True  # whether `<unk>` may be written
    constrained: ConstrainedStep | None = None  # what a canvas leaves possible; None: everything

    @property
    def standing(self) -> Tensor:
        """What hypotheses are ranked by, (S, K)."""
        return self.beam.log_prob if self.constrained is None else self.constrained.standing

    def first_scores(self) -> Scores:
        """Of all first choices, (S, K, F)."""
        log_probs = self.first_log_probs
        if self.constrained is not None:
            return self.constrained.first(log_probs)
        return Scores.plain(log_probs if self.model.position_first else self._known(log_probs))

    @cached_property
    def first_log_probs(self) -> Tensor:
        """As the model has them, (S, K, F)."""
        scores = self.model.first_log_probs(self.decoder_state, self.state, self.beam.indices.flatten(0, 1))
        return scores.unflatten(0, self.beam.log_prob.shape)

    def best_first(self, count: int) -> tuple[Best, Ending | None]:
        """The best first choices, (S, K, C), and what second ones must know of the end."""
        if self.constrained is not None and self.model.lists_best_words and self.constrained.is_simple:
            listed, ending = self._best_words(self.constrained, count)
            if listed is not None:
                return listed, ending
        if not self._free(words=not self.model.position_first):
            return leading_of(self.first_scores(), count), self.ending
        best = self.model.best_first(
            self.decoder_state, self.state, self.beam.indices.flatten(0, 1), count=count
        )
        return Best(*(each.unflatten(0, self.beam.log_prob.shape) for each in best)), self.ending

    def _best_words(self, constrained: ConstrainedStep, count: int) -> tuple[Best | None, Ending]:
        words, _ = constrained.wanted
        best, wanted = self.model.best_words_and(
            self.decoder_state,
            self.state,
            words.flatten(0, 1),
            no_end=~constrained.allowed.end.flatten(),
            count=count,
        )
        shape = self.beam.log_prob.shape
        best = Best(*(each.unflatten(0, shape) for each in best))
        # Whether it may end or not: an end that is listed is its own equal.
        ending = Ending(best.end, wanted=best.end >= best.log_probs[..., 0])
        return constrained.best_words(best, wanted.unflatten(0, shape), count), ending

    @cached_property
    def ending(self) -> Ending | None:
        """What a restriction must know of the end to judge second choices; None: nothing."""
        if self.constrained is None or not (self.model.position_first or self.constrained.counts_words):
            return None
        return Ending.among(self.first_log_probs)

    def best_second(
        self, first: Tensor, count: int, *, ending: Ending | None, parents: Parents | None
    ) -> Best:
        """The best second choices after these first ones. first: (S, N, C); returns (S, N, C, M).

        ending: as it came with the first ones; parents: N hypotheses, whose these are; None: all K have some.
        """
        if not self._free(words=self.model.position_first):
            return leading_of(self.second_scores(first, ending=ending, parents=parents), count)
        best = self.model.best_second(*self._asked(parents), first.flatten(0, 1), count=count)
        return Best(*(each.unflatten(0, first.shape[:2]) for each in best))

    def _free(self, *, words: bool) -> bool:
        """Whether nothing that could be chosen is ruled out. words: whether the choice is one of words."""
        return self.constrained is None and (self.unknown or not words)

    def second_scores(
        self, first: Tensor, *, ending: Ending | None, parents: Parents | None = None
    ) -> Scores:
        """Of all second choices after these first ones, as `best_second` takes them; returns (S, N, C, M)."""
        scores = self.model.second_log_probs(*self._asked(parents), first.flatten(0, 1))
        scores = scores.unflatten(0, first.shape[:2])
        if self.constrained is not None:
            return replace(self.constrained, parents=parents).second(scores, first, ending=ending)
        return Scores.plain(self._known(scores) if self.model.position_first else scores)

    def _asked(self, parents: Parents | None) -> tuple[DecoderState, Tensor, Tensor]:
        """What a model must know of the hypotheses that are asked: writing, state and places."""
        indices = self.beam.indices.flatten(0, 1)
        if parents is None:
            return self.decoder_state, self.state, indices
        state, indices = (each.index_select(0, parents.rows) for each in (self.state, indices))
        return self.decoder_state.seen_by(parents.hypotheses), state, indices

    def _known(self, scores: Tensor) -> Tensor:
        """scores: (S, K, V) or (S, K, C, V), of which `<unk>` may be ruled out."""
        if not self.unknown:
            scores[..., UNK - self.model.word_head.first] = NEG_INF
        return scores

    def scores_of_second(self, first: Tensor, second: Tensor) -> Tensor:
        """log p of one second choice after each of these first ones, without all others. All: (S, K, C)."""
        indices = self.beam.indices.flatten(0, 1)
        scores = self.model.log_probs_of_second(
            self.decoder_state, self.state, indices, first.flatten(0, 1), second.flatten(0, 1)
        )
        return scores.unflatten(0, self.beam.log_prob.shape)


def leading_of(scores: Scores, count: int) -> Best:
    """The best choices by what they are chosen by. scores: (..., M); returns (..., C)."""
    best = top_choices(scores.chosen_by, count)
    return best._replace(end=scores.paid[..., END], paid=scores.paid.gather(-1, best.choices))
