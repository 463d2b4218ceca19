"""Partial targets for training: words that are already on the canvas, and words that are required.

A model that was trained in one order has never seen the canvases that users want completed. So some training
pairs start from a canvas with some of the target's words, and the model learns to continue. In others the
encoder reads some words as required: the model writes these in its own order, when their turn comes.
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
    """The part of one target that is given; positions are counted from 1."""

    positions: tuple[int, ...] = ()  # positions of the tokens on the canvas, from left to right
    required: tuple[int, ...] = ()  # positions of the required tokens, phrases in a random order


NOTHING = PartialTarget()
MIXED = 0.25  # share of the examples with required words that also have words on the canvas


def draw_partial_target(
    pieces: Sequence[int], settings: config.Canvas, *, generator: np.random.Generator
) -> PartialTarget:
    """Draw some whole words of a target, or none. pieces: number of tokens of each word.

    The share of given words and how strongly neighbours stay together are drawn for each target, so canvases
    range from a single word to all of them, scattered or in runs. Users require few words, mostly single
    ones, so required words are drawn like that.
    """
    if generator.random() >= settings.share:
        return NOTHING
    given_share, togetherness = generator.random(2)
    has_required, mixed = generator.random(2) < (settings.required, MIXED)
    if has_required:
        given_share, togetherness = given_share**2, togetherness**2
    runs = _draw_runs(len(pieces), given_share, togetherness, generator)
    on_canvas = [not has_required or (mixed and generator.random() < 0.5) for _ in runs]
    placed = [run for run, here in zip(runs, on_canvas, strict=True) if here]
    required = [run for run, here in zip(runs, on_canvas, strict=True) if not here]
    shuffled = [required[index] for index in generator.permutation(len(required))]
    return PartialTarget(positions=_positions(placed, pieces), required=_positions(shuffled, pieces))


def _draw_runs(
    words: int, given_share: float, togetherness: float, generator: np.random.Generator
) -> list[list[int]]:
    """Draw the given words, counted from 1, in runs of neighbours."""
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
    """Reorder a batch: the given tokens first, then the rest in the batch's order.

    partial_targets: one for each pair; a pair may have several orders, in consecutive rows.
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

    # Tokens that are not given have the same rank; a stable sort keeps their order.
    rank = by_row(ranks).gather(1, batch.order)
    rank = rank.where(batch.supervision.mask, longest + 1)
    order = batch.order.gather(1, rank.argsort(dim=1, stable=True))
    given = np.array([len(partial_target.positions) for partial_target in partial_targets])
    reordered = batch.reordered(order[:, None], torch.ones_like(batch.weights)[:, None])
    return replace(reordered, given=by_row(given), required=_required(batch, partial_targets))


def _required(batch: Batch, partial_targets: Sequence[PartialTarget]) -> Tensor:
    """The required words, (pairs, H)."""
    most = max(len(partial_target.required) for partial_target in partial_targets)
    positions = torch.zeros(len(partial_targets), most, dtype=torch.long)  # 0: none
    for row, partial_target in enumerate(partial_targets):
        positions[row, : len(partial_target.required)] = torch.tensor(
            partial_target.required, dtype=torch.long
        )
    positions = positions.to(batch.order.device)
    targets = batch.targets[:: len(batch.targets) // len(partial_targets)]
    return targets.gather(1, (positions - 1).clamp(min=0)).where(positions > 0, PAD)
