"""Statistics of orders: how close to left to right they are, how they move, what comes first and last.

An order lists the position that each step fills, counted from 1. Sentences of fewer than two tokens have only
one order and are ignored. Every figure is also computed for two baselines: left to right, and the exact
expectation over all orders with equal probability.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, pairwise
from statistics import fmean
from typing import Any

TENTHS = 10  # rows and columns of the heat map
QUARTERS = ("commonest quarter", "second quarter", "third quarter", "rarest quarter")
Positions = Sequence[int]
Sentences = Sequence[Sequence[str]]  # tokens, or a label for each token, from left to right
Labels = Mapping[str, Sentences]  # name of a grouping, e.g. "part of speech" → labels


def _figure(title: str, meaning: str, *, share: bool = False) -> Any:  # noqa: ANN401 (as dataclasses.field)
    return field(metadata={"title": title, "meaning": meaning, "share": share})


@dataclass(frozen=True)
class Figures:
    """Figures of some orders. Tables and `--help` show their titles and meanings."""

    kendall: float = _figure(
        "Kendall's tau",
        "pairs of tokens whose left one is written first, less the others, by all pairs; mean over sentences",
    )
    spearman: float = _figure("Spearman's rho", "correlation of step and position; mean over sentences")
    left_to_right: float = _figure("exactly left to right", "share of the sentences", share=True)
    right_to_left: float = _figure("exactly right to left", "share of the sentences", share=True)
    jump: float = _figure(
        "jump", "positions from one written token to the next, either way; mean over all steps"
    )
    canvas_jump: float = _figure(
        "jump so far", "the same in indices on the canvas, once the next token is written"
    )
    next_position: float = _figure(
        "next position",
        "share of the steps that fill the position right of the last written token's",
        share=True,
    )
    beside: float = _figure(
        "right beside",
        "share of the steps that write right of the last written token, with nothing between as yet",
        share=True,
    )
    run_length: float = _figure("run", "tokens in a row that each fill the next position; mean over all runs")
    first_position: float = _figure(
        "first token at",
        "position of the token written first, 0 leftmost to 1 rightmost; mean over sentences",
    )
    first_entropy: float = _figure(
        "first token's entropy", "of which token is written first, in bits: low if it is often the same"
    )


@dataclass(frozen=True)
class Group:
    """Tokens with the same label."""

    tokens: int  # their number
    step: float  # mean relative step, 0 first to 1 last in its sentence


@dataclass(frozen=True)
class OrderStatistics:
    """Statistics of some orders."""

    sentences: int  # number of sentences with two tokens or more
    tokens: int
    figures: Figures
    first_tokens: dict[str, float]  # token → share of the sentences in which it is written first
    groups: dict[
        str, dict[str, Group]
    ]  # by each kind of label; earliest first, but quarters in their own order
    heat: list[list[float]]  # a row for each tenth of the steps, by tenths of the positions; all sum to one


@dataclass(frozen=True)
class Compared:
    """Statistics of some orders and of both baselines."""

    found: OrderStatistics
    left_to_right: OrderStatistics
    by_chance: OrderStatistics


@dataclass(frozen=True)
class Move:
    """Distance from the last written token to the next; negative to the left."""

    positions: int  # in final positions
    indices: int  # in indices on the canvas that holds both


def compare_orders(
    orders: Sequence[Positions], tokens: Sentences, *, labels: Labels | None = None
) -> Compared | None:
    """Compute the statistics of orders and both baselines; None if no sentence has two tokens."""
    found = order_statistics(orders, tokens, labels=labels)
    reading = [range(1, len(sentence) + 1) for sentence in tokens]
    left_to_right = order_statistics(reading, tokens, labels=labels)
    by_chance = expected_by_chance(tokens, labels=labels)
    if found is None or left_to_right is None or by_chance is None:
        return None
    return Compared(found=found, left_to_right=left_to_right, by_chance=by_chance)


def order_statistics(
    orders: Sequence[Positions], tokens: Sentences, *, labels: Labels | None = None
) -> OrderStatistics | None:
    """Compute the statistics of one order per sentence; None if no sentence has two tokens.

    labels: groupings of the tokens, with a label for each token.
    """
    kept = _of_two_or_more(tokens)
    if not kept:
        return None
    orders = [orders[row] for row in kept]
    first_tokens = Counter(tokens[row][positions[0] - 1] for row, positions in zip(kept, orders, strict=True))
    steps = {row: _relative_steps(positions) for row, positions in zip(kept, orders, strict=True)}
    return OrderStatistics(
        sentences=len(kept),
        tokens=sum(map(len, orders)),
        figures=_figures(orders, first_tokens=first_tokens),
        first_tokens=_shares(first_tokens),
        groups={
            name: _grouped(zip(sentences[row], steps[row], strict=True) for row in kept)
            for name, sentences in (labels or {}).items()
        },
        heat=_heat(orders),
    )


def expected_by_chance(tokens: Sentences, *, labels: Labels | None = None) -> OrderStatistics | None:
    """Expected statistics if all orders are equally probable; None if no sentence has two tokens."""
    kept = _of_two_or_more(tokens)
    if not kept:
        return None
    lengths = [len(tokens[row]) for row in kept]
    first_tokens: dict[str, float] = defaultdict(float)
    for row, length in zip(kept, lengths, strict=True):
        for token in tokens[row]:
            first_tokens[token] += 1 / length
    return OrderStatistics(
        sentences=len(kept),
        tokens=sum(lengths),
        figures=_figures_by_chance(lengths, first_tokens=first_tokens),
        first_tokens=_shares(first_tokens),
        groups={
            name: _grouped(((label, 0.5) for label in sentences[row]) for row in kept)
            for name, sentences in (labels or {}).items()
        },
        heat=[[1 / TENTHS] * TENTHS for _ in range(TENTHS)],
    )


def frequency_quarters(counts: Mapping[str, int]) -> dict[str, str]:
    """Assign words to quarters of the running text by frequency, the most frequent words first.

    Equally frequent words are in the same quarter: the one that contains the middle of their occurrences.
    """
    running: Counter[int] = Counter()  # frequency → running words
    for count in counts.values():
        running[count] += count
    total = running.total()
    quarter_of, before = {}, 0
    for count in sorted(running, reverse=True):
        quarter_of[count] = QUARTERS[(2 * before + running[count]) * len(QUARTERS) // (2 * total)]
        before += running[count]
    return {word: quarter_of[count] for word, count in counts.items()}


def kendall(positions: Positions) -> float:
    """Kendall's tau: 1 for left to right, -1 for right to left, 0 on average for random orders."""
    pairs = len(positions) * (len(positions) - 1) / 2
    left_first = sum(_gaps(positions))  # a gap is the number of earlier tokens on its left
    return 2 * left_first / pairs - 1


def spearman(positions: Positions) -> float:
    """Spearman's rho: like `kendall`, but large displacements count more."""
    length = len(positions)
    squares = sum((position - step) ** 2 for step, position in enumerate(positions, start=1))
    return 1 - 6 * squares / (length * (length**2 - 1))


def moves(positions: Positions) -> list[Move]:
    """Distance from each written token to the next."""
    written = zip(positions, _gaps(positions), strict=True)
    return [
        # A token that is inserted to the left of the last one shifts it by one.
        Move(positions=position - last_position, indices=gap - last_gap - (position < last_position))
        for (last_position, last_gap), (position, gap) in pairwise(written)
    ]


def _gaps(positions: Positions) -> list[int]:
    """The gap that each token is inserted into: the number of tokens to its left at that step."""
    filled: list[int] = []
    gaps = []
    for position in positions:
        gaps.append(bisect_left(filled, position))
        insort(filled, position)
    return gaps


def _of_two_or_more(tokens: Sentences) -> list[int]:
    return [row for row, sentence in enumerate(tokens) if len(sentence) > 1]


def _figures(orders: Sequence[Positions], *, first_tokens: Mapping[str, int]) -> Figures:
    moves_of_orders = [moves(positions) for positions in orders]
    made = list(chain.from_iterable(moves_of_orders))
    tokens = sum(map(len, orders))
    next_positions = sum(move.positions == 1 for move in made)
    return Figures(
        kendall=fmean(map(kendall, orders)),
        spearman=fmean(map(spearman, orders)),
        left_to_right=fmean(all(move.positions == 1 for move in one) for one in moves_of_orders),
        right_to_left=fmean(all(move.positions == -1 for move in one) for one in moves_of_orders),
        jump=fmean(abs(move.positions) for move in made),
        canvas_jump=fmean(abs(move.indices) for move in made),
        next_position=next_positions / len(made),
        beside=fmean(move.indices == 1 for move in made),
        run_length=tokens / (tokens - next_positions),
        first_position=fmean((positions[0] - 1) / (len(positions) - 1) for positions in orders),
        first_entropy=_entropy(first_tokens),
    )


def _figures_by_chance(lengths: Sequence[int], *, first_tokens: Mapping[str, float]) -> Figures:
    """Expected figures over all orders; for runs, tokens divided by the expected number of runs."""
    one_way = fmean(1 / math.factorial(length) for length in lengths)
    steps = sum(length - 1 for length in lengths)
    next_positions = sum((length - 1) / length for length in lengths)
    # With n tokens on the canvas, the newest is directly right of the last one with probability 1 / n.
    beside = sum(1 / written for length in lengths for written in range(2, length + 1))
    return Figures(
        kendall=0.0,
        spearman=0.0,
        left_to_right=one_way,
        right_to_left=one_way,
        jump=sum((length - 1) * (length + 1) / 3 for length in lengths) / steps,
        canvas_jump=sum((length - 1) * (length + 4) / 6 for length in lengths) / steps,
        next_position=next_positions / steps,
        beside=beside / steps,
        run_length=sum(lengths) / (sum(lengths) - next_positions),
        first_position=0.5,
        first_entropy=_entropy(first_tokens),
    )


def _shares(weights: Mapping[str, float]) -> dict[str, float]:
    total = sum(weights.values())
    ranked = sorted(weights, key=lambda token: (-weights[token], token))
    return {token: weights[token] / total for token in ranked}


def _entropy(weights: Mapping[str, float]) -> float:
    return sum(-share * math.log2(share) for share in _shares(weights).values()) + 0.0  # avoids -0.0


def _relative_steps(positions: Positions) -> list[float]:
    """The step that fills each position, from 0 (first) to 1 (last)."""
    filled_at = [0.0] * len(positions)
    for step, position in enumerate(positions):
        filled_at[position - 1] = step / (len(positions) - 1)
    return filled_at


def _grouped(sentences: Iterable[Iterable[tuple[str, float]]]) -> dict[str, Group]:
    """Average the relative steps by label. sentences: label and relative step of each token."""
    steps: dict[str, list[float]] = defaultdict(list)
    for sentence in sentences:
        for label, step in sentence:
            steps[label].append(step)
    groups = {label: Group(tokens=len(of_label), step=fmean(of_label)) for label, of_label in steps.items()}
    quarters = {label: groups[label] for label in QUARTERS if label in groups}
    others = sorted(groups.keys() - quarters.keys(), key=lambda label: (groups[label].step, label))
    return quarters | {label: groups[label] for label in others}


def _heat(orders: Sequence[Positions]) -> list[list[float]]:
    heat = [[0.0] * TENTHS for _ in range(TENTHS)]
    for positions in orders:
        covered = _covered_tenths(len(positions))
        for step, position in enumerate(positions):
            for row, of_step in covered[step]:
                for column, of_position in covered[position - 1]:
                    heat[row][column] += of_step * of_position
    in_each_tenth = sum(map(len, orders)) / TENTHS
    return [[weight / in_each_tenth for weight in row] for row in heat]


@cache
def _covered_tenths(length: int) -> list[list[tuple[int, float]]]:
    """For each of `length` equal parts, the tenths that it overlaps, and by how much."""

    def tenths(part: int) -> Iterator[tuple[int, float]]:
        # In units in which a part is TENTHS long and a tenth is length long.
        start, end = part * TENTHS, (part + 1) * TENTHS
        for tenth in range(start // length, -(-end // length)):
            overlap = min(end, (tenth + 1) * length) - max(start, tenth * length)
            yield tenth, overlap / TENTHS

    return [list(tenths(part)) for part in range(length)]
