"""Searched orders against all T! orders, and against a greedy choice written step by step."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import FIRST_WORD, NextStep, next_step, random_examples, tiny_model

from anyorder.adaptive.beam import search_orders
from anyorder.adaptive.candidates import Orders
from anyorder.data.batches import Example, collate
from anyorder.insertion import NEG_INF
from anyorder.models.indigo import Indigo
from anyorder.models.loss import score_steps

firsts = pytest.mark.parametrize("first", ["word", "position"])


def searched(
    model: Indigo,
    examples: list[Example],
    *,
    width: int,
    noise: float = 0.0,
    known: list[list[float]] | None = None,
) -> Orders:
    in_sentence_order = [
        replace(example, order=np.arange(1, len(example.target) + 1, dtype=np.int32)) for example in examples
    ]
    batch = collate(in_sentence_order)
    return search_orders(
        model,
        model.encode(batch.source, batch.source_mask),
        batch.words[:, 2:],
        batch.lengths,
        width=width,
        known=None if known is None else torch.tensor(known, dtype=torch.float64),
        noise=noise,
        generator=torch.Generator().manual_seed(0),
    )


@torch.no_grad()
def log_probs(model: Indigo, example: Example, orders: list[tuple[int, ...]]) -> list[float]:
    """Of a target in each of some orders."""
    batch = collate([replace(example, order=np.array(order, dtype=np.int32)) for order in orders])
    scores = score_steps(model, model.encode(batch.source, batch.source_mask), batch)
    return (scores.word.sum(dim=1) + scores.gap.sum(dim=1)).tolist()


def found(orders: Orders, sentence: int, length: int) -> list[tuple[tuple[int, ...], float]]:
    return [
        (tuple(positions[:length]), log_prob)
        for positions, log_prob in zip(
            orders.positions[sentence].tolist(), orders.log_probs[sentence].tolist(), strict=True
        )
        if log_prob > NEG_INF
    ]


@firsts
@pytest.mark.parametrize("length", range(6))
def test_a_search_of_full_width_finds_all_orders_best_first(first: str, length: int) -> None:
    model = tiny_model(first=first, words=5, seed=length)
    (example,) = random_examples(lengths=[length], words=5, seed=length)
    everything = list(itertools.permutations(range(1, length + 1)))
    expected = dict(zip(everything, log_probs(model, example, everything), strict=True))
    orders = found(searched(model, [example], width=math.factorial(length) + 3), 0, length)
    assert len(orders) == math.factorial(length)
    assert {positions for positions, _ in orders} == set(everything)
    for positions, log_prob in orders:
        assert log_prob == pytest.approx(expected[positions], abs=1e-9)
    assert [log_prob for _, log_prob in orders] == sorted((one for _, one in orders), reverse=True)


@firsts
def test_looking_ahead_at_full_width_changes_nothing(first: str) -> None:
    model = tiny_model(first=first, words=5)
    (example,) = random_examples(lengths=[4], words=5)
    plain = found(searched(model, [example], width=24), 0, 4)
    ahead = found(searched(model, [example], width=24, known=[[-9.0, -1.0, -3.0, 0.0]]), 0, 4)
    assert dict(ahead) == pytest.approx(dict(plain), abs=1e-9)


@firsts
@pytest.mark.parametrize("known", [[0.0] * 5, [-7.0, -1.0, -4.0, -1.5, -0.5]])
@pytest.mark.parametrize("seed", range(3))
def test_a_search_of_width_one_is_greedy(first: str, known: list[float], seed: int) -> None:
    """At each step the token that is likeliest in its own gap, or gains most on what it is known to cost.

    Words are told apart so that nothing ties.
    """
    model = tiny_model(first=first, words=6, seed=seed)
    (example,) = random_examples(lengths=[5], seed=seed)
    target = np.random.default_rng(seed).permutation(np.arange(5, 10)).astype(np.int32)
    example = replace(example, target=target)
    batch = collate([replace(example, order=np.arange(1, 6, dtype=np.int32))])
    memory = model.encode(batch.source, batch.source_mask)
    positions: list[int] = []
    steps: tuple[tuple[int, int], ...] = ()
    total = 0.0
    while len(positions) < 5:
        following = next_step(model, memory, steps)
        best = max(
            (position for position in range(1, 6) if position not in positions),
            key=lambda position: (
                candidate_score(following, int(target[position - 1]), gap_of(position, positions))
                - known[position - 1]
            ),
        )
        total += candidate_score(following, int(target[best - 1]), gap_of(best, positions))
        steps = (*steps, (int(target[best - 1]), gap_of(best, positions)))
        positions.append(best)
    total += next_step(model, memory, steps).end
    ((greedy, log_prob),) = found(
        searched(model, [example], width=1, known=[known] if any(known) else None), 0, 5
    )
    assert list(greedy) == positions
    assert log_prob == pytest.approx(total, abs=1e-9)


def gap_of(position: int, written: list[int]) -> int:
    return sum(other < position for other in written)


def candidate_score(following: NextStep, word: int, gap: int) -> float:
    return float(following.word[word - FIRST_WORD, gap] + following.gap[word - FIRST_WORD, gap])


@firsts
def test_log_probs_are_those_of_scoring_the_same_orders(first: str) -> None:
    model = tiny_model(first=first)
    examples = random_examples(lengths=[7, 4, 9], seed=3)
    orders = searched(model, examples, width=4)
    for number, example in enumerate(examples):
        best = found(orders, number, len(example.target))
        assert len({positions for positions, _ in best}) == 4
        scored = log_probs(model, example, [positions for positions, _ in best])
        assert [log_prob for _, log_prob in best] == pytest.approx(scored, abs=1e-9)


@firsts
def test_a_batch_is_its_targets_one_by_one(first: str) -> None:
    """Neither padding nor the company of longer targets changes what is found, if no two words are equal."""
    model = tiny_model(first=first, words=8)
    chance = np.random.default_rng(5)
    examples = [
        replace(example, target=chance.permutation(np.arange(4, 12))[: len(example.target)].astype(np.int32))
        for example in random_examples(lengths=[6, 1, 3, 0, 8], seed=5)
    ]
    together = searched(model, examples, width=3)
    for number, example in enumerate(examples):
        length = len(example.target)
        alone = found(searched(model, [example], width=3), 0, length)
        in_company = found(together, number, length)
        assert [positions for positions, _ in in_company] == [positions for positions, _ in alone]
        assert [one for _, one in in_company] == pytest.approx([one for _, one in alone], abs=1e-9)


def test_noise_explores_other_orders_but_returns_their_own_log_p() -> None:
    model = tiny_model(words=6)
    (example,) = random_examples(lengths=[6], words=6, seed=1)
    plain = found(searched(model, [example], width=2), 0, 6)
    noisy = found(searched(model, [example], width=2, noise=5.0), 0, 6)
    assert {positions for positions, _ in noisy} != {positions for positions, _ in plain}
    scored = log_probs(model, example, [positions for positions, _ in noisy])
    assert [log_prob for _, log_prob in noisy] == pytest.approx(scored, abs=1e-9)
