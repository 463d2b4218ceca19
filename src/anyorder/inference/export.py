"""A trained model to give away: a folder of its own, smaller, that says nothing of where it was trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch

from anyorder.config.recipe import Recipe
from anyorder.errors import UserError
from anyorder.inference.model_folder import (
    CONFIG_FILE,
    SCALES,
    Precision,
    load_trained,
    packed,
    save_trained,
    weights_of,
)

Key = TypeVar("Key")


def export(run: Path, folder: Path, *, precision: Precision) -> int:
    """Write the model of a run to another folder; returns how many bytes that takes.

    fp16 takes half the space of fp32, int8 a quarter; all are read as single precision again.
    """
    if (folder / CONFIG_FILE).exists():
        raise UserError(f"{folder}: is a model already; give another folder")
    trained = load_trained(run, device=torch.device("cpu"))
    weights = packed(weights_of(trained.model), precision)
    too_large = next((name for name, weight in weights.items() if not torch.isfinite(weight).all()), None)
    if precision != "fp32" and too_large is not None:
        name = too_large.removesuffix(SCALES)
        raise UserError(f"--precision {precision}: {name} has weights too large for it; use fp32")
    save_trained(folder, replace(trained, recipe=_placeless(trained.recipe, folder)), weights=weights)
    return sum(file.stat().st_size for file in folder.iterdir())


def _placeless(recipe: Recipe, folder: Path) -> Recipe:
    """Without the paths of one machine; files keep their names, to be found by another `data.root`."""
    splits = {
        name: files if files is None else files.model_copy(update=_named(dict(files)))
        for name, files in (
            ("train", recipe.data.train),
            ("dev", recipe.data.dev),
            ("test", recipe.data.test),
        )
    }
    order_files = {**recipe.order.files, **_named(recipe.order.files)}
    return recipe.model_copy(
        update={
            "run": Path(folder.name),
            "data": recipe.data.model_copy(update={"root": Path(), "cache": None, **splits}),
            "order": recipe.order.model_copy(update={"files": order_files}),
            "train": recipe.train.model_copy(update={"init": None}),
            "decode": recipe.decode.model_copy(update={"partners": (), "reverse": None}),
        }
    )


def _named(paths: Mapping[Key, object]) -> dict[Key, Path]:
    """Those that only one machine has, by their names alone."""
    return {
        key: Path(path.name) for key, path in paths.items() if isinstance(path, Path) and path.is_absolute()
    }
