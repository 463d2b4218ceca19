"""Sums in which each token builds on a neighbour, so that the order of writing decides what is easy."""

from __future__ import annotations

import random
from collections.abc import Sequence

from anyorder.tasks.task import Problem, expected

# --- pivot: the easy order begins at a marked place, which differs from problem to problem ---

PLACES = "abcdefghi"
PIVOT_MODULUS = 7
MARK = "*"


def draw_pivot(chance: random.Random) -> Problem:
    """Nine numbers, one of them marked: `a1 *b4 c6` becomes `A5 B4 C3`.

    The marked number is copied. Each other one is added to its neighbour's sum on the side of the mark.
    """
    numbers = [chance.randrange(PIVOT_MODULUS) for _ in PLACES]
    pivot = chance.randrange(len(PLACES))
    return Problem(
        source=[
            f"{MARK if place == pivot else ''}{name}{number}"
            for place, (name, number) in enumerate(zip(PLACES, numbers, strict=True))
        ],
        target=_pivot_sums(numbers, pivot),
        easy=_outwards(pivot),
    )


def _pivot_sums(numbers: Sequence[int], pivot: int) -> list[str]:
    sums = list(numbers)
    for place in range(pivot - 1, -1, -1):
        sums[place] = (sums[place] + sums[place + 1]) % PIVOT_MODULUS
    for place in range(pivot + 1, len(sums)):
        sums[place] = (sums[place] + sums[place - 1]) % PIVOT_MODULUS
    return [f"{name.upper()}{number}" for name, number in zip(PLACES, sums, strict=True)]


def _outwards(pivot: int) -> list[int]:
    """The marked place, then the places to its left, then those to its right."""
    left, right = range(pivot, 0, -1), range(pivot + 2, len(PLACES) + 1)
    return [pivot + 1, *left, *right]


def pivot_mistake(source: Sequence[str], answer: Sequence[str]) -> str | None:
    """Say what is wrong with the sums."""
    pivot = next(place for place, token in enumerate(source) if token.startswith(MARK))
    return expected(answer, _pivot_sums([int(token[-1]) for token in source], pivot))


# --- middle-out: the easy order runs from the middle outwards ---

MIDDLE_MODULUS = 5
TERMS = ("m1", "m2", "a1", "a2", "b1", "b2")
RESULTS = ("A2", "A1", "M", "B1", "B2")


def draw_middle_out(chance: random.Random) -> Problem:
    """Six numbers: `m1+3 m2+4 a1+1 a2+0 b1+2 b2+4` becomes `A2=3 A1=3 M=2 B1=4 B2=3`.

    The middle one of five results is the sum of two numbers, and each other one is its inner neighbour plus
    one more number. Whoever begins at an end has to add four numbers at once.
    """
    numbers = [chance.randrange(MIDDLE_MODULUS) for _ in TERMS]
    return Problem(
        source=[f"{name}+{number}" for name, number in zip(TERMS, numbers, strict=True)],
        target=_middle_out_sums(numbers),
        easy=(3, 2, 4, 1, 5),
    )


def _middle_out_sums(numbers: Sequence[int]) -> list[str]:
    first, second, inner_left, outer_left, inner_right, outer_right = numbers
    middle = first + second
    left, right = middle + inner_left, middle + inner_right
    sums = (left + outer_left, left, middle, right, right + outer_right)
    return [f"{name}={number % MIDDLE_MODULUS}" for name, number in zip(RESULTS, sums, strict=True)]


def middle_out_mistake(source: Sequence[str], answer: Sequence[str]) -> str | None:
    """Say what is wrong with the sums."""
    return expected(answer, _middle_out_sums([int(token[-1]) for token in source]))


# --- addition: the easy order runs from right to left, as on paper ---

DIGITS = range(3, 7)  # of each number
MORE_DIGITS = range(7, 9)  # in the split "longer", which tests what was never trained
PLUS = "+"


def draw_addition(chance: random.Random) -> Problem:
    """Two numbers of three to six digits: `9 4 9 + 6 6 0` becomes `1 6 0 9`. The sum has one digit more."""
    return _addition(chance, DIGITS)


def draw_longer_addition(chance: random.Random) -> Problem:
    """Two numbers that are longer than those of the training split."""
    return _addition(chance, MORE_DIGITS)


def _addition(chance: random.Random, digits: range) -> Problem:
    count = chance.choice(digits)
    first, second = (chance.randrange(10**count) for _ in range(2))
    target = list(f"{first + second:0{count + 1}d}")
    return Problem(
        source=[*f"{first:0{count}d}", PLUS, *f"{second:0{count}d}"],
        target=target,
        easy=range(len(target), 0, -1),
    )


def addition_mistake(source: Sequence[str], answer: Sequence[str]) -> str | None:
    """Say what is wrong with the sum."""
    plus = list(source).index(PLUS)
    total = int("".join(source[:plus])) + int("".join(source[plus + 1 :]))
    return expected(answer, f"{total:0{plus + 1}d}")
