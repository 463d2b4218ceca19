"""Timing on noisy machines: variants take turns, medians count, a matrix product tells how fast it was."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch


@dataclass(frozen=True)
class Row:
    """A line of a benchmark's table."""

    name: str
    value: float
    unit: str
    ratio: float | None  # of the values, this one over the other's
    against: str | None
    tokens_per_second: float | None = None  # where a benchmark counts them
    low: float | None = None  # quartiles of the ratio, pair by pair
    high: float | None = None
    curve: str | None = None  # that a picture has this value on
    at: int | None = None  # where on its axis


def interleaved(
    variants: Mapping[str, Callable[[], object]], *, repeats: int, warmup: int = 2
) -> dict[str, list[float]]:
    """Seconds of each variant's calls, one of each in turn."""
    clocks = {name: partial(seconds_of, call) for name, call in variants.items()}
    return in_turns(clocks, repeats=repeats, warmup=warmup)


def in_turns(
    clocks: Mapping[str, Callable[[], float]],
    *,
    repeats: int,
    warmup: int,
    rest: float = 0.0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, list[float]]:
    """Seconds that calls say they took, one of each in turn.

    rest: seconds before each; progress: told how many repetitions of how many are done, from none on.
    """
    progress(0, repeats)
    for clock in clocks.values():
        for _ in range(warmup):
            clock()
    seconds: dict[str, list[float]] = {name: [] for name in clocks}
    for done in range(1, repeats + 1):
        for name, clock in clocks.items():
            time.sleep(rest)
            seconds[name].append(clock())
        progress(done, repeats)
    return seconds


def seconds_of(call: Callable[[], object]) -> float:
    """By the wall clock."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def time_rows(seconds: Mapping[str, list[float]], *, against: str, tokens: int | None = None) -> list[Row]:
    """Median times in milliseconds and their ratios to one variant, paired by turn.

    tokens: that a call deals with.
    """
    rows = []
    for name, times in seconds.items():
        ratios = sorted(one / other for one, other in zip(times, seconds[against], strict=True))
        quartiles = (
            statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else [ratios[0]] * 3
        )
        median = statistics.median(times)
        rows.append(
            Row(
                name=name,
                value=1000 * median,
                unit="ms",
                ratio=statistics.median(ratios),
                against=against,
                tokens_per_second=None if tokens is None else tokens / median,
                low=quartiles[0],
                high=quartiles[2],
            )
        )
    return rows


def shares_of_time(
    call: Callable[[], object],
    parts: Mapping[str, Sequence[tuple[object, str]]],
    *,
    of: str,
    repeats: int = 5,
) -> list[Row]:
    """How much of a call's time is spent in some methods, given as objects and names; then the rest."""
    seconds = dict.fromkeys(parts, 0.0)
    with ExitStack() as stack:
        for name, methods in parts.items():
            for owner, method in methods:
                stack.enter_context(_timed(owner, method, part_of=name, seconds=seconds))
        call()
        seconds.update(dict.fromkeys(parts, 0.0))
        began = time.perf_counter()
        for _ in range(repeats):
            call()
        whole = time.perf_counter() - began
    seconds["the rest"] = whole - sum(seconds.values())
    return [
        Row(
            name=f"of {of}: {name}",
            value=1000 * time_of_part / repeats,
            unit="ms",
            ratio=time_of_part / whole,
            against=of,
        )
        for name, time_of_part in seconds.items()
    ]


@contextmanager
def _timed(owner: object, method: str, *, part_of: str, seconds: dict[str, float]) -> Iterator[None]:
    """While this lasts, calls of a method add their time to a part's."""
    untimed = getattr(owner, method)

    def timed(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        began = time.perf_counter()
        try:
            return untimed(*arguments, **named)
        finally:
            seconds[part_of] += time.perf_counter() - began

    setattr(owner, method, timed)
    try:
        yield
    finally:
        delattr(owner, method)  # the class's own shows again


def bandwidth(*, repeats: int = 10) -> Row:
    """How fast memory is read here and now: numbers that no cache can hold are summed up."""
    numbers = torch.ones(64 * 2**20)
    times = interleaved({"sum": numbers.sum}, repeats=repeats)["sum"]
    speed = numbers.nbytes / statistics.median(times) / 1e9
    return Row(name="memory, read", value=speed, unit="GB/s", ratio=None, against=None)


def calibration(*, repeats: int = 10) -> Row:
    """What a plain matrix product reaches here and now."""
    size = 1024
    matrix = torch.randn(size, size)
    times = interleaved({"product": lambda: matrix @ matrix}, repeats=repeats)["product"]
    speed = 2 * size**3 / statistics.median(times) / 1e9
    return Row(name=f"matrix product {size}³ fp32", value=speed, unit="GFLOPS", ratio=None, against=None)
