"""What an editor made of a draft: the text, and each edit with its place and probability."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

EditName = Literal["insert", "substitute", "delete"]
# Colours that read well on light and dark pages.
_CELLS = {
    "before": 'style="background:#f8717133;text-decoration:line-through"',
    "after": 'style="background:#4ade8033;text-decoration:none"',
}


@dataclass(frozen=True)
class TextEdit:
    """A change of a draft: some words of it became others."""

    kind: EditName
    start: int  # first character of the draft that it changes, counted from 0
    end: int  # the character after the last one; the same as `start` for an insertion
    before: str
    after: str
    probability: float  # of all steps that made it; 0 for what only rules demanded


@dataclass(frozen=True)
class Segment:
    """A part of a diff."""

    kind: Literal["same", "before", "after"]
    text: str
    edit: TextEdit | None = None  # that it belongs to


@dataclass(frozen=True, repr=False)
class Edited:
    """A draft and what a model made of it. In a notebook it shows the difference."""

    draft: str
    text: str
    edits: tuple[TextEdit, ...]  # from left to right
    log_prob: float  # log p of all edits and of the end
    finished: bool  # False: cut off at the limit of edits
    refused: tuple[str, ...] = ()  # words that the model may not delete, because too much would be gone

    @property
    def changed(self) -> bool:
        """Whether anything was edited."""
        return bool(self.edits)

    def segments(self) -> Iterator[Segment]:
        """The difference, from left to right: what stayed, what was there before, and what came after."""
        cursor = 0
        for edit in self.edits:
            if cursor < edit.start:
                yield Segment("same", self.draft[cursor : edit.start])
            if edit.before:
                yield Segment("before", edit.before, edit)
            if edit.after:
                yield Segment("after", edit.after, edit)
            cursor = edit.end
        if cursor < len(self.draft):
            yield Segment("same", self.draft[cursor:])

    def __repr__(self) -> str:
        """Text, number of edits and log p."""
        return f"Edited(text={self.text!r}, edits={len(self.edits)}, log_prob={self.log_prob:.4g})"

    def _repr_html_(self) -> str:
        """The difference for notebooks, with the probability of each edit as its title."""
        return f"<p>{html_diff(self)}</p>"


def html_diff(edited: Edited) -> str:
    """The difference as HTML: deleted words struck through, inserted ones marked."""
    tags = {"before": "del", "after": "ins"}
    parts: list[str] = []
    for segment in spaced(edited):
        text = html.escape(segment.text)
        if segment.edit is None:
            parts.append(text)
            continue
        title = f"{segment.edit.kind}, p = {segment.edit.probability:.3f}"
        tag = tags[segment.kind]
        parts.append(f'<{tag} title="{title}" {_CELLS[segment.kind]}>{text}</{tag}>')
    return "".join(parts)


def spaced(edited: Edited) -> Iterator[Segment]:
    """The difference with a space between parts that would touch each other."""
    last = ""
    for segment in edited.segments():
        if last and not (last.isspace() or segment.text[:1].isspace()):
            yield Segment("same", " ")
        yield segment
        last = segment.text[-1:]
