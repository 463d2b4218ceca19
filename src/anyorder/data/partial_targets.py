"""What is known of targets beforehand while learning: words on the canvas, and words that must appear.

A model that has seen only its own order has never met a canvas that a person gives. So a share of the
examples gives some of the target's words first, and what is learned is how to go on. Of others the encoder is
told that they must appear somewhere: these are written in the model's own order, when their turn comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder import config
from anyorder.data.batches import Batch
from anyorder.orders.fixed import spread
from anyorder.text.tokenizer import PAD

# B rows of a batch, H required tokens, T tokens of the longest target


@dataclass(frozen=True)
class PartialTarget:
    """What is known of one target beforehand, by positions, which count from 1."""

    positions: tuple[int, ...] = ()  # of the tokens on the canvas, from left to right
    required: tuple[int, ...] = ()  # of those that the encoder is told of, phrases in a random order


NOTHING = PartialTarget()
MIXED = 0.25  # of the examples with required words, those that have some of them on the canvas instead


def draw_partial_target(
    pieces: Sequence[int], settings: config.Canvas, *, generator: np.random.Generator
) -> PartialTarget:
    """Some whole words of a target, or nothing. pieces: tokens of each word.

    From single words to all of them, scattered or in runs: both the share that is given and how much
    neighbours go together are drawn for each target. A person requires few words, and mostly single ones.
    """
    if generator.random() >= settings.share:
        return NOTHING
    given_share, togetherness = generator.random(2)
    told, mixed = generator.random(2) < (settings.required, MIXED)
    if told:
        given_share, togetherness = given_share**2, togetherness**2
    runs = _draw_runs(len(pieces), given_share, togetherness, generator)
    on_canvas = [not told or (mixed and generator.random() < 0.5) for _ in runs]
    placed = [run for run, here in zip(runs, on_canvas, strict=True) if here]
    required = [run for run, here in zip(runs, on_canvas, strict=True) if not here]
    shuffled = [required[index] for index in generator.permutation(len(required))]
    return PartialTarget(positions=_positions(placed, pieces), required=_positions(shuffled, pieces))


def _draw_runs(
    words: int, given_share: float, togetherness: float, generator: np.random.Generator
) -> list[list[int]]:
    """Words that are given, counted from 1, in runs that belong together."""
    follows = generator.random(words) < togetherness
    drawn = generator.random(words) < given_share
    runs: list[list[int]] = []
    given = False
    for word in range(words):
        if word and follows[word]:
            if given:
                runs[-1].append(word + 1)
            continue
        given = bool(drawn[word])
        if given:
            runs.append([word + 1])
    return runs


def _positions(runs: Sequence[Sequence[int]], pieces: Sequence[int]) -> tuple[int, ...]:
    return tuple(spread([word for run in runs for word in run], pieces=pieces))


def with_partial_targets(batch: Batch, partial_targets: Sequence[PartialTarget]) -> Batch:
    """The same targets with what is given first, and then the rest in the order that the batch has.

    starts: one a pair; a pair may have several rows, one an order, side by side.
    """
    rows, longest = batch.order.shape
    ranks = np.full(
        (len(partial_targets), longest + 1), longest, dtype=np.int64
    )  # by position, which counts from 1
    for ranks_of_pair, partial_target in zip(ranks, partial_targets, strict=True):
        ranks_of_pair[list(partial_target.positions)] = np.arange(len(partial_target.positions))

    def by_row(values: NDArray[np.int64]) -> Tensor:
        return (
            torch.from_numpy(values)
            .to(batch.order.device)
            .repeat_interleave(rows // len(partial_targets), dim=0)
        )

    # A stable sort leaves what is not given, all of one rank, as it is.
    rank = by_row(ranks).gather(1, batch.order)
    rank = rank.where(batch.supervision.mask, longest + 1)
    order = batch.order.gather(1, rank.argsort(dim=1, stable=True))
    given = np.array([len(partial_target.positions) for partial_target in partial_targets])
    reordered = batch.reordered(order[:, None], torch.ones_like(batch.weights)[:, None])
    return replace(reordered, given=by_row(given), required=_required(batch, partial_targets))


def _required(batch: Batch, partial_targets: Sequence[PartialTarget]) -> Tensor:
    """The words that the encoder is told of, (pairs, H)."""
    most = max(len(partial_target.required) for partial_target in partial_targets)
    positions = torch.zeros(len(partial_targets), most, dtype=torch.long)  # 0: none
    for row, partial_target in enumerate(partial_targets):
        positions[row, : len(partial_target.required)] = torch.tensor(
            partial_target.required, dtype=torch.long
        )
    positions = positions.to(batch.order.device)
    targets = batch.targets[:: len(batch.targets) // len(partial_targets)]
    return targets.gather(1, (positions - 1).clamp(min=0)).where(positions > 0, PAD)
