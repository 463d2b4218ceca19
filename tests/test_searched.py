"""Orders found while learning: how they weigh, how they are kept, and that a run with them can be resumed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import random_examples, tiny_model
from corpora import last_weights, learn, learned, metrics, recipe_of

from anyorder.adaptive import Orders
from anyorder.batch import collate
from anyorder.beam import DEAD
from anyorder.checkpoint import checkpoints
from anyorder.config import Search
from anyorder.errors import UserError
from anyorder.loss import batch_loss, score_steps
from anyorder.prepare import prepare
from anyorder.processes import Processes
from anyorder.searched import learn_from, order_weights, search_all, search_batch, searching

ADAPTIVE = [
    "order.name=sao",
    "search.bootstrap_steps=4",
    "search.beam=3",
    "search.refresh=1",
    "train.steps=14",
]


def test_weights_by_hand() -> None:
    log_probs = torch.tensor([[-1.0, -2.0, DEAD], [-3.0, DEAD, DEAD]])
    posterior = torch.tensor([[1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1)), 0.0], [1.0, 0.0, 0.0]])
    sharper = torch.tensor([[1 / (1 + np.exp(-4)), 1 / (1 + np.exp(4)), 0.0], [1.0, 0.0, 0.0]])
    expected = {
        Search(weights="uniform"): [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]],
        Search(weights="best"): [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]],
        Search(weights="posterior"): posterior.tolist(),
        Search(weights="posterior", temperature=0.25): sharper.tolist(),
    }
    for settings, weights in expected.items():
        torch.testing.assert_close(order_weights(log_probs, settings), torch.tensor(weights))


def test_all_orders_of_a_batch_are_learned_by_weight() -> None:
    """The loss over all orders is the weighted mean of their losses one by one."""
    model = tiny_model()
    examples = random_examples(lengths=[4, 2, 1], seed=2)
    batch = collate(examples)
    settings = Search(beam=3, learn_from="all")
    orders = search_batch(model, batch, settings)
    weights = order_weights(orders.log_probs, settings).double()
    expected = 0.0
    for number in range(3):
        one = batch.reordered(orders.slots[:, number : number + 1], torch.ones(3, 1))
        with torch.no_grad():
            scores = score_steps(model, model.encode(one.source, one.source_mask), one)
        losses = -(scores.word.sum(dim=1) + scores.gap.sum(dim=1))
        expected += float((losses * weights[:, number]).sum())
    together = learn_from(batch, orders, settings)
    assert len(together.source) == 3
    assert len(together.words) == 9
    assert batch_loss(model, together).objective.item() == pytest.approx(expected, abs=1e-5)


def test_one_order_is_drawn_by_weight() -> None:
    batch = collate(random_examples(lengths=[3], seed=1))
    slots = torch.tensor([[[1, 2, 3], [3, 2, 1]]])
    orders = Orders(slots=slots, log_probs=torch.tensor([[0.25, 0.75]]).log())
    chance = torch.Generator().manual_seed(1)
    settings = Search(beam=2, weights="posterior")
    drawn = [learn_from(batch, orders, settings, generator=chance).order[0, 0].item() for _ in range(400)]
    assert 0.68 < drawn.count(3) / 400 < 0.82


def test_targets_too_long_to_search_keep_their_order() -> None:
    model = tiny_model()
    batch = collate(random_examples(lengths=[6, 3], seed=4))
    orders = search_batch(model, batch, Search(beam=4, max_length=5))
    assert orders.slots[0, 0].tolist() == batch.order[0].tolist()
    assert order_weights(orders.log_probs, Search())[0].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert sum(orders.log_probs[1] > DEAD) == 4


def test_the_search_has_its_own_dropout_and_leaves_the_model_as_it_was() -> None:
    model = tiny_model(dropout=0.3).eval()
    batch = collate(random_examples(lengths=[5], seed=1))
    settings = Search(beam=2, dropout=0.5)
    plain = search_batch(model, batch, settings).log_probs
    with searching(model, settings):
        assert not torch.equal(search_batch(model, batch, settings).log_probs, plain)
    assert torch.equal(search_batch(model, batch, settings).log_probs, plain)
    with searching(model, settings.model_copy(update={"dropout": 0.0})):
        assert torch.equal(search_batch(model, batch, settings).log_probs, plain)


def test_kept_orders_are_those_found(tmp_path: Path) -> None:
    recipe = recipe_of(
        learned().recipe, tmp_path / "run", "order.name=sao", "search.beam=3", "search.dropout=0"
    )
    data = prepare(recipe).train
    (tmp_path / "run").mkdir()
    model = tiny_model(words=40, dtype=torch.float32)
    here = Processes(rank=0, count=1, device=torch.device("cpu"))
    kept = search_all(model, data, recipe, here, step=7)
    pairs = np.array([3, 0, 11])
    batch = collate([data.example(int(pair), seed=0, epoch=0) for pair in pairs])
    found, expected = kept.of(pairs, device=here.device), search_batch(model, batch, recipe.search)
    torch.testing.assert_close(found.log_probs, expected.log_probs)
    for row, length in enumerate(batch.lengths.tolist()):
        alive = expected.log_probs[row] > DEAD
        assert torch.equal(found.slots[row, alive, :length], expected.slots[row, alive, :length])
    again = search_all(tiny_model(words=40, seed=1, dtype=torch.float32), data, recipe, here, step=7)
    assert np.array_equal(again.log_probs, kept.log_probs)


@pytest.mark.parametrize("how", [[], ["search.refresh=0"], ["search.refresh=0", "search.learn_from=all"]])
def test_a_run_with_searched_orders_goes_on_where_it_stopped(how: list[str], tmp_path: Path) -> None:
    """Bit for bit, also when the orders in use were found before the checkpoint."""
    options = [*ADAPTIVE, *how, "train.validate_every=3", "model.dropout=0.1"]
    learn(learned().recipe, tmp_path / "whole", *options)
    learn(learned().recipe, tmp_path / "cut", *options, "train.steps=9")
    learn(learned().recipe, tmp_path / "cut", *options, resume=True)
    assert last_weights(tmp_path / "cut") == last_weights(tmp_path / "whole")


def test_the_bootstrap_order_comes_first(tmp_path: Path) -> None:
    """Until its last step, a run with searched orders is the run in the bootstrap order."""
    common = ["train.steps=4", "train.validate_every=4"]
    learn(learned().recipe, tmp_path / "sao", *ADAPTIVE, *common, "search.bootstrap=r2l")
    learn(learned().recipe, tmp_path / "r2l", "order.name=r2l", *common)
    assert last_weights(tmp_path / "sao") == last_weights(tmp_path / "r2l")


def test_only_the_newest_orders_are_kept(tmp_path: Path) -> None:
    learn(learned().recipe, tmp_path / "run", *ADAPTIVE, "train.validate_every=7")
    progress = json.loads((checkpoints(tmp_path / "run")[-1].folder / "progress.json").read_text())
    assert [folder.name for folder in (tmp_path / "run" / "orders").iterdir()] == [
        f"step-{progress['searched']['step']}"
    ]
    assert all("loss" in line or "dev_loss" in line for line in metrics(tmp_path / "run"))


def test_a_bootstrap_that_is_no_order_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"search.bootstrap must be a fixed order, not sao"):
        recipe_of(learned().recipe, tmp_path / "run", "order.name=sao", "search.bootstrap=sao")
