"""Searching the orders of a run's training pairs apart from its training.

This is the search that training would make at its next update, so `train --resume` uses the orders.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from anyorder.adaptive.store import OrderStore, SearchStopped, search_and_store, stored_orders_folder
from anyorder.config.recipe import Recipe
from anyorder.data.dataset import Dataset, prepare
from anyorder.errors import UserError
from anyorder.inference.model_folder import load_weights
from anyorder.insertion import NEG_INF
from anyorder.models.registry import build_model, ordered
from anyorder.system.distributed import processes
from anyorder.system.files import published_file
from anyorder.system.interruption import interruption
from anyorder.system.locks import locked
from anyorder.system.progress import Progress
from anyorder.text.tokenizer import Tokenizer
from anyorder.training.checkpoint import checkpoints, last_search_of
from anyorder.training.run_folder import recipe_of_run


def refresh_orders(
    recipe: Recipe,
    *,
    output: Path | None = None,
    progress: Progress | None = None,
) -> Path | None:
    """Search with a run's last checkpoint; returns the folder of the orders, or None if interrupted.

    output: a JSON Lines file to write the orders to as well, one line per pair.
    """
    if not checkpoints(recipe.run):
        raise UserError(f"{recipe.run}: has no checkpoint to search with; train it first")
    with processes(recipe.train.device) as these, locked(recipe.run) if these.first else nullcontext():
        these.wait()
        found = checkpoints(recipe.run)
        step = found[-1].step + 1
        progress = progress if these.first else None
        prepared = prepare(recipe, progress=progress)
        data = replace(prepared.train, dropout=None)  # orders belong to pieces without dropout
        model = ordered(build_model(recipe, prepared.shape), purpose="search-orders").to(these.device)
        if output is None:
            _check_training_would_use_orders(recipe, step=step)
        load_weights(model, found[-1].weights(), origin=found[-1].folder)
        with interruption() as interrupted:
            try:
                stored = search_and_store(
                    model,
                    data,
                    recipe,
                    these,
                    step=step,
                    last_step=last_search_of(found[-1].progress()).step,
                    progress=progress,
                    interrupted=interrupted,
                )
            except SearchStopped:
                return None
        if these.first and output is not None:
            with published_file(output) as file:
                file.writelines(_lines(stored, data, prepared.tokenizer))
    return stored_orders_folder(recipe.run, step)


def _check_training_would_use_orders(recipe: Recipe, *, step: int) -> None:
    """Refuse a search, which takes long, if nothing would read the orders: neither training nor a user."""
    reason = None
    if not recipe.adaptive:
        reason = f'order.name = "{recipe.order.name}" learns from no searched orders, only sao does'
    elif not recipe.search.refresh:
        reason = "search.refresh = 0 searches at every update"
    elif step <= recipe.bootstrap_steps:
        reason = (
            f"update {step} is among the first search.bootstrap_steps = {recipe.bootstrap_steps}, "
            f"in the order {recipe.search.bootstrap}"
        )
    elif recipe.search != recipe_of_run(recipe.run).search:
        reason = "is trained by another [search] than this one"
    if reason is not None:
        raise UserError(f"{recipe.run}: {reason}; --output FILE writes orders that training does not use")


def _lines(stored: OrderStore, data: Dataset, tokenizer: Tokenizer) -> Iterator[bytes]:
    """The orders of each pair as JSON, best first; pairs come in the order of the training file."""
    for pair, line in enumerate(data.corpus.lines.tolist()):
        found = stored.of(np.array([pair]), device=torch.device("cpu"))
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
