"""What a user asks of one sentence, in tokens: a template, blanks, required items and forbidden words.

A template is written first, from left to right. Required items are written when the search finds it best,
each into a gap that it chooses. An item that has begun is completed before anything else is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

CLOSED = -1  # stands for a blank where nothing may be written


@dataclass(frozen=True)
class Blank:
    """A part of the sentence to be filled in, with limits in words. A draft has one blank in many gaps."""

    least: int = 0
    most: int | None = None  # None: any number


@dataclass(frozen=True)
class Way:
    """One of the token sequences that write a required item."""

    tokens: tuple[int, ...]
    opens: tuple[bool, ...]  # whether more may be written to the right of each token
    words: int


@dataclass(frozen=True)
class ForbiddenWord:
    """A word that must not be written, described by the tokens that can be part of it.

    A few tokens can spell a long word in thousands of ways, so these ways are never listed.
    """

    length: int
    parts: tuple[tuple[int, int, int], ...]  # (start, end, token): the characters that a token covers

    @classmethod
    def of_token(cls, token: int) -> ForbiddenWord:
        """A forbidden word that is one token."""
        return cls(length=1, parts=((0, 1, token),))

    def among(self, tokens: int) -> ForbiddenWord:
        """The same word where only the ids below `tokens` can be written."""
        return ForbiddenWord(self.length, tuple(part for part in self.parts if part[2] < tokens))

    @cached_property
    def whole(self) -> list[int]:
        """Tokens that spell the whole word."""
        return [token for start, end, token in self.parts if end - start == self.length]

    def completions(self, sentence: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Find gaps of a sentence and tokens that would complete the word there with their neighbours.

        Gap g lies to the right of token g. Tokens that spell the whole word alone are not among them.
        """
        if self._spans.keys().isdisjoint(sentence):  # as nearly always
            return
        # How far the tokens up to each one spell the word, and from where the tokens after it do.
        spelled = list(accumulate(sentence, self._spelled_after, initial=frozenset[int]()))[1:]
        missing = list(accumulate(reversed(sentence), self._missing_before, initial=frozenset[int]()))[:0:-1]
        for gap, (left, right) in enumerate(zip(spelled, missing[1:], strict=False)):
            if left or right:
                for start, end, token in self.parts:
                    begun, ended = start in left, end in right
                    if (begun or start == 0) and (ended or end == self.length) and (begun or ended):
                        yield gap, token

    def _spelled_after(self, before: frozenset[int], token: int) -> frozenset[int]:
        spans = self._spans.get(token, ())
        return frozenset(end for start, end in spans if start == 0 or start in before)

    def _missing_before(self, after: frozenset[int], token: int) -> frozenset[int]:
        spans = self._spans.get(token, ())
        return frozenset(start for start, end in spans if end == self.length or end in after)

    @cached_property
    def _spans(self) -> dict[int, list[tuple[int, int]]]:
        found: dict[int, list[tuple[int, int]]] = {}
        for start, end, token in self.parts:
            found.setdefault(token, []).append((start, end))
        return found


@dataclass(frozen=True)
class Canvas:
    """Everything that one sentence must keep to."""

    blanks: tuple[Blank, ...] = (Blank(),)
    before: int = 0  # the blank before the template, or CLOSED
    template: tuple[tuple[int, int], ...] = ()  # each token, and the blank to its right or CLOSED
    items: tuple[tuple[Way, ...], ...] = ()  # each must appear, in one of its ways
    forbidden: tuple[ForbiddenWord, ...] = ()

    @property
    def counted(self) -> bool:
        """Whether some blank limits its number of words, from below or above."""
        return any(blank != Blank() for blank in self.blanks)

    @property
    def narrow(self) -> bool:
        """Whether some blank limits its number of words from above."""
        return any(blank.most is not None for blank in self.blanks)

    @property
    def least_tokens(self) -> int:
        """Number of tokens that a sentence needs at least, whichever way its items are written."""
        given = len(self.template) + sum(max(len(way.tokens) for way in item) for item in self.items)
        return given + sum(blank.least for blank in self.blanks)

    @property
    def required(self) -> tuple[int, ...]:
        """Tokens of the required items, each written in its first way, for the encoder to read."""
        return tuple(token for item in self.items for token in item[0].tokens)


def shortest_ways(ways: Sequence[Way]) -> list[Way]:
    """Leave out ways that begin with another way: whoever writes the shorter one may go on as they like."""
    return [
        way
        for way in ways
        if not any(
            len(other.tokens) < len(way.tokens) and way.tokens[: len(other.tokens)] == other.tokens
            for other in ways
        )
    ]
