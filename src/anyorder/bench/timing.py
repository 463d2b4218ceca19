"""Timing on a noisy machine: variants take turns, and each is compared with a baseline turn by turn.

A `Worker` runs a variant in a process of its own, so that the threads of one engine do not disturb another.
"""

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
from anyorder.models.kernels.malloc import freeze_objects, keep_memory


@dataclass(frozen=True)
class Measurement:
    """One row of a benchmark's table."""

    name: str
    value: float
    unit: str
    ratio: float | None  # this value divided by the baseline's
    against: str | None  # name of the baseline
    tokens_per_second: float | None = None  # None if the benchmark does not count tokens
    low: float | None = None  # lower quartile of the ratios, turn by turn
    high: float | None = None  # upper quartile
    curve: str | None = None  # curve of a chart that the value belongs to
    at: int | None = None  # where on the chart's horizontal axis


def interleaved(
    variants: Mapping[str, Callable[[], object]], *, repeats: int, warmup: int = 2
) -> dict[str, list[float]]:
    """Measure the seconds that each variant takes; the variants take turns."""
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
    """Collect the seconds that each clock returns; the clocks take turns.

    clocks: functions that do the work and return how many seconds it took.
    rest: seconds to wait before each call.
    progress: called with the number of repetitions done and their total, first with 0 done.
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
    """Measure the wall-clock seconds that a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def time_rows(
    seconds: Mapping[str, list[float]], *, against: str, tokens: int | None = None
) -> list[Measurement]:
    """Return median times in milliseconds and their ratios to a baseline, paired by turn.

    against: name of the baseline. tokens: number of tokens that a call processes.
    """
    rows = []
    for name, times in seconds.items():
        ratios = sorted(one / other for one, other in zip(times, seconds[against], strict=True))
        quartiles = (
            statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else [ratios[0]] * 3
        )
        median = statistics.median(times)
        rows.append(
            Measurement(
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
) -> list[Measurement]:
    """Measure how much of the time of a call is spent in each part, and in none of them.

    parts: name → methods, each given as an object and the name of its method. of: name of the call.
    """
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
        Measurement(
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
    """Add the time of every call of a method to a part, within this context."""
    untimed, belongs_to_owner = getattr(owner, method), method in vars(owner)

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
        if belongs_to_owner:
            setattr(owner, method, untimed)
        else:
            delattr(owner, method)  # uncovers the method of the class


def bandwidth(*, repeats: int = 10) -> Measurement:
    """Measure how fast memory is read, by summing numbers that fit into no cache."""
    numbers = torch.ones(64 * 2**20)
    times = interleaved({"sum": numbers.sum}, repeats=repeats)["sum"]
    speed = numbers.nbytes / statistics.median(times) / 1e9
    return Measurement(name="memory, read", value=speed, unit="GB/s", ratio=None, against=None)


def calibration(*, repeats: int = 10) -> Measurement:
    """Measure the speed of a plain matrix product, as a reference for the machine."""
    size = 1024
    matrix = torch.randn(size, size)
    times = interleaved({"product": lambda: matrix @ matrix}, repeats=repeats)["product"]
    speed = 2 * size**3 / statistics.median(times) / 1e9
    return Measurement(
        name=f"matrix product {size}³ fp32", value=speed, unit="GFLOPS", ratio=None, against=None
    )


TimedCall = Callable[[], object]
Prepare = Callable[..., TimedCall]  # takes what differs between turns


class Worker:
    """A process that runs one variant on request and waits at a pipe between its turns.

    It uses as many threads as torch does here, and ends when the pipe is closed.
    """

    def __init__(self, name: str, build: Callable[[], Prepare]) -> None:
        """build: a function that can be pickled; the process calls it once, in its first turn."""
        processes = multiprocessing.get_context("spawn")
        self.name = name
        self._connection, worker_end = processes.Pipe()
        self._process = processes.Process(
            target=_serve, args=(worker_end, build, torch.get_num_threads()), daemon=True
        )
        # A terminal sends Ctrl-C to all processes. Workers ignore it, because this process ends them.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._process.start()
        finally:
            signal.signal(signal.SIGINT, handler)
        worker_end.close()  # so that recv fails here once the worker is gone

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()  # it may be busy, and has nothing to clean up
        self._process.join()
        self._connection.close()

    def seconds(self, *arguments: object) -> float:
        """Prepare a call from these arguments in the process, and return the seconds that the call takes."""
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
    keep_memory()  # as the command line does
    torch.set_num_threads(threads)
    built = cache(partial(_settled, build))
    with suppress(EOFError, ConnectionError):  # the other end was closed
        while True:
            connection.send(_answer(built, connection.recv()))


def _settled(build: Callable[[], Prepare]) -> Prepare:
    prepare = build()
    freeze_objects()  # as the command line does
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
