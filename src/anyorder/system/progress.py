"""How long work reports its progress."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # name of the task, items done, items in total
