"""Targets to be scored, each in an order: by name, by a recipe's [order], given, or the model's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from anyorder import config
from anyorder.data.batches import Example
from anyorder.data.orderer import Line, prepare_order
from anyorder.errors import UserError
from anyorder.inference.inputs import EncodedPair
from anyorder.inference.model_folder import Trained
from anyorder.orders.custom import checked_positions
from anyorder.orders.fixed import order_rule, spread

# The name of an order, a recipe's [order], or for each target the positions of its words, counted from 1.
TargetOrder = str | config.Order | Sequence[Sequence[int]]


def examples_in_order(
    trained: Trained, pairs: Sequence[EncodedPair], *, order: TargetOrder, seed: int = 1
) -> list[Example]:
    """Pairs as arrays, with the positions that each target's steps fill; seed: for the random order."""
    lines = [
        Line(number, pair.target.words, pair.target.pieces) for number, pair in enumerate(pairs, start=1)
    ]
    orders: Iterable[list[int]]
    if isinstance(order, str | config.Order):
        orderer = prepare_order(
            config.Order(name=order) if isinstance(order, str) else order,
            split="test",
            common=trained.common_words,
            normalise=trained.tokenizer.normalised,
        )
        orders = orderer.positions(lines, generator=np.random.default_rng(seed))
    else:
        orders = _given_orders(lines, order)
    return [
        Example(
            source=pair.source.array,
            target=np.array(pair.target.ids, dtype=np.int32),
            order=np.array(positions, dtype=np.int32),
        )
        for pair, positions in zip(pairs, orders, strict=True)
    ]


def examples_in_own_order(trained: Trained, pairs: Sequence[EncodedPair]) -> list[Example]:
    """Pairs in the order that the model was trained in; for adaptive orders, in that of the bootstrap.

    Left to right if that order is random or can't be made here: its parser or function may be missing, and
    order files belong to the training targets.
    """
    own = trained.recipe.fixed_order.model_copy(update={"files": {}})
    needs = order_rule(own.name).needs
    if needs in ("nothing", "counts", "function") or (needs == "heads" and own.parser):
        try:
            return examples_in_order(trained, pairs, order=own)
        except UserError:  # the function or the parser is not installed here
            pass
    return examples_in_order(trained, pairs, order="l2r")


def _given_orders(lines: list[Line], orders: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Positions of tokens from a user's positions of words."""
    if len(orders) != len(lines):
        raise UserError(f"{len(orders)} orders but {len(lines)} targets: each target has its own")
    for line, given in zip(lines, orders, strict=True):
        positions = checked_positions(given, length=len(line.words), where=f"order {line.number}")
        yield spread(positions, pieces=line.pieces)
