"""Practice in copying: rare words that the vocabulary has are hidden from it now and then.

Else a model that has seen a name often learns to generate it, and hardly ever copies one that it knows
nothing of. A hidden word gets an id as if the vocabulary lacked it, on both sides of its pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anyorder.ground.tokens import UNK

Ids = NDArray[np.int32]


@dataclass(frozen=True)
class Hiding:
    """What may be hidden, and how often."""

    rare: NDArray[np.bool_]  # (vocabulary,), by id
    share: float

    @classmethod
    def of(cls, targets: Ids, *, vocabulary: int, share: float) -> Hiding:
        """targets: the running words of all targets."""
        return cls(rare=_rare(targets, vocabulary=vocabulary), share=share)

    def hidden(self, source: Ids, target: Ids, *, generator: np.random.Generator) -> tuple[Ids, Ids]:
        """A pair, with a share of the rare words that it has on both sides hidden."""
        vocabulary = len(self.rare)
        both = np.intersect1d(source, target)
        both = both[both < vocabulary]
        chosen = both[self.rare[both] & (generator.random(len(both)) < self.share)]
        own = source[np.isin(source, chosen) | (source >= vocabulary)]
        # Numbered as where nothing is hidden: by the first place that each has in the source.
        distinct, first = np.unique(own, return_index=True)
        numbered = np.empty_like(distinct)
        numbered[np.argsort(first)] = vocabulary + np.arange(len(distinct), dtype=np.int32)
        return _renamed(source, distinct, numbered), _renamed(target, distinct, numbered)


def _rare(targets: Ids, *, vocabulary: int) -> NDArray[np.bool_]:
    """Which ids make up the rarer half of all running words; those that no target has are rare too."""
    counts = np.bincount(targets[targets < vocabulary], minlength=vocabulary)
    by_count = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[by_count]) - counts[by_count]
    rare = np.ones(vocabulary, dtype=np.bool_)
    rare[by_count[before < counts.sum() / 2]] = False
    rare[: UNK + 1] = False
    return rare


def _renamed(ids: Ids, old: Ids, new: Ids) -> Ids:
    """old: rising."""
    if not len(old):
        return ids
    place = np.searchsorted(old, ids).clip(max=len(old) - 1)
    return np.where(old[place] == ids, new[place], ids)
