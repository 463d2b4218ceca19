"""What is given of a sentence, in tokens, and the script by which a hypothesis puts it on its canvas.

Given tokens are written first: a template from left to right, then the items that are required, each of them
into a gap that the search chooses. What is free is written afterwards, around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

# N nodes of all scripts together, A ways to go on from a node, most

CLOSED = -1  # instead of a blank: nothing may be written there
OWN_BLANK = -2  # the blank that an item was put into
DONE = 0  # the node of whoever has written all that is given


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
class Canvas:
    """All that one sentence must keep to."""

    blanks: tuple[Blank, ...] = (Blank(),)
    before: int = 0  # the blank left of the template, or CLOSED
    template: tuple[tuple[int, int], ...] = ()  # each token, and the blank right of it, or CLOSED
    items: tuple[tuple[Way, ...], ...] = ()  # each must be written, in one of its ways
    forbidden: tuple[tuple[int, ...], ...] = ()  # tokens that must not follow each other

    @property
    def item_order(self) -> list[int]:
        """The numbers of the items in the order that they are written in."""
        numbers = list(range(len(self.items)))
        if all(blank.most is None for blank in self.blanks):
            return numbers
        # Large items first: what is left then finds room more easily where blanks are short.
        return sorted(numbers, key=lambda number: -_most_words(self.items[number]))

    @property
    def least_tokens(self) -> int:
        """That it takes to keep to it, whichever way its items are written."""
        given = len(self.template) + sum(max(len(way.tokens) for way in item) for item in self.items)
        return given + sum(blank.least for blank in self.blanks)


@dataclass(frozen=True)
class Script:
    """The given tokens of all sentences of a batch, as a graph: a node says what may be written next."""

    token: Tensor  # (N, A), the first one again where there are fewer ways to go on
    successor: Tensor  # (N, A)
    right: Tensor  # (N, A), the blank right of what is written: a number, CLOSED or OWN_BLANK
    anywhere: Tensor  # (N,), bool: it may go into any open gap, not only right of the newest token
    of_item: Tensor  # (N,), bool: it belongs to an item, whose words count for the blank that it is in
    tokens_left: Tensor  # (N,), most that are still to be written
    words: Tensor  # (N,), of the item that begins here, most
    first: Tensor  # (sentences,), where each begins
    later_items: tuple[tuple[int, ...], ...]  # by node: the words of the items that come after this one

    @classmethod
    def of(cls, canvases: Sequence[Canvas], *, device: torch.device) -> Script:
        """Of the sentences of a batch."""
        nodes = [_Node()]
        first = [_add_script(nodes, canvas) for canvas in canvases]
        most = max(1, *(len(node.ways) for node in nodes))

        def padded(rows: list[list[int]]) -> Tensor:
            return torch.tensor([row + (row[:1] or [0]) * (most - len(row)) for row in rows], device=device)

        def each(values: Sequence[int | bool]) -> Tensor:
            return torch.tensor(values, device=device)

        return cls(
            token=padded([list(node.ways) for node in nodes]),
            successor=padded([[way.successor for way in node.ways.values()] for node in nodes]),
            right=padded([[way.right for way in node.ways.values()] for node in nodes]),
            anywhere=each([node.anywhere for node in nodes]),
            of_item=each([node.of_item for node in nodes]),
            tokens_left=each([node.tokens_left for node in nodes]),
            words=each([node.words for node in nodes]),
            first=each(first),
            later_items=tuple(node.later_items for node in nodes),
        )


@dataclass
class _Edge:
    successor: int
    right: int


@dataclass
class _Node:
    ways: dict[int, _Edge] = field(default_factory=dict)  # by token
    anywhere: bool = False
    of_item: bool = False
    tokens_left: int = 0
    words: int = 0
    later_items: tuple[int, ...] = ()


def _add_script(nodes: list[_Node], canvas: Canvas) -> int:
    """From its end to its beginning; returns the first node."""
    following, later = DONE, tuple[int, ...]()
    for number in reversed(canvas.item_order):
        item = canvas.items[number]
        following = _add_item(nodes, item, following=following, later=later)
        later = (_most_words(item), *later)
    for token, right in reversed(canvas.template):
        nodes.append(
            _Node(ways={token: _Edge(following, right)}, tokens_left=nodes[following].tokens_left + 1)
        )
        following = len(nodes) - 1
    return following


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


def _most_words(ways: Sequence[Way]) -> int:
    return max(way.words for way in ways)


def _add_item(nodes: list[_Node], ways: Sequence[Way], *, following: int, later: tuple[int, ...]) -> int:
    """Ways that begin alike share their beginning; returns the node that the item begins at."""
    written = shortest(ways)
    after = nodes[following].tokens_left
    root = len(nodes)
    nodes.append(
        _Node(
            anywhere=True,
            of_item=True,
            tokens_left=max(len(way.tokens) for way in written) + after,
            words=_most_words(ways),
            later_items=later,
        )
    )
    for way in written:
        node = root
        for number, (token, opens) in enumerate(zip(way.tokens, way.opens, strict=True), start=1):
            last = number == len(way.tokens)
            if token not in nodes[node].ways:
                right = OWN_BLANK if last or opens else CLOSED
                nodes[node].ways[token] = _Edge(following if last else len(nodes), right)
                if not last:
                    nodes.append(_Node(of_item=True))
            elif not (last or opens):  # what one of the ways keeps closed is closed for all that share it
                nodes[node].ways[token].right = CLOSED
            node = nodes[node].ways[token].successor
            if not last:
                left = len(way.tokens) - number + after
                nodes[node].tokens_left = max(nodes[node].tokens_left, left)
    return root
