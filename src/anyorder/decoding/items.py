"""Required words and phrases of a batch as one graph: what may be written next of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from anyorder.decoding.canvas import Canvas, Way, shortest

FINISHED = 0  # the node of an item that is written


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
