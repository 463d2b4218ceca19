"""Orders that the model finds while it learns: searched for a batch, or for all training pairs and kept.

Searching costs more than learning, so by default orders are kept for some epochs, on disk beside the run.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from anyorder import config
from anyorder.adaptive import Orders, search_orders
from anyorder.batch import Batch, collate, plan_epoch
from anyorder.beam import DEAD
from anyorder.files import make_folder
from anyorder.model import Indigo
from anyorder.optimise import mixed_seed
from anyorder.prepare import Dataset
from anyorder.processes import Processes

# S pairs of a batch, B orders of each, T tokens of the longest target

Progress = Callable[[int, int], None]  # pairs done, pairs in all


@torch.no_grad()
def search_batch(model: Indigo, batch: Batch, settings: config.Search) -> Orders:
    """The best orders of a batch's targets; those too long to search keep the one they have.

    The model is as its mode says: with dropout if it is in training.
    """
    orders = Orders(
        slots=batch.order[:, None].repeat(1, settings.beam, 1),
        log_probs=torch.full((len(batch.lengths), settings.beam), DEAD, device=batch.order.device),
    )
    orders.log_probs[:, 0] = 0.0
    short = (batch.lengths <= settings.max_length).nonzero().squeeze(1)
    if len(short):
        longest = int(batch.lengths[short].max())
        found = search_orders(
            model,
            model.encode(batch.source[short], batch.source_mask[short]),
            batch.targets[short, :longest],
            batch.lengths[short],
            width=settings.beam,
            noise=settings.gumbel,
        )
        # A target of few tokens has fewer orders than B: the best stands in, and counts nothing.
        slots = found.slots.where(found.log_probs[..., None] > DEAD, found.slots[:, :1])
        orders.slots[short] = 0
        orders.slots[short, :, :longest] = slots
        orders.log_probs[short] = found.log_probs.to(orders.log_probs)
    return orders


def order_weights(log_probs: Tensor, settings: config.Search) -> Tensor:
    """How much each order of a target counts; they sum to one. log_probs: (S, B), best first."""
    if settings.weights == "best":
        return torch.zeros_like(log_probs).index_fill(1, torch.tensor([0], device=log_probs.device), 1.0)
    if settings.weights == "uniform":
        log_probs = log_probs.where(log_probs == DEAD, 0.0)
    return (log_probs / settings.temperature).softmax(dim=1)


def learn_from(
    batch: Batch, orders: Orders, settings: config.Search, *, generator: torch.Generator | None = None
) -> Batch:
    """The batch as it is learned: each target in all its orders by weight, or in one drawn by weight.

    Both have the same gradient in expectation; one costs a B-th.
    """
    weights = order_weights(orders.log_probs, settings)
    if settings.learn_from == "all":
        return batch.reordered(orders.slots, weights)
    drawn = torch.multinomial(weights.cpu(), 1, generator=generator).to(weights.device)  # (S, 1)
    slots = orders.slots.gather(1, drawn[..., None].expand(-1, -1, orders.slots.shape[2]))
    return batch.reordered(slots, torch.ones_like(drawn, dtype=weights.dtype))


@contextmanager
def searching(model: Indigo, settings: config.Search) -> Iterator[None]:
    """The model with the dropout of the search instead of its own."""
    usual = model.settings.dropout
    was_training = model.training
    _set_dropout(model, settings.dropout)
    model.train(settings.dropout > 0)
    try:
        yield
    finally:
        _set_dropout(model, usual)
        model.train(was_training)


def _set_dropout(model: Indigo, probability: float) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = probability


@dataclass(frozen=True)
class KeptOrders:
    """The orders of all training pairs, mapped from disk.

    Pair i's are values[offsets[i] · B : offsets[i + 1] · B], one order after the other.
    """

    values: NDArray[np.int16]
    log_probs: NDArray[np.float32]  # (pairs, B)
    offsets: NDArray[np.int64]  # of the targets' tokens

    def put(self, pairs: NDArray[np.int64], orders: Orders) -> None:
        """Keep those of a batch."""
        beam = self.log_probs.shape[1]
        slots = orders.slots.cpu().numpy()
        for row, pair in enumerate(pairs):
            start, end = self.offsets[pair : pair + 2]
            self.values[start * beam : end * beam] = slots[row, :, : end - start].ravel()
        self.log_probs[pairs] = orders.log_probs.cpu().numpy()

    def of(self, pairs: NDArray[np.int64], *, device: torch.device) -> Orders:
        """Those of a batch."""
        beam = self.log_probs.shape[1]
        lengths = self.offsets[pairs + 1] - self.offsets[pairs]
        slots = np.zeros((len(pairs), beam, int(lengths.max())), dtype=np.int64)
        for row, (pair, length) in enumerate(zip(pairs, lengths, strict=True)):
            start = self.offsets[pair] * beam
            slots[row, :, :length] = self.values[start : start + beam * length].reshape(beam, length)
        return Orders(
            slots=torch.from_numpy(slots).to(device),
            log_probs=torch.from_numpy(np.array(self.log_probs[pairs])).to(device),
        )


@dataclass(frozen=True)
class Searched:
    """When the orders of all pairs were last searched; step 0: never."""

    step: int = 0
    epoch: int = 0


class OrderFinder:
    """Gives batches the orders that they are learned in: their own, or those that the model finds."""

    def __init__(
        self,
        recipe: config.Recipe,
        model: Indigo,
        data: Dataset,
        processes: Processes,
        *,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self.recipe, self.search = recipe, recipe.search
        self.model, self.data, self.processes = model, data, processes
        self.progress = progress
        self.kept: KeptOrders | None = None

    def refreshed(self, last: Searched, *, step: int, epoch: int, begins: bool) -> Searched:
        """Search the orders of all pairs anew where it is time, unless each update searches its own.

        begins: whether the step is the first of its epoch.
        """
        if not self._finds(step) or not self.search.refresh:
            return last
        old = begins and epoch - last.epoch >= self.search.refresh
        if not last.step or old:
            last, self.kept = Searched(step=step, epoch=epoch), None
        if self.kept is None:
            self.kept = search_all(
                self.model, self.data, self.recipe, self.processes, step=last.step, progress=self._told
            )
        return last

    def reordered(self, batch: Batch, pairs: NDArray[np.int64], *, step: int) -> Batch:
        """The batch as it is learned at this step."""
        if not self._finds(step):
            return batch
        seed, first = self.recipe.train.seed, int(pairs[0])
        if self.kept is not None:
            orders = self.kept.of(pairs, device=batch.order.device)
        else:
            torch.manual_seed(mixed_seed(seed, step, first, 1))
            with searching(self.model, self.search):
                orders = search_batch(self.model, batch, self.search)
        chance = torch.Generator().manual_seed(mixed_seed(seed, step, first))
        return learn_from(batch, orders, self.search, generator=chance)

    def _finds(self, step: int) -> bool:
        return self.recipe.adaptive and step > self.search.bootstrap_steps

    def _told(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress("searching orders", done, total)


def search_all(
    model: Indigo,
    data: Dataset,
    recipe: config.Recipe,
    processes: Processes,
    *,
    step: int,
    progress: Progress | None = None,
) -> KeptOrders:
    """Search the orders of all pairs, each process a share of them, and keep them in the run's folder.

    What was kept for this step before is used again.
    """
    folder = kept_folder(recipe.run, step)
    if not folder.exists():
        unfinished = folder.with_name(f".unfinished-{step}")
        if processes.first:
            _make_room(unfinished, data, beam=recipe.search.beam)
        processes.wait()
        _search_share(model, data, recipe, processes, unfinished, step=step, progress=progress)
        processes.wait()
        if processes.first:
            unfinished.rename(folder)
        processes.wait()
    return _open_kept(folder, data, mode="r")


def prune_kept(run: Path, last: Searched) -> None:
    """Remove what was kept before the last search: no checkpoint needs it any more."""
    for folder in (run / "orders").glob("step-*"):
        if folder != kept_folder(run, last.step):
            shutil.rmtree(folder)


def kept_folder(run: Path, step: int) -> Path:
    """Where the orders found at a step lie."""
    return run / "orders" / f"step-{step}"


def _make_room(folder: Path, data: Dataset, *, beam: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    tokens = int(data.corpus.target.offsets[-1])
    np.lib.format.open_memmap(folder / "slots.npy", mode="w+", dtype=np.int16, shape=(tokens * beam,))
    np.lib.format.open_memmap(folder / "log_probs.npy", mode="w+", dtype=np.float32, shape=(len(data), beam))


def _open_kept(folder: Path, data: Dataset, *, mode: Literal["r", "r+"]) -> KeptOrders:
    return KeptOrders(
        values=np.load(folder / "slots.npy", mmap_mode=mode),
        log_probs=np.load(folder / "log_probs.npy", mmap_mode=mode),
        offsets=data.corpus.target.offsets,
    )


def _search_share(
    model: Indigo,
    data: Dataset,
    recipe: config.Recipe,
    processes: Processes,
    folder: Path,
    *,
    step: int,
    progress: Progress | None,
) -> None:
    kept = _open_kept(folder, data, mode="r+")
    seed = recipe.train.seed
    plan = plan_epoch(data.sizes(), batch_tokens=recipe.train.batch_tokens, seed=0, epoch=0)
    done = 0
    with searching(model, recipe.search):
        for number, pairs in enumerate(plan):
            done += len(pairs)
            if number % processes.count != processes.rank:
                continue
            torch.manual_seed(mixed_seed(seed, step, number))
            examples = [data.example(int(pair), seed=seed, epoch=0) for pair in pairs]
            orders = search_batch(model, collate(examples).to(processes.device), recipe.search)
            kept.put(pairs, orders)
            if progress is not None:
                progress(done, len(data))
    for array in (kept.values, kept.log_probs):
        assert isinstance(array, np.memmap)
        array.flush()
