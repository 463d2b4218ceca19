"""What is given of a sentence, in tokens: a template that is written first, and items that must appear.

A template is written from left to right before anything else. Items are written when the search finds it
best, each into a gap that it chooses; an item that has begun is written to its end before anything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

# N nodes of all items together, A ways to go on from a node, I items of a sentence, most

CLOSED = -1  # instead of a blank: nothing may be written there


@dataclass(frozen=True)
class Blank:
    """A part of a sentence to be written, in words. A draft has one blank in many places."""

    least: int = 0
    most: int | None = None  # None: any number


@dataclass(frozen=True)
class Way:
    """One of the ways to write an item."""

    tokens: tuple[int, ...]
    opens: tuple[bool, ...]  # whether more may be written right of each token; after the last one it may
    words: int


@dataclass(frozen=True)
class ForbiddenWord:
    """A word that must not be written, by the tokens that can be part of it.

    A long word can be spelled in thousands of ways by few tokens, so that these ways are never listed.
    """

    length: int
    parts: tuple[tuple[int, int, int], ...]  # where each begins and ends in the word, and its token

    @classmethod
    def of_token(cls, token: int) -> ForbiddenWord:
        """A word that is one token."""
        return cls(length=1, parts=((0, 1, token),))

    def among(self, tokens: int) -> ForbiddenWord:
        """The same where only so many tokens can be written."""
        return ForbiddenWord(self.length, tuple(part for part in self.parts if part[2] < tokens))

    @cached_property
    def whole(self) -> list[int]:
        """Tokens that are all of the word."""
        return [token for start, end, token in self.parts if end - start == self.length]

    def completions(self, sentence: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Gaps of a sentence, and the tokens that would make up the word there with their neighbours.

        Gap g lies right of the token g. What makes up the word by itself is not among them.
        """
        if self._places.keys().isdisjoint(sentence):  # as nearly always
            return
        # Up to where the tokens ending with each one spell the word, and from where those beginning with it.
        spelled = list(accumulate(sentence, self._spelled_after, initial=frozenset[int]()))[1:]
        missing = list(accumulate(reversed(sentence), self._missing_before, initial=frozenset[int]()))[:0:-1]
        for gap, (left, right) in enumerate(zip(spelled, missing[1:], strict=False)):
            if left or right:
                for start, end, token in self.parts:
                    begun, ended = start in left, end in right
                    if (begun or start == 0) and (ended or end == self.length) and (begun or ended):
                        yield gap, token

    def _spelled_after(self, before: frozenset[int], token: int) -> frozenset[int]:
        indices = self._places.get(token, ())
        return frozenset(end for start, end in indices if start == 0 or start in before)

    def _missing_before(self, after: frozenset[int], token: int) -> frozenset[int]:
        indices = self._places.get(token, ())
        return frozenset(start for start, end in indices if end == self.length or end in after)

    @cached_property
    def _places(self) -> dict[int, list[tuple[int, int]]]:
        found: dict[int, list[tuple[int, int]]] = {}
        for start, end, token in self.parts:
            found.setdefault(token, []).append((start, end))
        return found


@dataclass(frozen=True)
class Canvas:
    """All that one sentence must keep to."""

    blanks: tuple[Blank, ...] = (Blank(),)
    before: int = 0  # the blank left of the template, or CLOSED
    template: tuple[tuple[int, int], ...] = ()  # each token, and the blank right of it, or CLOSED
    items: tuple[tuple[Way, ...], ...] = ()  # each must be written, in one of its ways
    forbidden: tuple[ForbiddenWord, ...] = ()

    @property
    def counted(self) -> bool:
        """Whether some blank asks for a number of words, least or most."""
        return any(blank != Blank() for blank in self.blanks)

    @property
    def narrow(self) -> bool:
        """Whether some blank has not room for everything."""
        return any(blank.most is not None for blank in self.blanks)

    @property
    def least_tokens(self) -> int:
        """That it takes to keep to it, whichever way its items are written."""
        given = len(self.template) + sum(max(len(way.tokens) for way in item) for item in self.items)
        return given + sum(blank.least for blank in self.blanks)

    @property
    def required(self) -> tuple[int, ...]:
        """What an encoder is told of the items: each in the way that comes first."""
        return tuple(token for item in self.items for token in item[0].tokens)


def shortest(ways: Sequence[Way]) -> list[Way]:
    """Without those that go on where another one ends: they ask for nothing that it does not allow."""
    return [
        way
        for way in ways
        if not any(
            len(other.tokens) < len(way.tokens) and way.tokens[: len(other.tokens)] == other.tokens
            for other in ways
        )
    ]
