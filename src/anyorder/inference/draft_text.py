"""What a user asks of an editor, as text: a draft, what must stay as it is, required and forbidden words.

`DraftText` checks it, and `CompiledDraft` turns it into tokens, and into the rules that decoding keeps to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from anyorder import config
from anyorder.decoding.editing import Repair
from anyorder.editing import Edit, EditCanvas, EditKind
from anyorder.errors import UserError
from anyorder.text.pairs import PairEncoder
from anyorder.text.tokenizer import UNK, Tokenizer
from anyorder.text.words import splitter, word_spans


class DraftText(config.Section):
    """A draft, and what must hold of the edited text."""

    draft: str = Field(description="text to edit")
    keep: tuple[str, ...] = Field((), description="parts of the draft that stay as they are")
    must: tuple[str, ...] = Field((), description="words or phrases that must appear")
    forbid: tuple[str, ...] = Field((), description="words that must not appear")

    @field_validator("keep", "must", "forbid", mode="before")
    @classmethod
    def _one_is_a_list_too(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("keep", "must", "forbid")
    @classmethod
    def _not_blank(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            if not text.strip():
                raise ValueError(f"{text!r}: a word is missing")
        return value


@dataclass(frozen=True)
class SharedRules:
    """What must hold of several edited texts."""

    keep: tuple[str, ...] = ()
    must: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()

    @classmethod
    def of(cls, **given: str | Sequence[str]) -> SharedRules:
        """Rules from texts or lists of texts."""
        return cls(
            **{key: (value,) if isinstance(value, str) else tuple(value) for key, value in given.items()}
        )

    def check(self, drafts: Sequence[str]) -> None:
        """Refuse a part to keep that no draft has: it is misspelled."""
        for text in self.keep:
            if drafts and not any(text.strip() in draft for draft in drafts):
                where = "the draft" if len(drafts) == 1 else f"any of the {len(drafts)} drafts"
                raise UserError(f"keep = {text!r}: is not in {where}")


def draft_text(given: str | Mapping[str, Any] | DraftText, *, where: str, shared: SharedRules) -> DraftText:
    """Check a request, and add the rules that all drafts share. where: begins error messages."""
    if isinstance(given, str):
        given = {"draft": given}
    if isinstance(given, DraftText):
        given = given.model_dump()
    text = config.checked(DraftText, given, origin=where)
    rules = config.checked(DraftText, {"draft": "", **vars(shared)}, origin=where)
    return text.model_copy(
        update={
            "keep": (*text.keep, *(part for part in rules.keep if part.strip() in text.draft)),
            "must": (*text.must, *rules.must),
            "forbid": (*text.forbid, *rules.forbid),
        }
    )


@dataclass(frozen=True)
class Unit:
    """A part of the draft that stays as it is or changes as a whole: a word."""

    start: int  # characters of the draft
    end: int
    words: tuple[str, ...]
    tokens: range  # tokens of the canvas


class CompiledDraft:
    """A draft in the tokens of a model. where: begins error messages."""

    def __init__(self, text: DraftText, encoder: PairEncoder, *, where: str) -> None:
        self.text, self.where = text, where
        self.tokenizer: Tokenizer = encoder.tokenizer
        self.split = splitter(self.tokenizer.text.target)
        spans = self._spans()
        words = [word for _, _, words in spans for word in words]
        named = encoder.named_draft(words)
        self.own = list(named.own)
        self.ids = np.array(named.ids, dtype=np.int32)
        pieces = iter(named.pieces)
        sizes = [sum(next(pieces) for _ in words) for _, _, words in spans]
        ends = accumulate(sizes, initial=2)
        self.units = [
            Unit(start, end, words, range(*tokens))
            for (start, end, words), tokens in zip(spans, pairwise(ends), strict=True)
        ]
        self.fixed, self.closed = self._kept()
        self.must = [self._required(phrase) for phrase in text.must]
        self.forbidden = {self._forbidden(word) for word in text.forbid}

    def _spans(self) -> list[tuple[int, int, tuple[str, ...]]]:
        """The words of the draft and where they stand, or, where rules change characters, larger parts."""
        draft = self.text.draft
        words = self.split.split(draft)
        spans = word_spans(words, draft)
        if spans is not None:
            return [(start, end, (word,)) for (start, end), word in zip(spans, words, strict=True)]
        chunks = [(*match.span(), tuple(self.split.split(match[0]))) for match in re.finditer(r"\S+", draft)]
        return [chunk for chunk in chunks if chunk[2]]

    def _kept(self) -> tuple[set[int], set[int]]:
        """Tokens that may not be removed, and those that nothing may be inserted after."""
        fixed: set[int] = set()
        closed: set[int] = set()
        for text in self.text.keep:
            found = [match.span() for match in re.finditer(re.escape(text.strip()), self.text.draft)]
            if not found:
                raise self.refusal(f"keep = {text!r}: is not in the draft")
            for start, end in found:
                tokens = [
                    token
                    for unit in self.units
                    if unit.start < end and start < unit.end
                    for token in unit.tokens
                ]
                fixed.update(tokens)
                closed.update(tokens[:-1])
        return fixed, closed

    def _required(self, phrase: str) -> tuple[str, ...]:
        words = tuple(self.split.split(phrase))
        if not words:
            raise self.refusal(f"must = {phrase!r}: holds no word by the target's rules")
        return words

    def _forbidden(self, text: str) -> str:
        words = self.split.split(text)
        if len(words) != 1:
            raise self.refusal(
                f"forbid = {text!r}: is {len(words)} words by the target's rules ({' '.join(words)}); "
                "must be one"
            )
        kept = {word for unit in self.units if unit.tokens[0] in self.fixed for word in unit.words}
        if words[0] in kept or any(words[0] in phrase for phrase in self.must):
            raise self.refusal(f"forbid = {text!r}: is also among what must stay or appear")
        return words[0]

    def refusal(self, text: str) -> UserError:
        """An error about this draft."""
        return UserError(f"{self.where}: {text}")

    # --- tokens and words ---

    @property
    def has_rules(self) -> bool:
        """Whether anything must hold of the edited text."""
        return bool(self.fixed or self.must or self.forbidden)

    def ends_word(self, token_id: int) -> bool:
        """Whether a word ends with this token."""
        ends: NDArray[np.bool_] = self.tokenizer.ends_word
        return token_id >= len(ends) or bool(ends[token_id])

    def words(self, ids: Sequence[int]) -> list[str]:
        """The words that tokens spell."""
        return self.tokenizer.words(ids, own=self.own)

    def ids_of(self, words: Sequence[str]) -> list[int]:
        """The tokens of words that must appear; a word that has none gets an id of its own."""
        ids: list[int] = []
        for word in words:
            (tokens,) = self.tokenizer.encode_words([[word]], "target")
            if UNK in tokens.ids:
                spelled = self.tokenizer.own_piece(word)
                if spelled not in self.own:
                    self.own.append(spelled)
                ids.append(self.tokenizer.size + self.own.index(spelled))
            else:
                ids += tokens.ids
        return ids


class TextRules:
    """The rules of one draft, for `decoding.editing`."""

    def __init__(self, draft: CompiledDraft) -> None:
        self.draft = draft
        first_fixed = (token for token in sorted(draft.fixed) if token - 1 not in draft.closed)
        self.first_fixed = set(first_fixed)

    def allows(self, canvas: EditCanvas, edit: Edit) -> bool:
        """Whether everything that holds before an edit holds after it."""
        if edit.kind is EditKind.INSERT:
            if edit.token in self.draft.closed:
                return False
        elif edit.token in self.draft.fixed:
            return False
        before, after = self._words(canvas), self._words_after(canvas, [edit])
        return after is not None and self._no_worse(before, after)

    def repairs(self, canvas: EditCanvas) -> Sequence[Repair]:
        """The ways to mend the first thing that does not hold; empty if everything does."""
        words = self._words(canvas)
        if self._count_forbidden(words):
            return list(self._removals(canvas))
        for phrase in self.draft.must:
            if not _occurs(phrase, words):
                return list(self._insertions(canvas, phrase, words))
        return []

    def _removals(self, canvas: EditCanvas) -> Iterator[Repair]:
        """Ways to remove the first forbidden word. Its tokens are the draft's: no edit writes such a word."""
        word: list[int] = []
        for token in canvas.live[1:-1]:
            word.append(token)
            if not self.draft.ends_word(canvas.words[token]):
                continue
            if self._count_forbidden(self.draft.words([canvas.words[one] for one in word])):
                break
            word = []
        yield Repair(EditKind.DELETE, word[-1], also_delete=tuple(word[:-1]))
        if len(word) == 1:
            yield Repair(EditKind.SUBSTITUTE, word[0])

    def _insertions(
        self, canvas: EditCanvas, phrase: Sequence[str], words: Sequence[str]
    ) -> Iterator[Repair]:
        """Ways to insert a required phrase between two words."""
        first, *rest = self.draft.ids_of(phrase)
        for token in canvas.live[:-1]:
            if token in self.draft.closed or not (token == 0 or self.draft.ends_word(canvas.words[token])):
                continue
            edits = [Edit(EditKind.INSERT, token, first)]
            edits += [Edit(EditKind.INSERT, -1, one) for one in rest]
            after = self._words_after(canvas, edits)
            if after is not None and self._no_worse(words, after):
                yield Repair(EditKind.INSERT, token, word=first, then_insert=tuple(rest))

    # --- what holds ---

    def _no_worse(self, before: Sequence[str], after: Sequence[str]) -> bool:
        forbidden = self.draft.forbidden
        if forbidden and any(after.count(word) > before.count(word) for word in forbidden):
            return False
        return all(_occurs(phrase, after) or not _occurs(phrase, before) for phrase in self.draft.must)

    def _count_forbidden(self, words: Sequence[str]) -> int:
        return sum(word in self.draft.forbidden for word in words)

    def _words(self, canvas: EditCanvas) -> list[str]:
        return self.draft.words(canvas.read())

    def _words_after(self, canvas: EditCanvas, edits: Sequence[Edit]) -> list[str] | None:
        """The words after some edits; None if one of them would touch a word that stays as it is.

        Token -1 is that of the edit before.
        """
        tokens = [(token, canvas.words.get(token, UNK)) for token in canvas.live[:-1]]
        at = 0
        for edit in edits:
            if edit.token >= 0:
                at = next(number for number, (token, _) in enumerate(tokens) if token == edit.token)
            match edit.kind:
                case EditKind.INSERT:
                    at += 1
                    tokens.insert(at, (-1, edit.word))
                case EditKind.SUBSTITUTE:
                    tokens[at] = (-1, edit.word)
                case EditKind.DELETE:
                    del tokens[at]
        for (left, word), (right, _) in pairwise(tokens):
            if right in self.first_fixed and left != 0 and not self.draft.ends_word(word):
                return None
        return self.draft.words([word for _, word in tokens[1:]])


def _occurs(phrase: Sequence[str], words: Sequence[str]) -> bool:
    size = len(phrase)
    return any(tuple(words[first : first + size]) == tuple(phrase) for first in range(len(words) - size + 1))
