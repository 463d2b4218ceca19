"""Small corpora, recipes and runs for the tests of training and of the command line."""

from __future__ import annotations

import atexit
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from anyorder.__main__ import main
from anyorder.config.recipe import Recipe, load_recipe
from anyorder.training.checkpoint import checkpoints
from anyorder.training.trainer import train

WORDS = "abcdefgh"
PAIRS = {"train": 60, "dev": 8}
PATIENCE = 120  # seconds until a hanging process fails its test
QUIET = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "100"}

RECIPE = """
[data]
root = "{folder}"
cache = "cache"
train = {{ {key} = "train.{suffix}", target = "train.target" }}
dev = {{ {key} = "dev.{suffix}", target = "dev.target" }}

[text]
unit = "words"
source = {{ split = "spaces" }}
target = {{ split = "spaces" }}

[model]
width = 16
hidden = 32
heads = 2
encoder_layers = 1
decoder_layers = 1

[train]
steps = 12
batch_tokens = 160
lr = 1e-2
warmup = 5
schedule = "constant"
validate_every = 4
validate_lines = 2
log_every = 1
device = "cpu"
"""


def sentences(number: int, *, seed: int) -> list[str]:
    """Lines of two to six words."""
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(2, 6))) for _ in range(number)]


def write_corpus(folder: Path, *, words_of_others: str = "") -> Path:
    """Pairs whose target is the source in reverse, and the recipe to learn it: its path.

    words_of_others: one more pair, which makes the vocabulary another one.
    """
    for split, number in PAIRS.items():
        sources = [*sentences(number, seed=number), *([words_of_others] if words_of_others else [])]
        targets = [" ".join(reversed(line.split())) for line in sources]
        write_lines(folder / f"{split}.source", sources)
        write_lines(folder / f"{split}.target", targets)
    return _write_recipe(folder, key="source", suffix="source")


def write_picture_corpus(folder: Path) -> Path:
    """Two vectors of three numbers each, and a caption that has nothing to do with them."""
    chance = np.random.default_rng(1)
    for split, number in PAIRS.items():
        grid = chance.standard_normal((number, 2, 3)).astype(np.float32)
        np.save(folder / f"{split}.npy", grid)
        write_lines(folder / f"{split}.target", sentences(number, seed=number))
    return _write_recipe(folder, key="features", suffix="npy")


def _write_recipe(folder: Path, *, key: str, suffix: str) -> Path:
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(folder=folder, key=key, suffix=suffix))
    return recipe


def write_lines(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@dataclass
class Watcher:
    """Remembers what a training tells."""

    notes: list[str] = field(default_factory=list)
    validations: list[tuple[int, bool]] = field(default_factory=list)  # step, whether it was the best

    def note(self, text: str) -> None:
        self.notes.append(text)

    def preparing(self, what: str, done: int, total: int) -> None:
        pass

    def trained(self, step: int, steps: int, metrics: dict[str, float]) -> None:
        pass

    def validated(self, step: int, scores: dict[str, Any], *, best: bool) -> None:
        self.validations.append((step, best))


@dataclass
class Interrupter(Watcher):
    """Asks a training to stop after a step, by Ctrl-C or as a batch system does."""

    at: int = 0
    by: signal.Signals = signal.SIGINT

    def trained(self, step: int, steps: int, metrics: dict[str, float]) -> None:
        if step == self.at:
            os.kill(os.getpid(), self.by)


def learn(recipe: Path, run: Path, *overrides: str, **how: bool) -> Watcher:
    """Train in this process."""
    watcher = Watcher()
    train(recipe_of(recipe, run, *overrides), listener=watcher, **how)
    return watcher


def recipe_of(recipe: Path, run: Path, *overrides: str) -> Recipe:
    return load_recipe(recipe, [*overrides, f"run={run}"])


@dataclass(frozen=True)
class Learned:
    """A run, with the recipe that it was trained by."""

    run: Path
    recipe: Path
    folder: Path  # of the corpus


@cache
def learned() -> Learned:
    """A model that has seen its task often enough to end its sentences; trained once for all tests."""
    folder = Path(tempfile.mkdtemp(prefix="anyorder-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    recipe = write_corpus(folder)
    learn(
        recipe,
        folder / "run",
        "order.name=rnd",
        "model.dropout=0",
        "train.steps=60",
        "train.validate_every=20",
    )
    return Learned(run=folder / "run", recipe=recipe, folder=folder)


@contextmanager
def full_disk(*, largest_file: int = 0) -> Iterator[None]:
    """No file can grow beyond so many bytes, which is what a full disk looks like to a program."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def last_weights(run: Path) -> bytes:
    """The newest checkpoint's file, byte for byte."""
    return (checkpoints(run)[-1].folder / "model.safetensors").read_bytes()


def metrics(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "anyorder", *map(str, arguments)]


def hear_ctrl_c() -> None:
    """For a new process: what runs in the background of a shell ignores Ctrl-C, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def call(*arguments: object, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the command in a process of its own. given: its stdin."""
    return subprocess.run(
        command(*arguments), input=given, env=QUIET, capture_output=True, timeout=PATIENCE, check=False
    )


def call_here(capsys: pytest.CaptureFixture[str], *arguments: object) -> subprocess.CompletedProcess[bytes]:
    """Run the command in this process, which is faster but leaves no stdin to it."""
    capsys.readouterr()
    with patch.object(sys, "argv", ["anyorder", *map(str, arguments)]), pytest.raises(SystemExit) as left:
        main()
    said, remarked = capsys.readouterr()
    return subprocess.CompletedProcess(arguments, left.value.code or 0, said.encode(), remarked.encode())


def json_lines(answer: subprocess.CompletedProcess[bytes]) -> list[dict[str, Any]]:
    """What a command has printed with --json, once it has gone well."""
    assert answer.returncode == 0, answer.stderr.decode()
    return [json.loads(line) for line in answer.stdout.decode().splitlines()]


def assert_one_line_refusal(answer: subprocess.CompletedProcess[bytes], *parts: str) -> None:
    """Exit code 2, nothing on stdout and one line on stderr, which holds all the parts."""
    said = answer.stderr.decode()
    assert answer.returncode == 2, said
    assert answer.stdout == b""
    assert len(said.splitlines()) == 1, said
    assert said.startswith("anyorder: ")
    for part in parts:
        assert part in said
