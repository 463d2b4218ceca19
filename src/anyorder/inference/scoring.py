"""log p of known targets: in one order each, given or found, or in any order.

A model writes along a path: the word and the gap of each step. Each order of a target's tokens is one path to
it, and its gaps alone tell which: no two orders are the same path, even where words repeat. So p of a target,
in whatever order it may be written, is the sum over its T! orders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from anyorder.adaptive.beam import Orders
from anyorder.adaptive.guided import merge_orders, search_thoroughly
from anyorder.adaptive.sampling import draw_orders
from anyorder.data.batches import Batch, Example, collate
from anyorder.insertion import NEG_INF
from anyorder.models.encoder_decoder import Memory
from anyorder.models.indigo import Indigo
from anyorder.models.loss import score_steps

# S pairs scored together, B orders of each added up, K drawn, T tokens of the longest target

AT_ONCE = 64  # pairs, most
DRAWN_AT_ONCE = 8  # orders of a target: the fastest; more mostly look at each other's tokens
LARGEST = 2**25  # numbers in one tensor; a few tensors of this size live at once


@dataclass(frozen=True)
class TargetScore:
    """log p of a target in one order."""

    score: float
    word_score: float
    gap_score: float
    positions: tuple[int, ...]  # counted from 1


@dataclass(frozen=True)
class MarginalScore:
    """log p of a target in any order: a lower bound by the sum of some, or an estimate of the others too."""

    score: float
    standard_error: float | None  # of an estimate, as far as what was drawn can tell; None: a lower bound
    orders: int  # added up
    complete: bool  # these are all that there are, so the score is exact
    best: TargetScore  # in the likeliest of them


AnyScore = TypeVar("AnyScore", TargetScore, MarginalScore)


@torch.inference_mode()
def score_given(model: Indigo, examples: Sequence[Example], *, device: torch.device) -> list[TargetScore]:
    """Each target in its own order."""

    def scored(batch: Batch, _: list[int]) -> list[TargetScore]:
        return _scores(model, _encoded(model, batch), batch)

    words = model.shape.target_vocabulary
    return _by_parts(examples, scored, numbers=lambda length: (length + 1) * words, device=device)


@torch.inference_mode()
def score_best(
    model: Indigo, examples: Sequence[Example], *, beam: int, device: torch.device
) -> list[TargetScore]:
    """Each target in the likeliest order that a search finds, whatever its own is."""

    def scored(batch: Batch, _: list[int]) -> list[TargetScore]:
        memory = _encoded(model, batch)
        found = search_thoroughly(model, memory, batch, width=beam)
        return _scores(model, memory, _in_order(batch, found.positions[:, 0]))

    return _by_parts(examples, scored, numbers=lambda length: _numbers(model, length, beam), device=device)


@torch.inference_mode()
def score_in_any_order(
    model: Indigo,
    examples: Sequence[Example],
    *,
    beam: int,
    samples: int = 0,
    seed: int = 1,
    device: torch.device,
) -> list[MarginalScore]:
    """Each target's own order and those that a search finds, added up; the others estimated by samples.

    A drawn order counts p/q, and nothing if it was added up already. The mean of this and the sum is p of the
    target on average. Its logarithm, the score, is too low on average, by about half its squared standard
    error; and by far more, unknown to that error, if the search and the draws both miss the likely orders.
    What is drawn depends on the seed and on a pair's number among the examples, not on the others.
    """

    def scored(batch: Batch, pairs: list[int]) -> list[MarginalScore]:
        memory = _encoded(model, batch)
        added = _added_up(model, memory, batch, beam=beam)
        totals = added.log_probs.cpu().double().logsumexp(dim=1)  # (S,)
        errors: list[float | None] = [None] * len(pairs)
        if samples:
            chance = _chance(seed, pairs, samples=samples, steps=batch.order.shape[1]).to(device)
            rest = _drawn_weights(model, memory, batch, added, chance=chance)
            totals, deviations = _log_mean(torch.logaddexp(totals[:, None], rest))
            errors = deviations.tolist()
        likeliest = added.positions[torch.arange(len(pairs), device=device), added.log_probs.argmax(dim=1)]
        rows = zip(
            totals.tolist(),
            errors,
            (added.log_probs > NEG_INF).sum(dim=1).tolist(),
            _scores(model, memory, _in_order(batch, likeliest)),
            strict=True,
        )
        return [
            MarginalScore(
                total, error, orders, complete=orders == math.factorial(len(best.positions)), best=best
            )
            for total, error, orders, best in rows
        ]

    hypotheses = max(beam, min(samples, DRAWN_AT_ONCE))
    return _by_parts(
        examples, scored, numbers=lambda length: _numbers(model, length, hypotheses), device=device
    )


def _encoded(model: Indigo, batch: Batch) -> Memory:
    return model.encode(batch.source, batch.source_mask)


def _in_order(batch: Batch, positions: Tensor) -> Batch:
    """The same targets in other orders. positions: (S, T)."""
    return batch.reordered(positions[:, None], torch.ones_like(batch.weights[:, None]))


def _scores(model: Indigo, memory: Memory, batch: Batch) -> list[TargetScore]:
    found = score_steps(model, memory, batch)
    rows = zip(
        found.word.cpu().double().sum(dim=1).tolist(),  # not every device has double precision
        found.gap.cpu().double().sum(dim=1).tolist(),
        batch.order.tolist(),
        batch.lengths.tolist(),
        strict=True,
    )
    return [
        TargetScore(word + gap, word, gap, tuple(positions[:length])) for word, gap, positions, length in rows
    ]


# --- many orders ---


def _added_up(model: Indigo, memory: Memory, batch: Batch, *, beam: int) -> Orders:
    """What a search finds, and each target's own order where it is not among that: different orders all."""
    found = search_thoroughly(model, memory, batch, width=beam)
    scores = score_steps(model, memory, batch)
    own = scores.word.sum(dim=1) + scores.gap.sum(dim=1)
    return merge_orders(found, Orders(batch.order[:, None], own[:, None]), width=beam + 1)


def _drawn_weights(model: Indigo, memory: Memory, batch: Batch, added: Orders, *, chance: Tensor) -> Tensor:
    """log p/q of orders drawn, NEG_INF for those that were added up already.

    chance: (S, K, T), uniform in [0, 1); returns (S, K).
    """
    weights = []
    for part in chance.split(DRAWN_AT_ONCE, dim=1):
        drawn = draw_orders(model, memory, batch.targets, batch.lengths, chance=part)
        weight = drawn.log_probs.cpu().double() - drawn.log_proposals.cpu().double()
        weights.append(weight.masked_fill(_among(drawn.positions, added).cpu(), NEG_INF))
    return torch.cat(weights, dim=1)


def _among(positions: Tensor, orders: Orders) -> Tensor:
    """Whether these orders are some of those. positions: (S, K, T); returns (S, K)."""
    same = (positions[:, :, None] == orders.positions[:, None]).all(dim=3)  # (S, K, B)
    return (same & (orders.log_probs > NEG_INF)[:, None]).any(dim=2)


def _log_mean(log_values: Tensor) -> tuple[Tensor, Tensor]:
    """Log of the mean, and its standard error by the delta method: that of the mean, as a share of it.

    log_values: (S, K); returns two (S,).
    """
    samples = log_values.shape[1]
    log_mean = log_values.logsumexp(dim=1) - math.log(samples)
    shares = (log_values - log_mean[:, None]).exp()
    return log_mean, shares.std(dim=1) / math.sqrt(samples)


def _chance(seed: int, pairs: Sequence[int], *, samples: int, steps: int) -> Tensor:
    """A uniform number for each pair, sample and step, (S, K, T)."""
    # Drawn step by step, so that a longer target in the same batch changes nothing for the others.
    drawn = [
        np.random.default_rng([seed, pair]).random((steps, samples), dtype=np.float32).T for pair in pairs
    ]
    return torch.from_numpy(np.stack(drawn))


# --- as many at once as fit into memory ---


def _by_parts(
    examples: Sequence[Example],
    scored: Callable[[Batch, list[int]], list[AnyScore]],
    *,
    numbers: Callable[[int], int],
    device: torch.device,
) -> list[AnyScore]:
    """Score some pairs at a time, answers in the order given.

    scored: of a batch, and which of the examples it holds; numbers: what the largest tensor holds for one
    target of a length.
    """
    found: dict[int, AnyScore] = {}
    for pairs in _parts([len(example.target) for example in examples], numbers=numbers):
        batch = collate([examples[pair] for pair in pairs]).to(device)
        found.update(zip(pairs, scored(batch, pairs), strict=True))
    return [found[pair] for pair in range(len(examples))]


def _parts(lengths: Sequence[int], *, numbers: Callable[[int], int]) -> Iterator[list[int]]:
    """Like with like; a target that is too large by itself still gets its turn, alone."""
    part: list[int] = []
    for pair in sorted(range(len(lengths)), key=lengths.__getitem__):
        # Lengths rise, so the newest is the longest.
        if part and (len(part) == AT_ONCE or (len(part) + 1) * numbers(lengths[pair]) > LARGEST):
            yield part
            part = []
        part.append(pair)
    if part:
        yield part


def _numbers(model: Indigo, length: int, hypotheses: int) -> int:
    """What the largest tensor holds when a target of this length is written, hypotheses side by side."""
    rows, words = hypotheses * length, model.shape.target_vocabulary
    if model.position_first:
        return rows * words  # every word in the gap of every token
    keys = 2 * hypotheses * (length + 2)
    return max(rows * keys, hypotheses * words)
