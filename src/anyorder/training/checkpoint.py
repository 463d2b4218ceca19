"""Checkpoints, from which a training goes on, and means of their weights.

RUN/last/step-1000/model.safetensors optimizer.safetensors progress.json
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from anyorder.adaptive.schedule import LastSearch
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
from anyorder.system.files import UNFINISHED, make_folder, read_versioned, reading, write_file
from anyorder.system.locks import locked
from anyorder.training.metrics_log import Window

CHECKPOINT_FOLDER = "last"  # in the folder of a run
OPTIMIZER_FILE, PROGRESS_FILE = "optimizer.safetensors", "progress.json"
LAST_SEARCH_KEY = "searched"  # of progress.json


@dataclass(frozen=True)
class Checkpoint:
    """A folder with all that a training needs to go on after a step."""

    folder: Path
    step: int

    def weights(self) -> Weights:
        """The weights of the model."""
        return read_tensors(self.folder / MODEL_FILE)

    def optimizer(self) -> Weights:
        """The moments of the optimiser, by parameter."""
        return read_tensors(self.folder / OPTIMIZER_FILE)

    def progress(self) -> dict[str, Any]:
        """The content of progress.json."""
        path = self.folder / PROGRESS_FILE
        try:
            values = read_versioned(path, newest=FORMAT, what="the progress of a training")
        except OSError as error:
            raise UserError(f"{path}: can't be read: {error.strerror}") from None
        with reading(path):
            if not isinstance(values["step"], int) or values["step"] != self.step:
                raise ValueError(f"step = {values['step']}, but its folder is {self.folder.name}")
        return {name: value for name, value in values.items() if name != "format"}


@dataclass(frozen=True)
class TrainingProgress:
    """How far a training has come: all that a checkpoint records beside weights and moments."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # updates made in this epoch
    validated: int = 0  # step of the last validation
    best: tuple[float, float] | None = None  # rank of the best model: its dev score, then minus its loss
    since_best: int = 0  # validations since then
    seconds: float = 0.0  # of all updates and the searches for their orders
    data: str = ""  # key of the training data and their orders
    last_search: LastSearch = field(default_factory=LastSearch)
    window: Window = field(default_factory=Window)
    scale: dict[str, Any] = field(default_factory=dict)  # state of the gradient scaler, for fp16

    @classmethod
    def of_checkpoint(cls, checkpoint: Checkpoint) -> TrainingProgress:
        """Read the progress of a checkpoint."""
        saved = checkpoint.progress()
        others = {name: value for name, value in saved.items() if name != LAST_SEARCH_KEY}
        with reading(checkpoint.folder / PROGRESS_FILE):
            read = {
                "best": saved["best"] and tuple(saved["best"]),
                "window": Window(**saved["window"]),
                "validated": saved.get("validated", saved["step"]),  # older checkpoints lack this key
            }
            return cls(**others | read, last_search=last_search_of(saved))

    def to_json(self) -> dict[str, Any]:
        """The content of progress.json."""
        values = asdict(self)
        last_search = values.pop("last_search")
        return {**values, LAST_SEARCH_KEY: last_search}


def last_search_of(progress: Mapping[str, Any]) -> LastSearch:
    """When orders were last searched, by the content of progress.json."""
    return LastSearch(**progress[LAST_SEARCH_KEY])


def save_checkpoint(
    run: Path, *, step: int, weights: Weights, optimizer: Weights, progress: Mapping[str, Any]
) -> Checkpoint:
    """Write a checkpoint, whole or not at all."""
    final = run / CHECKPOINT_FOLDER / f"step-{step}"
    unfinished = run / CHECKPOINT_FOLDER / f"{UNFINISHED}-{step}"
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
    """The complete checkpoints of a run, oldest first."""
    found = [
        Checkpoint(folder=folder, step=int(folder.name.removeprefix("step-")))
        for folder in (run / CHECKPOINT_FOLDER).glob("step-*")
        if folder.name.removeprefix("step-").isdecimal()
    ]
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def prune(keep: Sequence[Checkpoint], found: Iterable[Checkpoint]) -> None:
    """Remove all checkpoints but those to keep, and the moments of all but the newest, which are large."""
    for checkpoint in found:
        if checkpoint not in keep:
            shutil.rmtree(checkpoint.folder, ignore_errors=True)
        elif checkpoint != keep[-1]:
            (checkpoint.folder / OPTIMIZER_FILE).unlink(missing_ok=True)


# --- means of weights ---


@dataclass(frozen=True)
class AveragedWeights:
    """The mean of several checkpoints' weights."""

    weights: Weights
    steps: list[int]  # of the checkpoints


def mean_of_last(run: Path, *, last: int) -> AveragedWeights:
    """The mean of a run's last checkpoints, or of all if there are fewer; there must be at least one."""
    taken = checkpoints(run)[-last:]
    return AveragedWeights(
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


def save_average(run: Path, *, last: int, folder: Path) -> AveragedWeights:
    """Write the mean of a run's last checkpoints as a model without dev scores; fewer are refused."""
    trained = load_trained(run, device=torch.device("cpu"))
    found = len(checkpoints(run))
    if found < last:
        raise UserError(f"{run}: has {found} checkpoints; --last {last} given, must be at most that")
    with locked(folder):
        if (folder / CONFIG_FILE).exists():
            raise UserError(f"{folder}: is a model already; give another --output")
        mean = mean_of_last(run, last=last)
        save_trained(folder, replace(trained, scores={"averaged_steps": mean.steps}), weights=mean.weights)
    return mean
