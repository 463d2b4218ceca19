"""Graceful interruption: long work asks whether Ctrl-C or a termination signal has come."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 128 + signal.SIGINT  # exit code, as in shells


@contextmanager
def interruption() -> Iterator[Callable[[], bool]]:
    """Catch the first SIGINT or SIGTERM; the function that is returned says whether it has come.

    The second signal interrupts at once.
    """
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
