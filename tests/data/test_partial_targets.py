"""Examples that start from some of their words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import random_examples, tiny_model
from corpora import last_weights, learn, write_corpus
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from anyorder import config
from anyorder.data.batches import Batch, collate
from anyorder.data.partial_targets import NOTHING, PartialTarget, draw_partial_target, with_partial_targets
from anyorder.errors import UserError
from anyorder.inference.generator import Generator
from anyorder.models.indigo import Indigo
from anyorder.models.loss import batch_loss, score_steps
from anyorder.text.tokenizer import PAD

ALWAYS = config.Canvas(share=1.0)
RUNS = ("plain", "canvas")

word_pieces = st.lists(st.integers(1, 4), min_size=1, max_size=12)
seeds = st.integers(0, 10_000)


def whole_words(positions: Sequence[int], pieces: Sequence[int]) -> list[int]:
    """Which words the positions make up, in their order; fails where a word is torn."""
    ends = np.cumsum(pieces)
    words = []
    waiting = list(positions)
    while waiting:
        word = int(np.searchsorted(ends, waiting[0]))
        expected = list(range(int(ends[word]) - pieces[word] + 1, int(ends[word]) + 1))
        assert waiting[: pieces[word]] == expected
        words.append(word)
        del waiting[: pieces[word]]
    return words


@given(pieces=word_pieces, seed=seeds)
def test_whole_words_are_given_each_once(pieces: list[int], seed: int) -> None:
    partial_target = draw_partial_target(pieces, ALWAYS, generator=np.random.default_rng(seed))
    given, required = (
        whole_words(positions, pieces) for positions in (partial_target.positions, partial_target.required)
    )
    assert given == sorted(given)
    assert len({*given, *required}) == len(given) + len(required)


@pytest.mark.parametrize("required", [0.0, 1.0])
def test_everything_between_nothing_and_all_is_given_or_required(required: float) -> None:
    chance = np.random.default_rng(0)
    settings = config.Canvas(share=1.0, required=required)
    partial_targets = [draw_partial_target([1] * 4, settings, generator=chance) for _ in range(4000)]
    if required:
        assert len({frozenset(partial_target.required) for partial_target in partial_targets}) == 2**4
        assert any(
            list(partial_target.required) != sorted(partial_target.required)
            for partial_target in partial_targets
        )
        assert any(partial_target.positions and partial_target.required for partial_target in partial_targets)
    else:
        assert len({partial_target.positions for partial_target in partial_targets}) == 2**4
        assert not any(partial_target.required for partial_target in partial_targets)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_so_many_examples_start_from_words(share: float) -> None:
    chance = np.random.default_rng(0)
    settings = config.Canvas(share=share, required=0)
    # A start may be drawn and give nothing all the same: a sentence of many words makes that rare.
    partial_targets = [draw_partial_target([1] * 200, settings, generator=chance) for _ in range(1000)]
    assert sum(partial_target != NOTHING for partial_target in partial_targets) / 1000 == pytest.approx(
        share, abs=0.05
    )


def test_what_is_given_comes_first_and_the_rest_as_before() -> None:
    batch = collate(random_examples(lengths=[5, 3, 2], seed=1))
    order = batch.order.tolist()
    partial_targets = [PartialTarget((1, 4)), NOTHING, PartialTarget((1, 2))]
    after = with_partial_targets(batch, partial_targets)
    assert after.order[0].tolist() == [1, 4, *(position for position in order[0] if position not in (1, 4))]
    assert after.order[1].tolist() == order[1]
    assert after.order[2].tolist() == [1, 2, 0, 0, 0]
    assert torch.equal(after.targets, batch.targets)
    assert after.given.tolist() == [2, 0, 2]
    assert after.required.shape == (3, 0)


def test_required_words_are_told_and_stay_in_their_turn() -> None:
    batch = collate(random_examples(lengths=[5, 3], seed=1))
    orders = batch.order[:, None].expand(-1, 2, -1)
    both = batch.reordered(orders, torch.full((2, 2), 0.5))
    after = with_partial_targets(both, [PartialTarget(required=(4, 2)), NOTHING])
    assert torch.equal(after.order, both.order)
    assert after.required.tolist() == [[int(batch.targets[0, 3]), int(batch.targets[0, 1])], [PAD, PAD]]


def test_each_order_of_a_pair_starts_from_the_same_words() -> None:
    batch = collate(random_examples(lengths=[3, 2], seed=1))
    orders = torch.tensor([[[1, 2, 3], [3, 2, 1]], [[1, 2, 0], [2, 1, 0]]])
    both = batch.reordered(orders, torch.full((2, 2), 0.5))
    after = with_partial_targets(both, [PartialTarget((2,)), PartialTarget((2,))])
    assert after.order.tolist() == [[2, 1, 3], [2, 3, 1], [2, 1, 0], [2, 1, 0]]
    assert torch.equal(after.weights, both.weights)


@pytest.mark.parametrize("first", ["word", "position"])
def test_given_steps_have_no_loss_and_all_others_the_loss_of_that_order(first: str) -> None:
    """By the scores of the same orders with nothing given, summed step by step."""
    model = tiny_model(first=first)
    batch = collate(random_examples(lengths=[4, 3, 5], seed=2))
    partial_targets = [PartialTarget((1, 3)), NOTHING, PartialTarget((1, 2, 5))]
    after = with_partial_targets(batch, partial_targets)
    as_learned = batch.reordered(after.order[:, None], torch.ones(3, 1))
    with torch.no_grad():
        scores = score_steps(model, model.encode(batch.source, batch.source_mask), as_learned)
    word = gap = 0.0
    for row, partial_target in enumerate(partial_targets):
        word -= float(scores.word[row, len(partial_target.positions) :].sum())
        gap -= float(scores.gap[row, len(partial_target.positions) :].sum())
    loss = batch_loss(model, after)
    assert float(loss.word) == pytest.approx(word)
    assert float(loss.gap) == pytest.approx(gap)
    steps = 4 + 3 + 5 + (3 if first == "word" else 0)
    assert loss.words == steps - 5


def test_only_given_tokens_are_marked() -> None:
    plain = tiny_model()
    marking = tiny_model(marks_given=True)
    marking.load_state_dict(plain.state_dict(), strict=False)
    with torch.no_grad():
        marking.given_mark.normal_()
    batch = collate(random_examples(lengths=[4, 4], seed=2))
    memory = plain.encode(batch.source, batch.source_mask)
    before = score_steps(plain, memory, batch)
    after = score_steps(marking, memory, with_partial_targets(batch, [NOTHING, PartialTarget((2,))]))
    torch.testing.assert_close(after.word[0], before.word[0])
    assert not torch.allclose(after.word[1, 1:], before.word[1, 1:])


@pytest.mark.parametrize("positions", ["relative", "sinusoidal"])
@pytest.mark.parametrize("copying", [False, True])
def test_who_is_told_of_required_words_reads_them_whatever_else_is_in_the_batch(
    positions: str, copying: bool
) -> None:
    model = tiny_model(encoder_positions=positions, copying=copying, reads_required=True)
    batch = collate(random_examples(lengths=[4, 3, 5], seed=2))
    told = with_partial_targets(
        batch, [PartialTarget(required=(3, 1)), NOTHING, PartialTarget(required=(2, 4, 5))]
    )
    with torch.no_grad():
        model.required_mark.normal_()
        together = step_scores(model, told)
        for row in range(3):
            alone = step_scores(model, told.pairs(torch.tensor([row])))
            torch.testing.assert_close(alone[0], together[row])
        nothing = step_scores(model, batch)
    torch.testing.assert_close(together[1], nothing[1])
    for row in (0, 2):
        assert not torch.allclose(together[row], nothing[row])


def step_scores(model: Indigo, batch: Batch) -> Tensor:
    memory = model.encode(batch.source, batch.source_mask, batch.required)
    return score_steps(model, memory, batch).word


# --- training ---


def test_no_share_is_the_same_training_bit_for_bit(tmp_path: Path) -> None:
    recipe = write_corpus(tmp_path)
    learn(recipe, tmp_path / "plain", "train.steps=4")
    learn(recipe, tmp_path / "none", "train.steps=4", "canvas.share=0", "canvas.required=1")
    assert last_weights(tmp_path / "plain") == last_weights(tmp_path / "none")


@pytest.mark.parametrize("order", ["l2r", "rnd", "sao"])
def test_a_run_that_was_stopped_starts_from_the_same_words(order: str, tmp_path: Path) -> None:
    recipe = write_corpus(tmp_path)
    how = [f"order.name={order}", "canvas.share=0.7", "search.bootstrap_steps=2", "search.beam=2"]
    how += ["search.method=guided"]
    learn(recipe, tmp_path / "whole", *how, "train.steps=8")
    learn(recipe, tmp_path / "halves", *how, "train.steps=4")
    learn(recipe, tmp_path / "halves", *how, "train.steps=8", resume=True)
    assert last_weights(tmp_path / "whole") == last_weights(tmp_path / "halves")


def test_a_run_without_canvases_can_be_gone_on_with(tmp_path: Path) -> None:
    recipe = write_corpus(tmp_path)
    learn(recipe, tmp_path / "plain", "train.steps=4")
    frozen = ["canvas.share=1", f"train.init={tmp_path / 'plain'}", "train.steps=1", "train.lr=1e-12"]
    learn(recipe, tmp_path / "canvas", *frozen)
    plain, marking = (dict(Generator.load(tmp_path / run).trained.model.named_parameters()) for run in RUNS)
    assert marking.keys() - plain.keys() == {"given_mark", "required_mark"}
    for name, weights in plain.items():
        torch.testing.assert_close(marking[name], weights)


@pytest.mark.parametrize("kind", ["transformer", "insertion"])
def test_only_indigo_learns_from_canvases(kind: str, tmp_path: Path) -> None:
    recipe = write_corpus(tmp_path)
    with pytest.raises(UserError, match=r"canvas.share = 0.5: must be 0 for model.kind"):
        learn(recipe, tmp_path / "run", f"model.kind={kind}", "canvas.share=0.5")
