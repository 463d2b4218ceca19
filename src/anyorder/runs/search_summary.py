"""What one search of all training orders came to, for a line of the log.

Where every target is learned in its bootstrap order, a training with searched orders is the training in that
order, update by update: this tells whether it was so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from anyorder import config
from anyorder.data.dataset import Dataset
from anyorder.decoding.beam import DEAD
from anyorder.runs.kept_orders import KeptOrders
from anyorder.runs.searched import order_weights

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


def summarise(kept: KeptOrders, data: Dataset, search: config.Search) -> SearchSummary:
    """search: as it is at the update that the orders were found for."""
    lengths = data.corpus.target.lengths()
    searched = np.flatnonzero((lengths > 1) & (lengths <= search.max_length))
    log_probs = torch.from_numpy(kept.log_probs[searched]).double()
    second = log_probs[:, 1:2]  # no column with a beam of one
    margins = (log_probs[:, :1] - second)[second > DEAD]
    return SearchSummary(
        targets=len(searched),
        in_bootstrap_order=None if data.slots is None else _count_unchanged(kept, data.slots, searched),
        margin=float(np.median(margins.numpy())) if len(margins) else None,
        others=float(order_weights(log_probs, search)[:, 1:].sum()),
    )


def _count_unchanged(kept: KeptOrders, slots: NDArray[np.int32], pairs: NDArray[np.intp]) -> int:
    """Pairs whose best order is the one that they are prepared in."""
    beam = kept.log_probs.shape[1]
    return sum(
        np.array_equal(kept.values[start * beam : start * beam + end - start], slots[start:end])
        for start, end in zip(kept.offsets[pairs].tolist(), kept.offsets[pairs + 1].tolist(), strict=True)
    )
