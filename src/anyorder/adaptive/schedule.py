"""Which orders a batch is learned in: bootstrap, searched, refreshed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from anyorder import config
from anyorder.adaptive.objective import annealed, learn_from, order_weights
from anyorder.adaptive.search import search_batch, searching
from anyorder.adaptive.store import OrderStore, is_kept, search_all
from anyorder.data.batches import Batch, mixed_seed
from anyorder.data.dataset import Dataset
from anyorder.insertion import NEG_INF
from anyorder.models.registry import Model, ordered
from anyorder.system.distributed import Processes

LOGGED = "searched_"  # what its figures are called by in the log


@dataclass(frozen=True)
class SearchSummary:
    """Of the targets that have several orders and are short enough to search."""

    targets: int
    in_bootstrap_order: int | None  # whose best order is the one taught first; None: that one is drawn anew
    margin: float | None  # log p of the best order less that of the second best, the median; None: no second
    others: float  # targets that are learned in another order than their best, in each epoch, on average

    def logged(self) -> dict[str, float]:
        """For metrics.jsonl."""
        return {f"{LOGGED}{name}": value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def of_log(cls, entry: Mapping[str, Any]) -> SearchSummary | None:
        """From a line of metrics.jsonl; None if it tells of something else."""
        known: dict[str, Any] = {field.name: entry.get(f"{LOGGED}{field.name}") for field in fields(cls)}
        return None if known["targets"] is None else cls(**known)

    def told(self, bootstrap: str) -> str:
        """For a person."""
        said = [f"orders of {self.targets:,} targets searched"]
        if self.in_bootstrap_order is not None:
            said.append(f"{self.in_bootstrap_order:,} are {bootstrap}")
        if self.margin is not None:
            said.append(f"the second best e^{self.margin:.1f} times less likely (median)")
        said.append(f"{self.others:.3g} targets an epoch learned in another than their best order")
        return "; ".join(said)


def summarise(kept: OrderStore, data: Dataset, search: config.Search) -> SearchSummary:
    """search: as it is at the update that the orders were found for."""
    lengths = data.corpus.target.lengths()
    searched = np.flatnonzero((lengths > 1) & (lengths <= search.max_length))
    log_probs = torch.from_numpy(kept.log_probs[searched]).double()
    second = log_probs[:, 1:2]  # no column with a beam of one
    margins = (log_probs[:, :1] - second)[second > NEG_INF]
    return SearchSummary(
        targets=len(searched),
        in_bootstrap_order=None
        if data.positions is None
        else _count_unchanged(kept, data.positions, searched),
        margin=float(np.median(margins.numpy())) if len(margins) else None,
        others=float(order_weights(log_probs, search)[:, 1:].sum()),
    )


def _count_unchanged(kept: OrderStore, positions: NDArray[np.int32], pairs: NDArray[np.intp]) -> int:
    """Pairs whose best order is the one that they are prepared in."""
    beam = kept.log_probs.shape[1]
    return sum(
        np.array_equal(kept.values[start * beam : start * beam + end - start], positions[start:end])
        for start, end in zip(kept.offsets[pairs].tolist(), kept.offsets[pairs + 1].tolist(), strict=True)
    )


@dataclass(frozen=True)
class Searched:
    """When the orders of all pairs were last searched; step 0: never."""

    step: int = 0
    epoch: int = 0


class OrderSchedule:
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
        self.kept: OrderStore | None = None

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
