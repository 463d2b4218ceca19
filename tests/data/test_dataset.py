from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacremoses
from corpora import full_disk

from anyorder.config.recipe import Recipe
from anyorder.data.dataset import Prepared, prepare
from anyorder.data.orderer import Line, prepare_order
from anyorder.errors import UserError

TARGETS = {
    "train": ["one two, three", "one two", "four", "one five unheard"],
    "dev": ["two one", "new one two"],
}
SKIPPED = {"train": 1, "dev": 0}  # an empty line is put between


def recipe_of(folder: Path, *, order: str) -> Recipe:
    for split, targets in TARGETS.items():
        lines = [*targets[:1], *[""] * SKIPPED[split], *targets[1:]]
        pairs = [{"source": f"numbers {line}", "target": line} for line in lines]
        (folder / f"{split}.jsonl").write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))
    data: dict[str, Any] = {split: {"jsonl": f"{split}.jsonl"} for split in TARGETS}
    data |= {"root": folder, "cache": "cache", "bad_lines": "skip"}
    text = {"vocabulary": 60}
    return Recipe.model_validate({"run": "run", "data": data, "text": text, "order": {"name": order}})


def ordered(prepared: Prepared) -> dict[str, list[list[int]]]:
    """Positions of each target of both splits."""
    datasets = {"train": prepared.train, "dev": prepared.dev}
    return {
        split: [dataset.example(index, seed=1, epoch=1).order.tolist() for index in range(len(dataset))]
        for split, dataset in datasets.items()
    }


# Laws


@pytest.mark.parametrize("order", ["l2r", "r2l", "odd", "blt", "cf", "rf"])
def test_positions_are_those_of_the_tokenised_text(tmp_path: Path, order: str) -> None:
    recipe = recipe_of(tmp_path, order=order)
    prepared = prepare(recipe)
    orderer = prepare_order(recipe.order, split="train", common=prepared.common_words)
    for split, positions in ordered(prepared).items():
        encoded = prepared.tokenizer.encode_all(TARGETS[split], "target")
        lines = [Line(number=1, words=tokens.words, pieces=tokens.pieces) for tokens in encoded]
        assert positions == list(orderer.positions(lines))


def test_random_orders_differ_from_epoch_to_epoch(tmp_path: Path) -> None:
    train = prepare(recipe_of(tmp_path, order="rnd")).train
    drawn = {tuple(train.example(0, seed=1, epoch=epoch).order.tolist()) for epoch in range(20)}
    assert len(drawn) > 1
    assert {tuple(sorted(order)) for order in drawn} == {tuple(range(1, len(train.corpus.target[0]) + 1))}


def test_the_second_time_nothing_is_done(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, order="rf")
    done: list[str] = []
    first = prepare(recipe, progress=lambda what, done_lines, total: done.append(what))
    assert set(done) == {
        *("learning the vocabulary", "tokenising train", "tokenising dev", "ordering train", "ordering dev")
    }
    done.clear()
    again = prepare(recipe, progress=lambda what, done_lines, total: done.append(what))
    assert done == []
    assert ordered(again) == ordered(first)
    assert again.common_words == first.common_words
    assert again.train.corpus.skipped == first.train.corpus.skipped


# What it costs


@pytest.mark.parametrize(("order", "times"), [("l2r", 2), ("blt", 2), ("rnd", 2), ("rf", 3)])
def test_a_training_target_is_split_for_the_vocabulary_the_tokens_and_orders_over_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, times: int
) -> None:
    split_lines: list[str] = []
    tokenize = sacremoses.MosesTokenizer.tokenize

    def recorded(self: sacremoses.MosesTokenizer, line: str, **settings: bool) -> list[str]:
        split_lines.append(line)
        return tokenize(self, line, **settings)

    monkeypatch.setattr(sacremoses.MosesTokenizer, "tokenize", recorded)
    prepare(recipe_of(tmp_path, order=order))
    assert [split_lines.count(line) for line in TARGETS["train"]] == [times] * len(TARGETS["train"])


# Tables


def test_what_was_skipped_and_what_is_common(tmp_path: Path) -> None:
    prepared = prepare(recipe_of(tmp_path, order="l2r"))
    assert prepared.train.corpus.skipped == {"empty line": 1}
    assert prepared.dev.corpus.skipped == {}
    assert prepared.train.corpus.lines.tolist() == [1, 3, 4, 5]
    # Of ten running words and a comma: one, three times, and two, twice.
    assert prepared.common_words == {"one", "two"}


def test_the_width_of_features_is_the_models(tmp_path: Path) -> None:
    for split, targets in TARGETS.items():
        np.save(tmp_path / f"{split}.npy", np.zeros((len(targets), 2, 3), dtype=np.float32))
        (tmp_path / f"{split}.en").write_text("".join(f"{line}\n" for line in targets))
    data: dict[str, Any] = {split: {"features": f"{split}.npy", "target": f"{split}.en"} for split in TARGETS}
    data |= {"root": tmp_path, "cache": "cache"}
    recipe = Recipe.model_validate({"run": "run", "data": data, "text": {"vocabulary": 60}})
    assert prepare(recipe).shape.features == 3
    text = recipe_of(tmp_path, order="l2r")
    assert prepare(text).shape.features == 0


# A full disk


def test_a_full_disk_stops_in_one_line_and_preparing_goes_on_later(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, order="blt")
    room = 130  # for a vocabulary or an array of orders there is none
    with full_disk(largest_file=room), pytest.raises(UserError, match=r"can't be written: File too large"):
        prepare(recipe)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert len(prepare(recipe).train) == len(TARGETS["train"])
