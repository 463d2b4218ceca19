"""Peak memory of a piece of work."""

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
    """Measure how many megabytes a piece of work needs at its peak, in a process of its own.

    prepare: does everything that should not be counted and returns the work; it must be picklable. The work
    runs twice, and the second run is measured: what the first one allocates for good, such as an optimiser's
    moments, is not counted.
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
    """Reset the peak that `peak` returns, where the system supports that.

    Also return free memory to the system, which would otherwise hide part of what the work needs.
    """
    if sys.platform == "linux":
        getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)(0)  # glibc only; others have nothing to trim
        with suppress(OSError):  # some sandboxes don't have this file or don't allow writing
            Path("/proc/self/clear_refs").write_text("5")


def _resident() -> float:
    return _status("VmRSS") if sys.platform == "linux" else peak()


def peak() -> float:
    """Peak memory of this process, in megabytes."""
    if sys.platform == "linux":
        return _status("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # bytes on macOS


def available() -> int | None:
    """Bytes that this process may still take; None where the system does not say."""
    if sys.platform != "linux":
        return None
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = [next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) * 1024]
    except (OSError, StopIteration, ValueError):
        return None
    with suppress(OSError, ValueError):  # of a container; a file that holds "max" sets no limit
        group = Path("/sys/fs/cgroup")
        most, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        free.append(most - used)
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        free.append(limit - int(_status("VmSize") * 1e6))
    return max(0, min(free))


def _status(key: str) -> float:
    """Read one number from the kernel's status file, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) * 1024 / 1e6
