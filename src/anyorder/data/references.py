"""What outputs are compared with: the references of each source, and which pairs training has seen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice

import numpy as np
from numpy.typing import NDArray

from anyorder.config.data import Splits
from anyorder.config.recipe import Recipe
from anyorder.data.corpus import Corpus
from anyorder.data.readers import Features, Pair, raw_pairs, read_pairs, split_files, stream_pairs

PairsOfSource = Sequence[int]  # in a corpus, in its order


def pairs_by_source(corpus: Corpus) -> list[PairsOfSource]:
    """Pairs that have an image in common, by the first of them; lines of text have a source each."""
    if not isinstance(corpus.source, Features):
        return [[pair] for pair in range(len(corpus))]
    found: dict[int, list[int]] = {}
    for pair, row in enumerate(corpus.source.rows.tolist()):
        found.setdefault(row, []).append(pair)
    return list(found.values())


def reference_texts(
    recipe: Recipe, split: Splits, corpus: Corpus, sources: Sequence[PairsOfSource]
) -> list[list[str]]:
    """As metrics take them: as many as a source has at most, each with a line for each source.

    An image with fewer captions has its own again, from the first. That changes no score but CIDEr-D's, which
    is a mean over captions, and TER's, which goes by their mean length.
    """
    lines = [int(corpus.lines[pair]) for pairs in sources for pair in pairs]
    # JSON strings may hold line ends, but here each target is a line of a file.
    texts = {pair.line: pair.target.replace("\n", " ") for pair in raw_pairs(recipe, split, lines=lines)}
    most = max(map(len, sources), default=0)
    of_sources = [
        list(islice(cycle([texts[int(corpus.lines[pair])] for pair in pairs]), most)) for pairs in sources
    ]
    return [list(reference) for reference in zip(*of_sources, strict=True)]


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
