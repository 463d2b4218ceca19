"""What a run's folder guards against: two trainings, lost checkpoints, spoiled files, nothing saved."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from corpora import (
    QUIET,
    assert_one_line_refusal,
    call_here,
    command,
    last_weights,
    learn,
    learned,
    write_corpus,
)

from anyorder.system.locks import locked


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy of a finished run."""
    return shutil.copytree(learned().run, tmp_path / "run")


SETTINGS = ("order.name=rnd", "model.dropout=0", "train.steps=60", "train.validate_every=20")


@pytest.mark.parametrize("flags", [[], ["--resume"], ["--overwrite"]], ids=str)
def test_a_run_that_is_written_is_left_alone(
    run: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    before = (run / "metrics.jsonl").read_bytes()
    with locked(run):
        answer = call_here(capsys, "train", learned().recipe, *SETTINGS, f"run={run}", *flags)
        assert_one_line_refusal(answer, f"{run}: is in use by process ", " on ")
    assert (run / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    "line",
    [
        ["search-orders", "{run}"],
        ["export", "django-small", "{run}"],
        ["average", "{run}", "--output", "{run}"],
    ],
)
def test_so_do_other_commands(run: Path, capsys: pytest.CaptureFixture[str], line: list[str]) -> None:
    given = [part.format(run=run) for part in line]
    flags = ["--output", run.parent / "orders.jsonl"] if line[0] == "search-orders" else []
    flags = ["--last", "1"] if line[0] == "average" else flags
    with locked(run):
        assert_one_line_refusal(call_here(capsys, *given, *flags), f"{run}: is in use by process ")


def test_two_trainings_at_once_leave_one_run(tmp_path: Path) -> None:
    recipe = write_corpus(tmp_path)
    line = command("train", recipe, "train.steps=60", f"run={tmp_path / 'run'}")
    both = [
        subprocess.Popen(line, env=QUIET, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    remarks = [one.communicate(timeout=300)[1] for one in both]
    assert sorted(one.returncode for one in both) == [0, 2], remarks
    steps = [
        json.loads(row)["step"]
        for row in (tmp_path / "run/metrics.jsonl").read_text().splitlines()
        if '"loss"' in row
    ]
    assert steps == list(range(1, 61))


@pytest.mark.parametrize("steps", [60, 80])
def test_a_run_without_its_checkpoints_is_not_resumed(
    run: Path, capsys: pytest.CaptureFixture[str], steps: int
) -> None:
    shutil.rmtree(run / "last")
    model = (run / "model.safetensors").read_bytes()
    line = ["train", learned().recipe, *SETTINGS, f"train.steps={steps}", f"run={run}", "--resume"]
    assert_one_line_refusal(
        call_here(capsys, *line), f"{run}: has a model but no checkpoint in {run / 'last'}"
    )
    assert (run / "model.safetensors").read_bytes() == model


def test_a_run_killed_before_its_first_checkpoint_begins_again(tmp_path: Path) -> None:
    recipe = write_corpus(tmp_path)
    for name in ("run", "killed"):
        learn(recipe, tmp_path / name)
    shutil.rmtree(tmp_path / "killed/last")
    (tmp_path / "killed/last").mkdir()
    config = tmp_path / "killed/config.json"
    values = json.loads(config.read_text())
    values["scores"]["step"] = 4  # the first validation's
    config.write_text(json.dumps(values))
    learn(recipe, tmp_path / "killed", resume=True)
    assert last_weights(tmp_path / "killed") == last_weights(tmp_path / "run")


def _other_bytes(run: Path) -> None:
    (run / "metrics.jsonl").write_bytes(b"\xff\xfe\x00")


def _itself(run: Path) -> None:
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to(run / "metrics.jsonl")


def _brackets(run: Path) -> None:
    (run / "config.json").write_text("[" * 100_000)


def _other_progress(run: Path) -> None:
    for path in run.glob("last/*/progress.json"):
        path.write_text('{"format": 1, "step": "x"}')


@pytest.mark.parametrize(
    ("damage", "line", "wanted"),
    [
        (_other_bytes, ["card"], "metrics.jsonl: broken: not valid UTF-8 (byte 0xff in line 1)"),
        (_other_bytes, ["train"], "metrics.jsonl: broken: not valid UTF-8 (byte 0xff in line 1)"),
        (_itself, ["card"], "metrics.jsonl: can't be read: Too many levels of symbolic links"),
        (_brackets, ["card"], "config.json: not a model's configuration: nested too deeply"),
        (_other_progress, ["train"], "progress.json: broken: step = x, but its folder is step-60"),
    ],
)
def test_a_spoiled_file_is_named_in_one_line(
    run: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], None],
    line: list[str],
    wanted: str,
) -> None:
    damage(run)
    given = (
        [*line, run] if line == ["card"] else ["train", learned().recipe, *SETTINGS, f"run={run}", "--resume"]
    )
    answer = call_here(capsys, *given)
    assert answer.returncode == 2
    remarks = [line for line in answer.stderr.decode().splitlines() if not line.startswith("going on from")]
    assert len(remarks) == 1
    assert wanted in remarks[0]


def test_a_card_of_a_link_to_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").symlink_to(tmp_path / "run")
    assert_one_line_refusal(call_here(capsys, "card", tmp_path / "run"), f"{tmp_path / 'run'}")


def test_a_training_that_fails_at_once_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = write_corpus(tmp_path)
    answer = call_here(
        capsys, "train", recipe, "train.lr=1e30", "train.clip_norm=0", f"run={tmp_path / 'run'}"
    )
    assert answer.returncode == 2
    assert b"not finite" in answer.stderr
    assert not (tmp_path / "run").exists()


def test_so_it_leaves_what_was_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write_corpus(tmp_path)
    kept = tmp_path / "run" / "README.md"
    kept.parent.mkdir()
    kept.write_text("mine")
    call_here(capsys, "train", recipe, "train.lr=1e30", "train.clip_norm=0", f"run={kept.parent}")
    assert [path.name for path in kept.parent.iterdir()] == ["README.md"]
    assert kept.read_text() == "mine"


def test_a_failed_export_leaves_no_folder(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "model.safetensors").unlink()
    assert call_here(capsys, "export", run, run.parent / "out").returncode == 2
    assert not (run.parent / "out").exists()
