"""Models of the mean weights of a run's last checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from anyorder.errors import UserError
from anyorder.runs.checkpoint import CONFIG_FILE, Weights, checkpoints, load_trained, save_trained


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
