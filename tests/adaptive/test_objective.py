"""Orders found while learning: their weights, their storage, and that a run with them can be resumed."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import random_examples, tiny_model
from corpora import (
    WORDS,
    Interrupter,
    assert_one_line_refusal,
    call_here,
    full_disk,
    last_weights,
    learn,
    learned,
    metrics,
    recipe_of,
)

from anyorder.adaptive.candidates import Orders
from anyorder.adaptive.objective import annealed_search, learn_from, order_weights, search_batch, searching
from anyorder.adaptive.schedule import summarise
from anyorder.adaptive.store import OrderStore, SearchStopped, search_and_store, stored_orders_folder
from anyorder.config.order import Search
from anyorder.config.recipe import Recipe
from anyorder.data.batches import collate
from anyorder.data.dataset import prepare
from anyorder.errors import UserError
from anyorder.inference.model_folder import load_trained
from anyorder.insertion import NEG_INF
from anyorder.models.loss import batch_loss, score_steps
from anyorder.system.distributed import Processes
from anyorder.training.checkpoint import checkpoints
from anyorder.training.run_folder import recipe_of_run
from anyorder.training.trainer import train

ADAPTIVE = [
    "order.name=sao",
    "search.method=guided",
    "search.bootstrap_steps=4",
    "search.beam=3",
    "search.refresh=1",
    "train.steps=14",
]


def test_weights_by_hand() -> None:
    log_probs = torch.tensor([[-1.0, -2.0, NEG_INF], [-3.0, NEG_INF, NEG_INF]])
    posterior = torch.tensor([[1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1)), 0.0], [1.0, 0.0, 0.0]])
    sharper = torch.tensor([[1 / (1 + np.exp(-4)), 1 / (1 + np.exp(4)), 0.0], [1.0, 0.0, 0.0]])
    expected = {
        Search(method="guided", weights="uniform"): [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]],
        Search(method="guided", weights="best"): [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]],
        Search(method="guided", weights="posterior"): posterior.tolist(),
        Search(method="guided", weights="posterior", temperature=0.25): sharper.tolist(),
    }
    for settings, weights in expected.items():
        torch.testing.assert_close(order_weights(log_probs, settings), torch.tensor(weights))


def test_all_orders_of_a_batch_are_learned_by_weight() -> None:
    """The loss over all orders is the weighted mean of their losses one by one."""
    model = tiny_model()
    examples = random_examples(lengths=[4, 2, 1], seed=2)
    batch = collate(examples)
    settings = Search(method="guided", beam=3, learn_from="all")
    orders = search_batch(model, batch, settings)
    weights = order_weights(orders.log_probs, settings).double()
    expected = 0.0
    for number in range(3):
        one = batch.reordered(orders.positions[:, number : number + 1], torch.ones(3, 1))
        with torch.no_grad():
            scores = score_steps(model, model.encode(one.source, one.source_mask), one)
        losses = -(scores.word.sum(dim=1) + scores.gap.sum(dim=1))
        expected += float((losses * weights[:, number]).sum())
    together = learn_from(batch, orders, settings)
    assert len(together.source) == 3
    assert len(together.words) == 9
    assert batch_loss(model, together).objective.item() == pytest.approx(expected, abs=1e-5)


def test_orders_of_a_target_count_as_one() -> None:
    batch = collate(random_examples(lengths=[4, 2, 7], seed=2))
    orders = search_batch(tiny_model(), batch, Search(method="guided", beam=3))
    for settings in (
        Search(method="guided", learn_from="all"),
        Search(method="guided", learn_from="all", weights="uniform"),
        Search(method="guided"),
    ):
        assert learn_from(batch, orders, settings).steps == pytest.approx(5 + 3 + 8, abs=1e-4)


def test_one_order_is_drawn_by_weight() -> None:
    batch = collate(random_examples(lengths=[3], seed=1))
    positions = torch.tensor([[[1, 2, 3], [3, 2, 1]]])
    orders = Orders(positions=positions, log_probs=torch.tensor([[0.25, 0.75]]).log())
    chance = torch.Generator().manual_seed(1)
    settings = Search(method="guided", beam=2, weights="posterior")
    drawn = [learn_from(batch, orders, settings, generator=chance).order[0, 0].item() for _ in range(400)]
    assert 0.68 < drawn.count(3) / 400 < 0.82


def test_targets_too_long_to_search_keep_their_order() -> None:
    model = tiny_model()
    batch = collate(random_examples(lengths=[6, 3], seed=4))
    orders = search_batch(model, batch, Search(method="guided", beam=4, max_length=5))
    assert orders.positions[0, 0].tolist() == batch.order[0].tolist()
    assert order_weights(orders.log_probs, Search(method="guided"))[0].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert sum(orders.log_probs[1] > NEG_INF) == 4


def test_the_search_has_its_own_dropout_and_leaves_the_model_as_it_was() -> None:
    model = tiny_model(dropout=0.3).eval()
    batch = collate(random_examples(lengths=[5], seed=1))
    settings = Search(method="guided", beam=2, dropout=0.5)
    plain = search_batch(model, batch, settings).log_probs
    with searching(model, settings):
        assert not torch.equal(search_batch(model, batch, settings).log_probs, plain)
    assert torch.equal(search_batch(model, batch, settings).log_probs, plain)
    with searching(model, settings.model_copy(update={"dropout": 0.0})):
        assert torch.equal(search_batch(model, batch, settings).log_probs, plain)


def test_stored_orders_are_those_found(tmp_path: Path) -> None:
    recipe = recipe_of(
        learned().recipe,
        tmp_path / "run",
        "order.name=sao",
        "search.method=guided",
        "search.beam=3",
        "search.dropout=0",
    )
    data = prepare(recipe).train
    (tmp_path / "run").mkdir()
    model = tiny_model(words=40, dtype=torch.float32)
    here = Processes(rank=0, count=1, device=torch.device("cpu"))
    stored = search_and_store(model, data, recipe, here, step=7)
    pairs = np.array([3, 0, 11])
    batch = collate([data.example(int(pair), seed=0, epoch=0) for pair in pairs])
    found, expected = stored.of(pairs, device=here.device), search_batch(model, batch, recipe.search)
    torch.testing.assert_close(found.log_probs, expected.log_probs)
    for row, length in enumerate(batch.lengths.tolist()):
        alive = expected.log_probs[row] > NEG_INF
        assert torch.equal(found.positions[row, alive, :length], expected.positions[row, alive, :length])
    again = search_and_store(tiny_model(words=40, seed=1, dtype=torch.float32), data, recipe, here, step=7)
    assert np.array_equal(again.log_probs, stored.log_probs)


@pytest.mark.parametrize(
    "how",
    [
        [],
        ["search.refresh=0"],
        ["search.refresh=0", "search.learn_from=all"],
        ["search.method=drawn", "search.refresh=0", "search.anneal_steps=6", "search.beam=2"],
    ],
)
def test_a_run_with_searched_orders_goes_on_where_it_stopped(how: list[str], tmp_path: Path) -> None:
    """Bit for bit, also when the orders in use were found before the checkpoint."""
    options = [*ADAPTIVE, *how, "train.validate_every=3", "model.dropout=0.1"]
    learn(learned().recipe, tmp_path / "whole", *options)
    learn(learned().recipe, tmp_path / "cut", *options, "train.steps=9")
    learn(learned().recipe, tmp_path / "cut", *options, resume=True)
    assert last_weights(tmp_path / "cut") == last_weights(tmp_path / "whole")


def test_the_bootstrap_order_comes_first(tmp_path: Path) -> None:
    """Until its last step, a run with searched orders is the run in the bootstrap order."""
    common = ["train.steps=5", "train.validate_every=4"]
    learn(learned().recipe, tmp_path / "sao", *ADAPTIVE, *common, "search.bootstrap=r2l")
    learn(learned().recipe, tmp_path / "r2l", "order.name=r2l", *common)
    at_4, at_5 = (
        [(tmp_path / run / f"last/step-{step}/model.safetensors").read_bytes() for run in ("sao", "r2l")]
        for step in (4, 5)
    )
    assert at_4[0] == at_4[1]
    assert at_5[0] != at_5[1]


def test_only_the_newest_orders_stay_stored(tmp_path: Path) -> None:
    learn(learned().recipe, tmp_path / "run", *ADAPTIVE, "train.validate_every=7")
    progress = json.loads((checkpoints(tmp_path / "run")[-1].folder / "progress.json").read_text())
    assert [folder.name for folder in (tmp_path / "run" / "orders").iterdir()] == [
        f"step-{progress['searched']['step']}"
    ]
    kinds = ("loss", "dev_loss", "searched_targets")
    assert all(any(kind in line for kind in kinds) for line in metrics(tmp_path / "run"))


def test_each_search_is_logged_once(tmp_path: Path) -> None:
    """Also where a training is stopped between a search and the checkpoint after it."""
    options = [*ADAPTIVE, "train.validate_every=3"]
    watched = learn(learned().recipe, tmp_path / "whole", *options)
    learn(learned().recipe, tmp_path / "cut", *options, "train.steps=9")
    learn(learned().recipe, tmp_path / "cut", *options, resume=True)
    whole, cut = (
        [line for line in metrics(tmp_path / run) if "searched_targets" in line] for run in ("whole", "cut")
    )
    assert whole == cut
    assert whole[0]["step"] == 5, "the first one comes after the bootstrap"
    assert len(whole) > 1
    assert len({line["step"] for line in whole}) == len(whole)
    assert len([note for note in watched.notes if "targets searched" in note]) == len(whole)


def test_a_search_is_summarised_by_the_orders_stored(tmp_path: Path) -> None:
    recipe = recipe_of(
        learned().recipe, tmp_path / "run", "order.name=sao", "search.method=guided", "search.beam=2"
    )
    data = prepare(recipe).train
    lengths = data.corpus.target.lengths()
    tokens, pairs = int(lengths.sum()), len(data)
    assert data.positions is not None
    stored = OrderStore(
        positions=np.zeros(2 * tokens, dtype=np.int16),
        log_probs=np.tile(np.array([-1.0, -3.0], dtype=np.float32), (pairs, 1)),
        offsets=data.corpus.target.offsets,
    )
    positions = torch.zeros(pairs, 2, int(lengths.max()), dtype=torch.int64)
    for pair, length in enumerate(lengths):
        forward = torch.arange(1, length + 1)
        both = [forward, forward.flip(0)] if pair % 3 else [forward.flip(0), forward]
        positions[pair, :, :length] = torch.stack(both)
    several = lengths > 1
    of_two = np.flatnonzero(several)[0]
    stored.put(np.arange(pairs), Orders(positions, torch.from_numpy(stored.log_probs)))
    stored.log_probs[of_two] = [-1.0, NEG_INF]

    summary = summarise(stored, data, recipe.search)
    assert summary.targets == several.sum()
    assert summary.in_bootstrap_order == (several & (np.arange(pairs) % 3 > 0)).sum()
    assert summary.margin == pytest.approx(2.0)
    assert summary.others == pytest.approx((several.sum() - 1) / (1 + math.exp(2)))
    certain = summarise(stored, data, recipe.search.model_copy(update={"weights": "best"}))
    assert certain.others == 0
    assert summarise(stored, data, recipe.search.model_copy(update={"max_length": 1})).targets == 0
    assert summarise(stored, replace(data, positions=None), recipe.search).in_bootstrap_order is None


def test_who_finds_only_the_bootstrap_order_learns_what_that_order_teaches(tmp_path: Path) -> None:
    """Byte for byte, which is what the log's counts are for."""
    common = ["model.dropout=0", "train.steps=70", "train.validate_every=70", "train.lr=0.01"]
    search = [
        "order.name=sao",
        "search.method=guided",
        "search.bootstrap_steps=60",
        "search.beam=2",
        "search.dropout=0",
    ]
    search += ["search.weights=best"]
    learn(learned().recipe, tmp_path / "sao", *common, *search)
    learn(learned().recipe, tmp_path / "l2r", *common)
    (found,) = [line for line in metrics(tmp_path / "sao") if "searched_targets" in line]
    assert found["searched_in_bootstrap_order"] == found["searched_targets"] > 0
    assert found["searched_others"] == 0
    assert last_weights(tmp_path / "sao") == last_weights(tmp_path / "l2r")


def test_by_default_the_bootstrap_is_the_papers_or_a_quarter_of_a_short_run(tmp_path: Path) -> None:
    def bootstrap_steps(*overrides: str) -> int:
        return recipe_of(
            learned().recipe, tmp_path / "run", "order.name=sao", "search.method=guided", *overrides
        ).bootstrap_steps

    assert bootstrap_steps("train.steps=100000") == bootstrap_steps("train.steps=24000") == 6000
    assert bootstrap_steps("train.steps=200") == 50
    assert bootstrap_steps("train.steps=1") == 0
    assert bootstrap_steps("train.steps=200", "search.bootstrap_steps=7") == 7


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_search_that_would_never_begin_is_refused(
    dry: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run, sao = (
        tmp_path / "run",
        ["order.name=sao", "search.method=guided", "search.bootstrap_steps=12", "train.steps=12"],
    )
    answer = call_here(capsys, "train", learned().recipe, *sao, f"run={run}", *dry)
    assert_one_line_refusal(
        answer, 'search.bootstrap_steps = 12: must be less than train.steps = 12, or order.name = "sao" never'
    )
    assert not run.exists()


def test_a_resumed_run_keeps_the_bootstrap_that_it_began_with(tmp_path: Path) -> None:
    run, options = tmp_path / "run", ["order.name=sao", "search.method=guided", "search.beam=2"]
    learn(learned().recipe, run, *options, "train.steps=8", "train.validate_every=4")
    assert recipe_of_run(run).search.bootstrap_steps == 2
    learn(learned().recipe, run, *options, "train.steps=12", "train.validate_every=4", resume=True)
    assert recipe_of_run(run).search.bootstrap_steps == 2


@pytest.mark.parametrize(("look_ahead", "method"), [(True, "guided"), (False, "paper")])
def test_a_run_from_before_methods_had_names_goes_on(look_ahead: bool, method: str, tmp_path: Path) -> None:
    """Its recipe says `look_ahead` instead, and lists all other keys."""
    options = ["order.name=sao", f"search.method={method}", "search.beam=2", "train.validate_every=4"]
    for run in ("old", "new"):
        learn(learned().recipe, tmp_path / run, *options, "train.steps=4")
    recipe = tmp_path / "old" / "recipe.json"
    saved = json.loads(recipe.read_text())
    del saved["search"]["method"]
    saved["search"]["look_ahead"] = look_ahead
    saved["search"]["anneal_steps"] = 0
    recipe.write_text(json.dumps(saved))
    for run in ("old", "new"):
        learn(learned().recipe, tmp_path / run, *options, "train.steps=8", resume=True)
    assert recipe_of_run(tmp_path / "old").search.method == method
    assert last_weights(tmp_path / "old") == last_weights(tmp_path / "new")


def test_a_run_in_a_fixed_order_goes_on_whatever_its_search_would_have_been(tmp_path: Path) -> None:
    learn(learned().recipe, tmp_path / "run", "search.method=guided", "train.steps=4")
    learn(learned().recipe, tmp_path / "run", "train.steps=8", resume=True)


def test_a_method_sets_what_belongs_to_it() -> None:
    paper = Search(method="paper")
    assert (paper.beam, paper.refresh, paper.learn_from, paper.weights) == (8, 0, "all", "uniform")
    assert (paper.dropout, paper.bootstrap, paper.bootstrap_steps) == (0.1, "l2r", None)
    drawn = Search()
    assert (drawn.method, drawn.beam, drawn.refresh, drawn.bootstrap_steps) == ("drawn", 1, 0, 0)
    assert Search(beam=8).given() == {"beam": 8}, "not left out because it is the default of another method"
    assert Search(**Search(method="guided", refresh=2).given()) == Search(method="guided", refresh=2)


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        (["search.refresh=4"], 'refresh = 4: must be 0 for method = "drawn"'),
        (["search.gumbel=1"], 'gumbel = 1.0: must be 0 for method = "drawn"'),
        (["search.method=best"], "search.method = \"best\": must be 'drawn', 'guided' or 'paper'"),
    ],
)
def test_keys_that_a_method_has_no_use_for_are_refused(
    keys: list[str], complaint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    answer = call_here(capsys, "train", learned().recipe, "order.name=sao", *keys, f"run={run}")
    assert_one_line_refusal(answer, complaint)
    assert not run.exists()


def test_a_model_whose_search_never_began_is_not_called_searched(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Runs of before could be such."""
    run, fixed = tmp_path / "run", tmp_path / "fixed"
    learn(learned().recipe, run, "train.steps=4")
    shutil.copytree(run, fixed)
    saved = json.loads((run / "config.json").read_text())
    saved["recipe"]["order"]["name"] = "sao"
    saved["recipe"]["search"]["bootstrap_steps"] = 6000
    (run / "config.json").write_text(json.dumps(saved))
    label = "sao (no search: bootstrap only)"
    assert json.loads(call_here(capsys, "info", run, "--json").stdout)["order"] == label
    assert f"order: `{label}`" in call_here(capsys, "card", run).stdout.decode()
    for one in (run, fixed):
        assert call_here(capsys, "evaluate", one, "--split", "dev").returncode == 0
    compared = call_here(capsys, "compare", run, fixed, "--split", "dev", "--format", "json")
    assert compared.returncode == 0, compared.stderr
    assert [row["order"] for row in json.loads(compared.stdout)["rows"]] == [label, "l2r"]


def test_a_bootstrap_that_is_no_order_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"search.bootstrap must be a fixed order, not sao"):
        recipe_of(
            learned().recipe,
            tmp_path / "run",
            "order.name=sao",
            "search.method=guided",
            "search.bootstrap=sao",
        )


def test_the_temperature_falls_by_equal_factors() -> None:
    falling = ["search.start_temperature=8", "search.temperature=0.5", "search.anneal_steps=4"]
    recipe = searched_recipe("search.bootstrap_steps=10", *falling)
    temperatures = {step: annealed_search(recipe, step=step).temperature for step in (10, 11, 12, 14, 15, 99)}
    assert temperatures == pytest.approx({10: 8.0, 11: 4.0, 12: 2.0, 14: 0.5, 15: 0.5, 99: 0.5})
    assert annealed_search(searched_recipe("search.bootstrap_steps=10"), step=11).temperature == 1.0


def test_gumbel_noise_falls_with_the_temperature() -> None:
    falling = ["search.start_temperature=3", "search.anneal_steps=2", "search.gumbel=0.5"]
    recipe = searched_recipe("search.bootstrap_steps=0", *falling)
    noise = {step: annealed_search(recipe, step=step).gumbel for step in (0, 2, 3)}
    assert noise == pytest.approx({0: 1.5, 2: 0.5, 3: 0.5})


def test_drawn_orders_cool_for_two_thirds_of_the_updates_by_default() -> None:
    recipe = searched_recipe("search.method=drawn", "train.steps=90")
    temperatures = [annealed_search(recipe, step=step).temperature for step in (1, 30, 61, 90)]
    assert temperatures[0] == pytest.approx(3.0, abs=0.1)
    assert temperatures == sorted(temperatures, reverse=True)
    assert temperatures[2] == temperatures[3] == recipe.search.temperature
    assert annealed_search(searched_recipe("search.method=drawn", "search.anneal_steps=0"), step=1) == (
        Search(method="drawn", anneal_steps=0)
    )


def searched_recipe(*overrides: str) -> Recipe:
    return recipe_of(learned().recipe, Path("run"), "order.name=sao", "search.method=guided", *overrides)


@dataclass
class StoppedAfter:
    """Someone who loses patience after so many batches."""

    batches: int
    asked: int = 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.asked > self.batches


def test_a_stopped_search_goes_on_where_it_was(tmp_path: Path) -> None:
    """What was found stays; the whole is what a search without a stop finds, dropout included."""
    recipe = recipe_of(
        learned().recipe, tmp_path / "stopped", "order.name=sao", "search.method=guided", "search.beam=3"
    )
    whole = recipe.model_copy(update={"run": tmp_path / "whole"})
    data, here = prepare(recipe).train, Processes(rank=0, count=1, device=torch.device("cpu"))

    def found(recipe: Recipe, *, seed: int = 0, **how: Any) -> OrderStore:  # noqa: ANN401
        return search_and_store(
            tiny_model(words=40, seed=seed, dtype=torch.float32), data, recipe, here, step=7, **how
        )

    with pytest.raises(SearchStopped):
        found(recipe, interrupted=StoppedAfter(batches=2))
    assert not stored_orders_folder(recipe.run, 7).exists()
    reported: list[tuple[str, int, int]] = []
    gone_on = found(recipe, progress=lambda *report: reported.append(report))
    assert reported[-1] == ("searching orders", len(data), len(data))
    expected = found(whole)
    assert np.array_equal(gone_on.log_probs, expected.log_probs)
    assert np.array_equal(gone_on.positions, expected.positions)
    # Other weights would find others: the two batches of before were not searched again.
    other = recipe.model_copy(update={"run": tmp_path / "other"})
    with pytest.raises(SearchStopped):
        found(other, interrupted=StoppedAfter(batches=2))
    mixed = found(other, seed=1)
    assert 0 < np.isin(mixed.log_probs[:, 0], expected.log_probs[:, 0]).mean() < 1


def test_a_stopped_search_of_other_settings_is_not_gone_on_with(tmp_path: Path) -> None:
    recipe = recipe_of(
        learned().recipe, tmp_path / "run", "order.name=sao", "search.method=guided", "search.beam=3"
    )
    data, here = prepare(recipe).train, Processes(rank=0, count=1, device=torch.device("cpu"))
    model = tiny_model(words=40, dtype=torch.float32)
    with pytest.raises(SearchStopped):
        search_and_store(model, data, recipe, here, step=7, interrupted=StoppedAfter(batches=2))
    wider = recipe.model_copy(update={"search": recipe.search.model_copy(update={"beam": 4})})
    assert search_and_store(model, data, wider, here, step=7).log_probs.shape == (len(data), 4)


def test_a_full_disk_is_said_before_anything_is_searched(tmp_path: Path) -> None:
    recipe = recipe_of(learned().recipe, tmp_path / "run", "order.name=sao", "search.method=guided")
    data, here = prepare(recipe).train, Processes(rank=0, count=1, device=torch.device("cpu"))
    with full_disk(), pytest.raises(UserError, match=r"step-7: can't be written: File too large"):
        search_and_store(tiny_model(words=40, dtype=torch.float32), data, recipe, here, step=7)


def test_targets_too_long_to_search_are_counted(tmp_path: Path) -> None:
    options = [*ADAPTIVE, "search.max_length=5", "train.steps=5"]
    watcher = learn(learned().recipe, tmp_path / "run", *options)
    long = sum(len(line.split()) > 5 for line in (learned().folder / "train.target").read_text().splitlines())
    note = f"{long} of 60 targets have more than search.max_length = 5 tokens and keep the order l2r"
    assert note in watcher.notes
    assert long > 0


def test_orders_searched_apart_are_learned_from(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Training goes on with what `search-orders` finds, as its record of the last search shows."""
    run, output = tmp_path / "run", tmp_path / "orders.jsonl"
    options = [*ADAPTIVE, "search.refresh=100", "train.validate_every=3"]
    learn(learned().recipe, run, *options, "train.steps=9")
    answer = call_here(capsys, "search-orders", run, "--output", output)
    assert answer.stdout.decode() == f"orders: {run}/orders/step-10\n"
    records = [json.loads(line) for line in output.read_text().splitlines()]
    targets = (learned().folder / "train.target").read_text().splitlines()
    assert [record["line"] for record in records] == list(range(1, len(targets) + 1))
    for record, target in zip(records, targets, strict=True):
        assert record["tokens"] == target.split()
        log_probs = [order["log_prob"] for order in record["orders"]]
        assert log_probs == sorted(log_probs, reverse=True)
        assert all(
            sorted(o["positions"]) == list(range(1, len(record["tokens"]) + 1)) for o in record["orders"]
        )
        assert len({tuple(order["positions"]) for order in record["orders"]}) == min(
            3, math.factorial(len(record["tokens"]))
        )
    learn(learned().recipe, run, *options, resume=True)
    progress = json.loads((checkpoints(run)[-1].folder / "progress.json").read_text())
    assert progress["searched"]["step"] == 10


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (["order.name=r2l"], 'order.name = "r2l" learns from no searched orders, only sao does'),
        (["search.refresh=0"], "search.refresh = 0 searches at every update"),
        (
            ["search.bootstrap_steps=4"],
            "update 4 is among the first search.bootstrap_steps = 4, in the order l2r",
        ),
    ],
)
def test_what_training_would_not_read_is_not_searched_for(
    changes: list[str], reason: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run, output = tmp_path / "run", tmp_path / "orders.jsonl"
    train(recipe_of(learned().recipe, run, *ADAPTIVE, *changes), listener=Interrupter(at=3))
    refused = call_here(capsys, "search-orders", run)
    assert refused.returncode == 2
    assert reason in refused.stderr.decode()
    assert not (run / "orders").exists()
    assert call_here(capsys, "search-orders", run, "--output", output).returncode == 0
    assert output.exists()


def test_orders_of_another_search_are_not_learned_from(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Whoever looks at what another search would find changes nothing of the training."""
    run, files = tmp_path / "run", [tmp_path / "wide.jsonl", tmp_path / "narrow.jsonl"]
    options = [*ADAPTIVE, "search.refresh=100", "train.validate_every=3"]
    learn(learned().recipe, run, *options, "train.steps=9")
    untouched = shutil.copytree(run, tmp_path / "untouched")
    refused = call_here(capsys, "search-orders", run, "search.beam=2")
    assert_one_line_refusal(refused, f"{run}: is trained by another [search] than this one; --output FILE")
    for beam, file in zip((5, 2), files, strict=True):
        answer = call_here(capsys, "search-orders", run, f"search.beam={beam}", "--output", file)
        assert answer.returncode == 0
        orders = [len(json.loads(line)["orders"]) for line in file.read_text().splitlines()]
        assert max(orders) == beam
    for one in (run, untouched):
        learn(learned().recipe, one, *options, resume=True)
    assert last_weights(run) == last_weights(untouched)


def test_orders_of_a_crashed_beginning_are_not_learned_from(tmp_path: Path) -> None:
    """Without a checkpoint the recipe may change, and orders that were found before it did are no use."""
    run, options = tmp_path / "run", [*ADAPTIVE, "search.bootstrap_steps=0", "train.steps=3"]
    learn(learned().recipe, run, *options, "train.seed=7")
    shutil.rmtree(run / "last")  # as if the machine had failed before it was there
    (run / "config.json").unlink()
    assert (run / "orders" / "step-1").exists()
    learn(learned().recipe, run, *options, resume=True)
    learn(learned().recipe, tmp_path / "fresh", *options)
    assert last_weights(run) == last_weights(tmp_path / "fresh")


def test_a_search_that_was_stopped_at_its_very_end_is_made_again(tmp_path: Path) -> None:
    run, options = tmp_path / "run", [*ADAPTIVE, "train.validate_every=3"]
    learn(learned().recipe, run, *options, "train.steps=6")
    untouched = shutil.copytree(run, tmp_path / "untouched")
    (found,) = (run / "orders").iterdir()
    found.rename(found.with_name(f".unfinished-{found.name}"))
    for one in (run, untouched):
        learn(learned().recipe, one, *options, "train.steps=7", resume=True)
    assert last_weights(run) != b""
    assert checkpoints(run)[-1].step == checkpoints(untouched)[-1].step == 7


def test_search_orders_needs_a_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answer = call_here(capsys, "search-orders", tmp_path)
    assert answer.returncode == 2
    assert b"no recipe.json in it, so it is no run of `anyorder train`" in answer.stderr


def test_what_searched_orders_are_like_is_logged(tmp_path: Path) -> None:
    learn(learned().recipe, tmp_path / "sao", *ADAPTIVE)
    learn(learned().recipe, tmp_path / "fixed", "train.steps=4")
    validations = [line for line in metrics(tmp_path / "sao") if "dev_loss" in line]
    assert all(-1 <= line["dev_kendall"] <= 1 for line in validations)
    for line in validations:
        shares: Any = line["dev_first_tokens"]
        assert set(shares) <= set(WORDS)
        assert list(shares.values()) == sorted(shares.values(), reverse=True)
    assert all("dev_kendall" not in line for line in metrics(tmp_path / "fixed"))
    learn(learned().recipe, tmp_path / "none", *ADAPTIVE, "search.max_length=1", "train.steps=5")
    assert all("dev_kendall" not in line for line in metrics(tmp_path / "none"))  # all are too long


def test_an_order_that_is_known_is_never_lost() -> None:
    """Whatever order a target has, the best one found is at least as likely."""
    model = tiny_model()
    lengths = [9, 2, 12, 1, 0, 7]
    for seed in range(4):
        batch = collate(random_examples(lengths=lengths, seed=seed))
        for beam in (1, 3):
            orders = search_batch(model, batch, Search(method="guided", beam=beam))
            with torch.no_grad():
                scores = score_steps(model, model.encode(batch.source, batch.source_mask), batch)
            known = scores.word.sum(dim=1) + scores.gap.sum(dim=1)
            assert (orders.log_probs[:, 0] >= known - 1e-4).all()  # single precision
            assert torch.equal(orders.log_probs, orders.log_probs.sort(dim=1, descending=True).values)
            for row, length in enumerate(lengths):
                alive = orders.log_probs[row] > NEG_INF
                found = {tuple(positions) for positions in orders.positions[row, alive, :length].tolist()}
                assert len(found) == alive.sum() == min(beam, math.factorial(length))


def test_looking_ahead_finds_the_order_that_a_model_was_taught(tmp_path: Path) -> None:
    """Of a model that writes from right to left only, although the order known is another.

    A search that looks no further than it has written puts off what is hard to foresee, and misses it.
    """
    learn(learned().recipe, tmp_path / "r2l", "order.name=r2l", "model.dropout=0", "train.steps=80")
    trained = load_trained(tmp_path / "r2l", device=torch.device("cpu"))
    data = prepare(recipe_of(learned().recipe, tmp_path / "l2r")).train  # known: left to right
    batch = collate([data.example(pair, seed=0, epoch=0) for pair in range(len(data))])
    right_to_left = (batch.lengths[:, None] + 1 - batch.order).where(batch.order > 0, 0)

    def share_taught(search: Search) -> float:
        positions = search_batch(trained.model, batch, search).positions[:, 0]
        return float((positions == right_to_left).all(dim=1).float().mean())

    assert share_taught(Search(method="guided", beam=2)) > share_taught(Search(method="paper", beam=2)) + 0.2


def test_a_saved_recipe_takes_keys_of_sections_that_it_lacks(tmp_path: Path) -> None:
    learn(learned().recipe, tmp_path / "run", "train.steps=1")
    given = recipe_of_run(tmp_path / "run", ["data.test.source=a", "data.test.target=b"]).data.test
    assert given is not None
    assert (given.source, given.target) == (Path("a"), Path("b"))
