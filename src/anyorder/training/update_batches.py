"""The batches of each update: which pairs, in which orders, with which partial targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from anyorder.adaptive.schedule import OrderSchedule
from anyorder.config.recipe import Recipe
from anyorder.data.batches import Batch, collate, plan_epoch, shares
from anyorder.data.dataset import Dataset
from anyorder.data.partial_targets import PartialTarget, draw_partial_target, with_partial_targets
from anyorder.system.distributed import Processes

Pairs = NDArray[np.int64]  # indices of training pairs

_PARTIAL_TARGETS = 2  # separates the seeds of partial targets from those of random orders


@dataclass(frozen=True)
class PlannedUpdate:
    """The pairs of one update, and where the update stands in its epoch."""

    epoch: int
    number: int  # within the epoch, counted from 0
    pairs: Pairs


class UpdateBatches:
    """Plans the updates of a training and builds this process's batches for each."""

    def __init__(self, recipe: Recipe, data: Dataset, schedule: OrderSchedule, processes: Processes) -> None:
        self.recipe, self.settings = recipe, recipe.train
        self.data, self.schedule, self.processes = data, schedule, processes
        self.sizes = data.sizes()  # source and target tokens of each pair

    def plan(self, epoch: int) -> list[Pairs]:
        """The pairs of each update of an epoch."""
        settings = self.settings
        return plan_epoch(self.sizes, batch_tokens=settings.batch_tokens, seed=settings.seed, epoch=epoch)

    def planned(self, *, epoch: int, done: int) -> Iterator[PlannedUpdate]:
        """All updates from an epoch on, without end. done: updates of that epoch to leave out."""
        while True:
            plan = self.plan(epoch)
            for number in range(done, len(plan)):
                yield PlannedUpdate(epoch=epoch, number=number, pairs=plan[number])
            epoch, done = epoch + 1, 0

    def of_update(self, *, step: int, epoch: int, pairs: Pairs) -> list[Batch]:
        """This process's parts of an update, in the orders that are learned at this step."""
        parts = shares(pairs, self.settings.accumulate * self.processes.count)
        mine = parts[self.processes.rank :: self.processes.count]
        batches = [self._batch(step, epoch, part) for part in mine if len(part)]
        # The other processes wait for this one's gradients, so without a pair it sends zeros.
        return batches or [self._batch(step, epoch, pairs[:1], weight=0.0)]

    def _batch(self, step: int, epoch: int, pairs: Pairs, *, weight: float = 1.0) -> Batch:
        examples = [self.data.example(int(pair), seed=self.settings.seed, epoch=epoch) for pair in pairs]
        batch = collate([replace(example, weight=weight) for example in examples])
        batch = self.schedule.reordered(batch.to(self.processes.device), pairs, step=step)
        if not self.recipe.canvas.share:
            return batch
        return with_partial_targets(batch, [self._partial_target(epoch, pair) for pair in pairs.tolist()])

    def _partial_target(self, epoch: int, pair: int) -> PartialTarget:
        seed = self.settings.seed
        return draw_partial_target(
            self.data.pieces(pair, seed=seed, epoch=epoch),
            self.recipe.canvas,
            generator=np.random.default_rng([seed, epoch, pair, _PARTIAL_TARGETS]),
        )
