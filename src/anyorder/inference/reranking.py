"""Which of several answers is the best, by more models than the one that wrote them.

Partners do the same task, each in an order and with a vocabulary of its own: all look for answers, and an
answer's score is the mean of theirs. A reverse model writes sources from targets: from an answer that leaves
out or makes up a part, it would not write the source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TypeVar

from anyorder.inference.hypothesis import Hypothesis

Written = TypeVar("Written", bound=Hypothesis)
Place = tuple[int, str]  # a line, and the text of one of its answers
Judge = Callable[[Sequence[Place]], Sequence[float]]  # scores of answers


def chosen(
    found: Sequence[Sequence[Sequence[Written]]],
    judges: Sequence[Judge],
    *,
    reverse: Judge | None = None,
    weight: float = 0.0,
    n_best: int,
) -> list[list[Written]]:
    """The best answers to each line, best first: each text once, as the first that has found it wrote it.

    found: by model and line. judges: how each of the models scores what it has not found itself. reverse:
    scores of the source, which count so much. Where nothing but blanks was found, the first stays.
    """
    pools = [_pool(lists) for lists in zip(*found, strict=True)]
    places = [(line, text) for line, pool in enumerate(pools) for text in pool if text.strip()]
    scores = [_scores(places, own, judge) for own, judge in zip(found, judges, strict=True)]
    total = {place: fmean(each[place] for each in scores) for place in places}
    if reverse is not None:
        for place, score in zip(places, reverse(places), strict=True):
            total[place] += weight * score
    return [_best(line, pool, total)[:n_best] for line, pool in enumerate(pools)]


def _pool(lists: Sequence[Sequence[Written]]) -> dict[str, Written]:
    """All answers to a line, each text once."""
    pool: dict[str, Written] = {}
    for outputs in lists:
        for output in outputs:
            pool.setdefault(output.text, output)
    return pool


def _scores(places: Sequence[Place], own: Sequence[Sequence[Written]], judge: Judge) -> dict[Place, float]:
    """What one of the models makes of all answers."""
    scores: dict[Place, float] = {}
    for line, outputs in enumerate(own):
        for output in outputs:
            scores.setdefault((line, output.text), output.score)
    others = [place for place in places if place not in scores]
    return {**scores, **dict(zip(others, judge(others), strict=True))}


def _best(line: int, pool: dict[str, Written], total: dict[Place, float]) -> list[Written]:
    rated = [
        replace(output, score=total[line, text]) for text, output in pool.items() if (line, text) in total
    ]
    return sorted(rated, key=lambda output: output.score, reverse=True) or list(pool.values())
