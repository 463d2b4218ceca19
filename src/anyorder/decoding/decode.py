"""Decoding: from sources to finished hypotheses, by beam search or by sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import torch
from torch import Tensor

from anyorder import config
from anyorder.decoding.allowed import allowed_steps
from anyorder.decoding.beam import BOUNDARIES, Beam, Extension
from anyorder.decoding.beam_search import Expansion, search_joint, search_two_step
from anyorder.decoding.constrained_scores import ConstrainedStep, required_bonus
from anyorder.decoding.constraint_state import ConstraintState
from anyorder.decoding.constraints import Constraints
from anyorder.decoding.hypothesis import TokenHypothesis, length_divisor, rank
from anyorder.decoding.loop import write
from anyorder.decoding.sampling import SAMPLED_AT_ONCE, sample, uniform_numbers
from anyorder.decoding.step_scorer import StepScorer
from anyorder.insertion import NEG_INF
from anyorder.models.choices import StepChoices
from anyorder.models.indigo import Indigo

# S sentences under way, K hypotheses of each


@torch.inference_mode()
def decode(
    model: Indigo,
    source: Tensor,
    mask: Tensor,
    *,
    settings: config.Decode,
    limits: Tensor,
    lines: Sequence[int] | None = None,
    constraints: Constraints | None = None,
) -> list[list[TokenHypothesis]]:
    """Find the best hypotheses of each source, best first.

    source, mask: as `Indigo.encode` takes them; limits: (sources,), most tokens to write. Sampling depends
    on the seed and on each source's number in `lines`, not on what else is in the batch. constraints: what
    the sentences must keep to; None for nothing.
    """
    memory = model.encode_sorted(source, mask, None if constraints is None else constraints.required)

    def found(uniform: Tensor | None) -> list[list[TokenHypothesis]]:
        strategy = _Decoding(model, settings, limits.to(source.device), constraints, uniform)
        write(model, memory, strategy, hypotheses=1 if uniform is None else uniform.shape[2])
        return strategy.found

    if settings.search != "sample":
        return [rank(hypotheses, settings) for hypotheses in found(None)]
    uniform = uniform_numbers(settings, lines or range(len(source)), limits).to(source.device)
    parts = [found(part) for part in uniform.split(SAMPLED_AT_ONCE, dim=2)]
    return [rank(list(chain.from_iterable(of_source)), settings) for of_source in zip(*parts, strict=True)]


class _Decoding:
    """The strategy of beam search and sampling: which hypotheses end, and which go on.

    uniform: random numbers to sample by, (sources, steps, K, 2); None for beam search.
    """

    def __init__(
        self,
        model: Indigo,
        settings: config.Decode,
        limits: Tensor,
        constraints: Constraints | None,
        uniform: Tensor | None,
    ) -> None:
        self.model, self.settings, self.limits, self.uniform = model, settings, limits, uniform
        self.found: list[list[TokenHypothesis]] = [[] for _ in limits]
        self.bonus = 0.0 if uniform is not None else required_bonus(model)
        self.constraint_state = None
        if constraints is not None:
            hypotheses = 1 if uniform is None else uniform.shape[2]
            self.constraint_state = ConstraintState.start(constraints, hypotheses=hypotheses)
        self.constrained: ConstrainedStep | None = None  # of the step under way
        self.full = limits.new_zeros(0, dtype=torch.bool)  # (S,), sentences at their length limit

    def given(self, newest: int) -> Tensor | None:
        """Which of the newest tokens the template gave."""
        return None if self.constraint_state is None else self.constraint_state.given(newest)

    def extend(self, beam: Beam, choices: StepChoices) -> Extension:
        """Search the next step, and collect the hypotheses that end with it."""
        if self.constraint_state is not None:
            self.constrained = ConstrainedStep(
                self.constraint_state,
                beam,
                allowed_steps(self.constraint_state, beam),
                first_word=self.model.word_head.first,
                position_first=self.model.position_first,
                unknown=self.settings.unknown,
                bonus=self.bonus,
            )
        scorer = StepScorer(choices, beam, unknown=self.settings.unknown, constrained=self.constrained)
        expansion = self._searched(scorer)
        self.full = beam.length >= self.limits[beam.sentences]
        self._collect(beam, expansion)
        return expansion.extension

    def settle(self, beam: Beam, extension: Extension) -> tuple[Beam, Tensor]:
        """Drop the sentences that are full, or that can't improve on what was found."""
        if self.settings.merge_partial:
            beam = beam.merged()
        promising = (beam.log_prob > NEG_INF).any(dim=1)
        if self.uniform is None:
            promising &= self._may_improve(beam)
        staying = (~self.full & promising).nonzero().squeeze(1)
        if self.constraint_state is not None and self.constrained is not None:
            self.constraint_state = self.constraint_state.grow(self.constrained.allowed, extension).keep(
                staying
            )
        return beam, staying

    def _searched(self, scorer: StepScorer) -> Expansion:
        if self.uniform is not None:
            return sample(scorer, self.uniform[scorer.beam.sentences, scorer.beam.length], self.settings)
        search = search_joint if self.settings.search == "joint" else search_two_step
        return search(scorer, self.settings.beam)

    def _collect(self, beam: Beam, expansion: Expansion) -> None:
        """Keep the hypotheses that end here, and those that may not grow any more."""
        cut_off = self.full[:, None] & ~expansion.ends & (beam.log_prob > NEG_INF)
        leaving = expansion.ends | cut_off
        if not bool(leaving.any()):
            return
        rows = leaving.nonzero()[:, 0]
        ends = expansion.end_scores.masked_fill(~expansion.ends, NEG_INF)
        hypotheses = beam.hypotheses(leaving, ends=ends, end_is_word=not self.model.position_first)
        if self.constraint_state is not None:
            owners = self.constraint_state.owner[leaving][:, BOUNDARIES:].tolist()
            given = self.constraint_state.template_tokens[rows].tolist()
            hypotheses = (
                replace(one, owners=tuple(its_owners), given=its_given)
                for one, its_owners, its_given in zip(hypotheses, owners, given, strict=True)
            )
        for sentence, one in zip(beam.sentences[rows].tolist(), hypotheses, strict=True):
            self.found[sentence].append(one)

    def _may_improve(self, beam: Beam) -> Tensor:
        """Whether a sentence needs more hypotheses, or has one under way that may rank higher. Returns (S,).

        A hypothesis under way is ranked as if it ended at once with certainty, with the length of that step.
        With a length penalty a longer one may still rank higher, but to know that one would have to go on to
        the limit. The number of finished hypotheses alone says little: where the model is sure of itself,
        poor ones may end long before the best. Merging needs all it can get, since it adds probabilities.
        """
        settings, state = self.settings, self.constraint_state
        wanted = settings.beam if settings.merge else settings.n_best
        templates = [0] * len(beam.sentences) if state is None else state.template_tokens.tolist()
        best = [
            log_prob / length_divisor(beam.length + 1 - template, settings)
            for log_prob, template in zip(beam.log_prob.amax(dim=1).tolist(), templates, strict=True)
        ]
        finished = [self.found[sentence] for sentence in beam.sentences.tolist()]
        improving = [
            len(some) < wanted or sorted(one.ranked_by(settings) for one in some)[-wanted] < under_way
            for some, under_way in zip(finished, best, strict=True)
        ]
        return torch.tensor(improving, device=beam.log_prob.device)
