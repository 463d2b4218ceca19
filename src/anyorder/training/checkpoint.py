"""The state to go on training from, and means of the last checkpoints.

RUN/last/step-1000/model.safetensors optimizer.safetensors progress.json"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from anyorder.errors import UserError
from anyorder.inference.model_folder import (
    CONFIG_FILE,
    FORMAT,
    MODEL_FILE,
    Weights,
    load_trained,
    read_tensors,
    save_trained,
)
from anyorder.system.files import make_folder, read_versioned, write_file


@dataclass(frozen=True)
class Mean:
    """Weights, and the steps of the checkpoints that they are the mean of."""

    weights: Weights
    steps: list[int]


def mean_of_last(run: Path, *, last: int) -> Mean:
    """Of so many of a run's checkpoints, or of all where there are fewer, but of one at least."""
    taken = checkpoints(run)[-last:]
    return Mean(
        weights=average(checkpoint.weights() for checkpoint in taken),
        steps=[checkpoint.step for checkpoint in taken],
    )


def average(weights: Iterable[Mapping[str, Tensor]]) -> Weights:
    """The mean of several models' weights, summed in double precision."""
    total: dict[str, Tensor] = {}
    count = 0
    for one in weights:
        count += 1
        for name, value in one.items():
            total[name] = total[name] + value.double() if name in total else value.double()
    assert count, "an average needs at least one model"
    return {name: (value / count).float() for name, value in total.items()}


def save_average(run: Path, *, last: int, folder: Path) -> Mean:
    """Write the mean of exactly so many checkpoints as a model that nobody has validated yet."""
    trained = load_trained(run, device=torch.device("cpu"))
    found = len(checkpoints(run))
    if found < last:
        raise UserError(f"{run}: has {found} checkpoints; --last {last} given, must be at most that")
    if (folder / CONFIG_FILE).exists():
        raise UserError(f"{folder}: is a model already; give another --output")
    mean = mean_of_last(run, last=last)
    save_trained(folder, replace(trained, scores={"averaged_steps": mean.steps}), weights=mean.weights)
    return mean


OPTIMIZER_FILE, PROGRESS_FILE = "optimizer.safetensors", "progress.json"


# --- the state to go on training ---


@dataclass(frozen=True)
class Checkpoint:
    """A moment of training."""

    folder: Path
    step: int

    def weights(self) -> Weights:
        """The model's."""
        return read_tensors(self.folder / MODEL_FILE)

    def optimizer(self) -> Weights:
        """Its moments, by parameter."""
        return read_tensors(self.folder / OPTIMIZER_FILE)

    def progress(self) -> dict[str, Any]:
        """Everything else that the loop needs."""
        path = self.folder / PROGRESS_FILE
        try:
            values = read_versioned(path, newest=FORMAT, what="the progress of a training")
        except OSError as error:
            raise UserError(f"{path}: can't be read: {error.strerror}") from None
        return {name: value for name, value in values.items() if name != "format"}


def save_checkpoint(
    run: Path, *, step: int, weights: Weights, optimizer: Weights, progress: Mapping[str, Any]
) -> Checkpoint:
    """Write a checkpoint folder, whole or not at all."""
    final = run / "last" / f"step-{step}"
    unfinished = run / "last" / f".unfinished-{step}"
    shutil.rmtree(unfinished, ignore_errors=True)
    make_folder(unfinished)
    try:
        write_file(unfinished / MODEL_FILE, tensors_to_bytes(weights))
        write_file(unfinished / OPTIMIZER_FILE, tensors_to_bytes(optimizer))
        write_file(unfinished / PROGRESS_FILE, json.dumps({"format": FORMAT, **progress}, indent=2).encode())
        shutil.rmtree(final, ignore_errors=True)
        unfinished.rename(final)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return Checkpoint(folder=final, step=step)


def checkpoints(run: Path) -> list[Checkpoint]:
    """Those that are there, oldest first."""
    found = [
        Checkpoint(folder=folder, step=int(folder.name.removeprefix("step-")))
        for folder in (run / "last").glob("step-*")
        if folder.name.removeprefix("step-").isdecimal()
    ]
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def prune(kept: Sequence[Checkpoint], found: Iterable[Checkpoint]) -> None:
    """Remove all but those to keep; only the newest keeps the optimizer's state, the larger part."""
    for checkpoint in found:
        if checkpoint not in kept:
            shutil.rmtree(checkpoint.folder, ignore_errors=True)
        elif checkpoint != kept[-1]:
            (checkpoint.folder / OPTIMIZER_FILE).unlink(missing_ok=True)
