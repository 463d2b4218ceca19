"""Editing: drafts in, edited texts out. What is not edited comes back byte for byte."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from anyorder import config
from anyorder.decoding.editing import DraftToEdit, EditedDraft, edit_all
from anyorder.editing import EditKind
from anyorder.errors import UserError
from anyorder.inference.draft_text import CompiledDraft, DraftText, TextRules, Unit
from anyorder.inference.edited import Edited, EditName, TextEdit
from anyorder.inference.generation import EncodedSource, Source
from anyorder.inference.model_folder import Trained
from anyorder.models.editor import Editor
from anyorder.text.pairs import PairEncoder
from anyorder.text.words import word_spans


@dataclass(frozen=True)
class EditRequest:
    """A draft to edit."""

    name: str  # in error messages
    source: Source | None  # None: none was given
    text: DraftText


def editor_of(trained: Trained) -> Editor:
    """The network of an editor; other kinds of models are refused."""
    if isinstance(trained.model, Editor):
        return trained.model
    raise UserError(
        f'edit: model.kind = "{trained.recipe.model.kind}" can\'t change a draft; '
        f"must be {config.kinds_with('editing')}"
    )


def compile_draft(trained: Trained, request: EditRequest) -> CompiledDraft:
    """The draft of a request in the model's tokens; what contradicts itself is refused."""
    if request.source is None and not trained.recipe.sourceless:
        raise UserError(f"{request.name}: source: missing; this model reads one beside the draft")
    encoder = PairEncoder(trained.tokenizer, copying=trained.recipe.model.copying, editing=True)
    return CompiledDraft(request.text, encoder, where=request.name)


def edit_drafts(
    trained: Trained,
    sources: Sequence[EncodedSource],
    drafts: Sequence[CompiledDraft],
    *,
    settings: config.Decode,
    device: torch.device,
) -> list[Edited]:
    """Edit each draft; one without words is left as it is, unless words must appear."""
    asked = [number for number, draft in enumerate(drafts) if len(draft.ids) or draft.must]
    found = edit_all(
        editor_of(trained),
        [
            DraftToEdit(
                source=sources[number].array,
                draft=drafts[number].ids,
                rules=TextRules(drafts[number]) if drafts[number].has_rules else None,
            )
            for number in asked
        ],
        settings=settings,
        device=device,
    )
    edited = dict(zip(asked, found, strict=True))
    return [
        _Assembly(draft, edited[number]).edited()
        if number in edited
        else Edited(draft.text.draft, draft.text.draft, edits=(), log_prob=0.0, finished=True)
        for number, draft in enumerate(drafts)
    ]


@dataclass(frozen=True)
class _Part:
    """A word that stayed as it was, or the words that stand between two such words."""

    words: tuple[str, ...]
    tokens: tuple[int, ...]
    unit: int | None  # number of the word in the draft, if it stayed


class _Assembly:
    """Joins what stayed of a draft and what was written into text."""

    def __init__(self, draft: CompiledDraft, found: EditedDraft) -> None:
        self.draft, self.found = draft, found
        self.parts = self._parts()

    def _parts(self) -> list[_Part]:
        canvas, draft = self.found.canvas, self.draft
        tokens = canvas.live[1:-1]
        starts = {unit.tokens[0]: number for number, unit in enumerate(draft.units)}
        parts: list[_Part] = []
        changed: list[int] = []

        def close() -> None:
            if changed:
                words = draft.words([canvas.words[token] for token in changed])
                parts.append(_Part(tuple(words), tuple(changed), None))
                changed.clear()

        at, whole = 0, True  # whether a word begins here
        while at < len(tokens):
            number = starts.get(tokens[at]) if whole else None
            unit = None if number is None else draft.units[number]
            if unit is not None and tokens[at : at + len(unit.tokens)] == list(unit.tokens):
                close()
                parts.append(_Part(unit.words, tuple(unit.tokens), number))
                at += len(unit.tokens)
                whole = True
                continue
            changed.append(tokens[at])
            whole = draft.ends_word(canvas.words[tokens[at]])
            at += 1
        close()
        return parts

    def edited(self) -> Edited:
        text = self.draft.text.draft
        units = self.draft.units
        lead = text[: units[0].start] if units else ""
        trail = text[units[-1].end :] if units else ""
        return Edited(
            draft=text,
            text=lead + self._joined() + trail,
            edits=tuple(self._edits()),
            log_prob=self.found.log_prob,
            finished=self.found.end_score is not None,
            refused=tuple(self._unit_text(self._unit_of(token)) for token in self.found.refused),
        )

    def _joined(self) -> str:
        """The whole text: between two words that stayed and were neighbours it is as in the draft."""
        words = [word for part in self.parts for word in part.words]
        joined = self.draft.split.join(words)
        spans = word_spans(words, joined)
        pieces: list[str] = []
        number = 0
        for part, following in zip(self.parts, [*self.parts[1:], None], strict=True):
            pieces.append(self._text(part, number, joined, spans))
            number += len(part.words)
            if following is not None:
                pieces.append(self._separator(part, following, number, joined, spans))
        return "".join(pieces)

    def _text(self, part: _Part, first: int, joined: str, spans: list[tuple[int, int]] | None) -> str:
        if part.unit is not None:
            return self._unit_text(self.draft.units[part.unit])
        if spans is None:  # the rules change some characters as they join
            return " ".join(part.words)
        return joined[spans[first][0] : spans[first + len(part.words) - 1][1]]

    def _separator(
        self, left: _Part, right: _Part, first: int, joined: str, spans: list[tuple[int, int]] | None
    ) -> str:
        """What stands between two parts. first: the number of the second one's first word."""
        if left.unit is not None and right.unit == left.unit + 1:
            one, other = self.draft.units[left.unit], self.draft.units[right.unit]
            return self.draft.text.draft[one.end : other.start]
        return " " if spans is None else joined[spans[first - 1][1] : spans[first][0]]

    def _edits(self) -> list[TextEdit]:
        """A change for each place where words went, came, or both."""
        stayed = [-1, *(part.unit for part in self.parts if part.unit is not None), len(self.draft.units)]
        written = self._written(stayed)
        log_probs = self._log_probs(stayed, written)
        found = []
        for left, right in pairwise(stayed):
            units = self.draft.units[left + 1 : right]
            part = written.get(left)
            if not units and part is None:
                continue
            after = "" if part is None else self.draft.split.join(part.words)
            start = units[0].start if units else self._end_of(left)
            end = units[-1].end if units else start
            kind: EditName = "insert" if not units else "delete" if part is None else "substitute"
            found.append(
                TextEdit(
                    kind=kind,
                    start=start,
                    end=end,
                    before=self.draft.text.draft[start:end],
                    after=after,
                    probability=math.exp(log_probs.get(left, 0.0)),
                )
            )
        return found

    def _written(self, stayed: Sequence[int]) -> dict[int, _Part]:
        """The parts that were written, by the word that stayed to the left of each; -1 for none."""
        written: dict[int, _Part] = {}
        last = stayed[0]
        for part in self.parts:
            if part.unit is None:
                written[last] = part
            else:
                last = part.unit
        return written

    def _log_probs(self, stayed: Sequence[int], written: dict[int, _Part]) -> dict[int, float]:
        """log p of all steps at each place, by the word that stayed to its left."""
        of_token = {token: left for left, part in written.items() for token in part.tokens}
        for left, right in pairwise(stayed):
            of_token.update(
                (token, left) for unit in self.draft.units[left + 1 : right] for token in unit.tokens
            )
        sums: dict[int, float] = {}
        canvas = self.found.canvas
        for number, scored in enumerate(self.found.edits):
            new = canvas.first_edit + number
            left = of_token[new if scored.edit.kind is EditKind.INSERT else scored.edit.token]
            sums[left] = sums.get(left, 0.0) + scored.log_prob
        return sums

    def _unit_text(self, unit: Unit) -> str:
        return self.draft.text.draft[unit.start : unit.end]

    def _unit_of(self, token: int) -> Unit:
        return next(unit for unit in self.draft.units if token in unit.tokens)

    def _end_of(self, unit: int) -> int:
        if unit >= 0:
            return self.draft.units[unit].end
        return self.draft.units[0].start if self.draft.units else len(self.draft.text.draft)
