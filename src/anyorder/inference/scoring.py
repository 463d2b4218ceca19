"""log p of known targets: in one order each, given or found, or in any order.

Each order of a target's T tokens is one sequence of (word, gap) steps that writes it, and no two orders share
a sequence, even where words repeat. So p of a target in any order is the sum over its T! orders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from anyorder import config
from anyorder.adaptive.beam import merge_orders, search_thoroughly
from anyorder.adaptive.candidates import Orders
from anyorder.adaptive.sampling import draw_orders
from anyorder.data.batches import Batch, Example, collate
from anyorder.data.orderer import Line, prepare_order
from anyorder.errors import UserError
from anyorder.inference.bounds import FLOAT_BYTES, check_fits, encoding_bytes, scoring_bytes
from anyorder.inference.generation import EncodedPair, InputEncoder, Source
from anyorder.inference.model_folder import Trained
from anyorder.inference.trust import check_code
from anyorder.insertion import NEG_INF
from anyorder.models.encoder_decoder import Memory
from anyorder.models.indigo import Indigo
from anyorder.models.loss import score_steps
from anyorder.models.registry import ordered
from anyorder.models.transformer import LeftToRight
from anyorder.orders.custom import checked_positions
from anyorder.orders.fixed import order_rule, spread

# S pairs scored together, B orders of each added up, K orders sampled, T tokens of the longest target

BATCH_PAIRS = 64  # most pairs to score together
BATCH_SAMPLES = 8  # orders of a target sampled together; more are slower on a CPU
LARGEST_TENSOR = 2**25  # most numbers in one tensor; a few tensors of this size live at once


@dataclass(frozen=True)
class TargetScore:
    """log p of a target in one order."""

    score: float  # word_score + gap_score
    word_score: float  # log p of the words and of the end
    gap_score: float  # log p of the gaps
    positions: tuple[int, ...]  # the order: which position each step fills, counted from 1


@dataclass(frozen=True)
class MarginalScore:
    """log p of a target in any order: a lower bound from some orders, or an estimate from samples too."""

    score: float
    standard_error: float | None  # of an estimate, from its samples; None: the score is a lower bound
    orders: int  # how many orders were added up
    complete: bool  # whether these are all orders, so that the score is exact
    best: TargetScore  # in the likeliest of them


AnyScore = TypeVar("AnyScore", TargetScore, MarginalScore)


def score_targets(
    trained: Trained,
    encoder: InputEncoder,
    sources: Sequence[Source],
    targets: Sequence[str],
    *,
    order: TargetOrder,
    beam: int,
    samples: int | None,
    seed: int,
    bounds: config.Decode,
    device: torch.device,
) -> list[TargetScore] | list[MarginalScore]:
    """Score each target given its source; `Generator.score` documents the arguments."""
    name = order.name if isinstance(order, config.Order) else order
    _check_search(beam=beam, samples=samples, marginal=name == "marginal")
    model = ordered(trained.model, purpose="score")
    if isinstance(model, LeftToRight) and name not in ("own", "l2r"):
        raise UserError(
            f"order = {name!r}: must be 'l2r' for an ordinary transformer, which knows no other order"
        )
    pairs = encoder.encode_pairs(sources, targets, bounds=bounds)
    source = max((len(pair.source.array) for pair in pairs), default=0)
    target = max((len(pair.target.ids) for pair in pairs), default=0)
    needed = scoring_bytes(model.settings, model.shape, source=source, target=target)
    if name in ("sao", "marginal"):
        needed = max(needed, 4 * FLOAT_BYTES * _numbers(model, target, beam))
    needed = max(needed, encoding_bytes(model.settings, source=source))
    check_fits(needed, source=source, target=target, device=device)
    if name == "own":
        return score_given(model, examples_in_own_order(trained, pairs), device=device)
    if name == "sao":
        examples = examples_in_order(trained, pairs, order="l2r")
        return score_best(model, examples, beam=beam, device=device)
    if name == "marginal":
        examples = examples_in_own_order(trained, pairs)
        return score_in_any_order(model, examples, beam=beam, samples=samples or 0, seed=seed, device=device)
    examples = examples_in_order(trained, pairs, order=order, seed=seed)
    return score_given(model, examples, device=device)


def _check_search(*, beam: int, samples: int | None, marginal: bool) -> None:
    if not 1 <= beam <= config.WIDEST_BEAM:
        raise UserError(f"beam = {beam}: must be from 1 to {config.WIDEST_BEAM}")
    if samples is None:
        return
    if not marginal:
        raise UserError(f"samples = {samples}: is only for order = 'marginal'")
    if samples < 2:
        raise UserError(f"samples = {samples}: must be 2 or more, for a standard error")


@torch.inference_mode()
def score_given(model: Indigo, examples: Sequence[Example], *, device: torch.device) -> list[TargetScore]:
    """Score each target in the order of its example."""

    def score_batch(batch: Batch, _: list[int]) -> list[TargetScore]:
        return _scores(model, _encoded(model, batch), batch)

    words = model.shape.target_vocabulary
    return _in_batches(examples, score_batch, numbers=lambda length: (length + 1) * words, device=device)


@torch.inference_mode()
def score_best(
    model: Indigo, examples: Sequence[Example], *, beam: int, device: torch.device
) -> list[TargetScore]:
    """Score each target in the likeliest order that a search of width `beam` finds."""

    def score_batch(batch: Batch, _: list[int]) -> list[TargetScore]:
        memory = _encoded(model, batch)
        found = search_thoroughly(model, memory, batch, width=beam)
        return _scores(model, memory, _in_order(batch, found.positions[:, 0]))

    return _in_batches(
        examples, score_batch, numbers=lambda length: _numbers(model, length, beam), device=device
    )


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
    """Add up each target's own order and those that a search finds; estimate the others from samples.

    A sampled order counts p/q, and nothing if it was added up already. On average this and the sum make up p
    of the target. The score is its logarithm, which is too low on average by about half the squared standard
    error. It is far lower if the search and the samples both miss the likely orders; the standard error does
    not show that. What is sampled for a pair depends on the seed and the pair's number, not on other pairs.
    """

    def score_batch(batch: Batch, pairs: list[int]) -> list[MarginalScore]:
        memory = _encoded(model, batch)
        added = _orders_to_add(model, memory, batch, beam=beam)
        totals = added.log_probs.cpu().double().logsumexp(dim=1)  # (S,)
        errors: list[float | None] = [None] * len(pairs)
        if samples:
            chance = _chance(seed, pairs, samples=samples, steps=batch.order.shape[1]).to(device)
            rest = _sample_weights(model, memory, batch, added, chance=chance)
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

    hypotheses = max(beam, min(samples, BATCH_SAMPLES))
    return _in_batches(
        examples, score_batch, numbers=lambda length: _numbers(model, length, hypotheses), device=device
    )


def _encoded(model: Indigo, batch: Batch) -> Memory:
    return model.encode(batch.source, batch.source_mask)


def _in_order(batch: Batch, positions: Tensor) -> Batch:
    """The same batch with other orders. positions: (S, T)."""
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


def _orders_to_add(model: Indigo, memory: Memory, batch: Batch, *, beam: int) -> Orders:
    """The orders that a search finds and each target's own order, each order once."""
    found = search_thoroughly(model, memory, batch, width=beam)
    scores = score_steps(model, memory, batch)
    own = scores.word.sum(dim=1) + scores.gap.sum(dim=1)
    return merge_orders(found, Orders(batch.order[:, None], own[:, None]), width=beam + 1)


def _sample_weights(model: Indigo, memory: Memory, batch: Batch, added: Orders, *, chance: Tensor) -> Tensor:
    """log p/q of sampled orders; NEG_INF for orders that were added up already.

    chance: (S, K, T), uniform in [0, 1); returns (S, K).
    """
    weights = []
    for part in chance.split(BATCH_SAMPLES, dim=1):
        sampled = draw_orders(model, memory, batch.targets, batch.lengths, uniform=part)
        weight = sampled.log_probs.cpu().double() - sampled.log_proposals.cpu().double()
        weights.append(weight.masked_fill(_among(sampled.positions, added).cpu(), NEG_INF))
    return torch.cat(weights, dim=1)


def _among(positions: Tensor, orders: Orders) -> Tensor:
    """Whether each of the positions is one of the orders. positions: (S, K, T); returns (S, K)."""
    same = (positions[:, :, None] == orders.positions[:, None]).all(dim=3)  # (S, K, B)
    return (same & (orders.log_probs > NEG_INF)[:, None]).any(dim=2)


def _log_mean(log_values: Tensor) -> tuple[Tensor, Tensor]:
    """Log of the mean, and its standard error by the delta method.

    log_values: (S, K); returns two (S,).
    """
    samples = log_values.shape[1]
    log_mean = log_values.logsumexp(dim=1) - math.log(samples)
    shares = (log_values - log_mean[:, None]).exp()
    return log_mean, shares.std(dim=1) / math.sqrt(samples)


def _chance(seed: int, pairs: Sequence[int], *, samples: int, steps: int) -> Tensor:
    """A uniform number for each pair, sample and step, (S, K, T)."""
    # Step by step, so that a longer target in the same batch changes nothing for the others.
    numbers = [
        np.random.default_rng([seed, pair]).random((steps, samples), dtype=np.float32).T for pair in pairs
    ]
    return torch.from_numpy(np.stack(numbers))


# --- batches that fit into memory ---


def _in_batches(
    examples: Sequence[Example],
    score_batch: Callable[[Batch, list[int]], list[AnyScore]],
    *,
    numbers: Callable[[int], int],
    device: torch.device,
) -> list[AnyScore]:
    """Score the examples in batches; returns scores in the order of the examples.

    score_batch: takes a batch and the indices of its examples; numbers: how many numbers the largest tensor
    holds for one target of a given length.
    """
    found: dict[int, AnyScore] = {}
    for pairs in _batches([len(example.target) for example in examples], numbers=numbers):
        batch = collate([examples[pair] for pair in pairs]).to(device)
        found.update(zip(pairs, score_batch(batch, pairs), strict=True))
    return [found[pair] for pair in range(len(examples))]


def _batches(lengths: Sequence[int], *, numbers: Callable[[int], int]) -> Iterator[list[int]]:
    """Indices of examples of similar length to score together; a target that is too large goes alone."""
    part: list[int] = []
    for pair in sorted(range(len(lengths)), key=lengths.__getitem__):
        # Lengths rise, so the last one is the longest.
        if part and (len(part) == BATCH_PAIRS or (len(part) + 1) * numbers(lengths[pair]) > LARGEST_TENSOR):
            yield part
            part = []
        part.append(pair)
    if part:
        yield part


def _numbers(model: Indigo, length: int, hypotheses: int) -> int:
    """How many numbers the largest tensor holds when a target is searched with so many hypotheses."""
    rows, words = hypotheses * length, model.shape.target_vocabulary
    if model.position_first:
        return rows * words  # each word in the gap of each token
    keys = 2 * hypotheses * (length + 2)
    return max(rows * keys, hypotheses * words)


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
    check_code(trained.recipe, trust_code=trained.trust_code)
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
