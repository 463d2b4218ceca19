"""Scores of the next step of a whole beam, under constraints if there are any."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from anyorder.decoding.beam import Beam, Parents
from anyorder.insertion import NEG_INF
from anyorder.models.choices import END, StepChoices
from anyorder.models.indigo import Indigo
from anyorder.models.kernels.vocabulary import TopChoices, top_choices
from anyorder.text.tokenizer import UNK

if TYPE_CHECKING:
    from anyorder.decoding.constrained_scores import ConstrainedStep

# S sentences under way, K hypotheses of each, F first choices, C of them looked at,
# N hypotheses asked for M second choices each


class Scores(NamedTuple):
    """Scores of choices: their log p, and what they are ranked by."""

    log_probs: Tensor
    rank: Tensor

    @classmethod
    def plain(cls, log_probs: Tensor) -> Scores:
        """Rank choices by their log p."""
        return cls(log_probs, log_probs)


class EndScore(NamedTuple):
    """What the model makes of the end, whether the sentence may end or not."""

    log_probs: Tensor  # (S, K)
    is_best: Tensor  # (S, K), bool: the end is the likeliest first choice

    @classmethod
    def among(cls, scores: Tensor) -> EndScore:
        """Pick the end from the log p of all first choices. scores: (S, K, F)."""
        return cls(scores[..., 0], scores[..., 0] >= scores[..., 1:].amax(dim=-1))


@dataclass(frozen=True)
class StepScorer:
    """Everything that a search may ask about the next step."""

    choices: StepChoices
    beam: Beam
    unknown: bool = True  # whether `<unk>` may be written
    constrained: ConstrainedStep | None = None  # what the constraints leave possible; None: everything

    @property
    def model(self) -> Indigo:
        """The model that is asked."""
        return self.choices.model

    @property
    def rank(self) -> Tensor:
        """What hypotheses are ranked by, (S, K)."""
        return self.beam.log_prob if self.constrained is None else self.constrained.rank

    @cached_property
    def first_log_probs(self) -> Tensor:
        """log p of all first choices without constraints, (S, K, F)."""
        return self.choices.first_log_probs().unflatten(0, self.beam.log_prob.shape)

    def first_scores(self) -> Scores:
        """Scores of all first choices, (S, K, F)."""
        log_probs = self.first_log_probs
        if self.constrained is not None:
            return self.constrained.first(log_probs)
        return Scores.plain(log_probs if self.model.position_first else self._without_unknown(log_probs))

    def second_scores(
        self, first: Tensor, *, end_score: EndScore | None, parents: Parents | None = None
    ) -> Scores:
        """Scores of all second choices, with the arguments of `top_second`; returns (S, N, C, M)."""
        scores = self._choices_of(parents).second_log_probs(first.flatten(0, 1))
        scores = scores.unflatten(0, first.shape[:2])
        if self.constrained is not None:
            return replace(self.constrained, parents=parents).second(scores, first, end_score=end_score)
        return Scores.plain(self._without_unknown(scores) if self.model.position_first else scores)

    def top_first(self, count: int) -> tuple[TopChoices, EndScore | None]:
        """The best first choices, (S, K, count), and the end's score if second choices depend on it."""
        if self.constrained is not None and self.choices.can_skip_softmax and self.constrained.is_simple:
            listed, end_score = self._top_words(self.constrained, count)
            if listed is not None:
                return listed, end_score
        if not self._allows_all(words=not self.model.position_first):
            return top_scores(self.first_scores(), count), self.end_score
        best = self.choices.top_first(count)
        return best.map(lambda values: values.unflatten(0, self.beam.log_prob.shape)), self.end_score

    def top_second(
        self, first: Tensor, count: int, *, end_score: EndScore | None, parents: Parents | None
    ) -> TopChoices:
        """The best second choices after these first ones. first: (S, N, C); returns (S, N, C, count).

        end_score: as `top_first` returned it; parents: the N hypotheses that these first choices belong to;
        None: all K.
        """
        if not self._allows_all(words=self.model.position_first):
            return top_scores(self.second_scores(first, end_score=end_score, parents=parents), count)
        best = self._choices_of(parents).top_second(first.flatten(0, 1), count)
        return best.map(lambda values: values.unflatten(0, first.shape[:2]))

    @cached_property
    def end_score(self) -> EndScore | None:
        """The end's score, if the constraints need it to judge second choices."""
        if self.constrained is None or not (self.model.position_first or self.constrained.counts_words):
            return None
        return EndScore.among(self.first_log_probs)

    def _top_words(self, constrained: ConstrainedStep, count: int) -> tuple[TopChoices | None, EndScore]:
        """The best words where only the end is ruled out; None where rounding would decide."""
        required, _ = constrained.required_next
        best, of_required = self.choices.top_words_and(
            required.flatten(0, 1), without_end=~constrained.allowed.end.flatten(), count=count
        )
        shape = self.beam.log_prob.shape
        best = best.map(lambda values: values.unflatten(0, shape))
        # An end that is listed equals itself, so this holds whether it may end or not.
        end_score = EndScore(best.end, is_best=best.end >= best.rank[..., 0])
        return constrained.top_words(best, of_required.unflatten(0, shape), count), end_score

    def _allows_all(self, *, words: bool) -> bool:
        """Whether no choice is ruled out. words: whether the choice is one of words."""
        return self.constrained is None and (self.unknown or not words)

    def _choices_of(self, parents: Parents | None) -> StepChoices:
        """The choices of some hypotheses; None: of all."""
        if parents is None:
            return self.choices
        return replace(
            self.choices,
            decoder_state=self.choices.decoder_state.select(parents.hypotheses),
            state=self.choices.state.index_select(0, parents.rows),
            indices=self.choices.indices.index_select(0, parents.rows),
        )

    def _without_unknown(self, scores: Tensor) -> Tensor:
        """Rule out `<unk>` unless it may be written. scores: (S, K, V) or (S, K, C, V)."""
        if not self.unknown:
            scores[..., UNK - self.model.word_head.first] = NEG_INF
        return scores


def top_scores(scores: Scores, count: int) -> TopChoices:
    """Pick the best choices by rank. scores: (..., M); returns (..., count)."""
    best = top_choices(scores.rank, count)
    return best._replace(end=scores.log_probs[..., END], log_probs=scores.log_probs.gather(-1, best.choices))
