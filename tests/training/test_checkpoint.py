"""Folders of models and checkpoints: whole or not there at all, and read back exactly."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import tiny_model
from corpora import full_disk, learned
from safetensors.numpy import load_file, save_file

from anyorder.errors import UserError
from anyorder.inference.model_folder import FORMAT, load_trained, load_weights, save_trained, weights_of
from anyorder.system.files import write_file
from anyorder.training.checkpoint import average, checkpoints, mean_of_last, prune, save_checkpoint

CPU = torch.device("cpu")


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    """A trained model that a test may break."""
    return shutil.copytree(learned().run, tmp_path / "model", ignore=shutil.ignore_patterns("last"))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def save(run: Path, step: int, *, value: float = 0.0) -> None:
    tensors = {"weight": torch.full((100,), value)}
    save_checkpoint(run, step=step, weights=tensors, optimizer=tensors, progress={"step": step})


# The model to use


def test_what_is_saved_is_read_back_bit_for_bit(model_folder: Path, tmp_path: Path) -> None:
    trained = load_trained(model_folder, device=CPU)
    save_trained(tmp_path / "copy", trained)
    again = load_trained(tmp_path / "copy", device=CPU)
    assert (tmp_path / "copy/model.safetensors").read_bytes() == (
        model_folder / "model.safetensors"
    ).read_bytes()
    assert again.recipe == trained.recipe
    assert again.scores == trained.scores
    assert again.common_words == trained.common_words
    assert again.tokenizer.to_json() == trained.tokenizer.to_json()


def test_a_model_folder_holds_four_files_and_no_pickle(tmp_path: Path) -> None:
    save_trained(tmp_path / "copy", load_trained(learned().run, device=CPU))
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "README.md",
    }
    assert json.loads((tmp_path / "copy/config.json").read_text())["format"] == FORMAT


def test_a_full_disk_leaves_scores_and_card_of_the_weights_that_were_there(model_folder: Path) -> None:
    before = contents(model_folder)
    trained = replace(load_trained(model_folder, device=CPU), scores={"dev_loss": 0.0})
    largest = len(before["model.safetensors"]) - 1
    assert len(before["config.json"]) < largest
    with (
        full_disk(largest_file=largest),
        pytest.raises(UserError, match=r"model.safetensors: can't be written"),
    ):
        save_trained(model_folder, trained)
    assert contents(model_folder) == before


def test_a_folder_becomes_a_model_by_the_last_file(tmp_path: Path) -> None:
    trained = load_trained(learned().run, device=CPU)
    (tmp_path / "config.json").mkdir()  # so that nothing can be written there
    with pytest.raises(UserError, match=r"config.json: can't be written"):
        save_trained(tmp_path, trained)
    assert {"model.safetensors", "tokenizer.json", "README.md"} <= {path.name for path in tmp_path.iterdir()}


def test_a_card_tells_scores_or_that_there_are_none(tmp_path: Path) -> None:
    trained = load_trained(learned().run, device=CPU)
    save_trained(tmp_path / "a", replace(trained, scores={"step": 20, "dev_bleu": 12.345}))
    save_trained(tmp_path / "b", replace(trained, scores={"averaged_steps": [1, 2]}))
    assert (
        "| dev | |\n|---|---|\n| step | 20 |\n| dev_bleu | 12.35 |\n"
        in (tmp_path / "a/README.md").read_text()
    )
    unscored = (tmp_path / "b/README.md").read_text()
    assert "These weights were not validated." in unscored
    assert "|" not in unscored


def test_shared_embeddings_are_saved_once() -> None:
    weights = weights_of(tiny_model(share="all"))
    assert len({tensor.data_ptr() for tensor in weights.values()}) == len(weights)


def _delete(folder: Path) -> None:
    shutil.rmtree(folder)


def _without_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def _of_another_kind(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "bert"}')


def _newer(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "format": FORMAT + 1}))


def _with_a_format_alone(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"format": FORMAT}))


def _not_even_json(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def _with_wrong_shape(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["shape"]["vocabulary"] = "many"
    (folder / "config.json").write_text(json.dumps(config))


def _with_wrong_recipe(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["recipe"]["model"]["widht"] = 16
    (folder / "config.json").write_text(json.dumps(config))


def _cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def _empty(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")


def _without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def _without_vocabulary(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def _without_one_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["encoder_norm.bias"]
    save_file(weights, folder / "model.safetensors")


def _with_one_weight_more(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, "extra": np.zeros(1, dtype=np.float32)}, folder / "model.safetensors")


def _with_a_longer_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, "encoder_norm.bias": np.zeros(17, dtype=np.float32)}, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("damage", "answer"),
    [
        (_delete, ": no such folder"),
        (_without_config, ": no config.json in it, so it is no trained model"),
        (_of_another_kind, "/config.json: not a model's configuration"),
        (_not_even_json, "/config.json: not a model's configuration"),
        (_with_a_format_alone, "/config.json: anyorder: missing (and 4 more)"),
        (_with_wrong_shape, '/config.json: shape.vocabulary = "many": must be a valid integer'),
        (_newer, f"/config.json: is of format {FORMAT + 1}, but this anyorder"),
        (_with_wrong_recipe, "/config.json: recipe.model.widht = 16: no such key; did you mean width?"),
        (_cut, "/model.safetensors: broken: "),
        (_empty, "/model.safetensors: broken: "),
        (_without_weights, "/model.safetensors: no such file"),
        (_without_vocabulary, "/tokenizer.json: no such file"),
        (_without_one_weight, "/model.safetensors: no weights for encoder_norm.bias, which this model has"),
        (_with_one_weight_more, "/model.safetensors: has weights for extra, which this model has not"),
        (
            _with_a_longer_weight,
            "/model.safetensors: encoder_norm.bias is of shape [17], but this model's is [16]",
        ),
    ],
)
def test_a_broken_folder_is_refused_in_one_line(
    model_folder: Path, damage: Callable[[Path], None], answer: str
) -> None:
    damage(model_folder)
    with pytest.raises(UserError) as refused:
        load_trained(model_folder, device=CPU)
    assert str(refused.value).startswith(f"{model_folder}{answer}")
    assert "\n" not in str(refused.value)


def test_a_file_is_no_model_folder(model_folder: Path) -> None:
    with pytest.raises(UserError, match=r"config.json: not a folder; give the folder of a trained model"):
        load_trained(model_folder / "config.json", device=CPU)


def test_weights_of_another_model_change_nothing() -> None:
    model = tiny_model(width=8)
    before = {name: value.clone() for name, value in weights_of(model).items()}
    with pytest.raises(UserError, match="but this model's is"):
        load_weights(model, weights_of(tiny_model(width=12)), origin=Path("other"))
    assert all(torch.equal(before[name], value) for name, value in weights_of(model).items())


# The state to go on training


def test_checkpoints_come_oldest_first_and_unfinished_ones_do_not_count(tmp_path: Path) -> None:
    for step in (10, 9, 100):
        save(tmp_path, step, value=step)
    (tmp_path / "last/.unfinished-200").mkdir()
    (tmp_path / "last/step-else").mkdir()
    found = checkpoints(tmp_path)
    assert [checkpoint.step for checkpoint in found] == [9, 10, 100]
    assert [float(checkpoint.weights()["weight"][0]) for checkpoint in found] == [9, 10, 100]
    assert found[-1].progress() == {"step": 100}


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        ("{", "not the progress of a training"),
        ("[1]", "not the progress of a training"),
        ('{"step": 1}', "not the progress of a training"),
        (json.dumps({"format": FORMAT + 1}), f"is of format {FORMAT + 1}, but this anyorder"),
        (None, "can't be read: No such file or directory"),
    ],
)
def test_broken_progress_is_refused_in_one_line(tmp_path: Path, content: str | None, answer: str) -> None:
    save(tmp_path, 1)
    (checkpoint,) = checkpoints(tmp_path)
    path = checkpoint.folder / "progress.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError) as refused:
        checkpoint.progress()
    assert str(refused.value).startswith(f"{path}: {answer}")
    assert "\n" not in str(refused.value)


def test_there_are_no_checkpoints_in_no_run(tmp_path: Path) -> None:
    assert checkpoints(tmp_path / "nowhere") == []


def test_a_full_disk_leaves_the_checkpoint_that_was_there(tmp_path: Path) -> None:
    save(tmp_path, 1, value=1)
    for step in (1, 2):  # again at the same step, or later
        with full_disk(largest_file=100), pytest.raises(UserError, match="can't be written: File too large"):
            save(tmp_path, step, value=2)
        found = checkpoints(tmp_path)
        assert [checkpoint.step for checkpoint in found] == [1]
        assert float(found[0].weights()["weight"][0]) == 1
        assert [path.name for path in (tmp_path / "last").iterdir()] == ["step-1"]


def test_a_full_disk_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_file(path, b"before")
    with full_disk(largest_file=3), pytest.raises(UserError, match=r"file: can't be written: File too large"):
        write_file(path, b"afterwards")
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_pruning_keeps_the_last_and_only_the_newest_optimizer(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step)
    found = checkpoints(tmp_path)
    prune(found[1:], found)
    assert [checkpoint.step for checkpoint in checkpoints(tmp_path)] == [2, 3]
    assert not (found[1].folder / "optimizer.safetensors").exists()
    assert found[1].weights().keys() == {"weight"}
    assert found[2].optimizer().keys() == {"weight"}


def test_an_average_is_the_mean_of_each_weight() -> None:
    chance = np.random.default_rng(1)
    models = [
        {
            name: chance.standard_normal(shape).astype(np.float32)
            for name, shape in {"a": (3, 4), "b": (5,)}.items()
        }
        for _ in range(3)
    ]
    mean = average([{name: torch.from_numpy(value) for name, value in model.items()} for model in models])
    for name in ("a", "b"):
        wanted = np.mean([model[name].astype(np.float64) for model in models], axis=0).astype(np.float32)
        np.testing.assert_array_equal(mean[name].numpy(), wanted)


def test_the_average_of_one_is_itself() -> None:
    weights = weights_of(tiny_model(dtype=torch.float32))
    mean = average([weights])
    assert mean.keys() == weights.keys()
    assert all(torch.equal(mean[name], value) for name, value in weights.items())


def test_the_mean_of_a_run_is_that_of_its_last_checkpoints(tmp_path: Path) -> None:
    for step in (1, 2, 6):
        save(tmp_path, step, value=step)
    for last, steps in {1: [6], 2: [2, 6], 3: [1, 2, 6], 4: [1, 2, 6]}.items():
        mean = mean_of_last(tmp_path, last=last)
        assert mean.steps == steps
        assert float(mean.weights["weight"][0]) == pytest.approx(np.mean(steps))
