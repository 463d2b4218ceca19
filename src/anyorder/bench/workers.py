"""Work that is timed in a process of its own, where the threads of other work can't hinder it."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

import torch

from anyorder.bench.measure import seconds_of
from anyorder.errors import UserError
from anyorder.models.kernels.malloc import keep_memory, settle

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
