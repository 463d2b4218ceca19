"""An order made ready for the targets of one split, and cached."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, tee
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anyorder.config.data import Splits
from anyorder.config.order import Order
from anyorder.errors import UserError
from anyorder.orders.custom import OrderFile, OrderFunction
from anyorder.orders.fixed import Level, OrderRule, by_rank, order_rule, random_positions, spread
from anyorder.orders.python_syntax import PARSER as PYTHON
from anyorder.orders.python_syntax import python_depths
from anyorder.orders.syntax import ConlluFile, SpacyParser, depths
from anyorder.system.files import make_folder, published_file, write_array

# Part of every cache key: raised when the same recipe comes to mean another order.
CACHE_VERSION = 1


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


UnitPositions = Callable[[Iterable[Line]], Iterator[Sequence[int]]]
Marks = Callable[[Iterable[Line]], Iterator[Sequence[int]]]


@dataclass(frozen=True)
class Orderer:
    """An order made ready for the targets of one split."""

    level: Level
    fingerprint: str  # changes with whatever may change the positions, short of the targets themselves
    unit_positions: UnitPositions | None  # None: drawn by chance

    @property
    def random(self) -> bool:
        """Whether positions are drawn at each look, by `random_positions`, and so are never cached."""
        return self.unit_positions is None

    def positions(
        self, lines: Iterable[Line], *, generator: np.random.Generator | None = None
    ) -> Iterator[list[int]]:
        """Token positions of each line; only a random order draws from the generator.

        Lines may be read some way ahead of their answers: parsers work in batches.
        """
        if self.unit_positions is None:
            assert generator is not None, "a random order is drawn from a generator"
            yield from (random_positions(line.length, generator=generator).tolist() for line in lines)
            return
        asked, kept = tee(lines)
        for line, positions in zip(kept, self.unit_positions(asked), strict=True):
            yield spread(positions, pieces=line.pieces) if self.level == "words" else list(positions)


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
            source = _Source(_ranked(rule, marks=_position_marks), content="")
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
        unit_positions=source.unit_positions if source else None,
    )


def order_split(orderer: Orderer, *, folder: Path, lines: Iterable[Line]) -> NDArray[np.int32]:
    """Token positions of all lines, one after the other, mapped from a file that is made once.

    The folder belongs to these lines: they are read only if no earlier call has left the file there.
    """
    assert not orderer.random, "a random order is drawn anew each time and never kept"
    path = folder / f"order-{orderer.fingerprint}.npy"
    if not path.exists():
        positions = np.fromiter(chain.from_iterable(orderer.positions(lines)), dtype=np.int32)
        make_folder(folder)
        # Several processes may get here at once: each writes its own file, whole or not at all.
        with published_file(path) as file:
            write_array(file, positions)
    mapped: NDArray[np.int32] = np.load(path, mmap_mode="r")
    return mapped


@dataclass(frozen=True)
class _Source:
    """Where positions come from, and what they depend on besides the order's name and the targets."""

    unit_positions: UnitPositions
    content: str


def _ranked(rule: OrderRule, *, marks: Marks) -> UnitPositions:
    ranks = rule.ranks
    assert ranks is not None, "only ranked orders have marks"
    return lambda lines: (by_rank(ranks(line_marks)) for line_marks in marks(lines))


def _position_marks(lines: Iterable[Line]) -> Iterator[Sequence[int]]:
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
        lambda lines: (given.word_positions(line.number, line.words) for line in lines),
        content=given.fingerprint,
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
