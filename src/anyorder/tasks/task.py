"""A made-up task: random problems with their answers, the rules that check an answer, and a recipe."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Problem:
    """A source, its answer, and an order in which the answer is easy to write."""

    source: Sequence[str]  # tokens
    target: Sequence[str]  # tokens, from left to right
    easy: Sequence[int]  # the position that each step fills, counted from 1


@dataclass(frozen=True)
class Settings:
    """The part of a recipe that differs between tasks: a model and a training that are large enough."""

    width: int = 128
    hidden: int = 256
    heads: int = 4
    encoder_layers: int = 2
    decoder_layers: int = 2
    steps: int = 1500
    batch_tokens: int = 2500
    lr: float = 2e-3
    warmup: int = 100
    positions: str = "sinusoidal"  # of the source; none where its order means nothing


@dataclass(frozen=True)
class Task:
    """A family of random problems.

    draw: makes a problem. mistake: says what is wrong with an answer by the rules alone, None if nothing is.
    sizes: problems of each split; "train" can be set by the user. easy_order: what `order.name = file` is.
    variants: splits beyond the usual ones, whose problems are drawn in their own way.
    """

    title: str
    easy_order: str
    draw: Callable[[random.Random], Problem]
    mistake: Callable[[Sequence[str], Sequence[str]], str | None]
    sizes: Mapping[str, int]
    settings: Settings = Settings()
    variants: Mapping[str, Callable[[random.Random], Problem]] = field(default_factory=dict)

    def problems(self, *, seed: int, sizes: Mapping[str, int]) -> Iterator[tuple[str, Problem]]:
        """Draw the problems of all splits; no source occurs twice, in one split or in two.

        Training problems come last, so that their number doesn't change the others.
        """
        seen: set[tuple[str, ...]] = set()
        for split in sorted(sizes, key=lambda name: name == "train"):
            chance = random.Random(f"{seed} {split}")
            draw = self.variants.get(split, self.draw)
            for _ in range(sizes[split]):
                yield split, _new_problem(draw, chance, seen)


class TooFewProblems(Exception):
    """A task has fewer different problems than were asked for."""


TRIES = 1000  # draws in a row that may bring nothing new


def _new_problem(
    draw: Callable[[random.Random], Problem], chance: random.Random, seen: set[tuple[str, ...]]
) -> Problem:
    for _ in range(TRIES):
        problem = draw(chance)
        source = tuple(problem.source)
        if source not in seen:
            seen.add(source)
            return problem
    raise TooFewProblems


def expected(answer: Sequence[str], target: Sequence[str]) -> str | None:
    """Compare an answer with the only right one; returns the first difference, or None."""
    if len(answer) != len(target):
        return f"has {len(answer)} tokens instead of {len(target)}"
    for position, (given, wanted) in enumerate(zip(answer, target, strict=True), start=1):
        if given != wanted:
            return f"token {position} is {given} instead of {wanted}"
    return None
