"""Locks on folders: one process at a time writes to a run.

The lock is the operating system's, so it ends with its process, however that ends. A file left behind by a
killed process is harmless.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from anyorder.errors import UserError
from anyorder.system.files import make_folder, remove_unfinished

if sys.platform == "win32":
    import msvcrt

    _OUT_OF_THE_WAY = 2**30  # a locked byte can't be read, so it lies far behind the text

    def _try_lock(file: IO[bytes]) -> None:
        file.seek(_OUT_OF_THE_WAY)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(file: IO[bytes]) -> None:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


LOCK_FILE = ".in-use"


@contextmanager
def locked(folder: Path, *, name: str = LOCK_FILE) -> Iterator[None]:
    """Write to a folder alone; a UserError names the process that already does.

    The folder is made if it is missing, and removed again if it is still empty at the end. What killed
    processes have left unfinished in it is removed. name: of the lock, where a folder has several.
    """
    path = folder / name
    made = _missing_folders(folder)
    make_folder(folder)
    try:
        file = _acquire(path, folder)
        if name == LOCK_FILE:
            remove_unfinished(folder)
        try:
            yield
        finally:
            with suppress(
                OSError
            ):  # before it is closed: whoever holds another file by this name starts over
                path.unlink()
            with suppress(OSError):  # the disk may be full; closing gives the lock back all the same
                file.close()
    finally:
        for empty in made:
            with suppress(OSError):  # it is not empty
                empty.rmdir()


def _missing_folders(folder: Path) -> list[Path]:
    """The folders that have to be made for this one, innermost first."""
    return [one for one in (folder, *folder.parents) if not one.exists()]


def _acquire(path: Path, folder: Path) -> IO[bytes]:
    while True:
        try:
            file = path.open("a+b")
        except FileNotFoundError:  # another process has just removed its empty folder
            make_folder(folder)
            continue
        except OSError as error:
            raise UserError(f"{folder}: can't be written: {error.strerror}") from None
        try:
            _try_lock(file)
        except (BlockingIOError, PermissionError):  # the second on Windows
            file.close()
            raise UserError(f"{folder}: is in use by {_owner(path)}; wait for it or stop it") from None
        except OSError as error:
            file.close()
            raise UserError(f"{path}: can't be locked: {error.strerror}") from None
        if _is_still(path, file):
            _sign(file)
            return file
        file.close()


def _is_still(path: Path, file: IO[bytes]) -> bool:
    """Whether an open file is the one of this name, and not one that its owner has removed since."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _sign(file: IO[bytes]) -> None:
    with suppress(OSError):  # on a full disk the lock holds without a name
        file.truncate(0)
        file.write(f"{os.getpid()} {socket.gethostname()}".encode())
        file.flush()


def _owner(path: Path) -> str:
    try:
        process, host = path.read_bytes()[:300].decode().split(maxsplit=1)
        return f"process {int(process)} on {host if host.isprintable() else '?'}"
    except (OSError, ValueError):
        return "another process"
