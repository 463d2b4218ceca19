"""Pairs as token ids: a word that a target can copy has the same id on both sides.

Words of a source that the vocabulary lacks are its *own*. They get the ids after the vocabulary, in the order
of the source, and mean something beside this source alone. To practise copying, rare words of the vocabulary
are hidden from it now and then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from anyorder.text.tokenizer import UNK, Tokenizer, Tokens


@dataclass(frozen=True)
class SourceTokens:
    """A source as the model reads it."""

    ids: list[int]
    own: tuple[str, ...] = ()
    copied_as: dict[str, int] = field(default_factory=dict)  # the id of each word that may be copied

    def copied(self, target: Tokens) -> Tokens:
        """A target, with this source's ids for words that could not be written otherwise."""
        if not self.copied_as:
            return target
        words = zip(target.words, target.ids, strict=True)
        ids = [self.copied_as.get(word, UNK) if token == UNK else token for word, token in words]
        return replace(target, ids=ids)


class PairEncoder:
    """Turns lines of both sides into ids; without `copying` they are the tokenizer's."""

    def __init__(self, tokenizer: Tokenizer, *, copying: bool) -> None:
        self.tokenizer = tokenizer
        # Pieces of words spell all that is new, and are copied as they are.
        self.names_words = copying and tokenizer.text.unit == "words"

    def sources(self, lines: Sequence[str]) -> list[SourceTokens]:
        """Lines at once; no boundary tokens."""
        encoded = self.tokenizer.encode_all(lines, "source")
        return [self._named(tokens) if self.names_words else SourceTokens(tokens.ids) for tokens in encoded]

    def targets(self, lines: Sequence[str], sources: Sequence[SourceTokens | None]) -> list[Tokens]:
        """Lines at once, each beside its source, if that is text."""
        encoded = self.tokenizer.encode_all(lines, "target")
        return [
            tokens if source is None else source.copied(tokens)
            for tokens, source in zip(encoded, sources, strict=True)
        ]

    def _named(self, tokens: Tokens) -> SourceTokens:
        own: dict[str, int] = {}
        ids = [
            own.setdefault(word, self.tokenizer.size + len(own)) if token == UNK else token
            for word, token in zip(tokens.words, tokens.ids, strict=True)
        ]
        return SourceTokens(ids=ids, own=tuple(own), copied_as=dict(zip(tokens.words, ids, strict=True)))


Ids = NDArray[np.int32]


@dataclass(frozen=True)
class WordDropout:
    """What may be hidden, and how often."""

    rare: NDArray[np.bool_]  # (vocabulary,), by id
    share: float

    @classmethod
    def of(cls, targets: Ids, *, vocabulary: int, share: float) -> WordDropout:
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
