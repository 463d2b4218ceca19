"""Which orders a batch is learned in while a model trains: fixed ones, or those that it finds by itself.

Searching costs more than learning, so by default orders are kept for some epochs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from anyorder import config
from anyorder.data.batches import Batch, mixed_seed
from anyorder.data.dataset import Dataset
from anyorder.models.registry import Model, ordered
from anyorder.runs.kept_orders import KeptOrders, is_kept, search_all
from anyorder.runs.search_summary import SearchSummary, summarise
from anyorder.runs.searched import annealed, learn_from, search_batch, searching
from anyorder.system.distributed import Processes


@dataclass(frozen=True)
class Searched:
    """When the orders of all pairs were last searched; step 0: never."""

    step: int = 0
    epoch: int = 0


class OrderFinder:
    """Gives batches the orders that they are learned in."""

    def __init__(
        self,
        recipe: config.Recipe,
        model: Model,
        data: Dataset,
        processes: Processes,
        *,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self.recipe, self.search = recipe, recipe.search
        self.model, self.data, self.processes = model, data, processes
        self.progress = progress
        self.kept: KeptOrders | None = None

    def refreshed(
        self,
        last: Searched,
        *,
        step: int,
        epoch: int,
        begins: bool,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> Searched:
        """Search the orders of all pairs anew where it is time, unless each update searches its own.

        begins: whether the step is the first of its epoch.
        """
        if not self.recipe.searches(step) or not self.search.refresh:
            return last
        old = begins and epoch - last.epoch >= self.search.refresh
        found_apart = step != last.step and is_kept(self.recipe, self.data, step=step)
        before = last
        if not last.step or old or found_apart:
            last, self.kept = Searched(step=step, epoch=epoch), None
        if self.kept is None:
            self.kept = search_all(
                ordered(self.model, purpose="order.name = sao"),
                self.data,
                self.recipe,
                self.processes,
                step=last.step,
                last_step=before.step,
                progress=self._told,
                interrupted=interrupted,
            )
        return last

    def reordered(self, batch: Batch, pairs: NDArray[np.int64], *, step: int) -> Batch:
        """The batch as it is learned at this step."""
        if not self.recipe.searches(step):
            return batch
        search = annealed(self.search, step=step)
        seed, first = self.recipe.train.seed, int(pairs[0])
        if self.kept is not None:
            orders = self.kept.of(pairs, device=batch.order.device)
        else:
            torch.manual_seed(mixed_seed(seed, step, first, 1))
            model = ordered(self.model, purpose="order.name = sao")
            with searching(model, search, precision=self.recipe.train.precision):
                orders = search_batch(model, batch, search)
        chance = torch.Generator().manual_seed(mixed_seed(seed, step, first))
        return learn_from(batch, orders, search, generator=chance)

    def summary(self, *, step: int) -> SearchSummary | None:
        """What the search for this update came to; None: it made none for all pairs."""
        return (
            None if self.kept is None else summarise(self.kept, self.data, annealed(self.search, step=step))
        )

    def too_long(self) -> int:
        """How many targets are too long to search, and keep the bootstrap order."""
        return int((self.data.corpus.target.lengths() > self.search.max_length).sum())

    def _told(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress("searching orders", done, total)
