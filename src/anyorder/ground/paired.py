"""Pairs as ids: what a target may copy from its source has the same id on both sides.

Words of a source that the vocabulary lacks are its *own*: they get the ids after the vocabulary, in the order
that the source has them, and mean something beside this source alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from anyorder.ground.tokens import UNK, Tokenizer, Tokens


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
