"""The references that outputs are judged by: one a source, or all captions of an image."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice

from anyorder.data.corpus import Corpus
from anyorder.data.reading import Features, raw_pairs
from anyorder.ground.config import Recipe, Splits

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
