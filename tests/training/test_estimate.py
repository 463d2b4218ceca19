"""What `train --dry-run` tells of a training, and that no recipe has gone bad."""

from __future__ import annotations

import importlib.util
import lzma
import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import (
    Watcher,
    assert_one_line_refusal,
    call_here,
    json_lines,
    learned,
    recipe_of,
    write_corpus,
    write_lines,
)
from safetensors.numpy import load_file

from anyorder.config.data import SplitFiles
from anyorder.config.recipe import Recipe, load_recipe
from anyorder.errors import UserError
from anyorder.training.estimate import Forecast, dry_run

Capture = pytest.CaptureFixture[str]

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))


def forecast(folder: Path, *overrides: str) -> Forecast:
    return dry_run(recipe_of(write_corpus(folder), folder / "run", *overrides), listener=Watcher())


def contents(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "cache" not in path.relative_to(folder).parts}


# What is estimated


def test_it_tells_the_sizes_of_the_real_training_and_writes_nothing(capsys: Capture, tmp_path: Path) -> None:
    recipe = write_corpus(tmp_path)
    before = contents(tmp_path)
    run = tmp_path / "run"
    (estimated,) = json_lines(call_here(capsys, "train", recipe, f"run={run}", "--dry-run", "--json"))
    assert contents(tmp_path) == before
    weights = load_file(learned().run / "model.safetensors")  # trained by the same recipe
    assert estimated["parameters"] == sum(values.size for values in weights.values())
    assert estimated["pairs"] == 60
    assert estimated["updates"] == 12
    assert estimated["epochs"] == pytest.approx(12 / estimated["updates_an_epoch"])
    seconds = sum(work["times"] * work["seconds"] for work in estimated["work"])
    assert estimated["hours"] == pytest.approx(seconds / 3600)
    assert [(work["name"], work["times"]) for work in estimated["work"]] == [
        ("updates", 12),
        ("validations", 3),
    ]
    assert all(work["seconds"] > 0 for work in estimated["work"])
    assert estimated["largest"]["megabytes"] > 10  # a Python with torch in it


def test_people_read_it_too(capsys: Capture, tmp_path: Path) -> None:
    answer = call_here(capsys, "train", write_corpus(tmp_path), f"run={tmp_path / 'run'}", "--dry-run")
    said = answer.stdout.decode()
    assert answer.returncode == 0
    for part in ("60 pairs, ", "12 updates, ", "in all", "The largest batch of the first epoch: ", "Disk: "):
        assert part in said


def test_the_disk_is_enough_for_the_real_run_and_not_far_too_much(tmp_path: Path) -> None:
    estimated = forecast(tmp_path, "train.steps=60", "train.validate_every=20").disk_megabytes * 1e6
    needed = sum(path.stat().st_size for path in learned().run.rglob("*.safetensors"))
    assert needed < estimated < 3 * needed


def test_the_largest_batch_is_the_longest_where_all_have_as_many_pairs(tmp_path: Path) -> None:
    estimated = forecast(tmp_path, "train.batch_tokens=1")  # each pair by itself
    assert estimated.updates_an_epoch == estimated.pairs
    assert (estimated.largest.pairs, estimated.largest.longest_source, estimated.largest.longest_target) == (
        1,
        6,
        6,
    )


@pytest.mark.parametrize("refresh", [0, 1, 2])
@pytest.mark.parametrize("bootstrap", [0, 5])
def test_searches_are_told_apart(tmp_path: Path, bootstrap: int, refresh: int) -> None:
    estimated = forecast(
        tmp_path,
        "order.name=sao",
        "search.method=guided",
        f"search.bootstrap_steps={bootstrap}",
        f"search.refresh={refresh}",
    )
    free = 12 - bootstrap
    epochs = ceil(free / estimated.updates_an_epoch)  # that are at least begun
    searches = free if not refresh else ceil(epochs / refresh) * estimated.updates_an_epoch
    times = {work.name: work.times for work in estimated.work}
    assert times == {
        **({"updates in the order l2r": bootstrap} if bootstrap else {}),
        "updates in orders that were found": free,
        "searches for the orders of a batch": searches,
        "validations": 3,
    }
    assert estimated.largest.search_seconds > 0


def test_a_short_training_searches_by_default(tmp_path: Path) -> None:
    estimated = forecast(tmp_path, "order.name=sao", "search.method=guided", "search.refresh=0")
    assert [(work.name, work.times) for work in estimated.work[:2]] == [
        ("updates in the order l2r", 3),  # a quarter
        ("updates in orders that were found", 9),
    ]


# What is refused


def test_what_train_refuses_is_refused(capsys: Capture, tmp_path: Path) -> None:
    recipe = write_corpus(tmp_path)
    flags = [recipe, "--dry-run"]
    missing = [*flags, "data.train.source=nowhere", f"run={tmp_path / 'run'}"]
    assert_one_line_refusal(call_here(capsys, "train", *missing), "nowhere", "data.train.source")
    taken = [*flags, f"run={learned().run}"]
    assert_one_line_refusal(call_here(capsys, "train", *taken), "is a run already")


def test_json_is_for_dry_runs(capsys: Capture, tmp_path: Path) -> None:
    answer = call_here(capsys, "train", write_corpus(tmp_path), f"run={tmp_path / 'run'}", "--json")
    assert_one_line_refusal(answer, "--json", "--dry-run")


@contextmanager
def no_more_memory_than(*, megabytes: int) -> Iterator[None]:
    """On top of what this process has now."""
    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (has + megabytes * 2**20, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="tells how much memory there is, on Linux")
def test_a_batch_that_does_not_fit_is_told_in_one_line(tmp_path: Path) -> None:
    forecast(tmp_path)  # so that all libraries are loaded
    with (
        no_more_memory_than(megabytes=400),
        pytest.raises(UserError, match=r"60 pairs .* 6 \+ 6 tokens does not fit .* train\.batch_tokens"),
    ):
        forecast(tmp_path, "train.batch_tokens=100000", "model.hidden=300000")


# Every recipe

TINY = {
    "model.width": 8,
    "model.hidden": 8,
    "model.heads": 2,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "text.vocabulary": 300,
    "text.min_count": 1,
    "train.batch_tokens": 400,
    "train.validate_lines": 2,
    "decode.beam": 2,
    "search.beam": 2,
}
LINES = {"train": 24, "dev": 4, "test": 4}
ALPHABETS = {"moses": "abcdefgh", "spaces": "abcdefgh", "mecab": "あいうえおかきく"}


def made_up(recipe: Recipe, folder: Path) -> None:
    """Files as the recipe wants them, with a few lines each."""
    chance = random.Random(1)

    def lines(number: int, alphabet: str) -> list[str]:
        return [" ".join(chance.choices(alphabet, k=chance.randint(3, 9))) for _ in range(number)]

    for split, number in LINES.items():
        files: SplitFiles | None = getattr(recipe.data, split)
        assert files is not None, f"{recipe.run}: has no {split}"
        if files.captions is not None:
            captions = [f"{row // 2}.jpg\t{line}" for row, line in enumerate(lines(number, "abcdefgh"))]
            write_lines(folder / files.captions, captions)
            write_features(folder, files, images=max(LINES.values()))
        sides = ((files.source, recipe.text.source), (files.target, recipe.text.target))
        for path, side in (*sides, (files.draft, recipe.text.target)):
            if path is not None:
                write_text(folder / path, lines(number, ALPHABETS[side.split]))


def write_text(path: Path, lines: list[str]) -> None:
    if path.suffix == ".xz":
        path.write_bytes(lzma.compress("".join(f"{line}\n" for line in lines).encode()))
    else:
        write_lines(path, lines)


def write_features(folder: Path, files: SplitFiles, *, images: int) -> None:
    assert files.features is not None
    names = np.array([f"{image}.jpg" for image in range(images)])
    grid = np.random.default_rng(1).standard_normal((images, 3, 4)).astype(np.float32)
    np.savez(folder / files.features, names=names, grid=grid)


def without_mecab() -> dict[str, Any]:
    """All else of a Japanese recipe can be tried without its splitter."""
    return {} if importlib.util.find_spec("MeCab") else {"text.target.split": "spaces"}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_trains(path: Path, tmp_path: Path) -> None:
    plain = load_recipe(path, ["data.root=somewhere"])
    changes = TINY | {"data.root": tmp_path, "data.cache": "cache", "run": tmp_path / "run"}
    changes |= {"train.device": "cpu"}
    if not plain.model.abilities.beam_search:
        del changes["decode.beam"]
    if plain.text.target.split == "mecab":
        changes |= without_mecab()
    if "search" in plain.model_fields_set:  # what it says there is tried too
        changes |= {"order.name": "sao"}
    recipe = load_recipe(path, [f"{key}={value}" for key, value in changes.items()])
    made_up(recipe, tmp_path)
    estimated = dry_run(recipe, listener=Watcher())
    assert estimated.pairs + estimated.skipped == LINES["train"]
    assert estimated.updates == plain.train.steps
    assert (estimated.largest.search_seconds > 0) == recipe.adaptive
    assert contents(tmp_path / "run") == set()
