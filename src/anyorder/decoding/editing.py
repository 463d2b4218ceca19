"""Decoding with an editor: the likeliest edit of each step, until the model ends, and then what rules demand.

An edit that would break a rule is not made, so rules that hold go on to hold. What does not hold when the
model ends is repaired: forbidden words go, and required words come, where the model finds it likeliest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder import config
from anyorder.data.batches import collate_sources
from anyorder.data.edits import stack_canvases
from anyorder.editing import BOUNDARIES, Edit, EditCanvas, EditKind, distances, hidden, live
from anyorder.insertion import NEG_INF
from anyorder.models.editor import (
    DELETE,
    LEFT,
    RIGHT,
    SUBSTITUTE,
    Editor,
    EditorState,
    advance,
    drafts_of,
    place_scores,
    word_log_probs,
)
from anyorder.text.tokenizer import UNK

# B drafts under way, N tokens ever written, V words

EDITED_AT_ONCE = 64  # drafts
WORDS_TRIED = 16  # best words of a place that rules may refuse before the place is given up


class Rules(Protocol):
    """What must hold of an edited text."""

    def allows(self, canvas: EditCanvas, edit: Edit) -> bool:
        """Whether everything that holds before an edit holds after it."""

    def repairs(self, canvas: EditCanvas) -> Sequence[Repair]:
        """The ways to mend the first thing that does not hold; empty if everything does."""


@dataclass(frozen=True)
class Repair:
    """Edits that mend something together: a place and a word to score, and what else belongs to it.

    word: None for the best one that the rules allow.
    """

    kind: EditKind
    token: int
    word: int | None = None
    then_insert: tuple[int, ...] = ()  # words that follow an inserted one
    also_delete: tuple[int, ...] = ()  # tokens


@dataclass(frozen=True)
class DraftToEdit:
    """A draft for one model."""

    source: NDArray[np.generic]  # (S,), token ids; empty for an editor without a source
    draft: NDArray[np.int32]
    rules: Rules | None = None


@dataclass(frozen=True)
class ScoredEdit:
    """An edit and its log-probability."""

    edit: Edit
    place_score: float
    word_score: float = 0.0  # 0 for a deletion

    @property
    def log_prob(self) -> float:
        """log p of the place and the word."""
        return self.place_score + self.word_score


@dataclass
class EditedDraft:
    """What a model made of a draft."""

    canvas: EditCanvas
    edits: list[ScoredEdit] = field(default_factory=list)
    end_score: float | None = None  # log p of the end; None if the limit of edits came first
    refused: list[int] = field(default_factory=list)  # draft tokens that it may not delete: too much would go

    @property
    def log_prob(self) -> float:
        """log p of the edits, and of the end where it was reached."""
        return sum(edit.log_prob for edit in self.edits) + (self.end_score or 0.0)


def edit_all(
    model: Editor, drafts: Sequence[DraftToEdit], *, settings: config.Decode, device: torch.device
) -> list[EditedDraft]:
    """Edit drafts of any length; the answers come in the order of the drafts."""
    by_length = sorted(range(len(drafts)), key=lambda index: len(drafts[index].draft))
    found: dict[int, EditedDraft] = {}
    for first in range(0, len(by_length), EDITED_AT_ONCE):
        chosen = by_length[first : first + EDITED_AT_ONCE]
        batch = edit_batch(model, [drafts[index] for index in chosen], settings=settings, device=device)
        found.update(zip(chosen, batch, strict=True))
    return [found[index] for index in range(len(drafts))]


@torch.inference_mode()
def edit_batch(
    model: Editor, drafts: Sequence[DraftToEdit], *, settings: config.Decode, device: torch.device
) -> list[EditedDraft]:
    """Edit some drafts together."""
    room = max(len(draft.draft) for draft in drafts)
    edited = [EditedDraft(EditCanvas(draft.draft.tolist(), room=room)) for draft in drafts]
    source, mask = collate_sources([draft.source for draft in drafts])
    batch = _Batch(model, edited, source.to(device), mask.to(device))
    rows = [_Row(one, draft.rules, settings) for one, draft in zip(edited, drafts, strict=True)]
    while rows:
        decisions = _decide(batch, rows)
        staying = [number for number, made in enumerate(decisions) if made is not None]
        rows = [rows[number] for number in staying]
        for row, made in zip(rows, (decisions[number] for number in staying), strict=True):
            assert made is not None
            row.edited.edits.append(made)
        if not rows:
            break
        batch.keep(staying)
        batch.make([made.edit for made in decisions if made is not None])
    return edited


def _decide(batch: _Batch, rows: Sequence[_Row]) -> list[ScoredEdit | None]:
    """The next edit of each draft; None where it ends."""
    scores, ends = batch.places()
    decided: dict[int, ScoredEdit | None] = {}
    options = {number: row.options(scores[number], ends[number]) for number, row in enumerate(rows)}
    while len(decided) < len(rows):
        asked: dict[int, _Place] = {}
        for number in options.keys() - decided.keys():
            place = next(options[number], None)
            if place is None:
                decided[number] = None
            elif place.kind is EditKind.DELETE:
                deletion = rows[number].deletion(place)
                if deletion is not None:
                    decided[number] = deletion
            else:
                asked[number] = place
        words = batch.words(asked)
        for number, place in asked.items():
            made = rows[number].best_word(place, words[number])
            if made is not None:
                decided[number] = made
    return [decided[number] for number in range(len(rows))]


@dataclass(frozen=True)
class _Place:
    """Something that may be done somewhere."""

    kind: EditKind
    token: int
    right: int  # right neighbour of a gap, or the token itself
    score: float
    word: int | None = None  # the only word that will do
    repair: Repair | None = None


class _Row:
    """A draft under way: which edits may be made, the likeliest first."""

    def __init__(self, edited: EditedDraft, rules: Rules | None, settings: config.Decode) -> None:
        self.edited, self.canvas, self.rules = edited, edited.canvas, rules
        length = len(self.canvas.draft_tokens)
        self.least_log_prob = math.log(settings.cautious) if settings.cautious else NEG_INF
        self.shortest = math.ceil((1 - settings.max_deleted) * length - 1e-9)
        self.limit = settings.max_length
        if settings.max_ratio:
            self.limit = min(self.limit, int(settings.max_ratio * length) + settings.max_extra)
        self.free = True  # the model has not ended yet
        self.queue: list[tuple[EditKind, int, int | None]] = []  # of a repair under way

    def options(self, scores: NDArray[np.float64], end: float) -> Iterator[_Place]:
        """Places to try, one after the other, until an edit is made; none ends the draft."""
        if self.free and len(self.edited.edits) < self.limit:
            for place in self._by_score(scores):
                if place.score <= end or place.score < self.least_log_prob:
                    break
                yield place
            self.edited.end_score = end
        self.free = False
        if self.queue:
            kind, token, word = self.queue.pop(0)
            yield self._place(kind, self._following(kind, token), scores, word=word)
            return
        if self.rules is None:
            return
        ways = [
            replace(self._place(repair.kind, repair.token, scores, word=repair.word), repair=repair)
            for repair in self.rules.repairs(self.canvas)
        ]
        yield from sorted(ways, key=lambda way: -way.score)

    def _following(self, kind: EditKind, token: int) -> int:
        """The token that a queued edit is about; -1 stands for the newest."""
        return self.canvas.next_token - 1 if token < 0 else token

    def _by_score(self, scores: NDArray[np.float64]) -> Iterator[_Place]:
        """All places, the likeliest first."""
        kept = self.canvas.live
        tokens = [token for token in kept if token in self.canvas.draft_tokens]
        pairs = [(EditKind.INSERT, token) for token in kept[:-1]]
        pairs += [(kind, token) for kind in (EditKind.SUBSTITUTE, EditKind.DELETE) for token in tokens]
        lefts, rights = np.array(kept[:-1]), np.array(kept[1:])
        values = np.concatenate(
            [
                np.logaddexp(scores[RIGHT, lefts], scores[LEFT, rights]),
                scores[SUBSTITUTE, tokens],
                scores[DELETE, tokens],
            ]
        )
        for number in np.argsort(-values, kind="stable").tolist():
            kind, token = pairs[number]
            right = int(rights[number]) if kind is EditKind.INSERT else token
            yield _Place(kind, token, right, float(values[number]))

    def _place(self, kind: EditKind, token: int, scores: NDArray[np.float64], *, word: int | None) -> _Place:
        if kind is EditKind.INSERT:
            right = self.canvas.right_of(token)
            score = float(np.logaddexp(scores[RIGHT, token], scores[LEFT, right]))
            return _Place(kind, token, right, score, word)
        key = SUBSTITUTE if kind is EditKind.SUBSTITUTE else DELETE
        return _Place(kind, token, token, float(scores[key, token]), word)

    def accepts(self, edit: Edit, log_prob: float) -> bool:
        """Whether an edit may be made."""
        if not self.free:
            return True
        if log_prob < self.least_log_prob:
            return False
        if edit.kind is EditKind.DELETE and len(self.canvas.live) - BOUNDARIES - 1 < self.shortest:
            if edit.token not in self.edited.refused:
                self.edited.refused.append(edit.token)
            return False
        return self.rules is None or self.rules.allows(self.canvas, edit)

    def deletion(self, place: _Place) -> ScoredEdit | None:
        """The deletion at a place, if it may be made."""
        edit = Edit(place.kind, place.token)
        return self._begun(place, ScoredEdit(edit, place.score)) if self.accepts(edit, place.score) else None

    def best_word(self, place: _Place, log_probs: NDArray[np.float64]) -> ScoredEdit | None:
        """The likeliest word that may go to a place; never `<unk>`. log_probs: (V,), from `<unk>` on."""
        if place.word is not None:
            column = place.word - UNK
            # The model may have no word for what a user requires.
            word_score = float(log_probs[column]) if column < len(log_probs) else NEG_INF
            made = ScoredEdit(Edit(place.kind, place.token, place.word), place.score, word_score)
            return self._begun(place, made)
        best = np.argsort(-log_probs[1:], kind="stable")[:WORDS_TRIED] + 1
        for column in best.tolist():
            word, word_score = UNK + column, float(log_probs[column])
            if place.kind is EditKind.SUBSTITUTE and word == self.canvas.words[place.token]:
                continue  # it would change nothing
            edit = Edit(place.kind, place.token, word)
            if self.free and place.score + word_score < self.least_log_prob:
                return None
            allowed = self.accepts(edit, place.score + word_score)
            if not self.free and self.rules is not None:
                allowed = self.rules.allows(self.canvas, edit)
            if allowed:
                return self._begun(place, ScoredEdit(edit, place.score, word_score))
        return None

    def _begun(self, place: _Place, made: ScoredEdit) -> ScoredEdit:
        """Queue what belongs to a repair that begins with an edit."""
        if place.repair is not None:
            self.queue = [(EditKind.INSERT, -1, word) for word in place.repair.then_insert]
            self.queue += [(EditKind.DELETE, token, None) for token in place.repair.also_delete]
        return made


class _Batch:
    """The canvases of a batch as the model sees them, and its cache."""

    def __init__(self, model: Editor, edited: Sequence[EditedDraft], source: Tensor, mask: Tensor) -> None:
        self.model = model
        self.canvases = [one.canvas for one in edited]
        canvas = stack_canvases(self.canvases).to(source.device)
        self.state = EditorState(model, model.encode(source, mask))
        apart = distances(canvas, clip=model.settings.clip)
        states = advance(
            model,
            self.state,
            canvas.words,
            canvas.marks,
            related=model.related(apart),
            blocked=hidden(canvas),
        )
        draft = slice(BOUNDARIES, canvas.block)
        self.state.copyable = model.copyable(states[:, draft], canvas.words[:, draft], canvas.real[:, draft])
        self.newest, self.apart = states[:, 1], apart[:, 1:2]  # `</s>` predicts the first step
        self.real, self.draft = canvas.real, drafts_of(canvas)
        self.there = live(canvas)[:, 0]
        self.indices = canvas.places
        self.ghost = torch.zeros_like(self.real)

    def places(self) -> tuple[NDArray[np.float64], list[float]]:
        """log p of all keys, (B, 4, N), and of the end, (B,)."""
        keys, ends = place_scores(
            self.model,
            self.state,
            self.newest,
            related=self.model.related(self.apart),
            there=self.there,
            draft=self.draft,
        )
        return keys.double().cpu().numpy(), ends.tolist()

    def words(self, asked: dict[int, _Place]) -> dict[int, NDArray[np.float64]]:
        """log p of all words at a place of some drafts."""
        if not asked:
            return {}
        rows = len(self.canvases)
        left, right = torch.zeros(rows, 1, dtype=torch.long), torch.ones(rows, 1, dtype=torch.long)
        for number, place in asked.items():
            left[number], right[number] = place.token, place.right
        device = self.newest.device
        scores = word_log_probs(
            self.model, self.state, self.newest, left=left.to(device), right=right.to(device)
        )
        numbers = list(asked)
        return dict(zip(numbers, scores[numbers, 0].double().cpu().numpy(), strict=True))

    def keep(self, staying: Sequence[int]) -> None:
        """Keep some of the drafts."""
        if len(staying) == len(self.canvases):
            return
        rows = torch.tensor(staying, device=self.newest.device)
        self.canvases = [self.canvases[number] for number in staying]
        self.state.keep(rows)
        for name in ("newest", "apart", "real", "draft", "there", "indices", "ghost"):
            setattr(self, name, getattr(self, name)[rows])

    def make(self, edits: Sequence[Edit]) -> None:
        """Make one edit of each draft, and compute the states of their tokens."""
        device = self.newest.device
        for canvas, edit in zip(self.canvases, edits, strict=True):
            canvas.apply(edit)
        kind = torch.tensor([edit.kind for edit in edits], device=device)[:, None]
        token = torch.tensor([edit.token for edit in edits], device=device)[:, None]
        word = torch.tensor([edit.word for edit in edits], device=device)[:, None]
        inserts = kind == EditKind.INSERT
        index = self.indices.gather(1, token) + inserts.long()
        moved = self.indices + (inserts & (self.indices >= index)).long()
        self.indices = torch.cat([moved, index], dim=1)

        def with_newest(values: Tensor, newest: Tensor) -> Tensor:
            return torch.cat([values, newest], dim=1)

        one = torch.ones_like(inserts)
        self.real = with_newest(self.real, one)
        self.draft = with_newest(self.draft, ~one)
        ghost = with_newest(self.ghost, ~one)  # what this edit removes is a ghost for later ones only
        self.there = with_newest(self.there & ~_at(token, self.there, ~inserts), kind != EditKind.DELETE)
        self.ghost = ghost | _at(token, ghost, ~inserts)
        clip = self.model.settings.clip
        apart = (index - self.indices).clamp(-clip, clip).masked_fill(ghost, clip + 1)
        self.apart = apart[:, None]
        states = advance(
            self.model,
            self.state,
            word,
            kind + 1,
            related=self.model.related(self.apart),
            blocked=~self.real[:, None],
        )
        self.newest = states[:, 0]


def _at(token: Tensor, like: Tensor, value: Tensor) -> Tensor:
    """Zeros, but for one value in each row. token, value: (B, 1); like: (B, N), bool."""
    return torch.zeros_like(like).scatter(1, token, value)
