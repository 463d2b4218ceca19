"""In which order a target is written.

An order is a list of slots counted from 1: element t is the slot that step t fills, so that
[4, 2, 6, 1, 3, 5, 7] writes the fourth token first. Every named order ranks its units, tokens or words, and
writes them by rising rank, equal ranks left to right. The pieces of a word follow it, left to right.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, tee
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anyorder.data.own_order import OrderFile, OrderFunction
from anyorder.data.python_syntax import PARSER as PYTHON
from anyorder.data.python_syntax import python_depths
from anyorder.data.syntax import ConlluFile, SpacyParser, depths
from anyorder.ground.config import Order, Splits
from anyorder.ground.errors import UserError
from anyorder.ground.files import make_folder, published_file, write_array

# Part of every cache key: raised when the same recipe comes to mean another order.
CACHE_VERSION = 1

Level = Literal["tokens", "words"]
Needs = Literal["nothing", "random", "counts", "heads", "search", "file", "function"]
Ranks = Callable[[Sequence[int]], Sequence[int]]


@dataclass(frozen=True)
class OrderRule:
    """What an order goes by.

    `ranks` turns marks, one number a unit, into ranks. A mark is what the order needs to know: whether the
    word is common (counts), its depth in the dependency tree (heads), or else the unit's slot. It is None
    where slots are not ranked but drawn (random) or given by a person (file, function).
    """

    description: str
    level: Level = "tokens"
    needs: Needs = "nothing"
    ranks: Ranks | None = None


def tree_depths(length: int) -> list[int]:
    """Depth of each slot in a balanced binary tree, whose root is the lower middle."""
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
    "l2r": OrderRule("left to right", ranks=lambda slots: slots),
    "r2l": OrderRule("right to left", ranks=lambda slots: [-slot for slot in slots]),
    "odd": OrderRule(
        "odd slots left to right, then even slots", ranks=lambda slots: [slot % 2 == 0 for slot in slots]
    ),
    "blt": OrderRule(
        "balanced binary tree: the middle, then the middles of both halves, and so on",
        ranks=lambda slots: tree_depths(len(slots)),
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


@dataclass(frozen=True)
class Line:
    """A target that is to be ordered."""

    number: int  # in its split's file, counted from 1
    words: Sequence[str]  # orders over tokens do without
    pieces: Sequence[int]  # tokens of each word

    @property
    def length(self) -> int:
        """Tokens."""
        return sum(self.pieces)


UnitSlots = Callable[[Iterable[Line]], Iterator[Sequence[int]]]
Marks = Callable[[Iterable[Line]], Iterator[Sequence[int]]]


@dataclass(frozen=True)
class Orderer:
    """An order made ready for the targets of one split."""

    level: Level
    fingerprint: str  # changes with whatever may change the slots, short of the targets themselves
    unit_slots: UnitSlots | None  # None: drawn by chance

    @property
    def random(self) -> bool:
        """Whether slots are drawn at each look, by `random_slots`, and so are never cached."""
        return self.unit_slots is None

    def slots(
        self, lines: Iterable[Line], *, generator: np.random.Generator | None = None
    ) -> Iterator[list[int]]:
        """Token slots of each line; only a random order draws from the generator.

        Lines may be read some way ahead of their answers: parsers work in batches.
        """
        if self.unit_slots is None:
            assert generator is not None, "a random order is drawn from a generator"
            yield from (random_slots(line.length, generator=generator).tolist() for line in lines)
            return
        asked, kept = tee(lines)
        for line, slots in zip(kept, self.unit_slots(asked), strict=True):
            yield spread(slots, pieces=line.pieces) if self.level == "words" else list(slots)


def order_rule(name: str, *, key: str = "order.name") -> OrderRule:
    """The rule that a recipe's `order.name` stands for. key: what a person has given the name by."""
    if name in ORDERS:
        return ORDERS[name]
    module, colon, function = name.partition(":")
    if colon and all(part.isidentifier() for part in (*module.split("."), function)):
        return OWN_FUNCTION
    allowed = ", ".join(ORDERS)
    raise UserError(f"{key} = {name!r}: no such order; allowed: {allowed} or package.module:function")


def prepare_order(
    order: Order,
    *,
    split: Splits,
    common: frozenset[str] | None = None,
    locate: Callable[[Path], Path] = Path.expanduser,
    normalise: Callable[[str], str] | None = None,
) -> Orderer:
    """Make a recipe's order ready; a parser is loaded only when the first line comes.

    common: `common_words` of the training targets, if `order_rule(order.name).needs` counts.
    locate: where a path of the recipe lies. normalise: applied to the forms of a CoNLL-U file.
    """
    rule = order_rule(order.name)
    source: _Source | None
    match rule.needs:
        case "random":
            source = None
        case "nothing":
            source = _Source(_ranked(rule, marks=_slot_marks), content="")
        case "counts":
            assert common is not None, f"{order.name} needs the common words of the training targets"
            source = _by_counts(rule, common=common)
        case "heads":
            source = _by_trees(rule, order=order, split=split, locate=locate, normalise=normalise)
        case "search":
            raise UserError(
                f"order.name = {order.name!r} is found by a model: train uses it, and `anyorder orders RUN` "
                "shows what a trained one finds"
            )
        case "file":
            source = _own(OrderFile(_split_file(order, split=split, locate=locate)))
        case "function":
            source = _own(OrderFunction(order.name, split=split))
    key = json.dumps([CACHE_VERSION, order.name, source.content if source else ""])
    return Orderer(
        level=rule.level,
        fingerprint=f"{split}-{_digest(key.encode())[:16]}",
        unit_slots=source.unit_slots if source else None,
    )


def order_split(orderer: Orderer, *, folder: Path, lines: Iterable[Line]) -> NDArray[np.int32]:
    """Token slots of all lines, one after the other, mapped from a file that is made once.

    The folder belongs to these lines: they are read only if no earlier call has left the file there.
    """
    assert not orderer.random, "a random order is drawn anew each time and never kept"
    path = folder / f"order-{orderer.fingerprint}.npy"
    if not path.exists():
        slots = np.fromiter(chain.from_iterable(orderer.slots(lines)), dtype=np.int32)
        make_folder(folder)
        # Several processes may get here at once: each writes its own file, whole or not at all.
        with published_file(path) as file:
            write_array(file, slots)
    mapped: NDArray[np.int32] = np.load(path, mmap_mode="r")
    return mapped


def by_rank(ranks: Sequence[int]) -> list[int]:
    """Slots by rising rank, equal ranks left to right."""
    return sorted(range(1, len(ranks) + 1), key=lambda slot: ranks[slot - 1])


def random_slots(length: int, *, generator: np.random.Generator) -> NDArray[np.int64]:
    """A permutation of 1 to length, each as likely as any other."""
    return generator.permutation(length) + 1


def gathered(slots: Sequence[int], *, pieces: Sequence[int]) -> list[int]:
    """Slots over words from slots over tokens: what `spread` was given."""
    word_of_first = {before + 1: word for word, before in enumerate(accumulate(pieces, initial=0), start=1)}
    return [word_of_first[slot] for slot in slots if slot in word_of_first]


def spread(word_slots: Sequence[int], *, pieces: Sequence[int]) -> list[int]:
    """Slots over tokens from slots over words: the pieces of a word follow each other, left to right."""
    before = [0, *accumulate(pieces)]  # tokens left of each word
    return [before[word - 1] + piece for word in word_slots for piece in range(1, pieces[word - 1] + 1)]


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


@dataclass(frozen=True)
class _Source:
    """Where slots come from, and what they depend on besides the order's name and the targets."""

    unit_slots: UnitSlots
    content: str


def _ranked(rule: OrderRule, *, marks: Marks) -> UnitSlots:
    ranks = rule.ranks
    assert ranks is not None, "only ranked orders have marks"
    return lambda lines: (by_rank(ranks(line_marks)) for line_marks in marks(lines))


def _slot_marks(lines: Iterable[Line]) -> Iterator[Sequence[int]]:
    return (range(1, line.length + 1) for line in lines)


def _by_counts(rule: OrderRule, *, common: frozenset[str]) -> _Source:
    def marks(lines: Iterable[Line]) -> Iterator[Sequence[int]]:
        return ([word in common for word in line.words] for line in lines)

    return _Source(_ranked(rule, marks=marks), content="\n".join(sorted(common)))


def _by_trees(
    rule: OrderRule,
    *,
    order: Order,
    split: Splits,
    locate: Callable[[Path], Path],
    normalise: Callable[[str], str] | None,
) -> _Source:
    if split in order.files:
        path = _split_file(order, split=split, locate=locate)
        trees = ConlluFile(path, normalise=normalise)

        def marks(lines: Iterable[Line]) -> Iterator[Sequence[int]]:
            return (trees.word_depths(line.number, line.words) for line in lines)

        return _Source(_ranked(rule, marks=marks), content=_digest(path.read_bytes()))
    if not order.parser:
        raise UserError(
            f"order.name = 'syn' needs order.parser, a spaCy pipeline or {PYTHON!r}, "
            f"or order.files.{split}, a CoNLL-U file"
        )
    if order.parser == PYTHON:

        def python_marks(lines: Iterable[Line]) -> Iterator[Sequence[int]]:
            return (python_depths(line.number, line.words) for line in lines)

        return _Source(_ranked(rule, marks=python_marks), content=PYTHON)
    parser = SpacyParser(order.parser)
    return _Source(
        _ranked(rule, marks=lambda lines: map(depths, parser.heads(line.words for line in lines))),
        content=f"{parser.name} {parser.version}",
    )


def _own(given: OrderFile | OrderFunction) -> _Source:
    return _Source(
        lambda lines: (given.word_slots(line.number, line.words) for line in lines), content=given.fingerprint
    )


def _split_file(order: Order, *, split: Splits, locate: Callable[[Path], Path]) -> Path:
    if split not in order.files:
        raise UserError(f"order.name = {order.name!r} needs order.files.{split}, a permutation a line")
    path = locate(order.files[split])
    if not path.is_file():
        raise UserError(f"order.files.{split} = {str(path)!r}: no such file")
    return path


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
