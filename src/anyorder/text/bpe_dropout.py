"""BPE dropout: words of training pairs are cut into other, smaller pieces, anew in each epoch.

Wherever two pieces could be merged, the merge is left out by chance, so that a model sees many spellings of a
word and learns what its parts mean (Provilkov, Emelianenko and Voita: BPE-Dropout, ACL 2020).
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
SPELLINGS = 2**BITS  # that a word is seen in at the most: each is made once and then remembered


@dataclass(frozen=True)
class CutPair:
    """A pair in other pieces."""

    source: NDArray[np.generic]
    target: Ids
    pieces: list[int]  # of each word of the target


class BpeDropout:
    """How words are cut while a model learns from them."""

    def __init__(self, tokenizer: Tokenizer, *, share: float) -> None:
        """share: of the merges, those that are left out."""
        self.tokenizer = tokenizer
        self.share = share
        self._ranks = {halves: rank for rank, halves in enumerate(tokenizer.merges)}
        self._words: dict[Pieces, _Spellings] = {}

    def cut(self, source: NDArray[np.generic], target: Ids, pieces: Sequence[int], *, draw: int) -> CutPair:
        """A word that both sides have is cut alike, so that it can be copied.

        source: (S,), ids, or vectors of an image, which stay; pieces: of each word of the target; draw: by
        chance.
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
        """In pieces that a target can have."""
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
            # Most are alike, and there are many words: each is kept once.
            spelling = next((made for made in known.made if made == spelling), spelling)
            known.made[number] = spelling
        return spelling

    def _merged(self, word: Pieces, random: Random) -> Pieces:
        """From letters on: of the merges that chance has left, the one that was learned first is made."""
        parts = [] if UNK in word else self.tokenizer.letters(word)
        if not parts or UNK in parts:  # nothing is known of what it is made of
            return word
        while True:
            left = [
                (self._ranks[halves], place)
                for place, halves in enumerate(pairwise(parts))
                if halves in self._ranks and random.random() >= self.share
            ]
            if not left:
                return tuple(parts)
            _, place = min(left)
            parts[place : place + 2] = [self.tokenizer.merges[parts[place], parts[place + 1]]]


@dataclass(frozen=True)
class _Spellings:
    """A word and what it has been cut into so far, by number."""

    text: str
    digest: int
    made: list[Pieces | None]

    @classmethod
    def of(cls, text: str) -> _Spellings:
        return cls(text=text, digest=zlib.crc32(text.encode()), made=[None] * SPELLINGS)


def _mixed(draw: int, digest: int) -> int:
    """The number of a word's spelling: as if drawn for each word by itself, though a pair has one draw.

    The upper bits of a product depend on all bits of both (Fibonacci hashing); their sum would leave the
    numbers of two words as far apart in each pair.
    """
    return (((draw ^ digest) * 0x9E3779B1) & 0xFFFFFFFF) >> (32 - BITS)


def _words(ids: NDArray[np.generic], ends: Iterable[int]) -> Iterator[Pieces]:
    """What lies before each end, and what is left."""
    start, listed = 0, ids.tolist()
    for end in chain(ends, [len(listed)]):
        if end > start:
            yield tuple(listed[start:end])
        start = end


def _joined(words: Iterable[Pieces]) -> Ids:
    return np.fromiter(chain.from_iterable(words), dtype=np.int32)
