"""BPE dropout: words of training pairs are cut into different, smaller pieces in each epoch.

Each possible merge of two pieces is left out at random, so the model sees many segmentations of a word and
learns what its parts mean (Provilkov, Emelianenko and Voita: BPE-Dropout, ACL 2020).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from random import Random

import numpy as np
from numpy.typing import NDArray

from anyorder.text.tokenizer import UNK, Tokenizer

Ids = NDArray[np.int32]
Pieces = tuple[int, ...]  # ids of one word
BITS = 5
SPELLINGS = 2**BITS  # maximum number of segmentations of a word; each is computed once and then remembered


@dataclass(frozen=True)
class CutPair:
    """A pair whose words are cut into other pieces."""

    source: NDArray[np.generic]
    target: Ids
    pieces: list[int]  # number of tokens of each word of the target


class BpeDropout:
    """Cuts the words of training pairs at random."""

    def __init__(self, tokenizer: Tokenizer, *, share: float) -> None:
        """share: probability that a merge is left out."""
        self.tokenizer = tokenizer
        self.share = share
        self._ranks = {halves: rank for rank, halves in enumerate(tokenizer.merges)}
        self._words: dict[Pieces, _Spellings] = {}

    def cut(self, source: NDArray[np.generic], target: Ids, pieces: Sequence[int], *, draw: int) -> CutPair:
        """Cut both sides of a pair. A word that occurs on both sides is cut alike, so that it can be copied.

        source: (S,) ids, or an image's vectors, which don't change; pieces: tokens of each word of the
        target; draw: a random number, which decides the segmentations.
        """
        words = list(_words(target, accumulate(pieces)))
        cut = [self._writable(self._spelling(word, draw)) for word in words]
        if source.ndim == 1:
            ends = (np.flatnonzero(self.tokenizer.ends_word[source]) + 1).tolist()
            known = dict(zip(words, cut, strict=True))
            read = _words(source, ends)
            source = _joined(known.get(word) or self._spelling(word, draw) for word in read)
        return CutPair(source=source, target=_joined(cut), pieces=[len(word) for word in cut])

    def _writable(self, word: Pieces) -> Pieces:
        """Replace pieces that targets don't use by smaller ones."""
        spelled = self.tokenizer.spelled_in_target
        return tuple(chain.from_iterable(spelled.get(piece, (piece,)) for piece in word))

    def _spelling(self, word: Pieces, draw: int) -> Pieces:
        known = self._words.get(word)
        if known is None:
            known = self._words[word] = _Spellings.of(self.tokenizer.spelled(word))
        number = _mixed(draw, known.digest)
        spelling = known.made[number]
        if spelling is None:
            spelling = self._merged(word, Random(f"{number} {known.text}"))
            # Most segmentations are equal: store each only once, because there are many words.
            spelling = next((made for made in known.made if made == spelling), spelling)
            known.made[number] = spelling
        return spelling

    def _merged(self, word: Pieces, random: Random) -> Pieces:
        """Merge letters: each time the earliest learned of the merges that are not left out."""
        parts = [] if UNK in word else self.tokenizer.letters(word)
        if not parts or UNK in parts:  # its letters are unknown
            return word
        while True:
            left = [
                (self._ranks[halves], first)
                for first, halves in enumerate(pairwise(parts))
                if halves in self._ranks and random.random() >= self.share
            ]
            if not left:
                return tuple(parts)
            _, first = min(left)
            parts[first : first + 2] = [self.tokenizer.merges[parts[first], parts[first + 1]]]


@dataclass(frozen=True)
class _Spellings:
    """A word and its segmentations so far, by number."""

    text: str
    digest: int
    made: list[Pieces | None]

    @classmethod
    def of(cls, text: str) -> _Spellings:
        return cls(text=text, digest=zlib.crc32(text.encode()), made=[None] * SPELLINGS)


def _mixed(draw: int, digest: int) -> int:
    """Derive the number of a word's segmentation from the pair's random number and the word.

    It looks independent for each word: the upper bits of a product depend on all bits of both factors
    (Fibonacci hashing). With a sum, the numbers of two words would have the same distance in each pair.
    """
    return (((draw ^ digest) * 0x9E3779B1) & 0xFFFFFFFF) >> (32 - BITS)


def _words(ids: NDArray[np.generic], ends: Iterable[int]) -> Iterator[Pieces]:
    """Split ids into words at the given ends; what is left is the last word."""
    start, listed = 0, ids.tolist()
    for end in chain(ends, [len(listed)]):
        if end > start:
            yield tuple(listed[start:end])
        start = end


def _joined(words: Iterable[Pieces]) -> Ids:
    return np.fromiter(chain.from_iterable(words), dtype=np.int32)
