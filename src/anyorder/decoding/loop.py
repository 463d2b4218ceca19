"""The loop that writes sentences, one token a step (Algorithm 1).

Beam search, sampling and the search for orders of known targets all run this loop. They differ in their
strategy: which candidates there are, and which of them go on.
"""

from __future__ import annotations

from typing import Protocol

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


def write(model: Indigo, memory: Memory, strategy: Strategy, *, hypotheses: int = 1) -> None:
    """Write all sentences of a batch step by step; the strategy collects what comes out.

    hypotheses: of each sentence, to begin with.
    """
    decoder_state = model.start(memory)
    beam = Beam.start(len(memory.mask), hypotheses=hypotheses, device=memory.mask.device)
    newest = beam.words  # the boundaries
    while len(beam.sentences):
        given = strategy.given(newest.shape[2])
        indices = beam.indices.flatten(0, 1)
        state = model.advance(decoder_state, newest.flatten(0, 1), indices, given=given)
        extension = strategy.extend(beam, StepChoices(model, decoder_state, state, indices))
        if extension is None:
            return
        beam, staying = strategy.settle(beam.grow(extension), extension)
        decoder_state.follow(extension.parent, staying)
        beam = beam.keep(staying)
        newest = beam.words[..., -1:]
