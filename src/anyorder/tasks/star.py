"""Star graphs: find the way from one end of an arm through the centre to the end of another arm.

From left to right, the centre is a guess: which of its arms leads to the goal is seen only by whoever has
followed all of them to their ends. From right to left it is the same the other way round. Whoever writes
from both ends towards the centre never has to guess.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from anyorder.tasks.task import Problem

FROM, TO, EDGE = "from", "to", "-"


@dataclass(frozen=True)
class Star:
    """The size of star graphs; nodes have random numbers below `nodes`."""

    degree: int  # number of arms
    shortest: int  # edges of an arm
    longest: int
    nodes: int

    def draw(self, chance: random.Random) -> Problem:
        """All edges in random order and direction, the start and the goal: `5-3 7-5 3-1 from:7 to:1`.

        The answer lists the nodes on the way: `7 5 3 1`.
        """
        lengths = self._lengths(chance)
        numbers = [str(number) for number in chance.sample(range(self.nodes), 1 + sum(lengths))]
        centre, rest = numbers[0], numbers[1:]
        arms: list[list[str]] = []  # from the centre outwards
        for length in lengths:
            arms.append([centre, *rest[:length]])
            rest = rest[length:]
        edges = [chance.sample(edge, 2) for arm in arms for edge in pairwise(arm)]
        chance.shuffle(edges)
        inwards, outwards = (arms[number] for number in chance.sample(range(self.degree), 2))
        way = [*reversed(inwards), *outwards[1:]]
        return Problem(
            source=[*map(EDGE.join, edges), f"{FROM}:{way[0]}", f"{TO}:{way[-1]}"],
            target=way,
            easy=_to_the_centre(len(inwards) - 1, len(way)),
        )

    def _lengths(self, chance: random.Random) -> list[int]:
        """Draw lengths of arms until there are nodes enough for all."""
        while True:
            lengths = [chance.randint(self.shortest, self.longest) for _ in range(self.degree)]
            if sum(lengths) < self.nodes:
                return lengths


def _to_the_centre(before: int, length: int) -> list[int]:
    """From the start to the node before the centre, then from the goal back to the centre.

    before: nodes before the centre; length: nodes on the way.
    """
    return [*range(1, before + 1), *range(length, before, -1)]


def star_mistake(source: Sequence[str], answer: Sequence[str]) -> str | None:
    """Say where an answer is no way from the start to the goal along edges of the graph."""
    *edges, start, goal = source
    if not (start.startswith(f"{FROM}:") and goal.startswith(f"{TO}:")):
        raise ValueError(source)
    joined = {frozenset(edge.split(EDGE)) for edge in edges}
    start, goal = start.removeprefix(f"{FROM}:"), goal.removeprefix(f"{TO}:")
    if not answer or answer[0] != start:
        return f"does not begin at {start}"
    if answer[-1] != goal:
        return f"does not end at {goal}"
    for here, there in pairwise(answer):
        if frozenset((here, there)) not in joined:
            return f"there is no edge {here}{EDGE}{there}"
    if len(set(answer)) < len(answer):
        return "passes a node twice"
    return None
