"""Batches that sentences join and leave while others are under way, as a server needs them.

Newcomers are encoded and take their first step by themselves. Then they are put beside the sentences under
way, with padding for the steps that they have not taken. An answer does not depend on who else is in the
batch, except for rounding in the last digits, as everywhere in batches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from anyorder import config
from anyorder.data.batches import collate_sources
from anyorder.decoding.beam import TokenHypothesis
from anyorder.decoding.beam_search import Expansion
from anyorder.decoding.constraints import Canvas, Constraints
from anyorder.decoding.decode import CanvasBatch, Decoding, decoding_memory
from anyorder.decoding.loop import Writing
from anyorder.decoding.sampling import uniform_numbers
from anyorder.decoding.step_scorer import StepScorer
from anyorder.models.indigo import Indigo

# Looks at a step of the sentences with these keys, and returns the step that is to be taken.
Watch = Callable[[Sequence[Hashable], StepScorer, Expansion], Expansion]


@dataclass(frozen=True)
class Sentence:
    """A sentence that is to be written."""

    key: Hashable  # by which its answer is known
    source: NDArray[np.generic]  # as a model reads it
    limit: int  # most tokens to write
    line: int = 0  # what is sampled depends on it
    canvas: Canvas | None = None  # what it must keep to


@dataclass
class _Part:
    """Sentences that take their steps together."""

    writing: Writing
    strategy: Decoding
    keys: list[Hashable]  # by number of the sentence

    @property
    def under_way(self) -> list[Hashable]:
        return [self.keys[sentence] for sentence in self.writing.beam.sentences.tolist()]


class OpenBatch:
    """Sentences under way with the same settings; others may join at any time.

    ends_word: for sentences that keep to canvases, which tokens end a word; None for sentences that are free.
    samples: which of the n best are sampled here, where settings ask for samples. watch: sees every step.
    """

    def __init__(
        self,
        model: Indigo,
        settings: config.Decode,
        *,
        device: torch.device,
        ends_word: torch.Tensor | None = None,
        samples: slice | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._model, self._settings, self._device = model, settings, device
        self._ends_word, self._samples, self._watch = ends_word, samples, watch
        self._part: _Part | None = None
        self._finished: dict[Hashable, list[TokenHypothesis]] = {}

    @property
    def under_way(self) -> list[Hashable]:
        """Keys of the sentences under way."""
        return [] if self._part is None else self._part.under_way

    def memory(self, sentence: Sentence) -> int:
        """Estimate the bytes that a sentence takes."""
        return decoding_memory(
            self._model, self._settings, source=len(sentence.source), target=sentence.limit
        )

    @torch.inference_mode()
    def add(self, sentences: Sequence[Sentence]) -> None:
        """Let sentences take their first step and join."""
        if not sentences:
            return
        # Sources of similar length are encoded together.
        sentences = sorted(sentences, key=lambda sentence: len(sentence.source))
        new = self._started(sentences)
        self._step(new)
        if not new.writing.under_way:
            return
        if self._part is None:
            self._part = new
            return
        old = self._part
        keys = [*old.under_way, *new.under_way]
        old.strategy.join(old.writing.beam, new.strategy, new.writing.beam)
        old.writing.join(new.writing)
        old.keys = keys

    @torch.inference_mode()
    def step(self) -> dict[Hashable, list[TokenHypothesis]]:
        """Take one step; returns the hypotheses of the sentences that have ended, not yet ranked."""
        if self._part is not None:
            self._step(self._part)
            self._tidy(self._part)
        finished, self._finished = self._finished, {}
        return finished

    @torch.inference_mode()
    def drop(self, keys: Collection[Hashable]) -> None:
        """Give up some sentences."""
        if self._part is None:
            return
        staying = [row for row, key in enumerate(self._part.under_way) if key not in keys]
        rows = torch.tensor(staying, dtype=torch.long, device=self._device)
        self._part.writing.keep(rows)
        self._part.strategy.keep(rows)
        self._tidy(self._part)

    def _started(self, sentences: Sequence[Sentence]) -> _Part:
        source, mask = collate_sources([sentence.source for sentence in sentences])
        limits = torch.tensor([sentence.limit for sentence in sentences])
        constraints = self._constraints(sentences, source, limits)
        uniform = None
        if self._settings.search == "sample":
            lines = [sentence.line for sentence in sentences]
            uniform = uniform_numbers(self._settings, lines, limits)[:, :, self._samples or slice(None)]
            uniform = uniform.to(self._device)
        required = None if constraints is None else constraints.required
        memory = self._model.encode_sorted(source.to(self._device), mask.to(self._device), required)
        strategy = Decoding(self._model, self._settings, limits.to(self._device), constraints, uniform)
        hypotheses = 1 if uniform is None else uniform.shape[2]
        writing = Writing(self._model, memory, strategy, hypotheses=hypotheses)
        part = _Part(writing, strategy, [sentence.key for sentence in sentences])
        if self._watch is not None:
            strategy.observer = partial(_observed, part, self._watch)
        return part

    def _constraints(
        self, sentences: Sequence[Sentence], source: torch.Tensor, limits: torch.Tensor
    ) -> Constraints | None:
        if self._ends_word is None:
            return None
        canvases = [sentence.canvas or Canvas() for sentence in sentences]
        around = CanvasBatch(canvases=canvases, ends_word=self._ends_word)
        ends_word = around.ends(self._model.writable_ids(source)).to(self._device)
        return Constraints.of(canvases, ends_word=ends_word, limits=limits)

    def _step(self, part: _Part) -> None:
        before = part.writing.beam.sentences.tolist()
        part.writing.step()
        staying = set(part.writing.beam.sentences.tolist())
        for sentence in before:
            if sentence not in staying:
                self._finished[part.keys[sentence]] = part.strategy.found[sentence]

    def _tidy(self, part: _Part) -> None:
        if not part.writing.under_way:
            self._part = None
            return
        part.strategy.trim(part.writing.trim())


def _observed(part: _Part, watch: Watch, scorer: StepScorer, expansion: Expansion) -> Any:  # noqa: ANN401
    return watch(part.under_way, scorer, expansion)
