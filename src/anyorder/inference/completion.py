"""Completions: hypotheses that keep to what a user gives of the target, and their text.

Given text comes back byte for byte; only where it meets a written word do the target's spacing rules apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch

from anyorder import config
from anyorder.decoding.beam import TokenHypothesis
from anyorder.decoding.constraint_state import FREE
from anyorder.decoding.constraints import Canvas
from anyorder.decoding.decode import CanvasBatch, decode_all
from anyorder.errors import UserError
from anyorder.inference.canvas_text import CanvasText, CompiledCanvas, Given
from anyorder.inference.generation import EncodedSource, Source, decode_readable, with_text
from anyorder.inference.hypothesis import Completion, Fill
from anyorder.inference.model_folder import Trained
from anyorder.text.words import word_spans

NOTHING_GIVEN = Canvas()
NOTHING_POSSIBLE = "no sentence can be written that keeps to it: too much is forbidden"


def check_completes(trained: Trained, settings: config.Decode) -> None:
    """Refuse models and settings that can't keep to a canvas."""
    model = trained.recipe.model
    if not model.abilities.any_order:
        raise UserError(
            f'complete: model.kind = "{model.kind}" can\'t write around given text; '
            f"must be {config.kinds_with('any_order')}"
        )
    if settings.merge_partial:
        raise UserError("decode.merge_partial = true: must be false where something is given of the target")


@dataclass(frozen=True)
class CompletionRequest:
    """A canvas to complete, for one source."""

    line: int  # counted from 0; what is sampled depends on it
    name: str  # in error messages
    source: Source
    text: CanvasText


def compile_canvas(
    trained: Trained, source: EncodedSource, request: CompletionRequest, *, settings: config.Decode
) -> CompiledCanvas:
    """The canvas of a request in the model's tokens; a canvas that can't be completed is refused."""
    if source.is_blank and not trained.recipe.sourceless and request.text != CanvasText():
        raise UserError(f"{request.name}: source: missing or blank; this model needs one")
    compiled = CompiledCanvas(request.text, trained.tokenizer, source=source.tokens, where=request.name)
    least = compiled.canvas.least_tokens
    if least > settings.max_length:
        raise compiled.refusal(
            f"what is given takes {least} tokens or more, but decode.max_length = {settings.max_length}"
        )
    return compiled


def complete_batch(
    trained: Trained,
    sources: Sequence[EncodedSource],
    canvases: Sequence[CompiledCanvas],
    *,
    settings: config.Decode,
    device: torch.device,
    lines: Sequence[int],
) -> list[list[Completion] | UserError]:
    """The best completions of each canvas, best first, or why there is none.

    lines: the number of each source, from 0; what is sampled for a source depends on it.
    """

    def decode(indices: list[int]) -> list[list[TokenHypothesis]]:
        return _decode_around(
            trained,
            [sources[index] for index in indices],
            [canvases[index] for index in indices],
            settings=settings,
            device=device,
            lines=[lines[index] for index in indices],
        )

    found = decode_readable(sources, decode, sourceless=trained.recipe.sourceless)
    return [
        [completion_of(trained, hypothesis, canvas, source) for hypothesis in hypotheses]
        or canvas.refusal(NOTHING_POSSIBLE)
        for source, canvas, hypotheses in zip(sources, canvases, found, strict=True)
    ]


def _decode_around(
    trained: Trained,
    sources: Sequence[EncodedSource],
    canvases: Sequence[CompiledCanvas],
    *,
    settings: config.Decode,
    device: torch.device,
    lines: Sequence[int],
) -> list[list[TokenHypothesis]]:
    """Decode each source around its canvas; lines: the number of each source, from 0."""
    found: list[list[TokenHypothesis]] = [[] for _ in sources]
    # Where nothing is given, plain decoding gives the very same answer as `generate`, bit for bit.
    free = [index for index, canvas in enumerate(canvases) if canvas.canvas == NOTHING_GIVEN]
    bound = [index for index, canvas in enumerate(canvases) if canvas.canvas != NOTHING_GIVEN]
    ends_word = torch.from_numpy(trained.tokenizer.ends_word)
    around = CanvasBatch(canvases=[canvases[index].canvas for index in bound], ends_word=ends_word)
    for indices, given in ((free, None), (bound, around)):
        answers = decode_all(
            trained.model,
            [sources[index].array for index in indices],
            settings=settings,
            device=device,
            lines=[lines[index] for index in indices],
            around=given,
        )
        for index, answer in zip(indices, answers, strict=True):
            found[index] = answer
    return found


def completion_of(
    trained: Trained, hypothesis: TokenHypothesis, canvas: CompiledCanvas, source: EncodedSource
) -> Completion:
    """A hypothesis as text, given and written parts together."""
    given = sum(owner != FREE for owner in hypothesis.owners)
    whole = filled(canvas, hypothesis)
    shown = with_text(
        hypothesis,
        trained.tokenizer,
        own_words=source.own_words,
        text=whole.text if given else None,
    )
    return Completion(**vars(shown), fills=whole.fills, given=given)


@dataclass(frozen=True)
class Filled:
    """The text of a target, given and written parts together."""

    text: str
    fills: tuple[Fill, ...]  # the written parts, in reading order


def filled(canvas: CompiledCanvas, hypothesis: TokenHypothesis) -> Filled:
    """The text of a hypothesis, in which given text is as the user wrote it."""
    return _Assembly(canvas, hypothesis).filled()


@dataclass(frozen=True)
class _Unit:
    """A given part, or one word that the model wrote."""

    text: str
    words: tuple[str, ...]
    part: Given | None
    number: int | None  # of a given part in the frame


class _Assembly:
    """Joins the given parts and the written words of one hypothesis into text."""

    def __init__(self, compiled: CompiledCanvas, hypothesis: TokenHypothesis) -> None:
        self.compiled = compiled
        owners: dict[int, tuple[Given, int | None]] = {}  # given parts by the position of their first token
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
        self.runs: list[tuple[int, int, float]] = []  # runs of written words: first unit, last + 1, and log p
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
        spans = word_spans(words, joined)
        ends = list(accumulate(len(unit.words) for unit in self.units))[:-1]
        if spans is None:  # the rules change some characters as they join
            return [" "] * len(ends)
        return [joined[spans[end - 1][1] : spans[end][0]] for end in ends]

    def _blank_at(self, unit: int) -> int | None:
        numbers = [one.number for one in self.units[:unit] if one.number is not None]
        return self.compiled.blank_after(numbers[-1] if numbers else None)
