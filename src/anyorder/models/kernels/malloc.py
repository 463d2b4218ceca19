"""Memory that a process keeps: what one tensor gives back, the next one takes.

glibc returns large blocks to the system at once, which fills each with zeros before it gives it out again. On
a CPU that took a fifth of a training's time.
"""

from __future__ import annotations

import ctypes
import gc
import sys

# Names and numbers of glibc's malloc.h.
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4
NEVER = -1
GROWTH = 64 * 2**20  # bytes that the heap grows by at least


def keep_memory() -> None:
    """Change how this process allocates from now on; other C libraries than glibc are left as they are."""
    if sys.platform != "linux":
        return
    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    if tune is None:
        return
    tune(MMAP_MAX, 0)
    tune(TRIM_THRESHOLD, NEVER)
    tune(TOP_PAD, GROWTH)


def settle() -> None:
    """Tell Python's collector that all there is now stays: torch alone has 166,000 objects to look at.

    For a command that has loaded what it needs; it writes 7 % more text a second.
    """
    gc.freeze()
