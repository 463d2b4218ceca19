"""Batches, and the log-probability of what they hold: step by step, all at once, and over all sentences."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from conftest import FIRST_WORD, next_step, random_examples, tiny_model
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from anyorder.data.batches import Batch, Example, collate, collate_sources, plan_epoch, shares
from anyorder.models.choices import END, StepChoices
from anyorder.models.indigo import Indigo
from anyorder.models.kernels.training import word_scores
from anyorder.models.loss import batch_loss, score_steps
from anyorder.text.tokenizer import BOS, EOD, EOS, PAD

firsts = pytest.mark.parametrize("first", ["word", "position"])


def weighted(examples: list[Example], weights: list[float]) -> list[Example]:
    return [
        dataclasses.replace(example, weight=weight) for example, weight in zip(examples, weights, strict=True)
    ]


# --- all sentences together ---


def every_way_to_write(*, length: int, words: int) -> list[Example]:
    """All sentences of a length in all their orders."""
    ids = range(FIRST_WORD, FIRST_WORD + words)
    return [
        Example(
            source=np.array([FIRST_WORD]),
            target=np.array(sentence, dtype=np.int32),
            order=np.array(order, dtype=np.int32),
        )
        for sentence in itertools.product(ids, repeat=length)
        for order in itertools.permutations(range(1, length + 1))
    ]


@firsts
@pytest.mark.parametrize(("words", "longest"), [(2, 3), (3, 2), (1, 3)])
def test_all_sentences_in_all_orders_sum_to_one(first: str, words: int, longest: int) -> None:
    """Those that end, and those of the longest length before it is known whether they end there."""
    model = tiny_model(words=words, first=first, seed=2)
    batch = collate(
        [way for length in range(longest + 1) for way in every_way_to_write(length=length, words=words)]
    )
    with torch.no_grad():
        scores = score_steps(model, model.encode(batch.source, batch.source_mask), batch)
    by_step = scores.word + scores.gap  # (B, T + 1), the end at step T of each
    cut = batch.lengths == longest
    ended = by_step[~cut].sum(dim=1)
    still_open = by_step[cut, :longest].sum(dim=1)
    assert float(ended.exp().sum()) > 0.001
    assert float(still_open.exp().sum()) > 0.001
    assert float(torch.cat([ended, still_open]).exp().sum()) == pytest.approx(1, abs=1e-5)


# --- step by step ---


def log_prob_step_by_step(model: Indigo, example: Example) -> tuple[list[float], list[float]]:
    """log p of each word and of each gap, through the cache and one choice after the other."""
    batch = collate([example])
    decoder_state = model.start(model.encode(batch.source, batch.source_mask))
    positions = batch.supervision.positions
    word_scores: list[float] = []
    gap_scores: list[float] = []
    newest = batch.words[:, :2]
    for step in range(len(example.target) + 1):
        written = positions[:, : step + 2]
        indices = (written[:, :, None] > written[:, None, :]).sum(dim=2)
        state = model.advance(decoder_state, newest, indices)
        choices = StepChoices(model, decoder_state, state, indices)
        first_scores = choices.first_log_probs()[0]
        if step == len(example.target):
            (gap_scores if model.position_first else word_scores).append(float(first_scores[END]))
            break
        newest = batch.words[:, step + 2 : step + 3]
        gap = sum(int(position) < int(positions[0, step + 2]) for position in written[0]) - 1
        word = int(newest)
        # Counted as choices: after END there are the gaps, or after `<eod>` the words.
        first, second = (gap + 1, word - FIRST_WORD) if model.position_first else (word - EOD, gap)
        first_score = float(first_scores[first])
        second_scores = choices.second_log_probs(torch.tensor([[first]]))
        second_score = float(second_scores[0, 0, second])
        word_scores.append(second_score if model.position_first else first_score)
        gap_scores.append(first_score if model.position_first else second_score)
    return word_scores, gap_scores


@firsts
@pytest.mark.parametrize("seed", range(3))
def test_loss_is_the_sum_of_the_steps(first: str, seed: int) -> None:
    model = tiny_model(first=first, seed=seed)
    examples = random_examples(lengths=[4, 0, 1, 7], seed=seed)
    with torch.no_grad():
        loss = batch_loss(model, collate(examples))
        by_step = [log_prob_step_by_step(model, example) for example in examples]
    word, gap = (-sum(sum(scores) for scores in side) for side in zip(*by_step, strict=True))
    assert float(loss.word) == pytest.approx(word, abs=1e-4)
    assert float(loss.gap) == pytest.approx(gap, abs=1e-4)
    assert float(loss.objective) == pytest.approx(word + gap, abs=1e-4)


@firsts
def test_each_step_scores_as_the_formulas_say(first: str) -> None:
    model = tiny_model(first=first)
    # `c a b` written b, c, a: the sentence grows as b, c b, c a b.
    a, b, c = range(FIRST_WORD, FIRST_WORD + 3)
    batch = collate([Example(source=np.array([a]), target=np.array([c, a, b]), order=np.array([3, 1, 2]))])
    steps = ((b, 0), (c, 0), (a, 1))
    with torch.no_grad():
        memory = model.encode(batch.source, batch.source_mask)
        scores = score_steps(model, memory, batch)
    for number, (word, gap) in enumerate(steps):
        by_hand = next_step(model, memory, steps[:number])
        assert float(scores.word[0, number]) == pytest.approx(float(by_hand.word[word - a, gap]), abs=1e-5)
        assert float(scores.gap[0, number]) == pytest.approx(float(by_hand.gap[word - a, gap]), abs=1e-5)
    end, nothing = (scores.gap, scores.word) if first == "position" else (scores.word, scores.gap)
    assert float(end[0, 3]) == pytest.approx(next_step(model, memory, steps).end, abs=1e-5)
    assert float(nothing[0, 3]) == 0


@firsts
def test_half_precision_loses_little(first: str) -> None:
    """Log-probabilities are single precision whatever the matrix products are."""
    model = tiny_model(first=first, dtype=torch.float32)
    batch = collate(random_examples(lengths=[4, 0, 7]))
    with torch.no_grad():
        single = batch_loss(model, batch, label_smoothing=0.1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            half = batch_loss(model, batch, label_smoothing=0.1)
    assert half.objective.dtype == half.word.dtype == half.gap.dtype == torch.float32
    assert float(half.objective) == pytest.approx(float(single.objective), rel=0.02)


@firsts
def test_counts_of_words_and_gaps(first: str) -> None:
    """The end is a word, or else a gap."""
    with torch.no_grad():
        loss = batch_loss(tiny_model(first=first), collate(random_examples(lengths=[4, 0, 2])))
    with_end, without = 4 + 0 + 2 + 3, 4 + 0 + 2
    assert (loss.words, loss.gaps) == ((without, with_end) if first == "position" else (with_end, without))


@firsts
def test_label_smoothing_is_for_words_only(first: str) -> None:
    model = tiny_model(first=first)
    examples = random_examples(lengths=[3, 1])
    with torch.no_grad():
        plain = batch_loss(model, collate(examples))
        smoothed = batch_loss(model, collate(examples), label_smoothing=0.3)
        words = sum(smoothed_words_by_hand(model, example, smoothing=0.3) for example in examples)
    assert (smoothed.word, smoothed.gap) == (plain.word, plain.gap)
    assert float(smoothed.objective) == pytest.approx(float(words + plain.gap), abs=1e-4)
    assert float(smoothed.objective) != pytest.approx(float(plain.objective), abs=1e-2)


def smoothed_words_by_hand(model: Indigo, example: Example, *, smoothing: float) -> torch.Tensor:
    batch = collate([example])
    memory = model.encode(batch.source, batch.source_mask)
    states = model.states(memory, batch.words, batch.supervision.positions)[0]
    words = [*batch.words[0, 2:].tolist(), EOD]
    if model.position_first:
        gaps = model.gap_vector(
            model.gap_head.keys_of(states[None]), left=batch.supervision.left, right=batch.supervision.right
        )
        logits = model.word_logits(model.word_query(states[1:-1], gaps[0]))
        targets = [word - FIRST_WORD for word in words[:-1]]
    else:
        logits = model.word_logits(model.word_query(states[1:]))
        targets = [word - EOD for word in words]
    return torch.nn.functional.cross_entropy(
        logits, torch.tensor(targets), label_smoothing=smoothing, reduction="sum"
    )


# --- batches of pairs add up ---


@firsts
def test_a_batch_is_the_sum_of_its_pairs_and_so_are_gradients(first: str) -> None:
    """In training mode as in evaluation: dropout aside, neither padding nor company matters."""
    model = tiny_model(first=first, dropout=0.0).train()
    examples = weighted(random_examples(lengths=[6, 0, 2, 3]), [1.0, 2.0, 0.5, 3.0])
    together = batch_loss(model, collate(examples), label_smoothing=0.1).objective
    together.backward()
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    alone = [batch_loss(model, collate([example]), label_smoothing=0.1).objective for example in examples]
    torch.stack(alone).sum().backward()
    assert float(together.detach()) == pytest.approx(sum(float(one.detach()) for one in alone), rel=1e-5)
    for name, weight in model.named_parameters():
        assert gradients[name].isfinite().all(), name
        torch.testing.assert_close(gradients[name], weight.grad, rtol=1e-4, atol=1e-5, msg=name)


@firsts
def test_every_weight_of_the_model_learns(first: str) -> None:
    model = tiny_model(first=first, share="none").train()
    batch_loss(model, collate(random_examples(lengths=[5, 4, 3]))).objective.backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.abs().max() > 0, name
    assert (model.embed_source.weight.grad[PAD] == 0).all()
    assert (model.embed_target.weight.grad[PAD] == 0).all()


@firsts
def test_a_pair_of_weight_two_is_two_pairs(first: str) -> None:
    model = tiny_model(first=first)
    example, other = random_examples(lengths=[3, 2])
    with torch.no_grad():
        heavy = batch_loss(model, collate(weighted([example, other], [2.0, 0.0])), label_smoothing=0.1)
        twice = batch_loss(model, collate([example, example]), label_smoothing=0.1)
    for field in dataclasses.fields(heavy):
        assert float(getattr(heavy, field.name)) == pytest.approx(float(getattr(twice, field.name)), rel=1e-6)


# --- collating ---


def test_collate_writes_targets_in_their_order() -> None:
    batch = collate(
        [
            Example(source=np.array([7, 8]), target=np.array([10, 11, 12]), order=np.array([3, 1, 2])),
            Example(source=np.array([9]), target=np.array([13]), order=np.array([1]), weight=0.5),
        ]
    )
    assert batch.source.tolist() == [[7, 8, EOS], [9, EOS, PAD]]
    assert batch.source_mask.tolist() == [[True, True, True], [True, True, False]]
    assert batch.words.tolist() == [[BOS, EOS, 12, 10, 11], [BOS, EOS, 13, PAD, PAD]]
    assert batch.order.tolist() == [[3, 1, 2], [1, 0, 0]]
    assert batch.lengths.tolist() == [3, 1]
    assert batch.weights.tolist() == [1.0, 0.5]
    assert batch.supervision.positions[0].tolist() == [0, 4, 3, 1, 2]


def test_an_empty_source_still_has_its_end() -> None:
    source, mask = collate_sources([np.array([], dtype=np.int32), np.array([5], dtype=np.int32)])
    assert source.tolist() == [[EOS, PAD], [5, EOS]]
    assert mask.tolist() == [[True, False], [True, True]]


def test_feature_grids_are_stacked_as_they_are() -> None:
    grids = [np.ones((2, 3), dtype=np.float16), np.full((1, 3), 2.0)]
    source, mask = collate_sources(grids)
    assert source.dtype == torch.float32
    assert source.tolist() == [[[1] * 3, [1] * 3], [[2] * 3, [0] * 3]]
    assert mask.tolist() == [[True, True], [True, False]]


def test_a_batch_moves_as_a_whole() -> None:
    batch = collate(random_examples(lengths=[3, 1]))
    expected = batch.supervision.gap  # known before the move, and found again after it
    moved = batch.to(torch.device("meta"))
    assert {getattr(moved, field.name).device.type for field in dataclasses.fields(Batch)} == {"meta"}
    assert moved.supervision.gap.device.type == "meta"
    assert torch.equal(batch.to(torch.device("cpu")).supervision.gap, expected)


# --- planning ---

corpora = st.lists(st.integers(1, 40), max_size=60).map(lambda sizes: np.array(sizes, dtype=np.int64))
numbers = st.integers(0, 1000)


def plain(batches: list[NDArray[np.int64]]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


@given(corpora, st.integers(1, 200), numbers, numbers)
def test_an_epoch_holds_every_pair_once_within_the_budget(
    sizes: NDArray[np.int64], budget: int, seed: int, epoch: int
) -> None:
    batches = plan_epoch(sizes, batch_tokens=budget, seed=seed, epoch=epoch)
    assert sorted(itertools.chain.from_iterable(plain(batches))) == list(range(len(sizes)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * sizes[batch].max() <= budget
        assert len(batch) >= 1


@given(corpora, st.integers(1, 200), numbers)
def test_pairs_of_like_size_lie_together_in_full_batches(
    sizes: NDArray[np.int64], budget: int, seed: int
) -> None:
    batches = plan_epoch(sizes, batch_tokens=budget, seed=seed, epoch=0)
    rising = sorted(batches, key=lambda batch: (sizes[batch].max(), sizes[batch].min()))
    for batch, following in itertools.pairwise(rising):
        assert sizes[batch].max() <= sizes[following].min()
        if sizes[batch].max() < sizes[following].min():
            assert (len(batch) + 1) * sizes[following].min() > budget


@given(corpora, st.integers(1, 200), numbers, numbers)
def test_a_plan_follows_from_seed_and_epoch_alone(
    sizes: NDArray[np.int64], budget: int, seed: int, epoch: int
) -> None:
    plans = []
    for elsewhere in range(2):
        np.random.seed(elsewhere)
        plans.append(plain(plan_epoch(sizes, batch_tokens=budget, seed=seed, epoch=epoch)))
    assert plans[0] == plans[1]


def test_another_seed_or_epoch_is_another_plan() -> None:
    sizes = np.arange(1, 101)
    plans = {
        str(plain(plan_epoch(sizes, batch_tokens=100, seed=seed, epoch=epoch)))
        for seed, epoch in itertools.product(range(3), repeat=2)
    }
    assert len(plans) == 9


@given(st.integers(0, 30), st.integers(1, 8))
def test_shares_part_a_batch_evenly(pairs: int, parts: int) -> None:
    batch = np.arange(100, 100 + pairs)
    cut = shares(batch, parts)
    assert len(cut) == parts
    assert sorted(itertools.chain.from_iterable(plain(cut))) == batch.tolist()
    assert {len(part) for part in cut} <= {pairs // parts, math.ceil(pairs / parts)}


# --- the gradient that is made in place ---


@pytest.mark.parametrize("words", [3, 2**18 + 5], ids=["many rows a block", "one row a block"])
def test_scores_of_words_and_their_gradient_are_those_of_the_formula(words: int) -> None:
    torch.manual_seed(0)
    logits = torch.randn(6, words, dtype=torch.float64, requires_grad=True)
    chosen = torch.randint(0, words, (6,))
    weights = torch.randn(2, 6, dtype=torch.float64)

    def plain() -> tuple[torch.Tensor, torch.Tensor]:
        normaliser = logits.logsumexp(dim=1)
        return logits[range(6), chosen] - normaliser, logits.mean(dim=1) - normaliser

    found, expected = torch.stack(word_scores(logits, chosen)), torch.stack(plain())
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad((scores * weights).sum(), logits)[0] for scores in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_a_gradient_that_took_the_scores_place_is_not_made_again() -> None:
    logits = torch.randn(2, 3, requires_grad=True)
    log_prob, _ = word_scores(logits, torch.tensor([0, 2]))
    total = log_prob.sum()
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="differentiated twice"):
        total.backward()
