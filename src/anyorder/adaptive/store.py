"""The orders of all training pairs, found by one search and kept on disk for some epochs.

    RUN/orders/step-2001/positions.npy log_probs.npy search.json     found before that update

Until all are found the folder has another name and a list of what is done, so that a search goes on where it
was stopped. Several processes share the work through the folder.
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
from anyorder.adaptive.objective import annealed
from anyorder.adaptive.search import search_batch, searching
from anyorder.data.batches import collate, mixed_seed, plan_epoch
from anyorder.data.dataset import Dataset
from anyorder.errors import UserError
from anyorder.models.indigo import Indigo
from anyorder.system.distributed import Processes
from anyorder.system.files import make_folder, write_array, write_file

POSITIONS_FILE, LOG_PROBS_FILE, DONE_FILE, SEARCH_FILE = (
    "slots.npy",
    "log_probs.npy",
    "done.npy",
    "search.json",
)
Progress = Callable[[int, int], None]  # pairs done, pairs in all


class SearchStopped(Exception):
    """A person wanted to stop; what was found so far is kept."""


@dataclass(frozen=True)
class OrderStore:
    """The orders of all training pairs, mapped from disk.

    Pair i's are values[offsets[i] · B : offsets[i + 1] · B], one order after the other.
    """

    values: NDArray[np.int16]
    log_probs: NDArray[np.float32]  # (pairs, B)
    offsets: NDArray[np.int64]  # of the targets' tokens

    @classmethod
    def open(cls, folder: Path, data: Dataset, *, mode: Literal["r", "r+"] = "r") -> OrderStore:
        """As they lie in a folder."""
        return cls(
            values=np.load(folder / POSITIONS_FILE, mmap_mode=mode),
            log_probs=np.load(folder / LOG_PROBS_FILE, mmap_mode=mode),
            offsets=data.corpus.target.offsets,
        )

    def put(self, pairs: NDArray[np.int64], orders: Orders) -> None:
        """Keep those of a batch."""
        beam = self.log_probs.shape[1]
        positions = orders.positions.cpu().numpy()
        for row, pair in enumerate(pairs):
            start, end = self.offsets[pair : pair + 2]
            self.values[start * beam : end * beam] = positions[row, :, : end - start].ravel()
        self.log_probs[pairs] = orders.log_probs.cpu().numpy()

    def of(self, pairs: NDArray[np.int64], *, device: torch.device) -> Orders:
        """Those of a batch."""
        beam = self.log_probs.shape[1]
        lengths = self.offsets[pairs + 1] - self.offsets[pairs]
        positions = np.zeros((len(pairs), beam, int(lengths.max())), dtype=np.int64)
        for row, (pair, length) in enumerate(zip(pairs, lengths, strict=True)):
            start = self.offsets[pair] * beam
            positions[row, :, :length] = self.values[start : start + beam * length].reshape(beam, length)
        return Orders(
            positions=torch.from_numpy(positions).to(device),
            log_probs=torch.from_numpy(np.array(self.log_probs[pairs])).to(device),
        )


def search_all(
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
    """Search the orders of all pairs, each process a share of them, and keep them in the run's folder.

    What was found for this step before, all or a part, is used again if it was searched for in the same way.
    step: the update that needs them; last_step: the one of the search before, whose best orders are those
    known.
    """
    folder = kept_folder(recipe.run, step)
    if not is_kept(recipe, data, step=step):
        unfinished = folder.with_name(f".unfinished-{folder.name}")
        plan = plan_epoch(data.sizes(), batch_tokens=recipe.train.batch_tokens, seed=0, epoch=0)
        if processes.first:
            shutil.rmtree(folder, ignore_errors=True)
            _make_room(unfinished, data, recipe, batches=len(plan))
        processes.wait()
        last = kept_folder(recipe.run, last_step)
        known = OrderStore.open(last, data) if last.exists() else None
        share = _Share(model, data, recipe, processes, unfinished, step=step, known=known)
        share.search(plan, progress=progress, interrupted=interrupted)
        processes.wait()
        if processes.first:
            unfinished.rename(folder)
            (folder / DONE_FILE).unlink()
        processes.wait()
    return OrderStore.open(folder, data)


def is_kept(recipe: config.Recipe, data: Dataset, *, step: int) -> bool:
    """Whether all orders were found for an update, of these pairs and by this recipe's search."""
    found = _description(kept_folder(recipe.run, step))
    return found is not None and found == _described(data, recipe)


def forget_kept(run: Path) -> None:
    """Remove all that was found: without a checkpoint nobody knows by which weights."""
    shutil.rmtree(run / "orders", ignore_errors=True)


def prune_kept(run: Path, *, step: int) -> None:
    """Remove what was found for earlier updates than this one: no checkpoint needs it any more."""
    for folder in (run / "orders").glob("*step-*"):
        if int(folder.name.rpartition("-")[2]) < step:
            shutil.rmtree(folder)


def kept_folder(run: Path, step: int) -> Path:
    """Where the orders found for an update lie."""
    return run / "orders" / f"step-{step}"


class _Share:
    """One process's part in a search."""

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
        self.search_settings = annealed(recipe.search, step=step)
        self.kept = OrderStore.open(folder, data, mode="r+")
        self.done: NDArray[np.uint8] = np.load(folder / DONE_FILE, mmap_mode="r+")

    def search(
        self,
        plan: Sequence[NDArray[np.int64]],
        *,
        progress: Progress | None,
        interrupted: Callable[[], bool],
    ) -> None:
        """Each process takes every so-manieth batch; all of them stop together."""
        count, pairs_done = self.processes.count, 0
        with searching(self.model, self.search_settings, precision=self.recipe.train.precision):
            for first in range(0, len(plan), count):
                if self.processes.any(interrupted()):
                    raise SearchStopped
                mine = first + self.processes.rank
                if mine < len(plan) and not self.done[mine]:
                    self._search_batch(mine, plan[mine])
                pairs_done += sum(map(len, plan[first : first + count]))
                if progress is not None:
                    progress(pairs_done, len(self.data))

    def _search_batch(self, number: int, pairs: NDArray[np.int64]) -> None:
        seed = self.recipe.train.seed
        torch.manual_seed(mixed_seed(seed, self.step, number))
        examples = [self.data.example(int(pair), seed=seed, epoch=0) for pair in pairs]
        batch = collate(examples).to(self.processes.device)
        if self.known is not None:
            best = self.known.of(pairs, device=batch.order.device).positions[:, :1]
            batch = batch.reordered(best, torch.ones_like(batch.weights)[:, None])
        self.kept.put(pairs, search_batch(self.model, batch, self.search_settings))
        # On disk before they are called done: what a power failure leaves is used again.
        for array in (self.kept.values, self.kept.log_probs):
            assert isinstance(array, np.memmap)
            array.flush()
        self.done[number] = 1


def _make_room(folder: Path, data: Dataset, recipe: config.Recipe, *, batches: int) -> None:
    """Files for all orders, unless the same search was stopped on its way."""
    search = _described(data, recipe)
    if _description(folder) == search and (folder / DONE_FILE).exists():
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
                os.fsync(file.fileno())  # before there is a description, by which a search goes on
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise UserError(f"{folder}: can't be written: {error.strerror}") from None
    write_file(folder / SEARCH_FILE, json.dumps(search).encode())


def _described(data: Dataset, recipe: config.Recipe) -> dict[str, Any]:
    """All that a search depends on, beside the weights, which the step stands for."""
    return {
        "data": data.key,
        "batch_tokens": recipe.train.batch_tokens,
        "seed": recipe.train.seed,
        "search": recipe.search.model_dump(mode="json"),
    }


def _description(folder: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads((folder / SEARCH_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
