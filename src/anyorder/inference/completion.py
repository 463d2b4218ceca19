"""Targets written around what is given of them, and their text.

What a person gave comes back as it was, to the last byte; only the seams beside what was written follow the
target's rules of spacing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from anyorder import config
from anyorder.decoding.batching import CanvasBatch, decode_all
from anyorder.decoding.beam import TokenHypothesis
from anyorder.decoding.canvas import Canvas
from anyorder.errors import UserError
from anyorder.inference.canvas_text import CompiledCanvas, Given
from anyorder.inference.hypothesis import Fill
from anyorder.inference.model_folder import Trained
from anyorder.text.words import located

NOTHING_GIVEN = Canvas()


def check_completes(trained: Trained, settings: config.Decode) -> None:
    """Refuse models and searches that can't keep to a canvas."""
    kind = trained.recipe.model.kind
    if kind != "indigo":
        raise UserError(
            f'complete: model.kind = "{kind}" can\'t write around what is given; must be "indigo"'
        )
    if settings.merge_partial:
        raise UserError("decode.merge_partial = true: must be false where something is given of the target")


def complete_all(
    trained: Trained,
    sources: Sequence[NDArray[np.generic]],
    canvases: Sequence[CompiledCanvas],
    *,
    settings: config.Decode,
    device: torch.device,
    lines: Sequence[int],
) -> list[list[TokenHypothesis]]:
    """The best ways to write around each canvas, best first; lines: the number of each, from 0."""
    for canvas in canvases:
        least = canvas.canvas.least_tokens
        if least > settings.max_length:
            raise canvas.refusal(
                f"what is given takes {least} tokens or more, but decode.max_length = {settings.max_length}"
            )
    found: list[list[TokenHypothesis]] = [[] for _ in sources]
    # Where nothing is given it is decoded as ever: its answers are the same to the last bit.
    free = [line for line, canvas in enumerate(canvases) if canvas.canvas == NOTHING_GIVEN]
    bound = [line for line, canvas in enumerate(canvases) if canvas.canvas != NOTHING_GIVEN]
    ends_word = torch.from_numpy(trained.tokenizer.ends_word)
    around = CanvasBatch(canvases=[canvases[line].canvas for line in bound], ends_word=ends_word)
    for chosen, given in ((free, None), (bound, around)):
        answers = decode_all(
            trained.model,
            [sources[line] for line in chosen],
            settings=settings,
            device=device,
            lines=[lines[line] for line in chosen],
            around=given,
        )
        for line, answer in zip(chosen, answers, strict=True):
            found[line] = answer
    for canvas, hypotheses in zip(canvases, found, strict=True):
        if not hypotheses:
            raise canvas.refusal("no sentence can be written that keeps to it: too much is forbidden")
    return found


@dataclass(frozen=True)
class Filled:
    """A whole target."""

    text: str
    fills: tuple[Fill, ...]


def filled(canvas: CompiledCanvas, hypothesis: TokenHypothesis) -> Filled:
    """The text of a hypothesis, with what was given as it was."""
    return _Assembly(canvas, hypothesis).filled()


@dataclass(frozen=True)
class _Unit:
    """A given part, or one word that was written."""

    text: str
    words: tuple[str, ...]
    part: Given | None
    number: int | None  # of a part of the frame


class _Assembly:
    """One hypothesis on its way to text."""

    def __init__(self, compiled: CompiledCanvas, hypothesis: TokenHypothesis) -> None:
        self.compiled = compiled
        owners: dict[int, tuple[Given, int | None]] = {}  # by position, of the first token of each given part
        given: set[int] = set()
        for part, number, steps in compiled.parts_written(hypothesis):
            positions = [hypothesis.positions[step] for step in steps]
            owners[positions[0]] = (part, number)
            given.update(positions)
        scores = {
            position: word + gap
            for position, word, gap in zip(
                hypothesis.positions, hypothesis.word_scores, hypothesis.gap_scores, strict=False
            )
        }
        self.units: list[_Unit] = []
        self.runs: list[tuple[int, int, float]] = []  # first and last unit + 1 of what was written, and log p
        run: list[int] = []
        sentence = hypothesis.sentence
        for position in range(1, len(sentence) + 2):
            if position in given or position == len(sentence) + 1:
                self._add_run([sentence[one - 1] for one in run], sum(scores[one] for one in run))
                run = []
                if position in owners:
                    part, number = owners[position]
                    self.units.append(_Unit(part.text, part.words, part, number))
            else:
                run.append(position)

    def _add_run(self, tokens: list[int], log_prob: float) -> None:
        if not tokens:
            return
        first = len(self.units)
        self.units += [_Unit(word, (word,), None, None) for word in self.compiled.words(tokens)]
        self.runs.append((first, len(self.units), log_prob))

    def filled(self) -> Filled:
        by_rules = self._separators_by_rules()
        seams = [
            self._seam(left, right, by_rules=between)
            for (left, right), between in zip(pairwise(self.units), by_rules, strict=True)
        ]
        fills = tuple(
            Fill(self._text(first, end, seams), log_prob, self._blank_at(first))
            for first, end, log_prob in self.runs
        )
        lead, trail = self.compiled.spaces_around
        if self.units and self.units[0].part is None:
            lead = ""
        if self.units and self.units[-1].part is None:
            trail = ""
        return Filled(text=lead + self._text(0, len(self.units), seams) + trail, fills=fills)

    def _text(self, first: int, end: int, seams: Sequence[str]) -> str:
        if first == end:
            return ""
        rest = (seams[number] + self.units[number + 1].text for number in range(first, end - 1))
        return self.units[first].text + "".join(rest)

    def _seam(self, left: _Unit, right: _Unit, *, by_rules: str) -> str:
        if left.number is not None and right.number == left.number + 1:
            separator = self.compiled.separator(left.number)
            if separator is not None:
                return separator
        sides = (
            left.part is not None and left.part.glued_right,
            right.part is not None and right.part.glued_left,
        )
        # An empty blank that touches one of two given words does not glue them together.
        between_given = left.number is not None and right.number is not None
        return "" if (all if between_given else any)(sides) else by_rules

    def _separators_by_rules(self) -> list[str]:
        """What the target's rules put between each unit and the next."""
        words = [word for unit in self.units for word in unit.words]
        joined = self.compiled.join(words)
        places = located(words, joined)
        ends = list(accumulate(len(unit.words) for unit in self.units))[:-1]
        if places is None:  # the rules change some characters as they join
            return [" "] * len(ends)
        return [joined[places[end - 1][1] : places[end][0]] for end in ends]

    def _blank_at(self, unit: int) -> int | None:
        numbers = [one.number for one in self.units[:unit] if one.number is not None]
        return self.compiled.blank_after(numbers[-1] if numbers else None)
