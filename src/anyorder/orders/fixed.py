"""The fixed orders by name.

An order is a list of positions counted from 1: element t is the position that step t fills, so that
[4, 2, 6, 1, 3, 5, 7] writes the fourth token first. Every named order ranks its units, tokens or words, and
writes them by rising rank, equal ranks left to right. The pieces of a word follow it, left to right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anyorder.errors import UserError

Level = Literal["tokens", "words"]
Needs = Literal["nothing", "random", "counts", "heads", "search", "file", "function"]
Ranks = Callable[[Sequence[int]], Sequence[int]]


@dataclass(frozen=True)
class OrderRule:
    """What an order goes by.

    `ranks` turns marks, one number a unit, into ranks. A mark is what the order needs to know: whether the
    word is common (counts), its depth in the dependency tree (heads), or else the unit's position. It is None
    where positions are not ranked but drawn (random) or given by a person (file, function).
    """

    description: str
    level: Level = "tokens"
    needs: Needs = "nothing"
    ranks: Ranks | None = None


def tree_depths(length: int) -> list[int]:
    """Depth of each position in a balanced binary tree, whose root is the lower middle."""
    if length == 0:
        return []
    left = (length - 1) // 2
    right = length - 1 - left
    return [
        *(depth + 1 for depth in tree_depths(left)),
        0,
        *(depth + 1 for depth in tree_depths(right)),
    ]


ORDERS: dict[str, OrderRule] = {
    "l2r": OrderRule("left to right", ranks=lambda positions: positions),
    "r2l": OrderRule("right to left", ranks=lambda positions: [-position for position in positions]),
    "odd": OrderRule(
        "odd positions left to right, then even positions",
        ranks=lambda positions: [position % 2 == 0 for position in positions],
    ),
    "blt": OrderRule(
        "balanced binary tree: the middle, then the middles of both halves, and so on",
        ranks=lambda positions: tree_depths(len(positions)),
    ),
    "syn": OrderRule(
        "syntax tree from its root down, each level left to right",
        level="words",
        needs="heads",
        ranks=lambda word_depths: word_depths,
    ),
    "cf": OrderRule(
        "common words left to right, then the rest",
        level="words",
        needs="counts",
        ranks=lambda common: [not mark for mark in common],
    ),
    "rf": OrderRule(
        "rare words left to right, then the rest",
        level="words",
        needs="counts",
        ranks=lambda common: common,
    ),
    "rnd": OrderRule("by chance, drawn anew each time that a target is seen", needs="random"),
    "sao": OrderRule("found by the model itself while it learns (searched adaptive orders)", needs="search"),
    "file": OrderRule(
        "read from order.files: a permutation of its words a line", level="words", needs="file"
    ),
}
OWN_FUNCTION = OrderRule("your own function of a list of words", level="words", needs="function")


def order_rule(name: str, *, key: str = "order.name") -> OrderRule:
    """The rule that a recipe's `order.name` stands for. key: what a person has given the name by."""
    if name in ORDERS:
        return ORDERS[name]
    module, colon, function = name.partition(":")
    if colon and all(part.isidentifier() for part in (*module.split("."), function)):
        return OWN_FUNCTION
    allowed = ", ".join(ORDERS)
    raise UserError(f"{key} = {name!r}: no such order; allowed: {allowed} or package.module:function")


def by_rank(ranks: Sequence[int]) -> list[int]:
    """Positions by rising rank, equal ranks left to right."""
    return sorted(range(1, len(ranks) + 1), key=lambda position: ranks[position - 1])


def random_positions(length: int, *, generator: np.random.Generator) -> NDArray[np.int64]:
    """A permutation of 1 to length, each as likely as any other."""
    return generator.permutation(length) + 1


def gathered(positions: Sequence[int], *, pieces: Sequence[int]) -> list[int]:
    """Positions over words from positions over tokens: what `spread` was given."""
    word_of_first = {before + 1: word for word, before in enumerate(accumulate(pieces, initial=0), start=1)}
    return [word_of_first[position] for position in positions if position in word_of_first]


def spread(word_positions: Sequence[int], *, pieces: Sequence[int]) -> list[int]:
    """Positions of tokens from positions of words: the pieces of a word are written left to right."""
    before = [0, *accumulate(pieces)]  # tokens left of each word
    return [before[word - 1] + piece for word in word_positions for piece in range(1, pieces[word - 1] + 1)]


def count_words(lines: Iterable[Iterable[str]]) -> Counter[str]:
    """How often each word occurs."""
    return Counter(chain.from_iterable(lines))


def common_words(counts: Mapping[str, int]) -> frozenset[str]:
    """The most frequent words, so many that they come as near as can be to half of all running words.

    Equally frequent words are taken by the alphabet; of two cuts as near, the one with fewer words.
    """
    by_frequency = sorted(counts, key=lambda word: (-counts[word], word))
    covered = [0, *accumulate(counts[word] for word in by_frequency)]
    cut = min(range(len(covered)), key=lambda words: abs(2 * covered[words] - covered[-1]))
    return frozenset(by_frequency[:cut])
