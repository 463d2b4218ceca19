"""The fixed orders by name: Table 1 of the paper, and orders that a user supplies.

An order lists the positions of a sentence, counted from 1, by step: [4, 2, 6, 1, 3, 5, 7] writes the fourth
token first. A named order gives each unit (token or word) a rank and writes the units by rising rank, equal
ranks left to right. Where the units are words, the pieces of a word are written left to right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Literal

from anyorder.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Level = Literal["tokens", "words"]
Needs = Literal["nothing", "random", "counts", "heads", "search", "file", "function"]
Ranks = Callable[[Sequence[int]], Sequence[int]]
FUNCTION = "package.module:function"  # the form in which a user names an order function


@dataclass(frozen=True)
class OrderRule:
    """The definition of an order.

    `ranks` turns one number per unit into one rank per unit. What the number is depends on `needs`: whether
    the word is common (counts), its depth in the dependency tree (heads), otherwise the unit's position.
    `ranks` is None for orders that are drawn (random), found by the model (search) or supplied by the user
    (file, function).
    """

    description: str
    level: Level = "tokens"
    needs: Needs = "nothing"
    ranks: Ranks | None = None


def left_to_right(positions: Sequence[int]) -> Sequence[int]:
    """L2R: the leftmost token first."""
    return positions


def right_to_left(positions: Sequence[int]) -> Sequence[int]:
    """R2L: the rightmost token first."""
    return [-position for position in positions]


def odd_even(positions: Sequence[int]) -> Sequence[int]:
    """ODD: odd positions, then even ones."""
    return [position % 2 == 0 for position in positions]


def balanced_tree(positions: Sequence[int]) -> Sequence[int]:
    """BLT: the levels of a balanced binary tree, from the root down."""
    return tree_depths(len(positions))


def syntax_tree(word_depths: Sequence[int]) -> Sequence[int]:
    """SYN: the levels of the dependency tree, from the root down."""
    return word_depths


def common_first(common: Sequence[int]) -> Sequence[int]:
    """CF: common words, then rare ones."""
    return [not is_common for is_common in common]


def rare_first(common: Sequence[int]) -> Sequence[int]:
    """RF: rare words, then common ones."""
    return common


# The one list of orders: names in recipes and on the command line, help texts and error messages come from
# here.
ORDERS: dict[str, OrderRule] = {
    "l2r": OrderRule("left to right", ranks=left_to_right),
    "r2l": OrderRule("right to left", ranks=right_to_left),
    "odd": OrderRule("odd positions left to right, then even positions", ranks=odd_even),
    "blt": OrderRule(
        "balanced binary tree: the middle, then the middles of both halves, and so on", ranks=balanced_tree
    ),
    "syn": OrderRule(
        "syntax tree from its root down, each level left to right",
        level="words",
        needs="heads",
        ranks=syntax_tree,
    ),
    "cf": OrderRule(
        "common words left to right, then the rest", level="words", needs="counts", ranks=common_first
    ),
    "rf": OrderRule(
        "rare words left to right, then the rest", level="words", needs="counts", ranks=rare_first
    ),
    "rnd": OrderRule("random, drawn again each time that a target is seen", needs="random"),
    "sao": OrderRule("searched adaptive orders, which the model finds while it learns", needs="search"),
    "file": OrderRule(
        "read from order.files: one permutation of the words per line", level="words", needs="file"
    ),
}
OWN_FUNCTION = OrderRule("your own function of a list of words", level="words", needs="function")


def order_names(*, without: Needs | None = None) -> str:
    """List what an order may be called, for help texts. without: leave out orders that need this."""
    names = [name for name, rule in ORDERS.items() if rule.needs != without]
    return f"{', '.join(names)} or {FUNCTION}"


def order_rule(name: str, *, key: str = "order.name") -> OrderRule:
    """Look up an order by its name or refuse the name. key: the recipe key that held it, for the message."""
    if name in ORDERS:
        return ORDERS[name]
    module, colon, function = name.partition(":")
    if colon and all(part.isidentifier() for part in (*module.split("."), function)):
        return OWN_FUNCTION
    raise UserError(f"{key} = {name!r}: no such order; allowed: {order_names()}")


def by_rank(ranks: Sequence[int]) -> list[int]:
    """Sort positions by rising rank, equal ranks left to right."""
    return sorted(range(1, len(ranks) + 1), key=lambda position: ranks[position - 1])


def random_positions(length: int, *, generator: np.random.Generator) -> NDArray[np.int64]:
    """Draw a permutation of 1 to length, uniformly."""
    return generator.permutation(length) + 1


def tree_depths(length: int) -> list[int]:
    """Depth of each position in a balanced binary tree whose root is the lower middle."""
    if length == 0:
        return []
    left = (length - 1) // 2
    right = length - 1 - left
    return [
        *(depth + 1 for depth in tree_depths(left)),
        0,
        *(depth + 1 for depth in tree_depths(right)),
    ]


def spread(word_positions: Sequence[int], *, pieces: Sequence[int]) -> list[int]:
    """Turn an order of words into an order of tokens: the pieces of a word are written left to right.

    pieces: number of tokens of each word, left to right.
    """
    before = [0, *accumulate(pieces)]  # tokens left of each word
    return [before[word - 1] + piece for word in word_positions for piece in range(1, pieces[word - 1] + 1)]


def gathered(positions: Sequence[int], *, pieces: Sequence[int]) -> list[int]:
    """Turn an order of tokens that `spread` has made back into the order of words."""
    word_of_first = {before + 1: word for word, before in enumerate(accumulate(pieces, initial=0), start=1)}
    return [word_of_first[position] for position in positions if position in word_of_first]


def count_words(lines: Iterable[Iterable[str]]) -> Counter[str]:
    """Count how often each word occurs."""
    return Counter(chain.from_iterable(lines))


def common_words(counts: Mapping[str, int]) -> frozenset[str]:
    """The most frequent words that together make up half of the running text, as nearly as possible.

    Equally frequent words are sorted alphabetically. Of two equally good cuts, the one with fewer words is
    used.
    """
    by_frequency = sorted(counts, key=lambda word: (-counts[word], word))
    covered = [0, *accumulate(counts[word] for word in by_frequency)]
    cut = min(range(len(covered)), key=lambda words: abs(2 * covered[words] - covered[-1]))
    return frozenset(by_frequency[:cut])
