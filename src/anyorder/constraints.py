"""What hypotheses may still do, so that whatever they end as keeps to their canvases.

This looks ahead far enough that no hypothesis ever gets stuck: the end is barred while words are missing or a
word is left unfinished beside a given one, and so is all that leaves too few tokens to mend it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from anyorder.beam import Beam
from anyorder.canvas import CLOSED, DONE, OWN_BLANK, Blank, Canvas, Script
from anyorder.insertion import canvas as read_order

# S sentences under way, K hypotheses of each, n tokens on the canvas, G = n - 1 gaps, W blanks, V ids

UNLIMITED = 2**30
NO_BLANK = -1
END_OF_SENTENCE = 1  # the token `</s>`, by the step that wrote it


@dataclass(frozen=True)
class Rules:
    """What holds for a batch from the beginning to the end; sentences by their number in the batch."""

    script: Script
    ends_word: Tensor  # (V,), bool: no piece that goes on with the next one
    before: Tensor  # (sentences,), the blank that each begins with, or CLOSED
    least: Tensor  # (sentences, W), words
    most: Tensor  # (sentences, W)
    limits: Tensor  # (sentences,), most tokens
    forbidden: tuple[tuple[tuple[int, ...], ...], ...]  # of each sentence
    bounded: bool  # some blank has a least or a most number of words

    @classmethod
    def of(cls, canvases: Sequence[Canvas], *, ends_word: Tensor, limits: Tensor) -> Rules:
        """limits: (sentences,), most tokens to write, given ones among them."""
        device = ends_word.device
        blanks = max(len(canvas.blanks) for canvas in canvases)
        least = torch.zeros(len(canvases), blanks, dtype=torch.long, device=device)
        most = torch.zeros_like(least)  # where a sentence has fewer blanks, there is no room
        for row, canvas in enumerate(canvases):
            for number, blank in enumerate(canvas.blanks):
                least[row, number] = blank.least
                most[row, number] = UNLIMITED if blank.most is None else blank.most
        return cls(
            script=Script.of(canvases, device=device),
            ends_word=ends_word,
            before=torch.tensor([canvas.before for canvas in canvases], device=device),
            least=least,
            most=most,
            limits=limits.to(device),
            forbidden=tuple(canvas.forbidden for canvas in canvases),
            bounded=any(blank != Blank() for canvas in canvases for blank in canvas.blanks),
        )

    def ends(self, words: Tensor) -> Tensor:
        """Whether each word's token is its last, of ids of any shape."""
        return self.ends_word[words]

    @cached_property
    def has_pieces(self) -> bool:
        """Whether words may be written in several tokens."""
        return not bool(self.ends_word.all())


@dataclass(frozen=True)
class Openings:
    """Where hypotheses may go on."""

    whole: Tensor  # (S, K, G), gaps for a token that ends its word
    begun: Tensor  # (S, K, G), gaps for a token that its word goes on after
    end: Tensor  # (S, K), bool: they may end here


@dataclass(frozen=True)
class Constraints:
    """What the hypotheses of a beam have done about their canvases."""

    rules: Rules
    sentences: Tensor  # (S,)
    node: Tensor  # (S, K), where they are in their scripts
    home: Tensor  # (S, K), the blank that the newest item was put into
    given: Tensor  # (S, K, n), bool, of the tokens in the order written
    right_blank: Tensor  # (S, K, n), what the gap right of each token belongs to, or CLOSED
    counted: Tensor  # (S, K, n), the blank that a token's word counts for, or NO_BLANK

    @classmethod
    def start(cls, rules: Rules, beam: Beam) -> Constraints:
        """Nothing is written but the boundaries."""
        shape = beam.words.shape
        right_blank = beam.words.new_full(shape, CLOSED)
        right_blank[..., 0] = rules.before[:, None]
        return cls(
            rules=rules,
            sentences=beam.sentences,
            node=rules.script.first[:, None].expand(shape[:2]),
            home=beam.words.new_zeros(shape[:2]),
            given=torch.zeros(shape, dtype=torch.bool, device=beam.words.device),
            right_blank=right_blank,
            counted=beam.words.new_full(shape, NO_BLANK),
        )

    @property
    def given_tokens(self) -> Tensor:
        """How many each hypothesis has, (S, K)."""
        return self.given.sum(dim=2)

    @property
    def scripted(self) -> Tensor:
        """Whether the next token is a given one, (S, K)."""
        return self.node != DONE

    def scripted_words(self) -> Tensor:
        """What may come next by the script, (S, K, A) ids; anything for whoever has none."""
        return self.rules.script.token[self.node]

    def grow(self, beam: Beam, *, parent: Tensor, word: Tensor, gap: Tensor) -> Constraints:
        """Follow hypotheses that write one more token each. beam: before that; the others: (S, B)."""

        def inherited(values: Tensor) -> Tensor:
            if values.dim() == 2:
                return values.gather(1, parent)
            return values.gather(1, parent[..., None].expand(-1, -1, values.shape[2]))

        def more(values: Tensor, newest: Tensor) -> Tensor:
            return torch.cat([inherited(values), newest[..., None]], dim=2)

        script, node = self.rules.script, inherited(self.node)
        scripted = node != DONE
        way = (script.token[node] == word[..., None]).long().argmax(dim=2, keepdim=True)  # (S, B, 1)
        left = read_order(inherited(beam.places)).gather(2, gap[..., None])
        blank = inherited(self.right_blank).gather(2, left).squeeze(2)
        home = torch.where(script.anywhere[node], blank, inherited(self.home))
        right = script.right[node].gather(2, way).squeeze(2)
        right = torch.where(right == OWN_BLANK, home, right)
        of_item = torch.where(script.of_item[node], home, NO_BLANK)
        return replace(
            self,
            node=script.successor[node].gather(2, way).squeeze(2),
            home=home,
            given=more(self.given, scripted),
            right_blank=more(self.right_blank, torch.where(scripted, right, blank)),
            counted=more(self.counted, torch.where(scripted, of_item, blank)),
        )

    def keep(self, sentences: Tensor) -> Constraints:
        """Only some of the sentences; sentences: (S',), indices."""
        kept = {
            name: getattr(self, name)[sentences]
            for name in ("sentences", "node", "home", "given", "right_blank", "counted")
        }
        return replace(self, **kept)

    # --- where to go on ---

    def openings(self, beam: Beam) -> Openings:
        """Where every hypothesis may write next, by its script or freely."""
        gaps = _Gaps.of(self, beam)
        free = self._free_openings(gaps, beam)
        scripted = self.scripted
        if not bool(scripted.any()):
            return free
        by_script = self._script_gaps(gaps, beam)
        return Openings(
            whole=torch.where(scripted[..., None], by_script, free.whole),
            begun=torch.where(scripted[..., None], by_script, free.begun),
            end=free.end & ~scripted,
        )

    def _free_openings(self, gaps: _Gaps, beam: Beam) -> Openings:
        whole = begun = gaps.open
        needed = self.rules.script.tokens_left[self.node] + gaps.unfinished.sum(dim=2)  # (S, K), tokens
        missing = None
        if gaps.words is not None:
            least, most = (each[self.sentences][:, None] for each in (self.rules.least, self.rules.most))
            needed = needed + (least - gaps.words).clamp(min=0).sum(dim=2)
            missing = gaps.of_blank(least - gaps.words) > 0
            room = gaps.of_blank(most - gaps.words)
            whole = whole & (gaps.more_if_whole <= room)
            begun = begun & (gaps.more_if_begun <= room)
        # Tokens that may be written after the next one; nothing that is full goes on, whatever is said here.
        left = (self.rules.limits[self.sentences] - beam.length - 1).clamp(min=0)[:, None, None]
        helps_whole = gaps.unfinished.long()
        hurts_begun = (gaps.more_if_begun & gaps.before_given).long()
        helps_begun = torch.zeros_like(helps_whole)
        if missing is not None:
            helps_whole = helps_whole + (missing & gaps.more_if_whole)
            helps_begun = (missing & gaps.more_if_begun).long()
        whole = whole & (needed[..., None] - helps_whole <= left)
        begun = begun & (needed[..., None] - helps_begun + hurts_begun <= left)
        # Where every token ends its word, a gap for others is no gap.
        return Openings(whole=whole, begun=begun if self.rules.has_pieces else whole, end=needed == 0)

    def _script_gaps(self, gaps: _Gaps, beam: Beam) -> Tensor:
        """Where the next given token may go, (S, K, G)."""
        script = self.rules.script
        # What is not put anywhere goes right of the newest token, and the very first into the only gap.
        beside = beam.places[..., -1] if beam.length else torch.zeros_like(self.node)
        numbers = torch.arange(gaps.open.shape[2], device=self.node.device)
        next_gap = numbers == beside[..., None]
        anywhere = gaps.open
        if gaps.words is not None:
            room = (self.rules.most[self.sentences][:, None] - gaps.words).expand_as(gaps.words)  # (S, K, W)
            anywhere = anywhere & (gaps.of_blank(room) >= script.words[self.node][..., None])
            anywhere = anywhere & gaps.of_blank(self._leaves_room(room)).bool()
        return torch.where(script.anywhere[self.node][..., None], anywhere, next_gap)

    def _leaves_room(self, room: Tensor) -> Tensor:
        """Whether all later items still find room if the next one goes into each blank. (S, K, W)."""
        script = self.rules.script
        fits = torch.ones_like(room, dtype=torch.long)
        for sentence, hypothesis in (script.anywhere[self.node] & self.scripted).nonzero().tolist():
            node = int(self.node[sentence, hypothesis])
            later, size = script.later_items[node], int(script.words[node])
            if not later:
                continue
            rooms = room[sentence, hypothesis].tolist()
            for blank, free in enumerate(rooms):
                after = tuple(sorted([*rooms[:blank], free - size, *rooms[blank + 1 :]]))
                fits[sentence, hypothesis, blank] = find_room(after, later)
        return fits

    def words_in_blanks(self, ends: Tensor, *, begun_at_edge: Tensor, blank: Tensor) -> Tensor:
        """Whole ones, and begun ones that nothing in their blank can go on. Returns (S, K, W).

        ends: (S, K, n), by token; begun_at_edge, blank: (S, K, G), by gap.
        """
        words = self.node.new_zeros(*self.node.shape, self.rules.least.shape[1])
        whole = ends & (self.counted != NO_BLANK)
        words = words.scatter_add(2, self.counted.clamp(min=0), whole.long())
        return words.scatter_add(2, blank.clamp(min=0), begun_at_edge.long())

    # --- words that must not be written ---

    def barred_words(self) -> Tensor | None:
        """Single tokens that are forbidden, (S, 1, V); None: not one is."""
        alone = [
            [tokens[0] for tokens in self.rules.forbidden[sentence] if len(tokens) == 1]
            for sentence in self.sentences.tolist()
        ]
        if not any(alone):
            return None
        barred = torch.zeros(
            len(alone), 1, len(self.rules.ends_word), dtype=torch.bool, device=self.node.device
        )
        for row, tokens in enumerate(alone):
            barred[row, 0, tokens] = True
        return barred

    def barred_pieces(self, beam: Beam) -> dict[int, Tensor]:
        """By token, the gaps in which it would complete a forbidden word of several tokens: (S, K, G).

        What the script says is written all the same: given words are none that are forbidden.
        """
        barred: dict[int, Tensor] = {}
        free = ~self.scripted[..., None]
        read = beam.words.gather(2, read_order(beam.places))  # (S, K, n)
        written = [set(row) for row in read.flatten(1).tolist()]
        for row, sentence in enumerate(self.sentences.tolist()):
            for tokens in self.rules.forbidden[sentence]:
                if len(tokens) == 1:
                    continue
                for number, token in enumerate(tokens):
                    before, after = tokens[:number], tokens[number + 1 :]
                    if not written[row].issuperset(before + after):
                        continue  # the common case, and looking for them would take long
                    found = free[row] & _between(read[row], before=before, after=after)
                    if bool(found.any()):
                        shape = (*read.shape[:2], read.shape[2] - 1)
                        gaps = barred.setdefault(
                            token, torch.zeros(shape, dtype=torch.bool, device=read.device)
                        )
                        gaps[row] |= found
        return barred


@dataclass(frozen=True)
class _Gaps:
    """The gaps of all hypotheses from left to right, (S, K, G) each."""

    blank: Tensor  # or CLOSED
    open: Tensor  # bool, and so are the others
    before_given: Tensor  # a given token follows
    unfinished: Tensor  # a word was begun here that a given one must not go on
    more_if_whole: Tensor  # a token that ends its word would make one word more
    more_if_begun: Tensor  # and so would one whose word goes on
    words: Tensor | None  # (S, K, W), in each blank so far; None: nobody asks

    @classmethod
    def of(cls, constraints: Constraints, beam: Beam) -> _Gaps:
        tokens = read_order(beam.places)  # (S, K, n)
        left, right = tokens[..., :-1], tokens[..., 1:]
        blank = constraints.right_blank.gather(2, left)
        opened = blank != CLOSED
        before_given = constraints.given.gather(2, right)
        ends = constraints.rules.ends(beam.words)
        goes_on = ~ends.gather(2, left) & opened
        at_edge = before_given | (right == END_OF_SENTENCE)
        words = None
        if constraints.rules.bounded:
            words = constraints.words_in_blanks(ends, begun_at_edge=goes_on & at_edge, blank=blank)
        return cls(
            blank=blank,
            open=opened,
            before_given=before_given,
            unfinished=goes_on & before_given,
            more_if_whole=~(goes_on & at_edge),
            more_if_begun=at_edge & ~goes_on,
            words=words,
        )

    def of_blank(self, values: Tensor) -> Tensor:
        """What each gap's blank has; of closed gaps, anything. values: (S, K, W) or (S, 1, W)."""
        values = values.expand(-1, self.blank.shape[1], -1)
        return values.gather(2, self.blank.clamp(min=0))


def _between(read: Tensor, *, before: Sequence[int], after: Sequence[int]) -> Tensor:
    """Gaps right after some tokens and right before others. read: (K, n); returns (K, n - 1), bool."""
    gaps = read.shape[1] - 1
    found = torch.ones(len(read), gaps, dtype=torch.bool, device=read.device)
    for distance, token in enumerate(reversed(before)):
        found &= torch.nn.functional.pad(read == token, (distance, 0))[:, :gaps]
    for distance, token in enumerate(after, start=1):
        found &= torch.nn.functional.pad(read == token, (0, distance))[:, distance : distance + gaps]
    return found


@lru_cache(maxsize=4096)
def find_room(rooms: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Whether items of these sizes fit into blanks with so much room, each as a whole."""
    if not sizes:
        return all(room >= 0 for room in rooms)
    return any(
        room >= sizes[0] and find_room((*rooms[:blank], room - sizes[0], *rooms[blank + 1 :]), sizes[1:])
        for blank, room in enumerate(rooms)
    )
