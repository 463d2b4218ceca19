"""What sentences must keep to, in tokens: templates, blanks, required items and forbidden words.

A template is written first, from left to right. Required items are written when the search finds it best,
each into a gap that it chooses. An item that has begun is completed before anything else is written. `Canvas`
holds what is asked of one sentence, `Constraints` the same for a batch, as tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from anyorder.text.tokenizer import PAD

CLOSED = -1  # stands for a blank where nothing may be written


@dataclass(frozen=True)
class Blank:
    """A part of the sentence to be filled in, with limits in words. A draft has one blank in many gaps."""

    least: int = 0
    most: int | None = None  # None: any number


@dataclass(frozen=True)
class Way:
    """One of the token sequences that write a required item."""

    tokens: tuple[int, ...]
    opens: tuple[bool, ...]  # whether more may be written to the right of each token
    words: int


@dataclass(frozen=True)
class ForbiddenWord:
    """A word that must not be written, described by the tokens that can be part of it.

    A few tokens can spell a long word in thousands of ways, so these ways are never listed.
    """

    length: int
    parts: tuple[tuple[int, int, int], ...]  # (start, end, token): the characters that a token covers

    @classmethod
    def of_token(cls, token: int) -> ForbiddenWord:
        """A forbidden word that is one token."""
        return cls(length=1, parts=((0, 1, token),))

    def among(self, tokens: int) -> ForbiddenWord:
        """The same word where only the ids below `tokens` can be written."""
        return ForbiddenWord(self.length, tuple(part for part in self.parts if part[2] < tokens))

    @cached_property
    def whole(self) -> list[int]:
        """Tokens that spell the whole word."""
        return [token for start, end, token in self.parts if end - start == self.length]

    def completions(self, sentence: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Find gaps of a sentence and tokens that would complete the word there with their neighbours.

        Gap g lies to the right of token g. Tokens that spell the whole word alone are not among them.
        """
        if self._spans.keys().isdisjoint(sentence):  # as nearly always
            return
        # How far the tokens up to each one spell the word, and from where the tokens after it do.
        spelled = list(accumulate(sentence, self._spelled_after, initial=frozenset[int]()))[1:]
        missing = list(accumulate(reversed(sentence), self._missing_before, initial=frozenset[int]()))[:0:-1]
        for gap, (left, right) in enumerate(zip(spelled, missing[1:], strict=False)):
            if left or right:
                for start, end, token in self.parts:
                    begun, ended = start in left, end in right
                    if (begun or start == 0) and (ended or end == self.length) and (begun or ended):
                        yield gap, token

    def _spelled_after(self, before: frozenset[int], token: int) -> frozenset[int]:
        spans = self._spans.get(token, ())
        return frozenset(end for start, end in spans if start == 0 or start in before)

    def _missing_before(self, after: frozenset[int], token: int) -> frozenset[int]:
        spans = self._spans.get(token, ())
        return frozenset(start for start, end in spans if end == self.length or end in after)

    @cached_property
    def _spans(self) -> dict[int, list[tuple[int, int]]]:
        found: dict[int, list[tuple[int, int]]] = {}
        for start, end, token in self.parts:
            found.setdefault(token, []).append((start, end))
        return found


@dataclass(frozen=True)
class Canvas:
    """Everything that one sentence must keep to."""

    blanks: tuple[Blank, ...] = (Blank(),)
    before: int = 0  # the blank before the template, or CLOSED
    template: tuple[tuple[int, int], ...] = ()  # each token, and the blank to its right or CLOSED
    items: tuple[tuple[Way, ...], ...] = ()  # each must appear, in one of its ways
    forbidden: tuple[ForbiddenWord, ...] = ()

    @property
    def counted(self) -> bool:
        """Whether some blank limits its number of words, from below or above."""
        return any(blank != Blank() for blank in self.blanks)

    @property
    def narrow(self) -> bool:
        """Whether some blank limits its number of words from above."""
        return any(blank.most is not None for blank in self.blanks)

    @property
    def least_tokens(self) -> int:
        """Number of tokens that a sentence needs at least, whichever way its items are written."""
        given = len(self.template) + sum(max(len(way.tokens) for way in item) for item in self.items)
        return given + sum(blank.least for blank in self.blanks)

    @property
    def required(self) -> tuple[int, ...]:
        """Tokens of the required items, each written in its first way, for the encoder to read."""
        return tuple(token for item in self.items for token in item[0].tokens)


def shortest_ways(ways: Sequence[Way]) -> list[Way]:
    """Leave out ways that begin with another way: whoever writes the shorter one may go on as they like."""
    return [
        way
        for way in ways
        if not any(
            len(other.tokens) < len(way.tokens) and way.tokens[: len(other.tokens)] == other.tokens
            for other in ways
        )
    ]


# W blanks, V ids, L tokens of the longest template, H required tokens, I items of a sentence,
# N nodes of all items together, A ways to go on from a node

UNLIMITED = 2**30
FINISHED = 0  # the node of an item that is written


@dataclass(frozen=True)
class Constraints:
    """What the sentences of a batch must keep to, from the first step to the last."""

    template: Tensor  # (sentences, L), tokens
    template_right: Tensor  # (sentences, L), the blank to the right of each token, or CLOSED
    template_length: Tensor  # (sentences,)
    items: ItemGraph
    ends_word: Tensor  # (V,), bool: the token ends a word
    before: Tensor  # (sentences,), the blank before the template, or CLOSED
    least: Tensor  # (sentences, W), fewest words of each blank
    most: Tensor  # (sentences, W), most words of each blank
    narrow: Tensor  # (sentences,), bool: some blank limits its number of words
    any_counted: bool  # whether some blank counts its words
    limits: Tensor  # (sentences,), most tokens
    forbidden: tuple[tuple[ForbiddenWord, ...], ...]  # of each sentence
    required: Tensor  # (sentences, H), required tokens for the encoder, padded with PAD
    canvases: tuple[Canvas, ...]  # what all this was made of

    @classmethod
    def of(cls, canvases: Sequence[Canvas], *, ends_word: Tensor, limits: Tensor) -> Constraints:
        """Collect the constraints of a batch. limits: (sentences,), most tokens to write, given or not."""
        device = ends_word.device
        least = [[blank.least for blank in canvas.blanks] for canvas in canvases]
        most = [
            [UNLIMITED if blank.most is None else blank.most for blank in canvas.blanks]
            for canvas in canvases
        ]
        return cls(
            template=_padded([[token for token, _ in canvas.template] for canvas in canvases], device=device),
            template_right=_padded(
                [[right for _, right in canvas.template] for canvas in canvases], device=device
            ),
            template_length=torch.tensor([len(canvas.template) for canvas in canvases], device=device),
            items=ItemGraph.of(canvases, device=device),
            ends_word=ends_word,
            before=torch.tensor([canvas.before for canvas in canvases], device=device),
            least=_padded(least, device=device, padding=0),
            most=_padded(most, device=device, padding=0),  # blanks that a sentence lacks have no room
            narrow=torch.tensor([canvas.narrow for canvas in canvases], device=device),
            any_counted=any(canvas.counted for canvas in canvases),
            limits=limits.to(device),
            forbidden=tuple(
                tuple(word.among(len(ends_word)) for word in canvas.forbidden) for canvas in canvases
            ),
            required=_padded([canvas.required for canvas in canvases], device=device),
            canvases=tuple(canvases),
        )

    def join(self, rows: Tensor, other: Constraints, of_other: Tensor) -> Constraints:
        """What some of these sentences and some others must keep to, numbered anew."""
        mine = [self.canvases[row] for row in rows.tolist()]
        return Constraints.of(
            [*mine, *(other.canvases[row] for row in of_other.tolist())],
            ends_word=max(self.ends_word, other.ends_word, key=len),
            limits=torch.cat([self.limits[rows], other.limits[of_other]]),
        )

    def ends(self, words: Tensor) -> Tensor:
        """Whether each token ends a word. words: ids of any shape."""
        return self.ends_word[words]

    @cached_property
    def forbids(self) -> Tensor:
        """Whether each sentence forbids words, (sentences,), bool."""
        return torch.tensor([bool(words) for words in self.forbidden], device=self.ends_word.device)

    @cached_property
    def has_pieces(self) -> bool:
        """Whether a word may consist of several tokens."""
        return not bool(self.ends_word.all())


def _padded(rows: Sequence[Sequence[int]], *, device: torch.device, padding: int = PAD) -> Tensor:
    longest = max(map(len, rows))
    filled = [[*row, *[padding] * (longest - len(row))] for row in rows]
    return torch.tensor(filled, dtype=torch.long, device=device).view(len(rows), longest)


@dataclass(frozen=True)
class ItemGraph:
    """The required items of all sentences of a batch, as one graph.

    A node stands for what is written of an item, its edges for the tokens that may come next. At a node that
    rests, other words may be written before the item goes on, to the right of what is written of it.
    """

    token: Tensor  # (N, A), next tokens; the first one is repeated where there are fewer
    successor: Tensor  # (N, A), the node that each token leads to
    opens: Tensor  # (N, A), bool: more may be written to the right of the token
    rests: Tensor  # (N,), bool
    tokens_left: Tensor  # (N,), number of tokens still to be written, at most
    words: Tensor  # (N,), number of words of the whole item, at most
    first: Tensor  # (sentences, I), node where each item begins; FINISHED where a sentence has fewer
    repeats: bool  # whether one token may come next in several items or ways

    @classmethod
    def of(cls, canvases: Sequence[Canvas], *, device: torch.device) -> ItemGraph:
        """Build the graph of a batch."""
        nodes = [_Node(rests=True)]
        first = [
            [_add_item(nodes, item, whole=canvas.narrow) for item in canvas.items] for canvas in canvases
        ]
        most = max(1, *(len(node.ways) for node in nodes))
        items = max(map(len, first))

        def padded(rows: list[list[int]]) -> Tensor:
            return torch.tensor([row + (row[:1] or [0]) * (most - len(row)) for row in rows], device=device)

        def each(values: Sequence[int | bool]) -> Tensor:
            return torch.tensor(values, device=device)

        return cls(
            token=padded([list(node.ways) for node in nodes]),
            successor=padded([[edge.successor for edge in node.ways.values()] for node in nodes]),
            opens=padded([[int(edge.opens) for edge in node.ways.values()] for node in nodes]).bool(),
            rests=each([node.rests for node in nodes]),
            tokens_left=each([node.tokens_left for node in nodes]),
            words=each([node.words for node in nodes]),
            first=torch.tensor(
                [row + [FINISHED] * (items - len(row)) for row in first], dtype=torch.long, device=device
            ).view(len(canvases), items),
            repeats=any(map(_repeats, canvases)),
        )


def _repeats(canvas: Canvas) -> bool:
    of_items = [{token for way in item for token in way.tokens} for item in canvas.items]
    distinct = set[int]().union(*of_items)
    return any(len(item) > 1 for item in canvas.items) or len(distinct) < sum(map(len, of_items))


@dataclass
class _Edge:
    successor: int
    opens: bool


@dataclass
class _Node:
    ways: dict[int, _Edge] = field(default_factory=dict)  # by token
    rests: bool = False
    tokens_left: int = 0
    words: int = 0


def _add_item(nodes: list[_Node], ways: Sequence[Way], *, whole: bool) -> int:
    """Add an item to the graph; returns the node where it begins. Ways that begin alike share nodes.

    whole: write the item without a rest, so that its words are known to fit into one blank.
    """
    root = len(nodes)
    words = max(way.words for way in ways)
    nodes.append(_Node(rests=True, words=words))
    for way in shortest_ways(ways):
        node = root
        for number, (token, opens) in enumerate(zip(way.tokens, way.opens, strict=True), start=1):
            last = number == len(way.tokens)
            nodes[node].tokens_left = max(nodes[node].tokens_left, len(way.tokens) - number + 1)
            edge = nodes[node].ways.get(token)
            if edge is None:
                edge = _Edge(FINISHED if last else len(nodes), opens=last or opens)
                nodes[node].ways[token] = edge
                if not last:
                    nodes.append(_Node(rests=opens and not whole, words=words))
            elif not (last or opens):  # closed in one of the ways, closed for all that share it
                edge.opens = nodes[edge.successor].rests = False
            node = edge.successor
    return root
