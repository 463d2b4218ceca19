"""The loop that writes sentences, one token a step (Algorithm 1).

Beam search, sampling and the search for orders of known targets all run this loop. They differ in their
strategy: which candidates there are, and which of them go on.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from anyorder.decoding.beam import Beam, Extension
from anyorder.models.choices import StepChoices
from anyorder.models.encoder_decoder import Memory
from anyorder.models.indigo import Indigo


class Strategy(Protocol):
    """What to write next, and which sentences go on."""

    def given(self, newest: int) -> Tensor | None:
        """Which of the newest tokens were given, not chosen: (rows, newest), bool; None for none."""

    def extend(self, beam: Beam, choices: StepChoices) -> Extension | None:
        """Choose the next token of each hypothesis that goes on; None when nothing is left to write."""

    def settle(self, beam: Beam, extension: Extension) -> tuple[Beam, Tensor]:
        """Look at the beam after the step; returns it, and the sentences that go on, rising."""


class Writing:
    """The sentences of a batch that are under way; others may join between two steps.

    hypotheses: of each sentence, to begin with.
    """

    def __init__(self, model: Indigo, memory: Memory, strategy: Strategy, *, hypotheses: int = 1) -> None:
        self.model, self.strategy = model, strategy
        self.decoder_state = model.start(memory)
        self.beam = Beam.start(len(memory.mask), hypotheses=hypotheses, device=memory.mask.device)
        self._newest = self.beam.words  # the boundaries

    @property
    def under_way(self) -> bool:
        """Whether there is a sentence to go on with."""
        return len(self.beam.sentences) > 0

    def step(self) -> bool:
        """Write one more token of each sentence; returns whether the strategy had anything to write."""
        given = self.strategy.given(self._newest.shape[2])
        indices = self.beam.indices.flatten(0, 1)
        state = self.model.advance(self.decoder_state, self._newest.flatten(0, 1), indices, given=given)
        choices = StepChoices(self.model, self.decoder_state, state, indices)
        extension = self.strategy.extend(self.beam, choices)
        if extension is None:
            return False
        beam, staying = self.strategy.settle(self.beam.grow(extension), extension)
        self.decoder_state.follow(extension.parent, staying)
        self.beam = beam.keep(staying)
        self._newest = self.beam.words[..., -1:]
        return True

    def join(self, other: Writing) -> None:
        """Go on with the sentences of another batch too. Both must have taken a step."""
        self.beam = self.beam.join(other.beam)
        self.decoder_state.join(other.decoder_state)
        self._newest = self.beam.words[..., -1:]

    def keep(self, staying: Tensor) -> None:
        """Give up the other sentences. staying: (S',), rows, rising."""
        everyone = torch.arange(self.beam.log_prob.shape[1], device=staying.device)
        self.decoder_state.follow(everyone.expand_as(self.beam.log_prob), staying)
        self.beam = self.beam.keep(staying)
        self._newest = self.beam.words[..., -1:]

    def trim(self) -> int:
        """Remove padding that all sentences have; returns how many columns of their canvases these were."""
        padding = self.beam.padding
        if padding is None or not len(padding):
            return 0
        columns = int(padding.min())
        self.beam = self.beam.trimmed(columns)
        if self.decoder_state.padding is not None:
            self.decoder_state.trim(columns)
        return columns


def write(model: Indigo, memory: Memory, strategy: Strategy, *, hypotheses: int = 1) -> None:
    """Write all sentences of a batch step by step; the strategy collects what comes out.

    hypotheses: of each sentence, to begin with.
    """
    writing = Writing(model, memory, strategy, hypotheses=hypotheses)
    while writing.under_way and writing.step():
        pass
