"""How much memory a piece of work takes at its peak, beyond what was there before it."""

from __future__ import annotations

import ctypes
import multiprocessing
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

Work = Callable[[], object]


def peak_memory(prepare: Callable[[], Work]) -> float:
    """Megabytes that the work prepared needs at its peak, in a process of its own.

    prepare: of a module's top level, or a partial of such; it does what is not to be counted. The work is
    done twice, since what it leaves behind once, such as an optimiser's moments, is not its need.
    """
    with multiprocessing.get_context("spawn").Pool(processes=1) as pool:
        return pool.apply(_measured, (prepare,))


def _measured(prepare: Callable[[], Work]) -> float:
    work = prepare()
    work()
    forget_peak()
    before = _resident()
    work()
    return max(0.0, peak() - before)


def forget_peak() -> None:
    """Let `peak` count from now on, where the system can do that.

    Also give back what is free but held for later, which would hide as much of the need.
    """
    if sys.platform == "linux":
        getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)(0)  # other C libraries than glibc hold nothing
        with suppress(OSError):  # some sandboxes have no such file, or let nobody write to it
            Path("/proc/self/clear_refs").write_text("5")


def _resident() -> float:
    return _status("VmRSS") if sys.platform == "linux" else peak()


def peak() -> float:
    """Megabytes that this process has had at once, at most."""
    if sys.platform == "linux":
        return _status("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # bytes on macOS


def _status(key: str) -> float:
    """Megabytes, as the kernel counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) * 1024 / 1e6
