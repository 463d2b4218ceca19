"""Timing on noisy machines: interleaved turns, medians, calibration, work in processes of its own."""

from __future__ import annotations

import multiprocessing
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

import torch

from anyorder.errors import UserError
from anyorder.models.kernels.malloc import keep_memory, settle


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


Work = Callable[[], object]
Prepare = Callable[..., Work]  # from what differs between turns


class Worker:
    """A process that works when it is told to, and waits at a pipe between its turns.

    It takes as many threads as torch does here, and ends as soon as nobody can ask it any more.
    """

    def __init__(self, name: str, build: Callable[[], Prepare]) -> None:
        """build: of a module's top level, or a partial of such; called once, in the first turn."""
        processes = multiprocessing.get_context("spawn")
        self.name = name
        self._connection, its_end = processes.Pipe()
        self._process = processes.Process(
            target=_serve, args=(its_end, build, torch.get_num_threads()), daemon=True
        )
        # A terminal sends Ctrl-C to all processes. This one ends the others, which inherit to ignore it.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._process.start()
        finally:
            signal.signal(signal.SIGINT, handler)
        its_end.close()  # or nobody would notice here that it is closed there

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()  # it may be at work, and has nothing to put in order
        self._process.join()
        self._connection.close()

    def seconds(self, *arguments: object) -> float:
        """How long the work takes that is prepared from these."""
        try:
            self._connection.send(arguments)
            answer = self._connection.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            raise UserError(f"{self.name}: its process ended, {_cause(self._process.exitcode)}") from None
        if isinstance(answer, _Failure):
            raise UserError(f"{self.name}: {answer.message}")
        return answer


@dataclass(frozen=True)
class _Failure:
    message: str


def _serve(connection: Connection, build: Callable[[], Prepare], threads: int) -> None:
    keep_memory()  # as the command does
    torch.set_num_threads(threads)
    built = cache(partial(_settled, build))
    with suppress(EOFError, ConnectionError):  # nobody asks any more
        while True:
            connection.send(_answer(built, connection.recv()))


def _settled(build: Callable[[], Prepare]) -> Prepare:
    prepare = build()
    settle()  # as the command does
    return prepare


def _answer(built: Callable[[], Prepare], arguments: tuple[object, ...]) -> float | _Failure:
    try:
        return seconds_of(built()(*arguments))
    except Exception as error:
        return _Failure(" ".join(f"{type(error).__name__}: {error}".split()))


def _cause(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "killed; perhaps memory ran out"
    return f"exit code {code}"
