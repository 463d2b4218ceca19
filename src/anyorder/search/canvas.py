"""What is given of a sentence, in tokens: a template that is written first, and items that must appear.

A template is written from left to right before anything else. Items are written when the search finds it
best, each into a gap that it chooses; an item that has begun is written to its end before anything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

# N nodes of all items together, A ways to go on from a node, I items of a sentence, most

CLOSED = -1  # instead of a blank: nothing may be written there
FINISHED = 0  # the node of an item that is written


@dataclass(frozen=True)
class Blank:
    """A part of a sentence to be written, in words. A draft has one blank in many places."""

    least: int = 0
    most: int | None = None  # None: any number


@dataclass(frozen=True)
class Way:
    """One of the ways to write an item."""

    tokens: tuple[int, ...]
    opens: tuple[bool, ...]  # whether more may be written right of each token; after the last one it may
    words: int


@dataclass(frozen=True)
class ForbiddenWord:
    """A word that must not be written, by the tokens that can be part of it.

    A long word can be spelled in thousands of ways by few tokens, so that these ways are never listed.
    """

    length: int
    parts: tuple[tuple[int, int, int], ...]  # where each begins and ends in the word, and its token

    @classmethod
    def of_token(cls, token: int) -> ForbiddenWord:
        """A word that is one token."""
        return cls(length=1, parts=((0, 1, token),))

    def among(self, tokens: int) -> ForbiddenWord:
        """The same where only so many tokens can be written."""
        return ForbiddenWord(self.length, tuple(part for part in self.parts if part[2] < tokens))

    @cached_property
    def whole(self) -> list[int]:
        """Tokens that are all of the word."""
        return [token for start, end, token in self.parts if end - start == self.length]

    def completions(self, sentence: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Gaps of a sentence, and the tokens that would make up the word there with their neighbours.

        Gap g lies right of the token g. What makes up the word by itself is not among them.
        """
        if self._places.keys().isdisjoint(sentence):  # as nearly always
            return
        # Up to where the tokens ending with each one spell the word, and from where those beginning with it.
        spelled = list(accumulate(sentence, self._spelled_after, initial=frozenset[int]()))[1:]
        missing = list(accumulate(reversed(sentence), self._missing_before, initial=frozenset[int]()))[:0:-1]
        for gap, (left, right) in enumerate(zip(spelled, missing[1:], strict=False)):
            if left or right:
                for start, end, token in self.parts:
                    begun, ended = start in left, end in right
                    if (begun or start == 0) and (ended or end == self.length) and (begun or ended):
                        yield gap, token

    def _spelled_after(self, before: frozenset[int], token: int) -> frozenset[int]:
        places = self._places.get(token, ())
        return frozenset(end for start, end in places if start == 0 or start in before)

    def _missing_before(self, after: frozenset[int], token: int) -> frozenset[int]:
        places = self._places.get(token, ())
        return frozenset(start for start, end in places if end == self.length or end in after)

    @cached_property
    def _places(self) -> dict[int, list[tuple[int, int]]]:
        found: dict[int, list[tuple[int, int]]] = {}
        for start, end, token in self.parts:
            found.setdefault(token, []).append((start, end))
        return found


@dataclass(frozen=True)
class Canvas:
    """All that one sentence must keep to."""

    blanks: tuple[Blank, ...] = (Blank(),)
    before: int = 0  # the blank left of the template, or CLOSED
    template: tuple[tuple[int, int], ...] = ()  # each token, and the blank right of it, or CLOSED
    items: tuple[tuple[Way, ...], ...] = ()  # each must be written, in one of its ways
    forbidden: tuple[ForbiddenWord, ...] = ()

    @property
    def counted(self) -> bool:
        """Whether some blank asks for a number of words, least or most."""
        return any(blank != Blank() for blank in self.blanks)

    @property
    def narrow(self) -> bool:
        """Whether some blank has not room for everything."""
        return any(blank.most is not None for blank in self.blanks)

    @property
    def least_tokens(self) -> int:
        """That it takes to keep to it, whichever way its items are written."""
        given = len(self.template) + sum(max(len(way.tokens) for way in item) for item in self.items)
        return given + sum(blank.least for blank in self.blanks)

    @property
    def required(self) -> tuple[int, ...]:
        """What an encoder is told of the items: each in the way that comes first."""
        return tuple(token for item in self.items for token in item[0].tokens)


@dataclass(frozen=True)
class ItemGraph:
    """The items of all sentences of a batch: a node says what may be written next of an item.

    At a node that rests, other words may be written before the item goes on, if only to its right.
    """

    token: Tensor  # (N, A), the first one again where there are fewer ways to go on
    successor: Tensor  # (N, A)
    opens: Tensor  # (N, A), bool: more may be written right of the token
    rests: Tensor  # (N,), bool
    tokens_left: Tensor  # (N,), most that are still to be written
    words: Tensor  # (N,), of the item, most
    first: Tensor  # (sentences, I), where each item begins; FINISHED where a sentence has fewer
    repeats: bool  # a sentence may go on with the same token in several items or ways

    @classmethod
    def of(cls, canvases: Sequence[Canvas], *, device: torch.device) -> ItemGraph:
        """Of the sentences of a batch."""
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


def shortest(ways: Sequence[Way]) -> list[Way]:
    """Without those that go on where another one ends: they ask for nothing that it does not allow."""
    return [
        way
        for way in ways
        if not any(
            len(other.tokens) < len(way.tokens) and way.tokens[: len(other.tokens)] == other.tokens
            for other in ways
        )
    ]


def _add_item(nodes: list[_Node], ways: Sequence[Way], *, whole: bool) -> int:
    """Ways that begin alike share their beginning; returns the node that the item begins at.

    whole: it is written without a rest, so that its words are known to find room in one blank.
    """
    root = len(nodes)
    words = max(way.words for way in ways)
    nodes.append(_Node(rests=True, words=words))
    for way in shortest(ways):
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
            elif not (last or opens):  # what one of the ways keeps closed is closed for all that share it
                edge.opens = nodes[edge.successor].rests = False
            node = edge.successor
    return root
