"""Pairs of a split that stand in the training text too, word for word: a model may know them by heart."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from anyorder.data.reading import Pair, read_pairs, split_files, stream_pairs
from anyorder.ground.config import Recipe, Splits

Words = tuple[tuple[str, ...], ...]


def seen_in_training(recipe: Recipe, split: Splits, lines: Sequence[int]) -> NDArray[np.bool_]:
    """Of the pairs at these lines of a split, rising: those whose source and target are a training pair's.

    Spaces don't count. Training text is read line by line, and what can't be read of it is passed over.
    """
    unmet: dict[Words, list[int]] = {}
    for number, pair in enumerate(stream_pairs(recipe, split, lines=lines)):
        unmet.setdefault(_words(pair), []).append(number)
    seen = np.zeros(len(lines), dtype=np.bool_)
    for entry in islice(read_pairs(split_files(recipe, "train")), recipe.data.train_lines or None):
        if isinstance(entry, Pair):
            seen[unmet.pop(_words(entry), [])] = True
    return seen


def _words(pair: Pair) -> Words:
    return tuple((pair.source or "").split()), tuple(pair.target.split())
