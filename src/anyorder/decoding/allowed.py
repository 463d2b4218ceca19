"""Where hypotheses may write next, so that whatever they end as keeps to their constraints.

This looks ahead far enough that no hypothesis ever gets stuck. The end is barred while words are missing, or
while a word is left unfinished beside a given one. So is every token that would leave too few tokens to
complete the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from anyorder.decoding.beam import Beam
from anyorder.decoding.constraint_state import FREE, NO_BLANK, AllowedSteps, ConstraintState
from anyorder.decoding.constraints import CLOSED, FINISHED
from anyorder.insertion import reading_order

# S sentences under way, K hypotheses of each, n tokens on the canvas, G = n - 1 gaps, W blanks, V ids,
# I items of a sentence

END_OF_SENTENCE = 1  # the token `</s>`, numbered by the step that wrote it


def allowed_steps(state: ConstraintState, beam: Beam) -> AllowedSteps:
    """Find out where each hypothesis may write next."""
    forced = state.in_template[:, None] | state.in_item if state.any_in_template else state.in_item
    gaps = _Gaps.of(state, beam, forced=forced)
    # A prescribed token goes right of the newest token, and the very first into the only gap.
    forced_gap = beam.indices[..., -1] if beam.length else torch.zeros_like(state.home)
    numbers = torch.arange(gaps.open.shape[2], device=state.home.device)
    lacking = (state.node != FINISHED).any(dim=2)
    missing = None if gaps.words is None else gaps.of_blank(_least_words(state) - gaps.words) > 0
    whole, begun, end = _free_gaps(state, gaps, beam, lacking=lacking, missing=missing)
    return AllowedSteps(
        blank=gaps.blank,
        forced=forced,
        forced_gap=numbers == forced_gap[..., None],
        whole=whole,
        begun=begun,
        items=_item_gaps(state, gaps, beam),
        end=end & ~forced,
        lacking=lacking,
        unfilled=None if missing is None else missing & gaps.open,
        barred=_barred_pieces(state, beam),
    )


def _least_words(state: ConstraintState) -> Tensor:
    """Number of words that each blank must have, (S, 1, W)."""
    return state.constraints.least[state.sentences][:, None]


def _most_words(state: ConstraintState) -> Tensor:
    """Number of words that each blank may have, (S, 1, W)."""
    return state.constraints.most[state.sentences][:, None]


def _free_gaps(
    state: ConstraintState, gaps: _Gaps, beam: Beam, *, lacking: Tensor, missing: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gaps for tokens that end a word and for tokens that don't, (S, K, G), and whether to end, (S, K).

    missing: (S, K, G), whether each gap's blank has too few words; None if words are not counted.
    """
    constraints = state.constraints
    whole = begun = gaps.open
    needed = state.required_left + gaps.unfinished.sum(dim=2)  # (S, K), tokens
    if gaps.words is not None:
        needed = needed + (_least_words(state) - gaps.words).clamp(min=0).sum(dim=2)
        room = gaps.of_blank(_most_words(state) - gaps.words)
        # Where room is scarce, items come first, so that other words can't take what they need.
        items_done = ~(constraints.narrow[state.sentences][:, None] & lacking)[..., None]
        whole = whole & (gaps.more_if_whole <= room) & items_done
        begun = begun & (gaps.more_if_begun <= room) & items_done
    # Tokens that may be written after the next one; a full hypothesis goes no further, whatever is said here.
    left = (constraints.limits[state.sentences] - beam.lengths - 1).clamp(min=0)[:, None, None]
    if not bool((needed[..., None] < left).all()):  # rarely: mostly there is room for whatever comes next
        helps_whole = gaps.unfinished.long()
        hurts_begun = (gaps.more_if_begun & gaps.before_given).long()
        helps_begun = torch.zeros_like(helps_whole)
        if missing is not None:
            helps_whole = helps_whole + (missing & gaps.more_if_whole)
            helps_begun = (missing & gaps.more_if_begun).long()
        whole = whole & (needed[..., None] - helps_whole <= left)
        begun = begun & (needed[..., None] - helps_begun + hurts_begun <= left)
    # Where every token ends its word, there are no other tokens to find a gap for.
    return whole, begun if constraints.has_pieces else whole, needed == 0


def _item_gaps(state: ConstraintState, gaps: _Gaps, beam: Beam) -> Tensor:
    """Gaps in which each item may begin or go on, (S, K, I, G)."""
    numbers = torch.arange(gaps.open.shape[2], device=state.node.device)
    right_of = beam.indices.gather(2, state.after)[..., None] <= numbers
    # Not after the beginning of a word, which an item would be glued to.
    found = (gaps.open & ~gaps.goes_on)[:, :, None] & right_of & (state.node != FINISHED)[..., None]
    if gaps.words is None or not found.numel():
        return found
    room = (_most_words(state) - gaps.words).expand_as(gaps.words)  # (S, K, W)
    return found & _leaves_room(state, room).gather(
        3, gaps.blank.clamp(min=0)[:, :, None].expand(-1, -1, found.shape[2], -1)
    )


def _leaves_room(state: ConstraintState, room: Tensor) -> Tensor:
    """Whether all missing items still fit if each item goes into each blank, (S, K, I, W), bool."""
    fits = torch.ones(*state.node.shape, room.shape[2], dtype=torch.bool, device=room.device)
    narrow = state.constraints.narrow[state.sentences][:, None, None]
    for sentence, hypothesis, item in ((state.node != FINISHED) & narrow).nonzero().tolist():
        nodes = state.node[sentence, hypothesis].tolist()
        sizes = state.constraints.items.words[nodes].tolist()
        later = [size for other, size in enumerate(sizes) if nodes[other] != FINISHED and other != item]
        rooms = room[sentence, hypothesis].tolist()
        for blank, free in enumerate(rooms):
            after = [*rooms[:blank], free - sizes[item], *rooms[blank + 1 :]]
            fits[sentence, hypothesis, item, blank] = items_fit(after, later)
    return fits


def forbidden_tokens(state: ConstraintState) -> Tensor | None:
    """Single tokens that are forbidden words, (S, 1, V), bool; None if there are none."""
    alone = [
        [token for word in state.constraints.forbidden[sentence] for token in word.whole]
        for sentence in state.sentences.tolist()
    ]
    if not any(alone):
        return None
    barred = torch.zeros(
        len(alone), 1, len(state.constraints.ends_word), dtype=torch.bool, device=state.home.device
    )
    for row, tokens in enumerate(alone):
        barred[row, 0, tokens] = True
    return barred


def _barred_pieces(state: ConstraintState, beam: Beam) -> dict[int, Tensor]:
    """By token, the gaps in which it would complete a forbidden word of several tokens: (S, K, G).

    Given tokens are written all the same: none of them is forbidden.
    """
    barred: dict[int, Tensor] = {}
    if not any(state.constraints.forbidden):
        return barred
    read = beam.words.gather(2, reading_order(beam.indices))  # (S, K, n)
    shape = (*read.shape[:2], read.shape[2] - 1)
    for row, sentence in enumerate(state.sentences.tolist()):
        for word in state.constraints.forbidden[sentence]:
            for number, written in enumerate(read[row].tolist()):
                for gap, token in word.completions(written):
                    if token not in barred:
                        barred[token] = torch.zeros(shape, dtype=torch.bool, device=read.device)
                    barred[token][row, number, gap] = True
    return barred


@dataclass(frozen=True)
class _Gaps:
    """The gaps of all hypotheses from left to right. All but words: (S, K, G)."""

    blank: Tensor  # the blank that each belongs to, or CLOSED
    open: Tensor  # bool: a free token may go into it
    goes_on: Tensor  # bool: the word to its left is unfinished and may go on here
    before_given: Tensor  # bool: a given token follows, or an end before which no word may be left unfinished
    at_edge: Tensor  # bool: a given token or the end follows
    words: Tensor | None  # (S, K, W), number of words in each blank so far; None if words are not counted

    @classmethod
    def of(cls, state: ConstraintState, beam: Beam, *, forced: Tensor) -> _Gaps:
        tokens = reading_order(beam.indices)  # (S, K, n)
        left, right = tokens[..., :-1], tokens[..., 1:]
        blank = state.right_blank.gather(2, left)
        opened = blank != CLOSED
        at_end = right == END_OF_SENTENCE
        before_given = (state.owner != FREE).gather(2, right)
        ends = state.constraints.ends(beam.words)
        goes_on = ~ends.gather(2, left) & opened
        at_edge = before_given | at_end
        # The beginning of a word, left alone at the end, reads as a word, which may be a forbidden one.
        before_given |= at_end & state.constraints.forbids[state.sentences][:, None, None]
        words = None
        if state.constraints.any_counted:
            words = _words_in_blanks(state, ends, begun_at_edge=goes_on & at_edge, blank=blank)
        return cls(
            blank=blank,
            open=opened & ~forced[..., None],
            goes_on=goes_on,
            before_given=before_given,
            at_edge=at_edge,
            words=words,
        )

    @cached_property
    def unfinished(self) -> Tensor:
        """Gaps after an unfinished word that the given token to their right must not complete."""
        return self.goes_on & self.before_given

    @cached_property
    def more_if_whole(self) -> Tensor:
        """Gaps in which a token that ends its word would make one word more."""
        return ~(self.goes_on & self.at_edge)

    @cached_property
    def more_if_begun(self) -> Tensor:
        """Gaps in which a token that its word goes on after would make one word more."""
        return self.at_edge & ~self.goes_on

    def of_blank(self, values: Tensor) -> Tensor:
        """Look up a value of each gap's blank; closed gaps get anything. values: (S, K, W) or (S, 1, W)."""
        values = values.expand(-1, self.blank.shape[1], -1)
        return values.gather(2, self.blank.clamp(min=0))


def _words_in_blanks(state: ConstraintState, ends: Tensor, *, begun_at_edge: Tensor, blank: Tensor) -> Tensor:
    """Count the words in each blank, and unfinished ones that nothing in it can complete: (S, K, W).

    ends: (S, K, n), whether each token ends its word; begun_at_edge, blank: (S, K, G), by gap.
    """
    assert state.counted is not None
    words = state.home.new_zeros(*state.home.shape, state.constraints.least.shape[1])
    whole = ends & (state.counted != NO_BLANK)
    words = words.scatter_add(2, state.counted.clamp(min=0), whole.long())
    return words.scatter_add(2, blank.clamp(min=0), begun_at_edge.long())


def items_fit(rooms: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether items of these sizes fit into blanks with so much room, each item whole in one blank."""
    return _items_fit(tuple(sorted(rooms)), tuple(sorted(sizes, reverse=True)))


@lru_cache(maxsize=4096)
def _items_fit(rooms: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """rooms: the narrowest first; sizes: the largest first."""
    if (rooms and rooms[0] < 0) or sum(sizes) > sum(rooms):
        return False
    if not sizes or rooms[-1] >= sum(sizes):
        return True
    return any(  # of several blanks with the same room, one stands for all
        _items_fit(tuple(sorted([*rooms[:blank], room - sizes[0], *rooms[blank + 1 :]])), sizes[1:])
        for blank, room in enumerate(rooms)
        if room >= sizes[0] and room not in rooms[:blank]
    )
