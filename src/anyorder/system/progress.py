"""How long work reports its progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Progress = Callable[[str, int, int], None]  # name of the task, items done, items in total
TaskProgress = Callable[[int, int], None]  # items done, items in total, of one task


class ProgressListener(Protocol):
    """Receives remarks and progress, such as the progress bar of the command line."""

    def note(self, text: str) -> None:
        """Receive a remark of one line."""

    def preparing(self, what: str, done: int, total: int) -> None:
        """Receive how many of the lines of a task are done: reading, searching orders or decoding."""
