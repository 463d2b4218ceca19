"""Pairs as token ids, where a word that can be copied has the same id on both sides.

The *own* words of a source are its words outside the vocabulary. They get the ids after the vocabulary, in
the order of the source, and these ids are valid only for this pair. To train copying, `WordDropout` treats
some rare words as if they were outside the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from anyorder.text.tokenizer import UNK, Tokenizer, Tokens


@dataclass(frozen=True)
class SourceTokens:
    """A source, or an editor's draft, as token ids."""

    ids: list[int]
    own: tuple[str, ...] = ()  # words outside the vocabulary
    copied_as: dict[str, int] = field(default_factory=dict)  # id of each word that may be copied
    pieces: list[int] = field(default_factory=list)  # of a draft, the number of ids of each word

    def copied(self, target: Tokens) -> Tokens:
        """Replace `<unk>` in a target by the ids of words that can be copied from this source."""
        if not self.copied_as:
            return target
        ids: list[int] = []
        pieces = []
        rest = iter(target.ids)
        for word, size in zip(target.words, target.pieces, strict=True):
            spelled = list(islice(rest, size))
            if UNK in spelled and word in self.copied_as:
                spelled = [self.copied_as[word]]
            ids += spelled
            pieces.append(len(spelled))
        return replace(target, ids=ids, pieces=pieces)


class PairEncoder:
    """Turns lines of both sides into token ids. copying: words outside the vocabulary get ids too.

    editing: targets share such ids with drafts, not with sources.
    """

    def __init__(self, tokenizer: Tokenizer, *, copying: bool, editing: bool = False) -> None:
        self.tokenizer = tokenizer
        self.editing = editing
        # Byte-pair pieces can spell new words, so only whole words need ids of their own.
        self.names_words = copying and not editing and tokenizer.text.unit == "words"

    def sources(self, lines: Sequence[str]) -> list[SourceTokens]:
        """Encode source lines, without boundary tokens."""
        encoded = self.tokenizer.encode_all(lines, "source")
        return [self._named(tokens) if self.names_words else SourceTokens(tokens.ids) for tokens in encoded]

    def drafts(self, lines: Sequence[str]) -> list[SourceTokens]:
        """Encode drafts, without boundary tokens; their unknown words get ids, as those of sources do.

        So two unknown words of a draft stay two words, and one that the target keeps is the same there.
        """
        return [self._draft(tokens) for tokens in self.tokenizer.encode_all(lines, "target")]

    def named_draft(self, words: Sequence[str]) -> SourceTokens:
        """Encode a draft that is split into words already."""
        return self._draft(self.tokenizer.encode_words([words], "target")[0])

    def _draft(self, tokens: Tokens) -> SourceTokens:
        """Give each unknown word an id of its own, also one with a piece that the vocabulary lacks."""
        own: dict[str, int] = {}
        ids: list[int] = []
        pieces = []
        rest = iter(tokens.ids)
        for word, size in zip(tokens.words, tokens.pieces, strict=True):
            spelled = list(islice(rest, size))
            if UNK in spelled:
                spelled = [own.setdefault(word, self.tokenizer.size + len(own))]
            ids += spelled
            pieces.append(len(spelled))
        own_pieces = tuple(self.tokenizer.own_piece(word) for word in own)
        return SourceTokens(ids=ids, own=own_pieces, copied_as=own, pieces=pieces)

    def targets(self, lines: Sequence[str], sources: Sequence[SourceTokens | None]) -> list[Tokens]:
        """Encode target lines. sources: that of each line, or None if it isn't text."""
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
    """Hides rare words from the vocabulary during training, so that the model learns to copy them."""

    rare: NDArray[np.bool_]  # (vocabulary,), whether an id may be hidden
    share: float  # probability that a rare word on both sides of a pair is hidden

    @classmethod
    def of(cls, targets: Ids, *, vocabulary: int, share: float) -> WordDropout:
        """Find the rare words. targets: the ids of all targets, concatenated."""
        return cls(rare=_rare(targets, vocabulary=vocabulary), share=share)

    def hidden(self, source: Ids, target: Ids, *, generator: np.random.Generator) -> tuple[Ids, Ids]:
        """Hide some of the rare words that occur on both sides of a pair."""
        vocabulary = len(self.rare)
        both = np.intersect1d(source, target)
        both = both[both < vocabulary]
        chosen = both[self.rare[both] & (generator.random(len(both)) < self.share)]
        own = source[np.isin(source, chosen) | (source >= vocabulary)]
        # Own words are numbered by where they first occur in the source, as in `PairEncoder`.
        distinct, first = np.unique(own, return_index=True)
        numbered = np.empty_like(distinct)
        numbered[np.argsort(first)] = vocabulary + np.arange(len(distinct), dtype=np.int32)
        return _renamed(source, distinct, numbered), _renamed(target, distinct, numbered)


def _rare(targets: Ids, *, vocabulary: int) -> NDArray[np.bool_]:
    """Mark the ids of the rarer half of the text, including words that no target has."""
    counts = np.bincount(targets[targets < vocabulary], minlength=vocabulary)
    by_count = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[by_count]) - counts[by_count]
    rare = np.ones(vocabulary, dtype=np.bool_)
    rare[by_count[before < counts.sum() / 2]] = False
    rare[: UNK + 1] = False
    return rare


def _renamed(ids: Ids, old: Ids, new: Ids) -> Ids:
    """Replace ids. old: sorted; new: the replacement of each."""
    if not len(old):
        return ids
    nearest = np.searchsorted(old, ids).clip(max=len(old) - 1)
    return np.where(old[nearest] == ids, new[nearest], ids)
