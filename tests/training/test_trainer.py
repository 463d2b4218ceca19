"""Training: a stopped run goes on as if nothing had happened, and no good model is lost."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from corpora import (
    PATIENCE,
    QUIET,
    Interrupter,
    Watcher,
    assert_one_line_refusal,
    call,
    call_here,
    command,
    full_disk,
    last_weights,
    learn,
    learned,
    metrics,
    recipe_of,
    write_corpus,
    write_picture_corpus,
)
from safetensors.numpy import load_file

from anyorder.config.train import Train
from anyorder.data.dataset import prepare
from anyorder.errors import UserError
from anyorder.inference.model_folder import load_trained
from anyorder.training.checkpoint import checkpoints
from anyorder.training.step import learning_rate
from anyorder.training.trainer import train
from anyorder.training.validation import Validation

# Everything that chance has a hand in, several epochs, and batches in parts.
EVENTFUL = (
    "order.name=rnd",
    "model.dropout=0.2",
    "train.accumulate=2",
    "train.label_smoothing=0.1",
    "train.schedule=cosine",
    "train.steps=36",
)
STEPS, VALIDATE_EVERY = 36, 4


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def unstopped(corpus: Path) -> Path:
    """A run that was never stopped."""
    learn(corpus, corpus.parent / "unstopped", *EVENTFUL)
    return corpus.parent / "unstopped"


def steps_logged(run: Path, key: str) -> list[int]:
    return [int(line["step"]) for line in metrics(run) if key in line]


def assert_same_as_unstopped(run: Path, unstopped: Path) -> None:
    """The same weights, model and log, but for the times."""
    assert [one.step for one in checkpoints(run)] == [one.step for one in checkpoints(unstopped)]
    for one, other in zip(checkpoints(run), checkpoints(unstopped), strict=True):
        name = "model.safetensors"
        assert (one.folder / name).read_bytes() == (other.folder / name).read_bytes()
    assert (run / "model.safetensors").read_bytes() == (unstopped / "model.safetensors").read_bytes()
    assert steps_logged(run, "loss") == list(range(1, STEPS + 1))
    assert steps_logged(run, "dev_loss") == list(range(VALIDATE_EVERY, STEPS + 1, VALIDATE_EVERY))
    assert without_times(metrics(run)) == without_times(metrics(unstopped))


def without_times(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    times = {"seconds", "tokens_per_second"}
    return [{name: value for name, value in row.items() if name not in times} for row in rows]


# Stopping and going on


def test_the_run_meets_every_kind_of_chance(unstopped: Path) -> None:
    assert max(line.get("epoch", 0) for line in metrics(unstopped)) >= 3


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL], ids=lambda sent: sent.name)
def test_a_stopped_run_goes_on_as_if_it_never_was(
    corpus: Path, unstopped: Path, tmp_path: Path, sent: signal.Signals
) -> None:
    run = tmp_path / "run"
    process = subprocess.Popen(
        command("train", corpus, *EVENTFUL, f"run={run}"), env=QUIET, stderr=subprocess.PIPE
    )
    _wait_for(lambda: _lines_logged(run) >= 6, process)
    process.send_signal(sent)
    _, said = process.communicate(timeout=PATIENCE)

    stopped_at = checkpoints(run)[-1].step
    assert stopped_at < STEPS
    if sent == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 130
        assert f"stopped at step {stopped_at}; `--resume` goes on from here" in said.decode()
    watcher = learn(corpus, run, *EVENTFUL, resume=True)
    assert watcher.notes[0].startswith(f"going on from step {stopped_at}")
    assert_same_as_unstopped(run, unstopped)


def _lines_logged(run: Path) -> int:
    log = run / "metrics.jsonl"
    return len(log.read_text().splitlines()) if log.exists() else 0


def _wait_for(happened: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    patience_ends = time.monotonic() + PATIENCE
    while not happened():
        assert process.poll() is None, "it ended by itself"
        assert time.monotonic() < patience_ends
        time.sleep(0.002)


DYING_WRITER = """
import os, signal, sys
from pathlib import Path
from corpora import learn

recipe, run, fatal, *overrides = sys.argv[1:]

def deadly(original):
    def renamed(self, target):
        if str(target).endswith(fatal):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, target)
    return renamed

Path.replace, Path.rename = deadly(Path.replace), deadly(Path.rename)
learn(Path(recipe), Path(run), *overrides)
"""


@pytest.mark.parametrize(
    ("fatal", "survives"),
    [
        ("/.unfinished-4/optimizer.safetensors", None),  # in the middle of the first checkpoint
        ("/step-12", 8),  # when all of the third is written and only its name is missing
    ],
)
def test_a_run_killed_while_it_writes_a_checkpoint(
    corpus: Path, unstopped: Path, tmp_path: Path, fatal: str, survives: int | None
) -> None:
    run = tmp_path / "run"
    killed = subprocess.run(
        [sys.executable, "-c", DYING_WRITER, str(corpus), str(run), fatal, *EVENTFUL],
        env={**QUIET, "PYTHONPATH": f"{Path(__file__).parents[1]}:{Path(__file__).parents[2] / 'src'}"},
        timeout=PATIENCE,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert list((run / "last").glob(".unfinished-*"))
    assert (checkpoints(run)[-1].step if checkpoints(run) else None) == survives
    learn(corpus, run, *EVENTFUL, resume=True)
    assert_same_as_unstopped(run, unstopped)


def test_a_run_stopped_again_and_again(corpus: Path, unstopped: Path, tmp_path: Path) -> None:
    recipe = recipe_of(corpus, tmp_path / "run", *EVENTFUL)
    stops = [1, 2, 4, 13, 16, 35]  # also right after a validation, and right before the end
    for step, by in zip(stops, cycle([signal.SIGINT, signal.SIGTERM]), strict=False):
        watcher = Interrupter(at=step, by=by)
        train(recipe, listener=watcher, resume=recipe.run.exists())
        assert checkpoints(recipe.run)[-1].step == step
        assert watcher.notes[-1].startswith(f"stopped at step {step};")
    train(recipe, listener=Watcher(), resume=True)
    assert_same_as_unstopped(recipe.run, unstopped)


def test_an_interruption_at_the_last_step_is_the_end(corpus: Path, tmp_path: Path) -> None:
    recipe = recipe_of(corpus, tmp_path / "run", "train.steps=5")
    watcher = Interrupter(at=5)
    train(recipe, listener=watcher)
    assert watcher.notes == []
    assert (recipe.run / "model.safetensors").exists()


def test_a_finished_run_has_nothing_to_go_on_with(corpus: Path, unstopped: Path, tmp_path: Path) -> None:
    run = shutil.copytree(unstopped, tmp_path / "run")
    learn(corpus, run, *EVENTFUL, resume=True)
    assert_same_as_unstopped(run, unstopped)


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_run_that_never_began_is_not_resumed(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], dry: list[str]
) -> None:
    run = tmp_path / "run"
    answer = call_here(capsys, "train", corpus, f"run={run}", "--resume", *dry)
    assert_one_line_refusal(answer, f"{run}: there is no run to resume; to start one, leave out --resume")
    assert not run.exists()


def test_a_run_that_crashed_before_its_first_checkpoint_starts_again(
    corpus: Path, unstopped: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(
        unstopped, tmp_path / "run", ignore=shutil.ignore_patterns("last", "model*", "config.json")
    )
    watcher = learn(corpus, run, *EVENTFUL, resume=True)
    assert watcher.notes == [f"{run}: has no checkpoint yet, so the run starts at its first update"]
    assert_same_as_unstopped(run, unstopped)


def test_a_run_that_was_stopped_may_end_there(corpus: Path, tmp_path: Path) -> None:
    """Its last updates were not validated yet, and there may be no model at all."""
    settings = ["train.validate_every=50"]
    run = tmp_path / "run"
    train(recipe_of(corpus, run, *settings, "train.steps=60"), listener=Interrupter(at=3))
    assert not (run / "model.safetensors").exists()
    watcher = learn(corpus, run, *settings, "train.steps=3", resume=True)
    assert watcher.validations == [(3, True)]
    assert (run / "model.safetensors").exists()
    assert learn(corpus, run, *settings, "train.steps=3", resume=True).validations == []


# Whose folder it is


def test_a_run_is_not_overwritten_by_mistake(corpus: Path, unstopped: Path) -> None:
    before = last_weights(unstopped)
    with pytest.raises(
        UserError, match=r"unstopped: is a run already; --resume goes on with it, --overwrite"
    ):
        learn(corpus, unstopped, *EVENTFUL)
    assert last_weights(unstopped) == before


def test_overwriting_starts_anew(corpus: Path, unstopped: Path, tmp_path: Path) -> None:
    run = shutil.copytree(unstopped, tmp_path / "run")
    learn(corpus, run, "train.steps=2", overwrite=True)
    assert [one.step for one in checkpoints(run)] == [2]
    assert steps_logged(run, "loss") == [1, 2]


def test_overwriting_leaves_what_is_not_the_runs(tmp_path: Path) -> None:
    """The data and the recipe may lie in the same folder."""
    recipe = write_corpus(tmp_path)
    learn(recipe, tmp_path, "train.steps=2")
    given = {
        path: path.read_bytes() for path in [recipe, *tmp_path.glob("*.source"), *tmp_path.glob("*.target")]
    }
    learn(recipe, tmp_path, "train.steps=1", overwrite=True)
    assert {path: path.read_bytes() for path in given} == given
    assert [one.step for one in checkpoints(tmp_path)] == [1]
    assert steps_logged(tmp_path, "loss") == [1]


def test_checkpoints_of_an_unknown_recipe_are_not_gone_on_with(
    corpus: Path, unstopped: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(unstopped, tmp_path / "run")
    (run / "recipe.json").unlink()
    for resume in (False, True):
        with pytest.raises(UserError, match=r"has checkpoints but no recipe.json"):
            learn(corpus, run, *EVENTFUL, resume=resume)
    learn(corpus, run, "train.steps=2", overwrite=True)
    assert [one.step for one in checkpoints(run)] == [2]


def test_overwriting_takes_nothing_away_from_a_folder_that_is_no_run(corpus: Path, tmp_path: Path) -> None:
    diary = tmp_path / "diary.txt"
    diary.write_text("dear diary")
    learn(corpus, tmp_path, "train.steps=1", overwrite=True)
    assert diary.read_text() == "dear diary"


def test_a_run_must_be_a_folder(corpus: Path) -> None:
    with pytest.raises(UserError, match=r"recipe.toml: can't be made a folder: File exists"):
        learn(corpus, corpus, *EVENTFUL)
    with pytest.raises(UserError, match=r"recipe.toml/run: can't be made a folder: Not a directory"):
        learn(corpus, corpus / "run", *EVENTFUL)


@pytest.mark.parametrize(
    ("override", "answer"),
    [
        ("train.lr=0.5", "was trained with train.lr = 0.01, now it is 0.5"),
        ("order.name=l2r", 'was trained with order.name = "rnd", now it is "l2r"'),
        ("text.source.lowercase=true", "was trained with text.source.lowercase = false, now it is true"),
        ("data.train.source=dev.source", 'data.train.source = "train.source", now it is "dev.source"'),
    ],
)
def test_a_changed_recipe_is_answered_by_the_key(
    corpus: Path, unstopped: Path, override: str, answer: str
) -> None:
    with pytest.raises(UserError) as refused:
        learn(corpus, unstopped, *EVENTFUL, override, resume=True)
    assert str(refused.value).startswith(f"{unstopped}: ")
    assert answer in str(refused.value)


def test_what_changes_nothing_learned_may_change(corpus: Path, tmp_path: Path) -> None:
    constant = [*EVENTFUL, "train.schedule=constant"]
    learn(corpus, tmp_path / "run", *constant, "train.steps=4")
    changed = [
        "train.keep=2",
        "train.patience=9",
        "train.validate_lines=1",
        "train.log_every=2",
        "decode.beam=2",
    ]
    learn(corpus, tmp_path / "run", *constant, "train.steps=8", *changed, resume=True)
    learn(corpus, tmp_path / "straight", *constant, "train.steps=8")
    assert last_weights(tmp_path / "run") == last_weights(tmp_path / "straight")


# When something goes wrong


def test_a_learning_rate_too_high_stops_before_a_checkpoint_is_spoiled(corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(
        UserError, match=r"step \d+: the (dev )?loss is not finite .*; there is no checkpoint yet; "
    ):
        learn(corpus, run, "train.lr=1e30", "train.warmup=0", "train.validate_every=1")
    assert not (run / "model.safetensors").exists()


@pytest.mark.parametrize("learn_from", ["one", "all"])
def test_a_search_by_a_model_that_has_diverged_is_told_as_such(
    corpus: Path, tmp_path: Path, learn_from: str
) -> None:
    search = (
        "order.name=sao",
        "search.method=guided",
        "search.bootstrap_steps=0",
        "search.refresh=0",
        f"search.learn_from={learn_from}",
    )
    with pytest.raises(
        UserError, match=r"^step \d+: the loss is not finite .*; there is no checkpoint yet; "
    ):
        learn(corpus, tmp_path / "run", *search, "train.lr=1e30", "train.warmup=0", "train.validate_every=12")


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A run on pictures that has a checkpoint; some of its pictures can be spoilt afterwards."""
    recipe = write_picture_corpus(tmp_path)
    learn(recipe, tmp_path / "run", "train.steps=4", "train.keep=1")
    return recipe


def spoil(features: Path, rows: slice) -> None:
    grid = np.load(features)
    grid[rows] = 3e38  # finite, but what a model makes of it is not
    np.save(features, grid)


def pretend_same_data(recipe: Path, run: Path) -> None:
    """Let a run go on with data that have changed, which it would notice."""
    path = checkpoints(run)[-1].folder / "progress.json"
    key = prepare(recipe_of(recipe, run)).train.key
    path.write_text(json.dumps(json.loads(path.read_text()) | {"data": key}))


def test_a_run_does_not_go_on_with_other_data(pictures: Path) -> None:
    spoil(pictures.parent / "train.npy", slice(0, 1))
    with pytest.raises(UserError, match=r"run: the training data, .* have changed since this run began"):
        learn(pictures, pictures.parent / "run", "train.steps=40", "train.keep=1", resume=True)


@pytest.mark.parametrize(("split", "loss"), [("train", "loss"), ("dev", "dev loss")])
def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(
    pictures: Path, split: str, loss: str
) -> None:
    run = pictures.parent / "run"
    weights, model = last_weights(run), (run / "model.safetensors").read_bytes()
    spoil(pictures.parent / f"{split}.npy", slice(0, None, 3))
    pretend_same_data(pictures, run)
    with pytest.raises(UserError) as refused:
        learn(pictures, run, "train.steps=40", "train.keep=1", resume=True)
    said = str(refused.value)
    assert f": the {loss} is not finite (words nan, gaps nan" in said
    assert f"; the last good checkpoint is {run}/last/step-4; a lower train.lr" in said
    assert last_weights(run) == weights
    assert (run / "model.safetensors").read_bytes() == model
    for line in (run / "metrics.jsonl").read_text().splitlines():
        assert "NaN" not in line


@dataclass
class DiskFiller(Watcher):
    """Lets the disk run full after a step or at a validation."""

    disk: ExitStack = field(default_factory=ExitStack)
    largest_file: int = 0
    step: int | None = None
    validation: int | None = None

    def trained(self, step: int, steps: int, metrics: dict[str, float]) -> None:
        if step == self.step:
            self.disk.enter_context(full_disk(largest_file=self.largest_file))

    def validated(self, step: int, scores: dict[str, Any], *, best: bool) -> None:
        if step == self.validation:
            self.disk.enter_context(full_disk(largest_file=self.largest_file))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # TensorBoard's writer
@pytest.mark.parametrize(
    ("moment", "unwritten"),
    [
        ({"validation": 8, "largest_file": 10_000}, "model.safetensors"),
        ({"step": 6}, "metrics.jsonl"),
    ],
)
def test_a_full_disk_stops_in_one_line_and_the_run_goes_on_later(
    corpus: Path, unstopped: Path, tmp_path: Path, moment: dict[str, int], unwritten: str
) -> None:
    recipe = recipe_of(corpus, tmp_path / "run", *EVENTFUL)
    refused = pytest.raises(UserError, match=rf"{unwritten}: can't be written: File too large")
    with refused, ExitStack() as disk:
        train(recipe, listener=DiskFiller(disk=disk, **moment))
    assert [one.step for one in checkpoints(recipe.run)] == [4]
    load_trained(recipe.run, device=torch.device("cpu"))
    train(recipe, listener=Watcher(), resume=True)
    assert_same_as_unstopped(recipe.run, unstopped)


# Checkpoints and models that are kept


def test_early_stopping_waits_for_so_many_validations(corpus: Path, tmp_path: Path) -> None:
    # A model that learns nothing gets no sentence right: its first zero remains the best.
    overrides = ["train.lr=1e-30", "train.select=exact", "train.steps=40", "train.patience=2"]
    watcher = learn(corpus, tmp_path / "run", *overrides)
    assert watcher.validations == [(4, True), (8, False), (12, False)]
    assert watcher.notes == ["no better exact in 2 validations: done"]
    again = learn(corpus, tmp_path / "run", *overrides, resume=True)
    assert again.validations == []
    more = learn(corpus, tmp_path / "run", *overrides[:-1], "train.patience=3", resume=True)
    assert more.validations == [(16, False)]


def test_the_model_is_the_best_checkpoint(corpus: Path, tmp_path: Path) -> None:
    watcher = learn(corpus, tmp_path / "run", "train.steps=12", "train.lr=0.3", "train.warmup=0")
    best = [step for step, was_best in watcher.validations if was_best][-1]
    losses = {int(line["step"]): line["dev_loss"] for line in metrics(tmp_path / "run") if "dev_loss" in line}
    assert losses[best] == min(losses.values())
    best_weights = (tmp_path / f"run/last/step-{best}/model.safetensors").read_bytes()
    assert (tmp_path / "run/model.safetensors").read_bytes() == best_weights
    assert load_trained(tmp_path / "run", device=torch.device("cpu")).scores["step"] == best


def test_only_the_last_checkpoints_are_kept(corpus: Path, tmp_path: Path) -> None:
    learn(corpus, tmp_path / "run", "train.steps=10", "train.validate_every=2", "train.keep=3")
    found = checkpoints(tmp_path / "run")
    assert [one.step for one in found] == [6, 8, 10]
    assert [(one.folder / "optimizer.safetensors").exists() for one in found] == [False, False, True]


def validated_as(monkeypatch: pytest.MonkeyPatch, losses: list[float]) -> None:
    """Let one validation after the other find these losses on dev."""
    found = iter(losses)

    def scores(*_: object, **__: object) -> dict[str, float]:
        loss = next(found)
        return {"dev_loss": loss, "dev_word_loss": loss, "dev_gap_loss": 0.0}

    monkeypatch.setattr(Validation, "scores", scores)


def test_a_mean_that_dev_finds_no_worse_is_the_model(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    validated_as(monkeypatch, [5, 4, 2, 3, 3, 2])
    learn(corpus, run, "train.steps=10", "train.validate_every=2", "train.average=3")
    kept = [load_file(one.folder / "model.safetensors") for one in checkpoints(run)]
    assert len(kept) == 5
    for name, averaged in load_file(run / "model.safetensors").items():
        np.testing.assert_allclose(averaged, sum(one[name] for one in kept[2:]) / 3, rtol=1e-5, atol=1e-7)
        assert kept[0][name].shape == averaged.shape
    assert load_trained(run, device=torch.device("cpu")).scores["averaged_steps"] == [6, 8, 10]


def test_a_mean_that_dev_finds_worse_is_left(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    validated_as(monkeypatch, [5, 4, 2, 3, 3, 2.1])
    learn(corpus, run, "train.steps=10", "train.validate_every=2", "train.average=3")
    (best,) = [load_file(one.folder / "model.safetensors") for one in checkpoints(run) if one.step == 6]
    for name, weights in load_file(run / "model.safetensors").items():
        np.testing.assert_array_equal(weights, best[name])
    assert load_trained(run, device=torch.device("cpu")).scores["step"] == 6


# What is learned


def test_learning_begins_with_the_weights_of_another_run(tmp_path: Path) -> None:
    other = learned()
    overrides = ["order.name=l2r", "train.steps=1", f"train.init={other.run}", "train.warmup=0"]
    watcher = learn(other.recipe, tmp_path / "run", *overrides, "train.lr=1e-30")  # too small to be seen
    assert watcher.notes == [f"starting from the weights of {other.run}"]
    assert last_weights(tmp_path / "run") == (other.run / "model.safetensors").read_bytes()


def test_weights_of_another_vocabulary_are_refused(tmp_path: Path) -> None:
    recipe = write_corpus(tmp_path, words_of_others="x y z")
    with pytest.raises(UserError, match=r"train.init = .*: has another vocabulary; its data.train and text"):
        learn(recipe, tmp_path / "run", f"train.init={learned().run}")


@pytest.mark.parametrize("wrong", ["train.init=nowhere", "model.width=32"])
def test_a_wrong_beginning_leaves_an_earlier_run_and_no_new_one(tmp_path: Path, wrong: str) -> None:
    changes = [f"train.init={learned().run}", wrong]
    kept = shutil.copytree(learned().run, tmp_path / "kept")
    with pytest.raises(UserError, match=r"^train\.init = "):
        learn(learned().recipe, kept, *changes, overwrite=True)
    assert sorted(path.name for path in kept.iterdir()) == sorted(
        path.name for path in learned().run.iterdir()
    )
    with pytest.raises(UserError, match=r"^train\.init = "):
        learn(learned().recipe, tmp_path / "new", *changes)
    assert not (tmp_path / "new").exists()


def test_weights_of_another_size_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is of shape \[\d+, 16\], but this model's is \[\d+, 32\]"):
        learn(learned().recipe, tmp_path / "run", f"train.init={learned().run}", "model.width=32")


@pytest.mark.parametrize("first", ["word", "position"])
def test_parts_of_a_batch_teach_the_same_as_the_whole(corpus: Path, tmp_path: Path, first: str) -> None:
    common = ["model.dropout=0", "train.steps=8", f"model.first={first}", "train.label_smoothing=0.1"]
    for parts in (1, 4):
        learn(corpus, tmp_path / str(parts), *common, f"train.accumulate={parts}")
    whole, cut = (
        load_file(checkpoints(tmp_path / parts)[-1].folder / "model.safetensors") for parts in ("1", "4")
    )
    for name, weight in whole.items():
        np.testing.assert_allclose(cut[name], weight, rtol=0, atol=1e-5, err_msg=name)


def test_training_lowers_the_loss() -> None:
    losses = [line["dev_loss"] for line in metrics(learned().run) if "dev_loss" in line]
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        # warm-up over 4 steps to lr = 1; 20 steps in all
        ("constant", {1: 0.25, 2: 0.5, 4: 1.0, 5: 1.0, 16: 1.0, 20: 1.0}),
        ("inverse-sqrt", {1: 0.25, 4: 1.0, 16: 0.5, 64: 0.25}),
        (
            "cosine",
            {1: 0.25, 4: 1.0, 8: 0.8535533905932737, 12: 0.5, 16: 0.14644660940672627, 20: 0.0, 24: 0.0},
        ),
    ],
)
def test_the_learning_rate_by_step(schedule: str, rates: dict[int, float]) -> None:
    settings = Train.model_validate({"schedule": schedule, "lr": 1.0, "warmup": 4, "steps": 20})
    assert {step: learning_rate(settings, step) for step in rates} == pytest.approx(rates)


@pytest.mark.parametrize("schedule", ["constant", "inverse-sqrt", "cosine"])
def test_without_a_warm_up_the_rate_begins_at_its_top(schedule: str) -> None:
    settings = Train.model_validate({"schedule": schedule, "lr": 1.0, "warmup": 0, "steps": 20})
    rates = [learning_rate(settings, step) for step in range(1, 21)]
    assert rates[0] == pytest.approx(1.0, abs=0.01)
    assert rates == sorted(rates, reverse=True)


# Precision


def test_half_precision_needs_a_gpu(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r'train.precision = "fp16" needs a GPU; allowed on a CPU: fp32, bf16'
    ):
        learn(corpus, tmp_path / "run", "train.precision=fp16")
    assert not (tmp_path / "run").exists()


def test_a_cpu_that_dies_of_bf16_is_found_out_by_another_process(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(
        UserError, match=r"""train.precision = "bf16": this CPU can't multiply in bf16; use fp32"""
    ):
        learn(corpus, tmp_path / "run", "train.precision=bf16")
    assert not (tmp_path / "run").exists()


def test_bf16_is_trained_in_or_refused(corpus: Path, tmp_path: Path) -> None:
    """In a process of its own, which may not be killed whatever this CPU can do."""
    run = tmp_path / "run"
    answer = call("train", corpus, "train.precision=bf16", "train.steps=2", f"run={run}")
    if answer.returncode == 0:
        assert [one.step for one in checkpoints(run)] == [2]
        assert {str(weight.dtype) for weight in checkpoints(run)[-1].weights().values()} == {"torch.float32"}
    else:
        assert answer.returncode == 2
        assert b'train.precision = "bf16": this CPU can\'t multiply in bf16; use fp32' in answer.stderr
