"""Stored orders: those that one search found for all training pairs, on disk for some epochs.

    RUN/orders/step-2001/slots.npy log_probs.npy search.json     found before update 2001

Until the search is complete the folder has another name and a list of the batches done, so that an
interrupted search goes on. Several processes share the work through the folder.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from anyorder import config
from anyorder.adaptive.candidates import Orders
from anyorder.adaptive.objective import annealed_search, search_batch, searching
from anyorder.data.batches import collate, mixed_seed, plan_epoch
from anyorder.data.dataset import Dataset
from anyorder.errors import UserError
from anyorder.models.indigo import Indigo
from anyorder.system.distributed import Processes
from anyorder.system.files import make_folder, read_array, read_json, write_array, write_file
from anyorder.system.progress import Progress

# B orders of each target

POSITIONS_FILE, LOG_PROBS_FILE = "slots.npy", "log_probs.npy"
DONE_FILE, SEARCH_FILE = "done.npy", "search.json"
REMEDY = "without its folder, the orders are searched again"


class SearchStopped(Exception):
    """The user interrupted a search; what it has found so far is stored."""


@dataclass(frozen=True)
class OrderStore:
    """The orders of all training pairs, mapped from disk.

    The B orders of pair i lie one after the other in positions[offsets[i] * B : offsets[i + 1] * B].
    """

    positions: NDArray[np.int16]
    log_probs: NDArray[np.float32]  # (pairs, B)
    offsets: NDArray[np.int64]  # where each pair's target begins among the tokens of all targets

    @classmethod
    def open(cls, folder: Path, data: Dataset, *, mode: Literal["r", "r+"] = "r") -> OrderStore:
        """Map the orders in a folder."""
        return cls(
            positions=read_array(folder / POSITIONS_FILE, mode=mode, remedy=REMEDY),
            log_probs=read_array(folder / LOG_PROBS_FILE, mode=mode, remedy=REMEDY),
            offsets=data.corpus.target.offsets,
        )

    def put(self, pairs: NDArray[np.int64], orders: Orders) -> None:
        """Store the orders of a batch of pairs."""
        beam = self.log_probs.shape[1]
        positions = orders.positions.cpu().numpy()
        for row, pair in enumerate(pairs):
            start, end = self.offsets[pair : pair + 2]
            self.positions[start * beam : end * beam] = positions[row, :, : end - start].ravel()
        self.log_probs[pairs] = orders.log_probs.cpu().numpy()

    def of(self, pairs: NDArray[np.int64], *, device: torch.device) -> Orders:
        """Read the orders of a batch of pairs."""
        beam = self.log_probs.shape[1]
        lengths = self.offsets[pairs + 1] - self.offsets[pairs]
        positions = np.zeros((len(pairs), beam, int(lengths.max())), dtype=np.int64)
        for row, (pair, length) in enumerate(zip(pairs, lengths, strict=True)):
            start = self.offsets[pair] * beam
            positions[row, :, :length] = self.positions[start : start + beam * length].reshape(beam, length)
        return Orders(
            positions=torch.from_numpy(positions).to(device),
            log_probs=torch.from_numpy(np.array(self.log_probs[pairs])).to(device),
        )


def search_and_store(
    model: Indigo,
    data: Dataset,
    recipe: config.Recipe,
    processes: Processes,
    *,
    step: int,
    last_step: int = 0,
    progress: Progress | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> OrderStore:
    """Search the orders of all pairs, each process a share of them, and store them in the run's folder.

    A complete or interrupted search for the same step is used again if its settings and data are the same.
    step: the update that needs the orders; last_step: the update that the search before was made for, whose
    best orders guide this one.
    """
    folder = stored_orders_folder(recipe.run, step)
    if not orders_are_stored(recipe, data, step=step):
        unfinished = folder.with_name(f".unfinished-{folder.name}")
        plan = plan_epoch(data.sizes(), batch_tokens=recipe.train.batch_tokens, seed=0, epoch=0)
        if processes.first:
            shutil.rmtree(folder, ignore_errors=True)
            _allocate(unfinished, data, recipe, batches=len(plan))
        processes.wait()
        last = stored_orders_folder(recipe.run, last_step)
        known = OrderStore.open(last, data) if last.exists() else None
        worker = _SearchWorker(model, data, recipe, processes, unfinished, step=step, known=known)
        worker.search(plan, progress=progress, interrupted=interrupted)
        processes.wait()
        if processes.first:
            unfinished.rename(folder)
            (folder / DONE_FILE).unlink()
        processes.wait()
    return OrderStore.open(folder, data)


def stored_orders_folder(run: Path, step: int) -> Path:
    """The folder of the orders that were searched for an update."""
    return run / "orders" / f"step-{step}"


def orders_are_stored(recipe: config.Recipe, data: Dataset, *, step: int) -> bool:
    """Whether a complete search for an update is stored, of these pairs and with this recipe's settings."""
    found = _read_description(stored_orders_folder(recipe.run, step))
    return found is not None and found == _description(data, recipe)


def remove_stored_orders(run: Path) -> None:
    """Remove all stored orders of a run, whose weights are lost without a checkpoint."""
    shutil.rmtree(run / "orders", ignore_errors=True)


def prune_stored_orders(run: Path, *, before: int) -> None:
    """Remove orders that were searched for updates before this one, which no checkpoint needs any more."""
    for folder in (run / "orders").glob("*step-*"):
        if int(folder.name.rpartition("-")[2]) < before:
            shutil.rmtree(folder)


class _SearchWorker:
    """One process's share of a search."""

    def __init__(
        self,
        model: Indigo,
        data: Dataset,
        recipe: config.Recipe,
        processes: Processes,
        folder: Path,
        *,
        step: int,
        known: OrderStore | None,
    ) -> None:
        self.model, self.data, self.recipe, self.processes = model, data, recipe, processes
        self.step, self.known = step, known
        self.settings = annealed_search(recipe, step=step)
        self.store = OrderStore.open(folder, data, mode="r+")
        self.done: NDArray[np.uint8] = read_array(folder / DONE_FILE, mode="r+", remedy=REMEDY)

    def search(
        self,
        plan: Sequence[NDArray[np.int64]],
        *,
        progress: Progress | None,
        interrupted: Callable[[], bool],
    ) -> None:
        """Search this process's batches: with n processes, every n-th. All processes stop together."""
        count, pairs_done = self.processes.count, 0
        with searching(self.model, self.settings, precision=self.recipe.train.precision):
            for first in range(0, len(plan), count):
                if self.processes.any(interrupted()):
                    raise SearchStopped
                mine = first + self.processes.rank
                if mine < len(plan) and not self.done[mine]:
                    self._search_batch(mine, plan[mine])
                pairs_done += sum(map(len, plan[first : first + count]))
                if progress is not None:
                    progress("searching orders", pairs_done, len(self.data))

    def _search_batch(self, number: int, pairs: NDArray[np.int64]) -> None:
        seed = self.recipe.train.seed
        torch.manual_seed(mixed_seed(seed, self.step, number))
        examples = [self.data.example(int(pair), seed=seed, epoch=0) for pair in pairs]
        batch = collate(examples).to(self.processes.device)
        if self.known is not None:
            best = self.known.of(pairs, device=batch.order.device).positions[:, :1]
            batch = batch.reordered(best, torch.ones_like(batch.weights)[:, None])
        self.store.put(pairs, search_batch(self.model, batch, self.settings))
        # Orders reach the disk before their batch counts as done, so a power failure leaves no gaps.
        for array in (self.store.positions, self.store.log_probs):
            assert isinstance(array, np.memmap)
            array.flush()
        self.done[number] = 1


def _allocate(folder: Path, data: Dataset, recipe: config.Recipe, *, batches: int) -> None:
    """Make files for all orders, unless an interrupted search with the same settings has left them."""
    search = _description(data, recipe)
    if _read_description(folder) == search and (folder / DONE_FILE).exists():
        return
    tokens, beam = int(data.corpus.target.offsets[-1]), recipe.search.beam
    empty: dict[str, NDArray[Any]] = {
        POSITIONS_FILE: np.zeros(tokens * beam, dtype=np.int16),
        LOG_PROBS_FILE: np.zeros((len(data), beam), dtype=np.float32),
        DONE_FILE: np.zeros(batches, dtype=np.uint8),
    }
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    try:
        for name, values in empty.items():
            # All bytes are written now: a disk that fills up under mapped memory kills the process.
            with (folder / name).open("wb") as file:
                write_array(file, values)
                file.flush()
                os.fsync(file.fileno())  # before the description, which says that the files are usable
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise UserError(f"{folder}: can't be written: {error.strerror}") from None
    write_file(folder / SEARCH_FILE, json.dumps(search).encode())


def _description(data: Dataset, recipe: config.Recipe) -> dict[str, Any]:
    """All that a search depends on except the weights, which the step identifies."""
    return {
        "data": data.key,
        "batch_tokens": recipe.train.batch_tokens,
        "seed": recipe.train.seed,
        "search": recipe.search.model_dump(mode="json"),
    }


def _read_description(folder: Path) -> dict[str, Any] | None:
    try:
        return dict(read_json(folder / SEARCH_FILE))
    except (OSError, ValueError, TypeError, UserError):  # whatever it was, it is searched again
        return None
