"""Models to give away: smaller, without a trace of where they come from, and as good."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from corpora import learned
from safetensors.torch import load_file, save_file

from anyorder.ground.errors import UserError
from anyorder.runs.checkpoint import CONFIG_FILE, MODEL_FILE, load_trained, save_trained
from anyorder.runs.export import export
from anyorder.runs.generate import Writer


def test_half_the_size_and_next_to_the_same_scores(tmp_path: Path) -> None:
    run = learned().run
    sizes = {
        precision: export(run, tmp_path / precision, precision=precision) for precision in ("fp32", "fp16")
    }
    weights = {precision: load_file(tmp_path / precision / MODEL_FILE) for precision in sizes}
    assert {weight.dtype for weight in weights["fp16"].values()} == {torch.float16}
    assert sizes["fp16"] < sizes["fp32"]
    own, whole, half = (
        Writer.load(folder).score(["a b c"], ["c b a"])[0].score
        for folder in (run, tmp_path / "fp32", tmp_path / "fp16")
    )
    assert whole == own
    assert half == pytest.approx(own, rel=1e-2)


def test_paths_of_the_machine_stay_there(tmp_path: Path) -> None:
    run = learned().run
    export(run, tmp_path / "given", precision="fp16")
    configuration = json.loads((tmp_path / "given" / CONFIG_FILE).read_text())
    recipe = configuration["recipe"]
    assert (recipe["run"], recipe["data"]["root"], recipe["data"]["cache"]) == ("given", ".", None)
    assert recipe["data"]["train"]["target"] == "train.target"
    everything = "".join(
        file.read_text() for file in (tmp_path / "given").iterdir() if file.name != MODEL_FILE
    )
    assert str(run.parent) not in everything


def test_absolute_paths_of_data_become_names(tmp_path: Path) -> None:
    trained = load_trained(learned().run, device=torch.device("cpu"))
    recipe = trained.recipe
    data = recipe.data.model_copy(
        update={"train": recipe.data.train.model_copy(update={"source": Path("/home/me/train.source")})}
    )
    order = recipe.order.model_copy(update={"files": {"train": Path("/home/me/order"), "dev": Path("dev/o")}})
    placed = replace(trained, recipe=recipe.model_copy(update={"data": data, "order": order}))
    save_trained(tmp_path / "placed", placed)
    export(tmp_path / "placed", tmp_path / "given", precision="fp32")
    found = json.loads((tmp_path / "given" / CONFIG_FILE).read_text())["recipe"]
    assert found["data"]["train"]["source"] == "train.source"
    assert found["order"]["files"] == {"train": "order", "dev": "dev/o"}


def test_no_model_is_overwritten_and_no_weight_becomes_infinite(tmp_path: Path) -> None:
    given = tmp_path / "given"
    export(learned().run, given, precision="fp32")
    with pytest.raises(UserError, match=r"is a model already"):
        export(learned().run, given, precision="fp32")
    weights = load_file(given / MODEL_FILE)
    weights["word_head.project.weight"][0, 0] = 1e6
    save_file(weights, given / MODEL_FILE)
    with pytest.raises(UserError, match=r"word_head.project.weight has weights too large"):
        export(given, tmp_path / "half", precision="fp16")
    assert not (tmp_path / "half").exists()
