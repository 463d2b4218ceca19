"""Two processes that train one model do the same as one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from corpora import PATIENCE, QUIET, call, learn, metrics, recipe_of, write_corpus

from anyorder.data.batches import plan_epoch
from anyorder.data.dataset import prepare
from anyorder.training.checkpoint import checkpoints

PROCESSES = 2
# Small batches, so that some are a single sentence and one of the processes has nothing to do.
SETTINGS = (
    "model.dropout=0.3",
    "train.batch_tokens=20",
    "train.accumulate=2",
    "train.average=2",
    "order.name=rnd",
)
STEPS, MORE_STEPS = 10, 14


def on_two_processes(*arguments: object) -> subprocess.CompletedProcess[str]:
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(PROCESSES),
    ]
    return subprocess.run(
        [*launcher, "-m", "anyorder", *map(str, arguments)],
        env=QUIET,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def alone(recipe: Path) -> Path:
    run = recipe.parent / "alone"
    learn(recipe, run, *SETTINGS, f"train.steps={MORE_STEPS}")
    return run


@pytest.fixture(scope="module")
def together(recipe: Path) -> Path:
    run = recipe.parent / "together"
    answer = on_two_processes("train", recipe, *SETTINGS, f"train.steps={STEPS}", f"run={run}")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == f"model: {run}\n"  # said once
    return run


def losses(run: Path, *, until: int) -> np.ndarray:
    rows = [line for line in metrics(run) if "loss" in line and line["step"] <= until]
    assert [row["step"] for row in rows] == list(range(1, until + 1))
    return np.array([[row[name] for name in ("loss", "word_loss", "gap_loss")] for row in rows])


def test_some_updates_have_fewer_sentences_than_processes(recipe: Path) -> None:
    settings = recipe_of(recipe, recipe.parent / "planned", *SETTINGS)
    sizes = prepare(settings).train.sizes()
    plan = plan_epoch(sizes, batch_tokens=settings.train.batch_tokens, seed=settings.train.seed, epoch=0)
    sentences = [len(batch) for batch in plan[:STEPS]]
    assert min(sentences) < PROCESSES < max(sentences)


def test_the_losses_are_those_of_one_process(alone: Path, together: Path) -> None:
    np.testing.assert_allclose(losses(together, until=STEPS), losses(alone, until=STEPS), rtol=0, atol=1e-5)


def test_dev_scores_are_those_of_one_process(alone: Path, together: Path) -> None:
    one, other = (
        [line["dev_loss"] for line in metrics(run) if "dev_loss" in line and line["step"] < STEPS]
        for run in (alone, together)
    )
    assert len(one) == 2
    np.testing.assert_allclose(other, one, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_so_they_are_for_three_processes_and_without_accumulation(recipe: Path, alone: Path) -> None:
    run = recipe.parent / "three"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    line = ["train", recipe, *SETTINGS, "train.accumulate=1", f"train.steps={STEPS}", f"run={run}"]
    subprocess.run([*launcher, "-m", "anyorder", *map(str, line)], env=QUIET, check=True, timeout=PATIENCE)
    np.testing.assert_allclose(losses(run, until=STEPS), losses(alone, until=STEPS), rtol=0, atol=1e-5)


def test_a_checkpoint_of_two_processes_goes_on_in_one(recipe: Path, alone: Path, together: Path) -> None:
    assert checkpoints(together)[-1].step == STEPS
    learn(recipe, together, *SETTINGS, f"train.steps={MORE_STEPS}", resume=True)
    np.testing.assert_allclose(
        losses(together, until=MORE_STEPS), losses(alone, until=MORE_STEPS), rtol=0, atol=1e-5
    )


def test_a_mistake_is_said_once_and_ends_all_processes(recipe: Path, alone: Path) -> None:
    answer = on_two_processes("train", recipe, *SETTINGS, f"run={alone}")
    assert answer.returncode != 0
    assert answer.stderr.count(f"anyorder: {alone}: is a run already") == 1


def test_what_is_given_and_required_is_learned_as_by_one_process(recipe: Path) -> None:
    """In some parts nothing is required, and the other process still waits for that mark's gradient.

    Nor does a process know how long targets of others are, where they are cut by chance.
    """
    pieces = ("text.unit=bpe", "text.vocabulary=30", "train.bpe_dropout=0.4")
    settings = (*SETTINGS, *pieces, "canvas.share=0.5", f"train.steps={STEPS}")
    alone, together = (recipe.parent / name for name in ("canvas-alone", "canvas-together"))
    learn(recipe, alone, *settings)
    answer = on_two_processes("train", recipe, *settings, f"run={together}")
    assert answer.returncode == 0, answer.stderr
    np.testing.assert_allclose(losses(together, until=STEPS), losses(alone, until=STEPS), rtol=0, atol=1e-5)


def test_a_search_shared_by_two_processes_finds_what_one_finds(recipe: Path, alone: Path) -> None:
    copies = [shutil.copytree(alone, alone.with_name(name)) for name in ("by-one", "by-two")]
    by_one, by_two = (copy / "orders" / f"step-{MORE_STEPS + 1}" for copy in copies)
    files = [copy.with_suffix(".jsonl") for copy in copies]
    assert call("search-orders", copies[0], "--output", files[0]).returncode == 0
    answer = on_two_processes("search-orders", copies[1], "--output", files[1])
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == f"orders: {by_two}\n"  # said once
    for name in ("slots.npy", "log_probs.npy"):
        assert np.array_equal(np.load(by_one / name), np.load(by_two / name))
    assert files[0].read_bytes() == files[1].read_bytes() != b""
