"""Find the orders of a run's training pairs anew, apart from its training.

The search is the one that training would make at its next update, so `train --resume` uses what was found.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from anyorder.adaptive.store import OrderStore, SearchStopped, kept_folder, search_all
from anyorder.config.recipe import Recipe
from anyorder.data.dataset import Dataset, prepare
from anyorder.errors import UserError
from anyorder.inference.model_folder import load_weights
from anyorder.insertion import NEG_INF
from anyorder.models.registry import build_model, ordered
from anyorder.system.distributed import processes
from anyorder.system.files import published_file
from anyorder.system.interruption import interruption
from anyorder.text.tokenizer import Tokenizer
from anyorder.training.checkpoint import checkpoints
from anyorder.training.run_folder import recipe_of_run


def refresh_orders(
    recipe: Recipe,
    *,
    output: Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Path | None:
    """Search with a run's last checkpoint; returns where the orders lie, or None if it was interrupted.

    output: a JSON file to write them to as well, a line a pair.
    """
    found = checkpoints(recipe.run)
    if not found:
        raise UserError(f"{recipe.run}: has no checkpoint to search with; train it first")
    step = found[-1].step + 1
    with processes(recipe.train.device) as these:
        told = progress if these.first else None
        prepared = prepare(recipe, progress=told)
        data = replace(prepared.train, dropout=None)  # orders are of pieces that stay the same
        model = ordered(build_model(recipe, prepared.shape), purpose="search-orders").to(these.device)
        if output is None:
            _refuse_what_training_would_not_read(recipe, step=step)
        load_weights(model, found[-1].weights(), origin=found[-1].folder)
        with interruption() as interrupted:
            try:
                kept = search_all(
                    model,
                    data,
                    recipe,
                    these,
                    step=step,
                    last_step=found[-1].progress()["searched"]["step"],
                    progress=told and (lambda done, total: told("searching orders", done, total)),
                    interrupted=interrupted,
                )
            except SearchStopped:
                return None
        if these.first and output is not None:
            with published_file(output) as file:
                file.writelines(_lines(kept, data, prepared.tokenizer))
    return kept_folder(recipe.run, step)


def _refuse_what_training_would_not_read(recipe: Recipe, *, step: int) -> None:
    """A search takes long; without a file of its own it is for `train --resume` alone."""
    reason = None
    if not recipe.adaptive:
        reason = f'order.name = "{recipe.order.name}" learns from no searched orders, only sao does'
    elif not recipe.search.refresh:
        reason = "search.refresh = 0 searches at every update anew"
    elif step <= recipe.search.bootstrap_steps:
        reason = (
            f"update {step} is among the first search.bootstrap_steps = {recipe.search.bootstrap_steps}, "
            f"in the order {recipe.search.bootstrap}"
        )
    elif recipe.search != recipe_of_run(recipe.run).search:
        reason = "is trained by another [search] than this one"
    if reason is not None:
        raise UserError(f"{recipe.run}: {reason}; --output FILE writes orders that training does not use")


def _lines(kept: OrderStore, data: Dataset, tokenizer: Tokenizer) -> Iterator[bytes]:
    """Each pair's orders as JSON, best first, in the order of the training file."""
    for pair, line in enumerate(data.corpus.lines.tolist()):
        found = kept.of(np.array([pair]), device=torch.device("cpu"))
        orders = zip(found.positions[0].tolist(), found.log_probs[0].tolist(), strict=True)
        record = {
            "line": line,
            "tokens": [
                tokenizer.piece(token, own=data.corpus.own(pair))
                for token in data.corpus.target[pair].tolist()
            ],
            "orders": [
                {"positions": positions, "log_prob": log_prob}
                for positions, log_prob in orders
                if log_prob > NEG_INF
            ],
        }
        yield json.dumps(record, ensure_ascii=False).encode() + b"\n"
