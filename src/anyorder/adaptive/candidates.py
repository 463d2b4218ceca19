"""Writing a known target in an order of the model's own: the candidates of each step (Section 4.2).

This runs the loop of decoding with other candidates: at each step, every token of the target that is not yet
written, in the one gap where it belongs. What picks among them is a beam (`beam`) or chance (`sampling`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.decoding.beam import Beam, Extension, Parents
from anyorder.decoding.loop import write
from anyorder.insertion import NEG_INF
from anyorder.models.choices import END, StepChoices, first_and_second
from anyorder.models.encoder_decoder import Memory
from anyorder.models.indigo import Indigo

# S sentences, K hypotheses of each, B orders to go on with, T tokens of the longest target


@dataclass(frozen=True)
class Orders:
    """Some orders of each target, all different."""

    positions: Tensor  # (S, B, T), the final position that each step fills, counted from 1; 0 for padding
    log_probs: Tensor  # (S, B), of the target in that order and its end; NEG_INF where there is no order


@dataclass(frozen=True)
class Candidates:
    """Every token of a target as the next one to write. All: (S, K, T)."""

    gap: Tensor  # where the token belongs
    word_score: Tensor  # log p
    gap_score: Tensor  # log p
    open: Tensor  # bool: a real token that is not yet written


@dataclass(frozen=True)
class NextTokens:
    """The hypotheses that go on, and the token that each writes next. All: (S, B)."""

    parent: Tensor
    token: Tensor  # its final position, counted from 0
    log_prob: Tensor  # of the hypothesis; NEG_INF where there was nothing more to choose


Choose = Callable[[Beam, Candidates], NextTokens]


def write_targets(
    model: Indigo,
    memory: Memory,
    targets: Tensor,
    lengths: Tensor,
    *,
    choose: Choose,
    orders: int,
    start_with: int = 1,
) -> Orders:
    """Write all targets, token by token as `choose` decides.

    targets: (S, T), in sentence order; lengths: (S,); orders: B; start_with: hypotheses to begin with.
    """
    found = Orders(
        positions=targets.new_zeros(len(targets), orders, targets.shape[1]),
        log_probs=memory.states.new_full((len(targets), orders), NEG_INF),
    )
    strategy = _KnownTargets(model, targets, lengths, choose, found, start_with=start_with)
    write(model, memory, strategy, hypotheses=start_with)
    return found


class _KnownTargets:
    """The strategy of the loop: only tokens of the target, and no end before all are written."""

    def __init__(
        self,
        model: Indigo,
        targets: Tensor,
        lengths: Tensor,
        choose: Choose,
        found: Orders,
        *,
        start_with: int,
    ) -> None:
        self.model, self.targets, self.lengths = model, targets, lengths
        self.choose, self.found = choose, found
        self.positions = targets.new_zeros(len(targets), start_with, 0)  # (S, K, tokens written)
        self.whole = targets.new_zeros(0, dtype=torch.bool)  # (S,), all of the target is written

    def given(self, newest: int) -> None:
        """Nothing is given: every token is scored."""

    def extend(self, beam: Beam, choices: StepChoices) -> Extension | None:
        """Score the candidates of the next step and choose among them."""
        shape = beam.log_prob.shape
        first_scores = choices.first_log_probs().unflatten(0, shape)
        self.whole = self.lengths[beam.sentences] == beam.length
        self._collect(beam, end_scores=first_scores[..., END])
        if bool(self.whole.all()):
            return None
        targets = self.targets[beam.sentences]
        candidates = self._candidates(choices, first_scores, targets, self.lengths[beam.sentences])
        chosen = self.choose(beam, candidates)
        inherited = Parents(chosen.parent, among=shape[1]).select(self.positions)
        self.positions = torch.cat([inherited, chosen.token[..., None] + 1], dim=2)
        pick = chosen.parent * targets.shape[1] + chosen.token  # (S, B), among K · T
        return Extension(
            parent=chosen.parent,
            word=targets.gather(1, chosen.token),
            gap=candidates.gap.flatten(1).gather(1, pick),
            word_score=candidates.word_score.flatten(1).gather(1, pick),
            gap_score=candidates.gap_score.flatten(1).gather(1, pick),
            log_prob=chosen.log_prob,
        )

    def settle(self, beam: Beam, extension: Extension) -> tuple[Beam, Tensor]:
        """Drop the sentences that were whole before the step."""
        staying = (~self.whole).nonzero().squeeze(1)
        self.positions = self.positions[staying]
        return beam, staying

    def _candidates(
        self, choices: StepChoices, first_scores: Tensor, targets: Tensor, lengths: Tensor
    ) -> Candidates:
        """first_scores: (S, K, F); targets: (S, T); lengths: (S,)."""
        model, hypotheses, longest = self.model, self.positions.shape[1], targets.shape[1]
        written = torch.zeros(len(targets), hypotheses, longest, dtype=torch.bool, device=targets.device)
        written.scatter_(2, self.positions - 1, True)
        real = torch.arange(longest, device=targets.device) < lengths[:, None]
        # The number of tokens written to the left of a position, `<s>` not counted, is its gap.
        gap = written.cumsum(dim=2)
        words = targets[:, None].expand(-1, hypotheses, -1)
        first, second = first_and_second(model, words.clamp(min=model.word_head.first), gap)
        first_score = first_scores.gather(2, first)
        second_score = choices.second_log_prob_of(first.flatten(0, 1), second.flatten(0, 1))
        second_score = second_score.unflatten(0, first.shape[:2])
        word_score, gap_score = (
            (second_score, first_score) if model.position_first else (first_score, second_score)
        )
        return Candidates(gap=gap, word_score=word_score, gap_score=gap_score, open=real[:, None] & ~written)

    def _collect(self, beam: Beam, *, end_scores: Tensor) -> None:
        """Keep the orders of the targets that are all written. end_scores: (S, K)."""
        sentences, (_, hypotheses, written) = beam.sentences[self.whole], self.positions.shape
        self.found.log_probs[sentences, :hypotheses] = (beam.log_prob + end_scores)[self.whole]
        self.found.positions[sentences, :hypotheses, :written] = self.positions[self.whole]
