"""Zebra puzzles: who lives in which house, from clues that have one solution together.

Which house and thing can be concluded first depends on the clues, so no fixed order is easy.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from anyorder.tasks.task import Problem

HOUSES = 4
KINDS = ("red green blue white", "dog cat horse zebra", "tea milk juice water")
THINGS = tuple(tuple(kind.split()) for kind in KINDS)
NAMES = tuple(itertools.chain.from_iterable(THINGS))
_ALL_TOKENS = {f"{house}:{name}" for house in range(1, HOUSES + 1) for name in NAMES}
KIND_OF = {name: number for number, things in enumerate(THINGS) for name in things}

# A clue is one token. It compares the houses of two things, or tells the house of one.
SAME, LEFT_OF, NEXT_LEFT_OF, NEXT_TO, AT, NOT_AT = "=", "<", "<<", "~", "@", "!@"

Houses = NDArray[np.int8]  # (solutions, things), the house of each thing, counted from 1


@cache
def _all_solutions() -> Houses:
    orders = list(itertools.permutations(range(1, HOUSES + 1)))
    rows = [
        list(itertools.chain.from_iterable(each)) for each in itertools.product(orders, repeat=len(KINDS))
    ]
    return np.array(rows, dtype=np.int8)


def draw_zebra(chance: random.Random) -> Problem:
    """Clues, none of which can be left out: `red=dog tea<<milk zebra@2 …`.

    The answer says what is where, house by house: `1:red 1:dog 1:tea 2:blue …`.
    """
    solutions = _all_solutions()
    solution = solutions[chance.randrange(len(solutions))]
    clues: list[str] = []
    masks: list[NDArray[np.bool_]] = []
    left = np.ones(len(solutions), dtype=bool)
    for clue in _true_clues(solution, chance):
        mask = _mask(clue)
        if (left & ~mask).any():
            clues.append(clue)
            masks.append(mask)
            left &= mask
        if left.sum() == 1:
            break
    for number in range(len(clues) - 1, -1, -1):
        others = [mask for other, mask in enumerate(masks) if other != number]
        if np.logical_and.reduce(others).sum() == 1:
            del clues[number], masks[number]
    chance.shuffle(clues)
    target = _tokens(solution)
    return Problem(source=clues, target=target, easy=_concluding_order(clues, solution, target))


def _true_clues(solution: Houses, chance: random.Random) -> list[str]:
    """Everything that a clue can say of this solution, in random order."""
    house = dict(zip(NAMES, solution.tolist(), strict=True))
    clues = [f"{name}{AT}{house[name]}" for name in NAMES]
    clues += [
        f"{name}{NOT_AT}{other}" for name in NAMES for other in range(1, HOUSES + 1) if other != house[name]
    ]
    for first, second in itertools.permutations(NAMES, 2):
        apart = house[second] - house[first]
        if apart == 0 and first < second:
            clues.append(f"{first}{SAME}{second}")
        if apart > 0:
            clues.append(f"{first}{LEFT_OF}{second}")
        if apart == 1:
            clues.append(f"{first}{NEXT_LEFT_OF}{second}")
        if abs(apart) == 1 and first < second:
            clues.append(f"{first}{NEXT_TO}{second}")
    # Clues that tell a house outright are rare, or there would be nothing to conclude.
    direct = [clue for clue in clues if AT in clue and NOT_AT not in clue]
    others = [clue for clue in clues if clue not in direct]
    chance.shuffle(others)
    return [*chance.sample(direct, 1), *others]


@cache
def _mask(clue: str) -> NDArray[np.bool_]:
    """In which of all solutions a clue is true."""
    return _holds(clue, _all_solutions())


def _holds(clue: str, solutions: Houses) -> NDArray[np.bool_]:
    """In which solutions a clue is true."""
    for sign in (NOT_AT, AT, NEXT_LEFT_OF, LEFT_OF, NEXT_TO, SAME):
        first, found, second = clue.partition(sign)
        if found:
            break
    one = solutions[:, NAMES.index(first)]
    if sign == AT:
        return one == int(second)
    if sign == NOT_AT:
        return one != int(second)
    apart = solutions[:, NAMES.index(second)] - one
    truth: dict[str, NDArray[np.bool_]] = {
        SAME: apart == 0,
        LEFT_OF: apart > 0,
        NEXT_LEFT_OF: apart == 1,
        NEXT_TO: abs(apart) == 1,
    }
    return truth[sign]


def _tokens(solution: Houses) -> list[str]:
    by_house = sorted(
        zip(solution.tolist(), NAMES, strict=True), key=lambda pair: (pair[0], KIND_OF[pair[1]])
    )
    return [f"{house}:{name}" for house, name in by_house]


def _concluding_order(clues: Sequence[str], solution: Houses, target: Sequence[str]) -> list[int]:
    """Things that few clues already tell come first, then those that need more of them.

    Clues are taken in one after the other, always the one that leaves the fewest solutions; a thing is
    concluded as soon as all solutions left agree on its house.
    """
    solutions = _all_solutions()
    place = {token.partition(":")[2]: position for position, token in enumerate(target, start=1)}
    masks = [_mask(clue) for clue in clues]
    left = np.ones(len(solutions), dtype=bool)
    order: list[int] = []
    while True:
        agreed = (solutions[left] == solution).all(axis=0)
        order += [
            place[name]
            for name, known in zip(NAMES, agreed, strict=True)
            if known and place[name] not in order
        ]
        if len(order) == len(target):
            return order
        best = min(masks, key=lambda mask: int((left & mask).sum()))
        left &= best


def zebra_mistake(source: Sequence[str], answer: Sequence[str]) -> str | None:
    """Say which clue an answer breaks, or what else is wrong with it."""
    house: dict[str, int] = {}
    for token in answer:
        if token not in _ALL_TOKENS:
            return f"{token} names no house or no thing"
        number, _, name = token.partition(":")
        if name in house:
            return f"{name} lives in two houses"
        house[name] = int(number)
    if missing := [name for name in NAMES if name not in house]:
        return f"does not tell where {', '.join(missing)} lives"
    solution = np.array([house[name] for name in NAMES], dtype=np.int8)
    for things in THINGS:
        if len({house[name] for name in things}) < HOUSES:
            return f"two of {', '.join(things)} live in one house"
    if list(answer) != _tokens(solution):
        return "does not go house by house"
    for clue in source:
        if not _holds(clue, solution[None])[0]:
            return f"breaks {clue}"
    return None
