"""Exported models are smaller, nearly as good, and free of the paths of the machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from corpora import learned
from safetensors.torch import load_file, save_file

from anyorder.errors import UserError
from anyorder.inference.generator import Generator
from anyorder.inference.model_folder import CONFIG_FILE, MODEL_FILE, export, load_trained, save_trained


def test_half_the_size_and_next_to_the_same_scores(tmp_path: Path) -> None:
    run = learned().run
    sizes = {
        precision: export(run, tmp_path / precision, precision=precision) for precision in ("fp32", "fp16")
    }
    weights = {precision: load_file(tmp_path / precision / MODEL_FILE) for precision in sizes}
    assert {weight.dtype for weight in weights["fp16"].values()} == {torch.float16}
    assert sizes["fp16"] < sizes["fp32"]
    own, whole, half = (
        Generator.load(folder).score(["a b c"], ["c b a"])[0].score
        for folder in (run, tmp_path / "fp32", tmp_path / "fp16")
    )
    assert whole == own
    assert half == pytest.approx(own, rel=1e-2)


def test_eight_bits_are_a_quarter_of_the_size_and_off_by_half_a_step_at_most(tmp_path: Path) -> None:
    run = learned().run
    for precision in ("fp32", "int8"):
        export(run, tmp_path / precision, precision=precision)
    bits = {tensor.dtype for tensor in load_file(tmp_path / "int8" / MODEL_FILE).values()}
    assert bits == {torch.int8, torch.float16, torch.float32}
    whole, small = (
        dict(load_trained(tmp_path / precision, device=torch.device("cpu")).model.named_parameters())
        for precision in ("fp32", "int8")
    )
    assert small.keys() == whole.keys()
    for name, weight in whole.items():
        if weight.dim() > 1:
            step = weight.abs().amax(dim=-1, keepdim=True) / 127
            assert ((small[name] - weight).abs() <= step * 0.5001).all(), name
        else:
            assert torch.equal(small[name], weight.half().float()), name
    own, copied = (
        Generator.load(folder).score(["a b c"], ["c b a"])[0].score for folder in (run, tmp_path / "int8")
    )
    assert copied == pytest.approx(own, rel=0.1)
    bytes_of = {name: (tmp_path / name / MODEL_FILE).stat().st_size for name in ("fp32", "int8")}
    matrices = sum(weight.numel() for weight in whole.values() if weight.dim() > 1)
    rows = sum(weight.numel() // weight.shape[-1] for weight in whole.values() if weight.dim() > 1)
    assert bytes_of["int8"] < bytes_of["fp32"] - 3 * matrices + 4 * rows + 100 * len(whole)


def test_eight_bits_of_eight_bits_are_the_same(tmp_path: Path) -> None:
    export(learned().run, tmp_path / "once", precision="int8")
    export(tmp_path / "once", tmp_path / "twice", precision="int8")
    once, twice = (load_file(tmp_path / name / MODEL_FILE) for name in ("once", "twice"))
    assert once.keys() == twice.keys()
    for name, tensor in once.items():
        if tensor.dtype == torch.int8:
            assert torch.equal(tensor, twice[name]), name
        else:
            torch.testing.assert_close(tensor, twice[name])


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
    with pytest.raises(UserError, match=r"^--precision fp16: word_head.project.weight has weights too large"):
        export(given, tmp_path / "half", precision="fp16")
    weights["word_head.project.weight"][0, 0] = float("inf")
    save_file(weights, given / MODEL_FILE)
    with pytest.raises(UserError, match=r"^--precision int8: word_head.project.weight has weights too large"):
        export(given, tmp_path / "half", precision="int8")
    assert not (tmp_path / "half").exists()
