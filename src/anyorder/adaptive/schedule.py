"""Which orders an update is learned in: the bootstrap order first, then orders that the model has found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder import config
from anyorder.adaptive.candidates import Orders
from anyorder.adaptive.objective import annealed_search, learn_from, order_weights, search_batch, searching
from anyorder.adaptive.store import OrderStore, orders_are_stored, search_and_store
from anyorder.data.batches import Batch, mixed_seed
from anyorder.data.dataset import Dataset
from anyorder.insertion import NEG_INF
from anyorder.models.indigo import Indigo
from anyorder.models.registry import Model, ordered
from anyorder.system.distributed import Processes
from anyorder.system.progress import Progress

SEARCHED_TOGETHER = 32  # pairs, where each update searches its own orders
METRIC_PREFIX = "searched_"  # of the keys of a summary in metrics.jsonl


@dataclass(frozen=True)
class LastSearch:
    """When the orders of all pairs were last searched; step 0 means never."""

    step: int = 0
    epoch: int = 0


class OrderSchedule:
    """Decides when orders are searched, and gives batches the orders that they are learned in."""

    def __init__(
        self,
        recipe: config.Recipe,
        model: Model,
        data: Dataset,
        processes: Processes,
        *,
        progress: Progress | None = None,
    ) -> None:
        self.recipe, self.search = recipe, recipe.search
        self.model, self.data, self.processes = model, data, processes
        self.progress = progress
        self.stored: OrderStore | None = None  # None until a search, and if each update searches its own

    def refresh(
        self,
        last_search: LastSearch,
        *,
        step: int,
        epoch: int,
        first_of_epoch: bool,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> LastSearch:
        """Search the orders of all pairs if it is time, and return when they were last searched.

        Nothing is done in the bootstrap, nor if each update searches its own orders (search.refresh = 0).
        """
        if not self.recipe.searches(step) or not self.search.refresh:
            return last_search
        expired = first_of_epoch and epoch - last_search.epoch >= self.search.refresh
        # `anyorder search-orders` may have made the search of this step already.
        made_apart = step != last_search.step and orders_are_stored(self.recipe, self.data, step=step)
        newest = last_search
        if not last_search.step or expired or made_apart:
            newest, self.stored = LastSearch(step=step, epoch=epoch), None
        if self.stored is None:
            self.stored = search_and_store(
                self._indigo(),
                self.data,
                self.recipe,
                self.processes,
                step=newest.step,
                last_step=last_search.step,
                progress=self.progress,
                interrupted=interrupted,
            )
        return newest

    def reordered(self, batch: Batch, pairs: NDArray[np.int64], *, step: int) -> Batch:
        """An update's whole batch in the orders that it is learned in at this step."""
        if not self.recipe.searches(step):
            return batch
        search = self._annealed(step)
        if self.stored is not None:
            orders = self.stored.of(pairs, device=batch.order.device)
        else:
            orders = self._searched(batch, pairs, search, step=step)
        generator = torch.Generator().manual_seed(mixed_seed(self.recipe.train.seed, step, int(pairs[0])))
        return learn_from(batch, orders, search, generator=generator)

    def _searched(
        self, batch: Batch, pairs: NDArray[np.int64], search: config.Search, *, step: int
    ) -> Orders:
        """Search the orders of an update, each process a share, and exchange them.

        What is random is drawn for the whole batch or for so many pairs at a time, however many processes
        there are.
        """
        model, found, seed = self._indigo(), [], self.recipe.train.seed
        chance = self._chance(batch, pairs, search, step=step)
        together = SEARCHED_TOGETHER if chance is None else -(-len(pairs) // self.processes.count)
        with searching(model, search, precision=self.recipe.train.precision):
            for number, first in enumerate(range(0, len(pairs), together)):
                rows = torch.arange(first, min(first + together, len(pairs)))
                some = batch.pairs(rows.to(batch.order.device))
                if number % self.processes.count == self.processes.rank:
                    torch.manual_seed(mixed_seed(seed, step, int(pairs[first]), 1))
                    uniform = None
                    if chance is not None:
                        before, own = (
                            int((lengths <= search.max_length).sum())
                            for lengths in (batch.lengths[:first], some.lengths)
                        )
                        uniform = chance[before : before + own]
                    found.append(search_batch(model, some, search, uniform=uniform))
                else:  # zeros, to be added to what another process finds
                    positions = some.order[:, None].repeat(1, search.beam, 1)
                    zeros = torch.zeros(positions.shape[:2], device=positions.device)
                    found.append(Orders(torch.zeros_like(positions), zeros))
        return Orders(
            positions=self.processes.total(torch.cat([orders.positions for orders in found])),
            log_probs=self.processes.total(torch.cat([orders.log_probs for orders in found])),
        )

    def _chance(
        self, batch: Batch, pairs: NDArray[np.int64], search: config.Search, *, step: int
    ) -> Tensor | None:
        """Random numbers to draw the orders of all searched pairs by; None where dropout is drawn as well."""
        searched = batch.lengths[batch.lengths <= search.max_length]
        if search.method != "drawn" or search.dropout or not len(searched):
            return None
        torch.manual_seed(mixed_seed(self.recipe.train.seed, step, int(pairs[0]), 1))
        return torch.rand(len(searched), search.beam, int(searched.max()), device=searched.device)

    def summary(self, *, step: int) -> SearchSummary | None:
        """A summary of the stored orders, which were searched for this update; None if there are none."""
        return None if self.stored is None else summarise(self.stored, self.data, self._annealed(step))

    def too_long(self) -> int:
        """The number of targets that are too long to search and keep the bootstrap order."""
        return int((self.data.corpus.target.lengths() > self.search.max_length).sum())

    def _annealed(self, step: int) -> config.Search:
        return annealed_search(self.recipe, step=step)

    def _indigo(self) -> Indigo:
        return ordered(self.model, purpose="order.name = sao")


# --- what a search found ---


@dataclass(frozen=True)
class SearchSummary:
    """What a search found for the targets that have several orders and are short enough to search."""

    targets: int
    in_bootstrap_order: int | None  # targets whose best order is the bootstrap order; None if that is random
    margin: float | None  # median of log p(best order) - log p(second best); None if there is no second
    others: float  # targets that an epoch is expected to learn in another order than their best

    def metrics(self) -> dict[str, float]:
        """The summary as a line of metrics.jsonl."""
        return {f"{METRIC_PREFIX}{name}": value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def of_log(cls, entry: Mapping[str, Any]) -> SearchSummary | None:
        """Read a line of metrics.jsonl; None if the line is about something else."""
        found: dict[str, Any] = {
            field.name: entry.get(f"{METRIC_PREFIX}{field.name}") for field in fields(cls)
        }
        return None if found["targets"] is None else cls(**found)

    def describe(self, *, bootstrap: str) -> str:
        """The summary in one line. bootstrap: name of the bootstrap order."""
        parts = [f"orders of {self.targets:,} targets searched"]
        if self.in_bootstrap_order is not None:
            parts.append(f"{self.in_bootstrap_order:,} are {bootstrap}")
        if self.margin is not None:
            parts.append(f"the second best e^{self.margin:.1f} times less likely (median)")
        parts.append(f"{self.others:.3g} targets an epoch learned in another than their best order")
        return "; ".join(parts)


def summarise(stored: OrderStore, data: Dataset, search: config.Search) -> SearchSummary:
    """Summarise stored orders. search: the settings at the update that the orders were searched for."""
    lengths = data.corpus.target.lengths()
    searched = np.flatnonzero((lengths > 1) & (lengths <= search.max_length))
    log_probs = torch.from_numpy(stored.log_probs[searched]).double()
    second = log_probs[:, 1:2]  # has no column if the beam is 1
    margins = (log_probs[:, :1] - second)[second > NEG_INF]
    return SearchSummary(
        targets=len(searched),
        in_bootstrap_order=None
        if data.positions is None
        else _count_unchanged(stored, data.positions, searched),
        margin=float(np.median(margins.numpy())) if len(margins) else None,
        others=float(order_weights(log_probs, search)[:, 1:].sum()),
    )


def _count_unchanged(stored: OrderStore, positions: NDArray[np.int32], pairs: NDArray[np.intp]) -> int:
    """Count the pairs whose best order is the one that they were prepared in."""
    beam = stored.log_probs.shape[1]
    starts, ends = stored.offsets[pairs].tolist(), stored.offsets[pairs + 1].tolist()
    return sum(
        np.array_equal(stored.positions[start * beam : start * beam + end - start], positions[start:end])
        for start, end in zip(starts, ends, strict=True)
    )
