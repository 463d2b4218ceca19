"""Scores of targets in any order, against the sum over all orders and over all step sequences."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import FIRST_WORD, Steps, next_step, random_examples, tiny_model

from anyorder.adaptive.sampling import draw_orders
from anyorder.data.batches import Example, collate
from anyorder.inference import scoring
from anyorder.inference.scoring import MarginalScore, TargetScore, score_best, score_given, score_in_any_order
from anyorder.models.indigo import Indigo

firsts = pytest.mark.parametrize("first", ["word", "position"])
CPU = torch.device("cpu")
WORDS = 4
LENGTHS = [5, 0, 3, 1, 6, 2]


def with_target(example: Example, words: list[int]) -> Example:
    return replace(
        example,
        target=np.array(words, dtype=np.int32) + FIRST_WORD,
        order=np.arange(1, len(words) + 1, dtype=np.int32),
    )


def random_pair(length: int, *, seed: int) -> Example:
    return random_examples(lengths=[length], words=WORDS, seed=seed)[0]


def all_orders(example: Example) -> list[Example]:
    """The same pair in each of its T! orders."""
    orders = itertools.permutations(range(1, len(example.target) + 1))
    return [replace(example, order=np.array(order, dtype=np.int32)) for order in orders]


def in_any_order(
    model: Indigo, examples: list[Example], *, beam: int, samples: int = 0, seed: int = 1
) -> list[MarginalScore]:
    return score_in_any_order(model, examples, beam=beam, samples=samples, seed=seed, device=CPU)


def exactly(model: Indigo, example: Example) -> float:
    """log p of a target in any order: its T! orders, scored one by one and added up."""
    return float(
        np.logaddexp.reduce([one.score for one in score_given(model, all_orders(example), device=CPU)])
    )


@torch.no_grad()
def undecided(model: Indigo) -> Indigo:
    """The same model with smaller weights, so that every order is likely enough to be drawn."""
    model.embed_target.weight.mul_(0.3)
    model.gap_head.keys.weight.mul_(0.3)
    return model


def drawn(model: Indigo, example: Example, *, orders: int) -> list[tuple[tuple[int, ...], float, float]]:
    """Sampled orders with q and p of each; one pair is repeated to make a large batch."""
    pairs, of_each = orders // 4, 4
    alike = collate([example] * pairs)
    chance = torch.rand(pairs, of_each, len(example.target), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        memory = model.encode(alike.source, alike.source_mask)
    found = draw_orders(model, memory, alike.targets, alike.lengths, uniform=chance)
    return list(
        zip(
            map(tuple, found.positions.flatten(0, 1).tolist()),
            found.log_proposals.exp().flatten().tolist(),
            found.log_probs.exp().flatten().tolist(),
            strict=True,
        )
    )


def proposals(model: Indigo, example: Example, *, orders: int) -> dict[tuple[int, ...], tuple[float, float]]:
    """q and p of each order that was drawn, by its positions."""
    return {positions: (q, p) for positions, q, p in drawn(model, example, orders=orders)}


# Orders and paths


@pytest.mark.parametrize("length", range(5))
def test_each_path_to_a_text_is_one_order_even_where_words_repeat(length: int) -> None:
    """The sequences of steps are found by inserting into plain lists, without any code for orders."""
    paths_to: dict[tuple[int, ...], set[Steps]] = {}
    for words in itertools.product(range(2), repeat=length):
        for gaps in itertools.product(*(range(step + 1) for step in range(length))):
            text: list[int] = []
            for word, gap in zip(words, gaps, strict=True):
                text.insert(gap, word)
            paths_to.setdefault(tuple(text), set()).add(tuple(zip(words, gaps, strict=True)))
    for text, paths in paths_to.items():
        batch = collate(all_orders(with_target(random_pair(0, seed=0), list(text))))
        words = (batch.words[:, 2:] - FIRST_WORD).tolist()
        gaps = batch.supervision.gap.tolist()
        by_orders = [tuple(zip(*both, strict=True)) for both in zip(words, gaps, strict=True)]
        assert len(by_orders) == len(set(by_orders)) == math.factorial(length)
        assert set(by_orders) == paths


@firsts
@pytest.mark.parametrize("text", [[0], [0, 0], [0, 1], [0, 0, 1], [1, 0, 1], [0, 0, 0]], ids=str)
def test_p_of_a_text_is_the_sum_over_all_paths_to_it(first: str, text: list[int]) -> None:
    model = tiny_model(first=first, words=WORDS)
    example = with_target(random_pair(0, seed=1), text)
    batch = collate([example])
    with torch.no_grad():
        memory = model.encode(batch.source, batch.source_mask)
    wanted = [FIRST_WORD + word for word in text]

    def p(canvas: list[int], steps: Steps) -> float:
        following = next_step(model, memory, steps)
        if len(steps) == len(wanted):
            return math.exp(following.end) if canvas == wanted else 0.0
        total = 0.0
        for word, gap in itertools.product(set(wanted), range(len(canvas) + 1)):
            here = following.word[word - FIRST_WORD, gap] + following.gap[word - FIRST_WORD, gap]
            grown = [*canvas[:gap], word, *canvas[gap:]]
            total += math.exp(here) * p(grown, (*steps, (word, gap)))
        return total

    (found,) = in_any_order(model, [example], beam=math.factorial(len(text)))
    assert found.complete
    assert found.score == pytest.approx(math.log(p([], ())), abs=1e-9)


# A search of full width


@firsts
@pytest.mark.parametrize("length", range(6))
def test_a_search_of_full_width_adds_up_all_orders_and_finds_the_best(first: str, length: int) -> None:
    model = tiny_model(first=first, words=WORDS, seed=length)
    example = random_pair(length, seed=length)
    scores = score_given(model, all_orders(example), device=CPU)
    beam = math.factorial(length)
    (found,) = in_any_order(model, [example], beam=beam)
    assert found.score == pytest.approx(exactly(model, example), abs=1e-9)
    assert found.complete
    assert found.orders == beam
    assert found.standard_error is None
    (best,) = score_best(model, [example], beam=beam, device=CPU)
    assert best == found.best
    assert best.score == pytest.approx(max(one.score for one in scores), abs=1e-9)
    assert best.score == best.word_score + best.gap_score
    (again,) = score_given(
        model, [replace(example, order=np.array(best.positions, dtype=np.int32))], device=CPU
    )
    assert (again.positions, again.word_score) == (best.positions, pytest.approx(best.word_score, abs=1e-9))


@firsts
def test_draws_add_nothing_to_all_orders(first: str) -> None:
    model = tiny_model(first=first, words=WORDS)
    examples = random_examples(lengths=[0, 1, 3], seed=2)
    for with_draws, without in zip(
        in_any_order(model, examples, beam=6, samples=5), in_any_order(model, examples, beam=6), strict=True
    ):
        assert with_draws.complete
        assert with_draws.score == pytest.approx(without.score, abs=1e-12)
        assert with_draws.standard_error == pytest.approx(0, abs=1e-12)


# A search of some width


@firsts
@pytest.mark.parametrize("beam", [1, 3, 8])
def test_found_orders_and_the_given_one_are_a_lower_bound(first: str, beam: int) -> None:
    model = tiny_model(first=first, words=WORDS)
    for seed in range(4):
        example = random_pair(5, seed=seed)
        (own,) = score_given(model, [example], device=CPU)
        (sao,) = score_best(model, [example], beam=beam, device=CPU)
        (found,) = in_any_order(model, [example], beam=beam)
        assert max(own.score, sao.score) == pytest.approx(found.best.score, abs=1e-9)
        assert found.best.score < found.score + 1e-9
        assert found.score < exactly(model, example)
        assert not found.complete


def test_a_given_order_that_the_search_finds_too_counts_once() -> None:
    model = tiny_model(words=WORDS)
    example = random_pair(5, seed=3)
    (sao,) = score_best(model, [example], beam=1, device=CPU)
    (once,) = in_any_order(model, [replace(example, order=np.array(sao.positions, dtype=np.int32))], beam=1)
    assert (once.orders, once.score) == (1, pytest.approx(sao.score, abs=1e-9))
    backwards = replace(example, order=np.array(sao.positions[::-1], dtype=np.int32))
    (own,) = score_given(model, [backwards], device=CPU)
    (sao,) = score_best(model, [backwards], beam=1, device=CPU)
    assert sao.positions != own.positions
    (both,) = in_any_order(model, [backwards], beam=1)
    assert (both.orders, both.score) == (2, pytest.approx(np.logaddexp(sao.score, own.score), abs=1e-9))


# Draws


@firsts
@pytest.mark.parametrize("text", [[], [0], [0, 1, 2], [0, 0, 1], [1, 1, 1], [0, 1, 0, 2]], ids=str)
def test_the_proposal_is_a_distribution_and_the_mean_weight_is_p(first: str, text: list[int]) -> None:
    """Summed over all T! orders, so the law holds exactly."""
    model = undecided(tiny_model(first=first, words=WORDS))
    example = with_target(random_pair(0, seed=4), text)
    found = proposals(model, example, orders=2000)
    assert len(found) == math.factorial(len(text))  # else some were not drawn, and the sums say nothing
    assert sum(q for q, _ in found.values()) == pytest.approx(1, abs=1e-9)
    mean_weight = sum(q * (p / q) for q, p in found.values())
    assert math.log(mean_weight) == pytest.approx(exactly(model, example), abs=1e-9)


@firsts
def test_q_is_each_tokens_share_among_the_unplaced(first: str) -> None:
    model = tiny_model(first=first, words=WORDS)
    target = [2, 0, 0, 1]
    example = with_target(random_pair(0, seed=5), target)
    batch = collate([example])
    with torch.no_grad():
        memory = model.encode(batch.source, batch.source_mask)

    def by_hand(positions: tuple[int, ...]) -> float:
        q, steps = 1.0, ()
        for step, position in enumerate(positions):
            following = next_step(model, memory, steps)
            gaps = {one: sum(other < one for other in positions[:step]) for one in positions[step:]}
            p = {
                one: math.exp(following.word[target[one - 1], gap] + following.gap[target[one - 1], gap])
                for one, gap in gaps.items()
            }
            q *= p[position] / sum(p.values())
            steps = (*steps, (FIRST_WORD + target[position - 1], gaps[position]))
        return q

    for positions, (q, _) in proposals(model, example, orders=500).items():
        assert q == pytest.approx(by_hand(positions), rel=1e-9)


@firsts
def test_orders_are_drawn_as_often_as_q_says(first: str) -> None:
    model = tiny_model(first=first, words=WORDS)
    example = with_target(random_pair(0, seed=6), [0, 1, 2])
    draws = 6000
    found = drawn(model, example, orders=draws)
    met = Counter(positions for positions, _, _ in found)
    for positions, q in {(positions, round(q, 9)) for positions, q, _ in found}:
        assert abs(met[positions] / draws - q) < 4 * math.sqrt(q * (1 - q) / draws)


@firsts
def test_an_estimate_comes_as_near_as_its_standard_error_says(first: str) -> None:
    model = tiny_model(first=first, words=WORDS)
    example = random_pair(5, seed=7)
    exact = exactly(model, example)
    (bound,) = in_any_order(model, [example], beam=2)
    (many,) = in_any_order(model, [example], beam=2, samples=400)
    assert many.standard_error is not None
    assert bound.score < exact - 4 * many.standard_error  # what is drawn has something to add
    assert many.score == pytest.approx(exact, abs=4 * many.standard_error)

    few = in_any_order(model, [example] * 64, beam=2, samples=40)
    spread = float(np.std([one.score for one in few], ddof=1))
    said = float(np.mean([one.standard_error for one in few]))
    assert said == pytest.approx(spread, rel=0.4)  # the spread itself is known to a tenth
    ratios = np.exp([one.score - exact for one in few])  # on average one: p, not log p, is what it estimates
    assert float(np.mean(ratios)) == pytest.approx(1, abs=4 * float(np.std(ratios)) / math.sqrt(len(ratios)))


def test_draws_come_from_the_seed() -> None:
    model = tiny_model(words=WORDS)
    examples = [random_pair(5, seed=8)] * 2
    first, second = in_any_order(model, examples, beam=1, samples=4)
    assert first.score != second.score  # each pair has its own
    assert in_any_order(model, examples, beam=1, samples=4) == [first, second]
    assert in_any_order(model, examples, beam=1, samples=4, seed=2)[0].score != first.score


# Few tokens, many pairs


@firsts
def test_few_tokens_have_one_order(first: str) -> None:
    model = tiny_model(first=first, words=WORDS)
    examples = random_examples(lengths=[0, 1], seed=9)
    in_order = score_given(model, examples, device=CPU)
    for one, only in zip(in_any_order(model, examples, beam=3, samples=2), in_order, strict=True):
        assert (one.orders, one.complete, one.best.positions) == (1, True, only.positions)
        assert one.score == pytest.approx(only.score, abs=1e-9)
        assert only.score < 0
    assert [one.positions for one in score_best(model, examples, beam=3, device=CPU)] == [(), (1,)]


@firsts
@pytest.mark.parametrize("largest", [1, 400, scoring.LARGEST_TENSOR])
def test_scores_do_not_depend_on_the_other_pairs(
    first: str, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores don't depend on whether one pair, some or all fit into a batch."""
    model = tiny_model(first=first, words=WORDS)
    examples = random_examples(lengths=LENGTHS, words=WORDS, seed=10)
    monkeypatch.setattr(scoring, "LARGEST_TENSOR", largest)
    scores = in_any_order(model, examples, beam=3, samples=20)  # more than are drawn at once
    bests = score_best(model, examples, beam=3, device=CPU)
    for number, example in enumerate(examples):
        company = [with_target(other, []) for other in examples]
        company[number] = example
        alone = in_any_order(model, company, beam=3, samples=20)[number]
        assert scores[number].score == pytest.approx(alone.score, abs=1e-9)
        assert scores[number].standard_error == pytest.approx(alone.standard_error, abs=1e-9)
        assert scores[number].orders == alone.orders
        assert bests[number].score == pytest.approx(
            score_best(model, [example], beam=3, device=CPU)[0].score, abs=1e-9
        )


def test_no_pairs_have_no_scores() -> None:
    model = tiny_model(words=WORDS)
    nothing: list[TargetScore] = []
    assert score_given(model, [], device=CPU) == score_best(model, [], beam=2, device=CPU) == nothing
    assert in_any_order(model, [], beam=2, samples=2) == []
