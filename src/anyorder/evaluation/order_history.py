"""How the orders of a model formed over its training, as its checkpoints show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch

from anyorder.config.data import Splits
from anyorder.config.recipe import Recipe
from anyorder.data.readers import read_lines, split_files
from anyorder.errors import UserError
from anyorder.evaluation.order_study import OrderedSentence, decode_orders
from anyorder.inference.model_folder import load_trained, load_weights
from anyorder.system.progress import TaskProgress
from anyorder.training.checkpoint import checkpoints


@dataclass(frozen=True)
class OrdersAtStep:
    """When a checkpoint writes each position."""

    step: int  # updates made
    mean_step: dict[int, float]  # by position: 0 if it is written first, 1 if it is written last
    sentences: int  # finished ones of two tokens or more


def order_history(
    run: Path,
    *,
    split: Splits,
    lines: int,
    around: str | None,
    device: torch.device,
    progress: TaskProgress | None = None,
) -> list[OrdersAtStep]:
    """Decode the first lines of a split with every checkpoint of a run, oldest first.

    around: count positions from the source word that begins with this, where sources and targets match word
    by word; None: count them from the first word, as 1.
    """
    found = checkpoints(run)
    if len(found) < 2:
        raise UserError(
            f"{run}: has {len(found)} checkpoints, and a history needs two or more; "
            "train with a larger train.keep"
        )
    trained = load_trained(run, device=device)
    files = split_files(trained.recipe, split)
    centres = {} if around is None else _centres(trained.recipe, split, around)
    history = []
    for number, checkpoint in enumerate(found, start=1):
        load_weights(trained.model, checkpoint.weights(), origin=checkpoint.folder)
        written = decode_orders(trained, files, lines=lines, device=device).sentences
        chosen = [one for one in written if around is None or one.line in centres]
        history.append(_at_step(checkpoint.step, chosen, centres))
        if progress is not None:
            progress(number, len(found))
    return history


def _centres(recipe: Recipe, split: Splits, around: str) -> dict[int, int]:
    """The place of the marked word in each source that has one, by line; both counted from 1."""
    files = getattr(recipe.data, split)
    if files is None or files.source is None:
        raise UserError(f"--around {around}: needs sources of text, one per line, as data.{split}.source")
    centres = {}
    for line, text in read_lines(recipe.path(files.source)):
        place = next((place for place, word in enumerate(text.split(), 1) if word.startswith(around)), None)
        if place is not None:
            centres[line] = place
    if not centres:
        raise UserError(f"--around {around}: no word of data.{split}.source begins with it")
    return centres


def _at_step(step: int, sentences: Sequence[OrderedSentence], centres: Mapping[int, int]) -> OrdersAtStep:
    steps: defaultdict[int, list[float]] = defaultdict(list)
    long = [one for one in sentences if len(one.positions) > 1]
    for one in long:
        last = len(one.positions) - 1
        for written, position in enumerate(one.positions):
            steps[position - centres.get(one.line, 0)].append(written / last)
    means = {position: fmean(steps[position]) for position in sorted(steps)}
    return OrdersAtStep(step=step, mean_step=means, sentences=len(long))
