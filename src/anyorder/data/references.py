"""References: the correct targets of each source, and which pairs also occur in the training data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice

import numpy as np
from numpy.typing import NDArray

from anyorder.config.data import Splits
from anyorder.config.recipe import Recipe
from anyorder.data.corpus import Corpus
from anyorder.data.readers import Features, Pair, raw_pairs, read_pairs, split_files, stream_pairs

PairsOfSource = Sequence[int]  # indices in a corpus, rising


def pairs_by_source(corpus: Corpus) -> list[PairsOfSource]:
    """Group the pairs by source: captions of the same image together, every line of text by itself."""
    if not isinstance(corpus.source, Features):
        return [[pair] for pair in range(len(corpus))]
    found: dict[int, list[int]] = {}
    for pair, row in enumerate(corpus.source.rows.tolist()):
        found.setdefault(row, []).append(pair)
    return list(found.values())


def reference_texts(
    recipe: Recipe, split: Splits, corpus: Corpus, sources: Sequence[PairsOfSource]
) -> list[list[str]]:
    """References in the form that metrics take: several texts, each with one line per source.

    An image with fewer captions than others repeats its own. This changes only CIDEr-D, which is a mean over
    captions, and TER, which uses their mean length.
    """
    lines = [int(corpus.lines[pair]) for pairs in sources for pair in pairs]
    # JSON strings may contain line breaks, but metrics take one line per target.
    texts = {pair.line: pair.target.replace("\n", " ") for pair in raw_pairs(recipe, split, lines=lines)}
    most = max(map(len, sources), default=0)
    of_sources = [
        list(islice(cycle([texts[int(corpus.lines[pair])] for pair in pairs]), most)) for pairs in sources
    ]
    return [list(reference) for reference in zip(*of_sources, strict=True)]


Words = tuple[tuple[str, ...], ...]  # of the source, the draft and the target


def seen_in_training(recipe: Recipe, split: Splits, lines: Sequence[int]) -> NDArray[np.bool_]:
    """Mark the pairs of a split that also occur in the training data, with the same source and target.

    lines: rising. Spaces are ignored. Unreadable training lines are skipped.
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
    return tuple(tuple((text or "").split()) for text in (pair.source, pair.draft, pair.target))
