"""What hypotheses may still do, so that whatever they end as keeps to their canvases.

This looks ahead far enough that no hypothesis ever gets stuck: the end is barred while words are missing or a
word is left unfinished beside a given one, and so is all that leaves too few tokens to mend it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from anyorder.decoding.beam import BOUNDARIES, Beam, Parents
from anyorder.decoding.canvas import CLOSED
from anyorder.decoding.constraints import Constraints
from anyorder.decoding.items import FINISHED
from anyorder.insertion import reading_order
from anyorder.text.tokenizer import PAD

NO_BLANK = -1
END_OF_SENTENCE = 1  # the token `</s>`, by the step that wrote it


# Whose a token is; else the number of its item.
NOBODYS = -1  # it was written freely
OF_TEMPLATE = -2
UNDER_WAY = -3  # of an item that is not yet known: several may begin alike


@dataclass(frozen=True)
class AllowedSteps:
    """Where hypotheses may go on."""

    blank: Tensor  # (S, K, G), that each gap belongs to, or CLOSED
    forced: Tensor  # (S, K), bool: a template or an item under way says what comes next, and where
    beside: Tensor  # (S, K, G), bool: the gap that it goes into then
    whole: Tensor  # (S, K, G), gaps for a free token that ends its word
    begun: Tensor  # (S, K, G), gaps for one that its word goes on after
    items: Tensor  # (S, K, I, G), gaps in which each item may begin or go on
    end: Tensor  # (S, K), bool: they may end here
    lacking: Tensor  # (S, K), bool: items are missing
    unfilled: Tensor | None  # (S, K, G), gaps of blanks that have too few words; None: nobody asks
    barred: Mapping[int, Tensor]  # by token, gaps in which it would complete a forbidden word: (S, K, G)


@dataclass(frozen=True)
class ConstraintState:
    """What the hypotheses of a beam have done about their canvases."""

    constraints: Constraints
    sentences: Tensor  # (S,)
    node: Tensor  # (S, K, I), where each item rests
    inside: Tensor  # (S, K, I), where it is while it is written, else FINISHED
    after: Tensor  # (S, K, I), the token that its newest part ended with, right of which it goes on
    home: Tensor  # (S, K), the blank that the newest part was put into
    owner: Tensor  # (S, K, n), of the tokens in the order written: NOBODYS, OF_TEMPLATE, UNDER_WAY or an item
    right_blank: Tensor  # (S, K, n), what the gap right of each token belongs to, or CLOSED
    counted: Tensor | None  # (S, K, n), the blank that a token's word counts for, or NO_BLANK; None: unasked

    @classmethod
    def start(cls, constraints: Constraints, beam: Beam) -> ConstraintState:
        """Nothing is written but the boundaries."""
        shape = beam.words.shape
        right_blank = beam.words.new_full(shape, CLOSED)
        right_blank[..., 0] = constraints.before[:, None]
        node = constraints.items.first[:, None].expand(*shape[:2], -1)
        return cls(
            constraints=constraints,
            sentences=beam.sentences,
            node=node,
            inside=torch.full_like(node, FINISHED),
            after=torch.zeros_like(node),  # `<s>`
            home=beam.words.new_zeros(shape[:2]),
            owner=beam.words.new_full(shape, NOBODYS),
            right_blank=right_blank,
            counted=beam.words.new_full(shape, NO_BLANK) if constraints.any_counted else None,
        )

    def keep(self, sentences: Tensor) -> ConstraintState:
        """Only some of the sentences; sentences: (S',), indices, rising."""
        if len(sentences) == len(self.sentences):
            return self
        return ConstraintState(
            constraints=self.constraints,
            sentences=self.sentences[sentences],
            node=self.node[sentences],
            inside=self.inside[sentences],
            after=self.after[sentences],
            home=self.home[sentences],
            owner=self.owner[sentences],
            right_blank=self.right_blank[sentences],
            counted=None if self.counted is None else self.counted[sentences],
        )

    # --- where hypotheses stand ---

    def given(self, newest: int) -> Tensor | None:
        """Which of the newest tokens the template gave, (S · K, newest), bool; None: nobody has one."""
        if not self.constraints.template.shape[1]:
            return None
        return (self.owner[..., -newest:] == OF_TEMPLATE).flatten(0, 1)

    @cached_property
    def template_tokens(self) -> Tensor:
        """That each sentence begins with, (S,)."""
        return self.constraints.template_length[self.sentences]

    @cached_property
    def in_template(self) -> Tensor:
        """Whether the next token is the template's, (S,)."""
        return self.owner.shape[2] - BOUNDARIES < self.template_tokens

    @cached_property
    def any_in_template(self) -> bool:
        """Whether some sentence's next token is the template's."""
        return self.constraints.template.shape[1] > 0 and bool(self.in_template.any())

    @cached_property
    def in_item(self) -> Tensor:
        """Whether an item has begun that must go on, (S, K)."""
        return (self.inside != FINISHED).any(dim=2)

    @cached_property
    def at(self) -> Tensor:
        """Where items may go on, (S, K, I): those under way, or else all; FINISHED: not at all."""
        return torch.where(self.in_item[..., None], self.inside, self.node)

    @cached_property
    def next_tokens(self) -> Tensor:
        """With what each of them goes on, (S, K, I, A)."""
        return self.constraints.items.token[self.at]

    @cached_property
    def required_left(self) -> Tensor:
        """Tokens of items that are still to be written, at most, (S, K)."""
        at = torch.where(self.inside != FINISHED, self.inside, self.node)
        return self.constraints.items.tokens_left[at].sum(dim=2)

    def wanted(self) -> tuple[Tensor, Tensor]:
        """What comes next of the template, of items under way or of those that are missing.

        Returns ids, (S, K, I · A) or (S, K, 1), and whether each counts.
        """
        words = self.next_tokens.flatten(2)
        counts = (self.at != FINISHED)[..., None].expand_as(self.next_tokens).flatten(2)
        if not self.any_in_template:
            return words, counts
        if words.shape[2] == 0:
            words, counts = words.new_full((*words.shape[:2], 1), PAD), counts.new_zeros(*words.shape[:2], 1)
        index = min(self.owner.shape[2] - BOUNDARIES, self.constraints.template.shape[1] - 1)
        token = self.constraints.template[self.sentences, index][:, None, None]
        only_first = torch.arange(words.shape[2], device=words.device) == 0
        in_template = self.in_template[:, None, None]
        return torch.where(in_template, token, words), torch.where(in_template, only_first, counts)

    # --- one token more ---

    def grow(self, allowed: AllowedSteps, *, parent: Tensor, word: Tensor, gap: Tensor) -> ConstraintState:
        """Follow hypotheses that write one more token each. openings: before that; others: (S, B)."""
        inherited = Parents(parent, among=self.home.shape[1]).of

        def more(values: Tensor, newest: Tensor) -> Tensor:
            return torch.cat([inherited(values), newest[..., None]], dim=2)

        graph, newest = self.constraints.items, self.owner.shape[2]
        at, in_item = inherited(self.at), inherited(self.in_item)

        # Items that the word belongs to: those under way, or else all that may begin or go on in this gap.
        same = graph.token[at] == word[..., None, None]  # (S, B, I, A)
        in_gap = gap[..., None, None].expand(-1, -1, at.shape[2], -1)
        may_begin = inherited(allowed.items).gather(3, in_gap).squeeze(3)  # (S, B, I)
        goes_on = same.any(dim=3) & (at != FINISHED) & (in_item[..., None] | may_begin)
        if self.any_in_template:
            goes_on &= ~self.in_template[:, None, None]
        # At most one way is the same; where there are fewer, the first one is there again.
        successor = (graph.successor[at] * same).amax(dim=3)  # (S, B, I)
        opens = (graph.opens[at] & same).any(dim=3)
        # The first of them that comes to a rest has it; the others stay where they were.
        rests = goes_on & graph.rests[successor]
        part_ends = rests.any(dim=2)
        owns = rests & (rests.cumsum(dim=2) == 1)

        owner = more(self.owner, torch.where(goes_on.any(dim=2), UNDER_WAY, NOBODYS))
        if len(numbers := torch.arange(at.shape[2], device=at.device)):
            number = (owns * numbers).sum(dim=2)
            owner = torch.where(part_ends[..., None] & (owner == UNDER_WAY), number[..., None], owner)

        # What goes on counts for the blank that it began in. Inside a part that several items may turn out to
        # have, what one of them keeps closed is closed.
        blank = inherited(allowed.blank).gather(2, gap[..., None]).squeeze(2)
        home = torch.where(in_item, inherited(self.home), blank)
        closed = ~part_ends & (goes_on & ~opens).any(dim=2)
        right = home.masked_fill(closed, CLOSED)
        counted = None if self.counted is None else more(self.counted, home)
        if self.any_in_template:
            in_template = self.in_template[:, None]
            index = min(newest - BOUNDARIES, self.constraints.template.shape[1] - 1)
            owner[..., -1] = torch.where(in_template, OF_TEMPLATE, owner[..., -1])
            right = torch.where(
                in_template, self.constraints.template_right[self.sentences, index][:, None], right
            )
            if counted is not None:
                counted[..., -1] = torch.where(in_template, NO_BLANK, home)
        return ConstraintState(
            constraints=self.constraints,
            sentences=self.sentences,
            node=torch.where(owns, successor, inherited(self.node)),
            inside=torch.where(goes_on & ~part_ends[..., None], successor, FINISHED),
            after=torch.where(owns, newest, inherited(self.after)),
            home=home,
            owner=owner,
            right_blank=more(self.right_blank, right),
            counted=counted,
        )

    # --- where to go on ---

    def allowed(self, beam: Beam) -> AllowedSteps:
        """Where every hypothesis may write next."""
        forced = self.in_template[:, None] | self.in_item if self.any_in_template else self.in_item
        gaps = _Gaps.of(self, beam, forced=forced)
        # What is forced goes right of the newest token, and the very first into the only gap.
        beside = beam.indices[..., -1] if beam.length else torch.zeros_like(self.home)
        numbers = torch.arange(gaps.open.shape[2], device=self.home.device)
        lacking = (self.node != FINISHED).any(dim=2)
        missing = None if gaps.words is None else gaps.of_blank(self._least() - gaps.words) > 0
        whole, begun, end = self._free_openings(gaps, beam, lacking=lacking, missing=missing)
        return AllowedSteps(
            blank=gaps.blank,
            forced=forced,
            beside=numbers == beside[..., None],
            whole=whole,
            begun=begun,
            items=self._item_gaps(gaps, beam),
            end=end & ~forced,
            lacking=lacking,
            unfilled=None if missing is None else missing & gaps.open,
            barred=self._barred_pieces(beam),
        )

    def _least(self) -> Tensor:
        """Words that each blank must have, (S, 1, W)."""
        return self.constraints.least[self.sentences][:, None]

    def _free_openings(
        self, gaps: _Gaps, beam: Beam, *, lacking: Tensor, missing: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gaps for whole and begun words, (S, K, G), and whether the end is possible, (S, K).

        missing: (S, K, G), whether each gap's blank has too few words; None: nobody counts them.
        """
        whole = begun = gaps.open
        needed = self.required_left + gaps.unfinished.sum(dim=2)  # (S, K), tokens
        if gaps.words is not None:
            least, most = self._least(), self.constraints.most[self.sentences][:, None]
            needed = needed + (least - gaps.words).clamp(min=0).sum(dim=2)
            room = gaps.of_blank(most - gaps.words)
            # Where there is little room, items come first: so others can't take what they need.
            last = ~(self.constraints.narrow[self.sentences][:, None] & lacking)[..., None]
            whole = whole & (gaps.more_if_whole <= room) & last
            begun = begun & (gaps.more_if_begun <= room) & last
        # Tokens that may be written after the next one; nothing that is full goes on, whatever is said here.
        left = (self.constraints.limits[self.sentences] - beam.length - 1).clamp(min=0)[:, None, None]
        if bool((needed[..., None] < left).all()):  # the common case: enough for whatever comes next
            return whole, begun if self.constraints.has_pieces else whole, needed == 0
        helps_whole = gaps.unfinished.long()
        hurts_begun = (gaps.more_if_begun & gaps.before_given).long()
        helps_begun = torch.zeros_like(helps_whole)
        if missing is not None:
            helps_whole = helps_whole + (missing & gaps.more_if_whole)
            helps_begun = (missing & gaps.more_if_begun).long()
        whole = whole & (needed[..., None] - helps_whole <= left)
        begun = begun & (needed[..., None] - helps_begun + hurts_begun <= left)
        # Where every token ends its word, a gap for others is no gap.
        return whole, begun if self.constraints.has_pieces else whole, needed == 0

    def _item_gaps(self, gaps: _Gaps, beam: Beam) -> Tensor:
        """Where each item may begin or go on, (S, K, I, G)."""
        numbers = torch.arange(gaps.open.shape[2], device=self.node.device)
        right_of = beam.indices.gather(2, self.after)[..., None] <= numbers
        # Not after the beginning of a word: it would be glued on.
        found = (gaps.open & ~gaps.goes_on)[:, :, None] & right_of & (self.node != FINISHED)[..., None]
        if gaps.words is None or not found.numel():
            return found
        room = (self.constraints.most[self.sentences][:, None] - gaps.words).expand_as(
            gaps.words
        )  # (S, K, W)
        return found & self._leaves_room(room).gather(
            3, gaps.blank.clamp(min=0)[:, :, None].expand(-1, -1, found.shape[2], -1)
        )

    def _leaves_room(self, room: Tensor) -> Tensor:
        """Whether all that is missing finds room if each item goes into each blank. (S, K, I, W), bool."""
        fits = torch.ones(*self.node.shape, room.shape[2], dtype=torch.bool, device=room.device)
        narrow = self.constraints.narrow[self.sentences][:, None, None]
        for sentence, hypothesis, item in ((self.node != FINISHED) & narrow).nonzero().tolist():
            nodes = self.node[sentence, hypothesis].tolist()
            sizes = self.constraints.items.words[nodes].tolist()
            later = [size for other, size in enumerate(sizes) if nodes[other] != FINISHED and other != item]
            rooms = room[sentence, hypothesis].tolist()
            for blank, free in enumerate(rooms):
                after = [*rooms[:blank], free - sizes[item], *rooms[blank + 1 :]]
                fits[sentence, hypothesis, item, blank] = find_room(after, later)
        return fits

    def words_in_blanks(self, ends: Tensor, *, begun_at_edge: Tensor, blank: Tensor) -> Tensor:
        """Whole ones, and begun ones that nothing in their blank can go on. Returns (S, K, W).

        ends: (S, K, n), by token; begun_at_edge, blank: (S, K, G), by gap.
        """
        assert self.counted is not None
        words = self.home.new_zeros(*self.home.shape, self.constraints.least.shape[1])
        whole = ends & (self.counted != NO_BLANK)
        words = words.scatter_add(2, self.counted.clamp(min=0), whole.long())
        return words.scatter_add(2, blank.clamp(min=0), begun_at_edge.long())

    # --- words that must not be written ---

    def barred_words(self) -> Tensor | None:
        """Single tokens that are forbidden, (S, 1, V); None: not one is."""
        alone = [
            [token for word in self.constraints.forbidden[sentence] for token in word.whole]
            for sentence in self.sentences.tolist()
        ]
        if not any(alone):
            return None
        barred = torch.zeros(
            len(alone), 1, len(self.constraints.ends_word), dtype=torch.bool, device=self.home.device
        )
        for row, tokens in enumerate(alone):
            barred[row, 0, tokens] = True
        return barred

    def _barred_pieces(self, beam: Beam) -> dict[int, Tensor]:
        """By token, the gaps in which it would complete a forbidden word of several tokens: (S, K, G).

        What is given is written all the same: it is none of the words that are forbidden.
        """
        barred: dict[int, Tensor] = {}
        if not any(self.constraints.forbidden):
            return barred
        read = beam.words.gather(2, reading_order(beam.indices))  # (S, K, n)
        shape = (*read.shape[:2], read.shape[2] - 1)
        for row, sentence in enumerate(self.sentences.tolist()):
            for word in self.constraints.forbidden[sentence]:
                for number, written in enumerate(read[row].tolist()):
                    for gap, token in word.completions(written):
                        if token not in barred:
                            barred[token] = torch.zeros(shape, dtype=torch.bool, device=read.device)
                        barred[token][row, number, gap] = True
        return barred


@dataclass(frozen=True)
class _Gaps:
    """The gaps of all hypotheses from left to right, (S, K, G) each."""

    blank: Tensor  # or CLOSED
    open: Tensor  # bool, and so are the others: a hypothesis may choose it
    goes_on: Tensor  # the word left of it may go on here
    before_given: Tensor  # a given token follows, or an end that no word may be left unfinished before
    at_edge: Tensor  # a given token or the end follows
    words: Tensor | None  # (S, K, W), in each blank so far; None: nobody asks

    @classmethod
    def of(cls, constraint_state: ConstraintState, beam: Beam, *, forced: Tensor) -> _Gaps:
        tokens = reading_order(beam.indices)  # (S, K, n)
        left, right = tokens[..., :-1], tokens[..., 1:]
        blank = constraint_state.right_blank.gather(2, left)
        opened = blank != CLOSED
        at_end = right == END_OF_SENTENCE
        before_given = (constraint_state.owner != NOBODYS).gather(2, right)
        ends = constraint_state.constraints.ends(beam.words)
        goes_on = ~ends.gather(2, left) & opened
        at_edge = before_given | at_end
        # The beginning of a word, left alone at the end, reads as a word: it may be a forbidden one.
        before_given |= (
            at_end & constraint_state.constraints.forbids[constraint_state.sentences][:, None, None]
        )
        words = None
        if constraint_state.constraints.any_counted:
            words = constraint_state.words_in_blanks(ends, begun_at_edge=goes_on & at_edge, blank=blank)
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
        """Gaps in which a word was begun that a given one must not go on."""
        return self.goes_on & self.before_given

    @cached_property
    def more_if_whole(self) -> Tensor:
        """Gaps in which a token that ends its word would make one word more."""
        return ~(self.goes_on & self.at_edge)

    @cached_property
    def more_if_begun(self) -> Tensor:
        """Gaps in which a token whose word goes on would make one word more."""
        return self.at_edge & ~self.goes_on

    def of_blank(self, values: Tensor) -> Tensor:
        """What each gap's blank has; of closed gaps, anything. values: (S, K, W) or (S, 1, W)."""
        values = values.expand(-1, self.blank.shape[1], -1)
        return values.gather(2, self.blank.clamp(min=0))


def find_room(rooms: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether items of these sizes fit into blanks with so much room, each as a whole."""
    return _find_room(tuple(sorted(rooms)), tuple(sorted(sizes, reverse=True)))


@lru_cache(maxsize=4096)
def _find_room(rooms: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """rooms: the narrowest first; sizes: the largest first."""
    if (rooms and rooms[0] < 0) or sum(sizes) > sum(rooms):
        return False
    if not sizes or rooms[-1] >= sum(sizes):
        return True
    return any(  # of blanks alike, one stands for all
        _find_room(tuple(sorted([*rooms[:blank], room - sizes[0], *rooms[blank + 1 :]])), sizes[1:])
        for blank, room in enumerate(rooms)
        if room >= sizes[0] and room not in rooms[:blank]
    )
