"""Orders applied to the targets of one split, and cached on disk."""

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
from anyorder.orders.syntax import PYTHON, ConlluFile, SpacyParser, depths, python_depths
from anyorder.system.files import make_folder, published_file, read_array, reading, write_array

# Part of every cache key. Raise it when the same recipe comes to mean another order.
CACHE_VERSION = 1


@dataclass(frozen=True)
class Line:
    """A target that needs an order."""

    number: int  # line number in the split's file, counted from 1
    words: Sequence[str]  # may be empty for orders over tokens
    pieces: Sequence[int]  # number of tokens of each word

    @property
    def length(self) -> int:
        """Number of tokens."""
        return sum(self.pieces)


UnitPositions = Callable[[Iterable[Line]], Iterator[Sequence[int]]]  # orders over tokens or words
UnitValues = Callable[[Iterable[Line]], Iterator[Sequence[int]]]  # what `OrderRule.ranks` takes


@dataclass(frozen=True)
class Orderer:
    """Computes the order of each target of one split."""

    level: Level  # whether `unit_positions` orders tokens or words
    fingerprint: str  # changes with everything that may change the orders, except the targets themselves
    unit_positions: UnitPositions | None  # None: a random order

    @property
    def random(self) -> bool:
        """Whether a new order is drawn each time that a target is seen, so that nothing can be cached."""
        return self.unit_positions is None

    def positions(
        self, lines: Iterable[Line], *, generator: np.random.Generator | None = None
    ) -> Iterator[list[int]]:
        """Yield the order of each line's tokens. Only random orders need a generator.

        Lines are read ahead of the orders that are yielded, because parsers work in batches.
        """
        if self.unit_positions is None:
            assert generator is not None, "random orders need a generator"
            yield from (random_positions(line.length, generator=generator).tolist() for line in lines)
            return
        ordered, again = tee(lines)
        for line, positions in zip(again, self.unit_positions(ordered), strict=True):
            yield spread(positions, pieces=line.pieces) if self.level == "words" else list(positions)


def prepare_order(
    order: Order,
    *,
    split: Splits,
    common: frozenset[str] | None = None,
    locate: Callable[[Path], Path] = Path.expanduser,
    normalise: Callable[[str], str] | None = None,
) -> Orderer:
    """Prepare the order that a recipe asks for. A parser is not loaded before the first line.

    common: `common_words` of the training targets, for orders that need counts;
    locate: resolves the recipe's paths; normalise: applied to the word forms of a CoNLL-U file.
    """
    rule = order_rule(order.name)
    source: _Source | None
    match rule.needs:
        case "random":
            source = None
        case "nothing":
            source = _Source(_ranked(rule, values=_unit_numbers), content="")
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
            source = _from_user(OrderFile(_split_file(order, split=split, locate=locate)))
        case "function":
            source = _from_user(OrderFunction(order.name, split=split))
    key = json.dumps([CACHE_VERSION, order.name, source.content if source else ""])
    return Orderer(
        level=rule.level,
        fingerprint=f"{split}-{_digest(key.encode())[:16]}",
        unit_positions=source.unit_positions if source else None,
    )


def order_split(orderer: Orderer, *, folder: Path, lines: Iterable[Line]) -> NDArray[np.int32]:
    """Orders of all lines, concatenated, memory-mapped from a cached file.

    The folder belongs to these lines. They are read only if an earlier call hasn't left the file there.
    """
    assert not orderer.random, "random orders are never cached"
    path = folder / f"order-{orderer.fingerprint}.npy"
    if not path.exists():
        positions = np.fromiter(chain.from_iterable(orderer.positions(lines)), dtype=np.int32)
        make_folder(folder)
        # Several processes may get here at once: each writes a whole file or none.
        with published_file(path) as file:
            write_array(file, positions)
    return read_array(path, remedy="remove it, and it will be made again (data.cache)")


@dataclass(frozen=True)
class _Source:
    """How orders are computed, and what they depend on besides the order's name and the targets."""

    unit_positions: UnitPositions
    content: str


def _ranked(rule: OrderRule, *, values: UnitValues) -> UnitPositions:
    ranks = rule.ranks
    assert ranks is not None, "this order has no ranks"
    return lambda lines: (by_rank(ranks(line_values)) for line_values in values(lines))


def _unit_numbers(lines: Iterable[Line]) -> Iterator[Sequence[int]]:
    return (range(1, line.length + 1) for line in lines)


def _by_counts(rule: OrderRule, *, common: frozenset[str]) -> _Source:
    def values(lines: Iterable[Line]) -> Iterator[Sequence[int]]:
        return ([word in common for word in line.words] for line in lines)

    return _Source(_ranked(rule, values=values), content="\n".join(sorted(common)))


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

        def tree_depths(lines: Iterable[Line]) -> Iterator[Sequence[int]]:
            return (trees.word_depths(line.number, line.words) for line in lines)

        return _Source(_ranked(rule, values=tree_depths), content=_file_digest(path))
    if not order.parser:
        raise UserError(
            f"order.name = 'syn' needs order.parser, a spaCy pipeline or {PYTHON!r}, "
            f"or order.files.{split}, a CoNLL-U file"
        )
    if order.parser == PYTHON:

        def code_depths(lines: Iterable[Line]) -> Iterator[Sequence[int]]:
            return (python_depths(line.number, line.words) for line in lines)

        return _Source(_ranked(rule, values=code_depths), content=PYTHON)
    parser = SpacyParser(order.parser)
    return _Source(
        _ranked(rule, values=lambda lines: map(depths, parser.heads(line.words for line in lines))),
        content=f"{parser.name} {parser.version}",
    )


def _from_user(given: OrderFile | OrderFunction) -> _Source:
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


def _file_digest(path: Path) -> str:
    with reading(path):
        return _digest(path.read_bytes())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
