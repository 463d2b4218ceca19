"""Partial targets to start from while learning: some words are given, and the rest is learned around them.

A model that has seen only its own order has never met a canvas that a person gives. So a share of the
examples gives some of the target's words first, and what is learned is how to go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from anyorder import config
from anyorder.batch import Batch
from anyorder.orders import spread

# B rows of a batch, T tokens of the longest target


@dataclass(frozen=True)
class Start:
    """What is given of one target."""

    slots: tuple[int, ...] = ()  # of the given tokens, in the order that they are given in, counted from 1
    shuffled: bool = False  # whether that order is random rather than left to right


NOTHING = Start()


def draw_start(pieces: Sequence[int], settings: config.Canvas, *, generator: np.random.Generator) -> Start:
    """Some whole words of a target, or nothing. pieces: tokens of each word.

    From single words to all of them, scattered or in runs: both the share that is given and how much
    neighbours go together are drawn for each target.
    """
    if generator.random() >= settings.share:
        return NOTHING
    given_share, togetherness = generator.random(2)
    follows = generator.random(len(pieces)) < togetherness
    drawn = generator.random(len(pieces)) < given_share
    given = np.empty(len(pieces), dtype=np.bool_)
    for word in range(len(pieces)):
        given[word] = given[word - 1] if word and follows[word] else drawn[word]
    words = np.flatnonzero(given) + 1
    shuffled = bool(generator.random() < settings.shuffled)
    if shuffled:
        words = generator.permutation(words)
    return Start(slots=tuple(spread(words.tolist(), pieces=pieces)), shuffled=shuffled)


def started(batch: Batch, starts: Sequence[Start], settings: config.Canvas) -> Batch:
    """The same targets with what is given first, and then the rest in the order that the batch has.

    starts: one a pair; a pair may have several rows, one an order, side by side.
    """
    rows, longest = batch.order.shape
    ranks = np.full((len(starts), longest + 1), longest, dtype=np.int64)  # by slot, which counts from 1
    for ranks_of_pair, start in zip(ranks, starts, strict=True):
        ranks_of_pair[list(start.slots)] = np.arange(len(start.slots))

    def by_row(values: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(values).to(batch.order.device).repeat_interleave(rows // len(starts), dim=0)

    # A stable sort leaves what is not given, all of one rank, as it is.
    rank = by_row(ranks).gather(1, batch.order)
    rank = rank.where(batch.supervision.mask, longest + 1)
    order = batch.order.gather(1, rank.argsort(dim=1, stable=True))
    given = np.array([len(start.slots) for start in starts])
    learns_gaps = np.array([start.shuffled and settings.places for start in starts])
    reordered = batch.reordered(order[:, None], torch.ones_like(batch.weights)[:, None])
    return replace(reordered, given_words=by_row(given), given_gaps=by_row(np.where(learns_gaps, 0, given)))
