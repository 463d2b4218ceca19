"""Full and read-only disks, at every write: one line, and once there is room the same outcome bit for bit.

`python tests/faults/disk.py --seed 1`

Two kinds of faults are made in forked processes: every n-th operation that changes the disk fails (n rises
until the command is through), and no file may grow beyond some size.
"""

from __future__ import annotations

import errno
import os
import random
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from corpora import write_corpus
from faults.kill import SEARCHED, Victim, fresh, victims
from faults.report import Table, command_line, finish, run, unfinished, warm_up, workplace

# Audit events of the operations that change a disk, with the argument that holds the path.
CHANGES = {"os.mkdir": 0, "os.rename": 0, "os.chmod": 0, "os.truncate": 0, "os.symlink": 1}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
FAULTS = {"full": errno.ENOSPC, "read-only": errno.EROFS}
SIZES = (1_000, 4_000, 20_000, 60_000)  # bytes that a file may grow to, its message included
STRIDE = 6  # of the operations, one is tried, so that long commands end in time


def failing(folder: Path, *, at: int, error: int) -> Callable[[], None]:
    """Make the operation of this number fail, and all after it, as a disk that is full stays full."""

    def install() -> None:
        count = 0

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal count
            path = None
            if event == "open":
                path = arguments[0] if isinstance(arguments[2], int) and arguments[2] & WRITING else None
            elif event in CHANGES:
                path = arguments[CHANGES[event]]
            if not isinstance(path, str | os.PathLike) or not os.fspath(path).startswith(str(folder)):
                return
            count += 1
            if count >= at:
                raise OSError(error, os.strerror(error), str(path))

        sys.addaudithook(hook)

    return install


def limited(size: int) -> Callable[[], None]:
    """Let no file grow beyond a size, as on a disk that fills up while a file is written."""
    return lambda: resource.setrlimit(
        resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    )


def _limited(folder: Path, *, size: int) -> Callable[[], None]:
    del folder
    return limited(size)


def fill_disks(place: Path, *, seed: int, tries: int, minutes: float) -> Table:
    """Let each command meet each fault, then give it again without faults."""
    table, chance = Table("a disk fails in"), random.Random(seed)
    recipe, trained = write_corpus(place), place / "trained"
    warm_up(recipe, place)
    assert run("train", recipe, *SEARCHED, f"run={trained}", folder=place).code == 0
    done = 0
    chosen = victims(recipe, trained)
    began = time.monotonic()
    for number, victim in enumerate(chosen, start=1):
        ends = began + 60 * minutes * number / len(chosen)  # each command gets the same time
        folder = fresh(place / "trial")
        victim.prepare(folder)
        assert run(*victim.arguments(folder), folder=folder).code == 0
        wanted = victim.outcome(folder)
        for kind, error in FAULTS.items():
            at = chance.randint(1, STRIDE)
            half = ends if kind == "read-only" else ends - 30 * minutes / len(chosen)
            while done < tries and time.monotonic() < half:
                fault, hit = _trial(
                    fresh(place / "trial"), victim, wanted, partial(failing, at=at, error=error)
                )
                if not hit:
                    break
                done += 1
                table.row(f"{victim.name}: {kind}").note(fault and f"operation {at}: {fault}")
                at += chance.randint(1, STRIDE)
        for size in SIZES:
            if done < tries:
                fault, hit = _trial(fresh(place / "trial"), victim, wanted, partial(_limited, size=size))
                done += hit
                if hit:
                    table.row(f"{victim.name}: files of a size at most").note(
                        fault and f"{size} bytes: {fault}"
                    )
    return table


def _trial(
    folder: Path, victim: Victim, wanted: dict[str, bytes], before: Callable[[Path], Callable[[], None]]
) -> tuple[str | None, bool]:
    """Whether something was wrong, and whether the fault was met at all."""
    victim.prepare(folder)
    answer = run(*victim.arguments(folder), folder=folder, before=before(folder))
    if answer.code == 0:
        return None, False
    if (fault := answer.wrong(allowed=(2,))) is not None:
        return fault, True
    answer = run(*victim.again(folder), folder=folder)
    if answer.code != 0 and victim.done_already not in answer.remarked:
        return f"afterwards: {answer.wrong(allowed=(0,))}", True
    found = victim.outcome(folder)
    different = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    left = unfinished(folder)
    if different or left:
        return f"afterwards {different[:3]} differ, {left[:3]} are left", True
    return None, True


if __name__ == "__main__":
    asked = command_line(__doc__ or "", tries=1000, minutes=15)
    with workplace(asked.folder) as place:
        finish(fill_disks(place, seed=asked.seed, tries=asked.tries, minutes=asked.minutes))
