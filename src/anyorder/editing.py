"""The algebra of editing: a canvas that begins with a draft, and edits that insert, substitute and delete.

Tokens are numbered by when they come to the canvas: `<s>` is 0 and `</s>` is 1, then the draft from left to
right, then one token for each edit. Relations of written tokens never change, as with insertions:

- An insertion writes a word into a gap between two neighbours.
- A substitution writes a word where another stands: the new token *is* where the old one is, so their
  relation is 0 (the paper's Eq. 6 with s = 0), and it shares the old one's relations to all others.
- A deletion writes a mark, which has no word, in the same way.

A token that is substituted or deleted leaves the canvas as a *ghost*: it keeps its place and can still be
attended to, so nothing that was computed for it or from it has to be computed again. A new token goes
directly to the right of its left neighbour, so it stands left of the ghosts in its gap.

Only words of the draft can be substituted or deleted: an editor corrects the draft, not itself. So every
script of edits ends, and no edit undoes another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

# B drafts, n draft tokens, K edits, N tokens ever written

BOUNDARIES = 2  # `<s>` and `</s>`
NEVER = 2**30  # number of the edit that removes a token which stays
NO_WORD = 0  # the word of a deletion's mark: the id of padding, which is no word either


class EditKind(IntEnum):
    """What an edit does."""

    INSERT = 0
    SUBSTITUTE = 1
    DELETE = 2


@dataclass(frozen=True)
class Edit:
    """One edit of a canvas."""

    kind: EditKind
    token: int  # the left neighbour of the gap, or the token to substitute or delete
    word: int = NO_WORD


class EditCanvas:
    """A draft and the edits made to it.

    room: columns that drafts of a batch share; edits are numbered after them.
    """

    def __init__(self, draft: Sequence[int], *, room: int | None = None) -> None:
        self.room = len(draft) if room is None else room
        self.draft_tokens = range(BOUNDARIES, BOUNDARIES + len(draft))
        self.words = {**dict(zip(self.draft_tokens, draft, strict=True))}
        self.live = [0, *self.draft_tokens, 1]  # from left to right
        self.places = list(self.live)  # tokens that took a place of their own, ghosts included
        self.place_of = {token: token for token in self.live}  # the token whose place each token has
        self.gone: dict[int, int] = {}  # number of the edit, from 1, that removed each ghost
        self.edits: list[Edit] = []
        self.rights: list[int] = []  # of each edit, the right neighbour of its gap, or the token that goes

    @property
    def first_edit(self) -> int:
        """The number of the first edit's token."""
        return BOUNDARIES + self.room

    @property
    def next_token(self) -> int:
        """The number of the next edit's token."""
        return self.first_edit + len(self.edits)

    def apply(self, edit: Edit) -> int:
        """Make an edit; returns the number of its token."""
        new = self.next_token
        self.edits.append(edit)
        self.rights.append(self.right_of(edit.token) if edit.kind is EditKind.INSERT else edit.token)
        if edit.kind is EditKind.INSERT:
            assert edit.token in self.live and edit.token != 1, "a gap lies right of a live token"
            self.live.insert(self.live.index(edit.token) + 1, new)
            self.places.insert(self.places.index(self.place_of[edit.token]) + 1, new)
            self.place_of[new] = new
        else:
            assert edit.token in self.draft_tokens, "only words of the draft are removed"
            at = self.live.index(edit.token)
            self.live[at : at + 1] = [new] if edit.kind is EditKind.SUBSTITUTE else []
            self.place_of[new] = self.place_of[edit.token]
            self.gone[edit.token] = len(self.edits)
        if edit.kind is not EditKind.DELETE:
            self.words[new] = edit.word
        return new

    def right_of(self, token: int) -> int:
        """The right neighbour of a live token."""
        return self.live[self.live.index(token) + 1]

    def indices(self) -> dict[int, int]:
        """The index of every token's place, ghosts included, counted from 0."""
        order = {token: index for index, token in enumerate(self.places)}
        return {token: order[place] for token, place in self.place_of.items()}

    def read(self) -> list[int]:
        """The words on the canvas, from left to right, without the boundaries."""
        return [self.words[token] for token in self.live[1:-1]]


# --- shortest scripts ---


@dataclass(frozen=True)
class Pairing:
    """A step of an alignment: a draft word that stays or is replaced, that goes, or a target word that comes.

    Positions count from 0; None: there is no such word.
    """

    draft: int | None
    target: int | None
    same: bool = False  # both words are equal

    @property
    def kind(self) -> EditKind:
        """The edit that it asks for, unless both words are equal."""
        if self.draft is None:
            return EditKind.INSERT
        return EditKind.DELETE if self.target is None else EditKind.SUBSTITUTE


Alignment = list[Pairing]
KEPT, EDITED = 0, 1  # how an alignment ends


def align(draft: Sequence[int], target: Sequence[int], *, substitute: bool = True) -> Alignment:
    """Align two sentences with the fewest edits.

    Of all such alignments this is one whose edits lie in the fewest runs. Ties are broken the same way each
    time. substitute: whether replacing a word is one edit, not two.
    """
    first = _common_start(draft, target)
    last = _common_start(draft[first:][::-1], target[first:][::-1])
    ends = len(draft) - last, len(target) - last
    middle = _align_all(draft[first : ends[0]], target[first : ends[1]], substitute=substitute)
    moved = [
        Pairing(
            None if one.draft is None else one.draft + first,
            None if one.target is None else one.target + first,
            one.same,
        )
        for one in middle
    ]
    return [
        *(Pairing(number, number, same=True) for number in range(first)),
        *moved,
        *(Pairing(ends[0] + number, ends[1] + number, same=True) for number in range(last)),
    ]


def _common_start(one: Sequence[int], other: Sequence[int]) -> int:
    both = zip(one, other, strict=False)
    return next((number for number, (a, b) in enumerate(both) if a != b), min(len(one), len(other)))


def _align_all(draft: Sequence[int], target: Sequence[int], *, substitute: bool) -> Alignment:
    """Align by dynamic programming; costs are (edits, runs of edits)."""
    edit, run = 1 << 16, 1  # one number: edits first, then runs
    never = 1 << 60
    rows, columns = len(draft) + 1, len(target) + 1
    # cost[i][j][end]: of aligning draft[:i] with target[:j] so that the last pair is kept or an edit.
    cost = [[[never, never] for _ in range(columns)] for _ in range(rows)]
    cost[0][0][KEPT] = 0
    for i in range(rows):
        for j in range(columns):
            cell = cost[i][j]
            if i and j and draft[i - 1] == target[j - 1]:
                cell[KEPT] = min(cost[i - 1][j - 1])
            for kept, edited in _before_edit(cost, i, j, substitute=substitute):
                cell[EDITED] = min(cell[EDITED], edit + min(kept + run, edited))
    found: Alignment = []
    i, j = len(draft), len(target)
    end = KEPT if cost[i][j][KEPT] <= cost[i][j][EDITED] else EDITED
    while i or j:
        here = cost[i][j][end]
        if end == KEPT:
            found.append(Pairing(i - 1, j - 1, same=True))
            i, j = i - 1, j - 1
            end = KEPT if cost[i][j][KEPT] <= cost[i][j][EDITED] else EDITED
            continue
        for (k, m), (kept, edited) in zip(
            _edit_steps(i, j, substitute=substitute),
            _before_edit(cost, i, j, substitute=substitute),
            strict=True,
        ):
            if here in (edit + edited, edit + kept + run):
                found.append(Pairing(i - 1 if k < i else None, j - 1 if m < j else None))
                end = EDITED if here == edit + edited else KEPT
                i, j = k, m
                break
    return found[::-1]


def _edit_steps(i: int, j: int, *, substitute: bool) -> list[tuple[int, int]]:
    """Where an alignment may stand before a substitution, an insertion or a deletion."""
    steps = [(i - 1, j - 1)] if substitute and i and j else []
    steps += [(i, j - 1)] if j else []
    return steps + ([(i - 1, j)] if i else [])


def _before_edit(
    cost: Sequence[Sequence[Sequence[int]]], i: int, j: int, *, substitute: bool
) -> list[tuple[int, int]]:
    return [(cost[k][m][KEPT], cost[k][m][EDITED]) for k, m in _edit_steps(i, j, substitute=substitute)]


def script_order(
    alignment: Alignment, *, order: str, generator: np.random.Generator | None = None
) -> list[int]:
    """Which pairs of an alignment are edits, in the order in which they are made.

    order: "l2r", "deletions" (first, then the others from left to right) or "random".
    """
    edits = [number for number, pair in enumerate(alignment) if not pair.same]
    if order == "random":
        assert generator is not None, "random orders need a generator"
        return [edits[index] for index in generator.permutation(len(edits))]
    if order == "deletions":
        return sorted(edits, key=lambda number: alignment[number].kind is not EditKind.DELETE)
    return edits


def perform(canvas: EditCanvas, alignment: Alignment, target: Sequence[int], order: Sequence[int]) -> None:
    """Make the edits of an alignment, in some order."""
    # Every token knows which pair of the alignment it came from: that says where a new token goes.
    rank = {0: -1, 1: len(alignment)}
    rank.update(
        (canvas.draft_tokens[pair.draft], number)
        for number, pair in enumerate(alignment)
        if pair.draft is not None
    )
    for number in order:
        pair = alignment[number]
        if pair.kind is EditKind.INSERT:
            token = max((token for token in canvas.live if rank[token] < number), key=rank.__getitem__)
        else:
            assert pair.draft is not None
            token = canvas.draft_tokens[pair.draft]
        word = NO_WORD if pair.target is None else int(target[pair.target])
        rank[canvas.apply(Edit(pair.kind, token, word))] = number


# --- batches of canvases ---


@dataclass(frozen=True)
class CanvasTensors:
    """Edited canvases side by side. Columns: the boundaries, `room` draft tokens, then the edits."""

    words: Tensor  # (B, N)
    marks: Tensor  # (B, N), 1 + kind of the edit that wrote a token; 0 for the boundaries and the draft
    places: (
        Tensor  # (B, N), where each token stands at the end, ghosts counted; equal where one replaced another
    )
    takes_place: Tensor  # (B, N), bool: the token has a place of its own
    gone: Tensor  # (B, N), number of the edit that removes the token, from 1; NEVER if it stays
    real: Tensor  # (B, N), bool: False for padding
    block: int  # columns of the boundaries and the draft

    def to(self, device: torch.device) -> CanvasTensors:
        """Copy all tensors to a device."""
        moved = {one.name: getattr(self, one.name) for one in fields(self)}
        return CanvasTensors(
            **{name: value if name == "block" else value.to(device) for name, value in moved.items()}
        )

    def rows(self, chosen: Tensor) -> CanvasTensors:
        """Some of the canvases. chosen: their rows."""
        all_rows = {one.name: getattr(self, one.name) for one in fields(self)}
        return CanvasTensors(
            **{name: value if name == "block" else value[chosen] for name, value in all_rows.items()}
        )

    @property
    def times(self) -> Tensor:
        """The number of the edit that wrote each column; 0 for the boundaries and the draft. (N,)."""
        columns = torch.arange(self.words.shape[1], device=self.words.device)
        return (columns - self.block + 1).clamp(min=0)


def distances(canvas: CanvasTensors, *, clip: int) -> Tensor:
    """How far apart two tokens stood when the later one was written, clipped; `clip + 1` for a ghost.

    This never changes either. Row i: how many places token i is right of each other token; tokens of the
    draft are all written at once. Returns (B, N, N).
    """
    before = canvas.places[:, :, None] < canvas.places[:, None, :]  # (B, N, N): i stands left of j
    before = (before & (canvas.takes_place & canvas.real)[:, :, None]).to(torch.int32)
    in_draft = before[:, : canvas.block].sum(dim=1, keepdim=True)
    indices = torch.cat(
        [
            in_draft.expand(-1, canvas.block, -1),
            in_draft + before[:, canvas.block :].cumsum(dim=1),
        ],
        dim=1,
    )  # (B, N, N): of each token when token i was written
    apart = indices.diagonal(dim1=1, dim2=2)[:, :, None] - indices
    ghost = canvas.gone[:, None, :] < canvas.times[:, None]
    return apart.clamp(-clip, clip).masked_fill(ghost, clip + 1)


def hidden(canvas: CanvasTensors) -> Tensor:
    """Which tokens each token must not see: padding and later edits. Returns (B, N, N), bool."""
    later = canvas.times[None, :] > canvas.times[:, None]  # (N, N)
    return ~canvas.real[:, None, :] | later


def live(canvas: CanvasTensors) -> Tensor:
    """Which tokens are on the canvas after each number of edits. Returns (B, K + 1, N), bool."""
    made = torch.arange(canvas.words.shape[1] - canvas.block + 1, device=canvas.words.device)  # (K + 1,)
    written = canvas.times <= made[:, None]
    there = canvas.real & (canvas.marks != 1 + EditKind.DELETE)
    return there[:, None] & written & (canvas.gone[:, None, :] > made[:, None])
