"""Atomic writes of files and folders, and versioned JSON files."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from anyorder.errors import UserError
from anyorder.version import __version__


def make_folder(path: Path) -> None:
    """Create a folder and its parents; it may already exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path}: can't be made a folder: {error.strerror}") from None


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically: it is never seen half-written."""
    with published_file(path) as file:
        file.write(content)


def read_versioned(path: Path, *, newest: int, what: str) -> dict[str, Any]:
    """Read a JSON object with a format number, and refuse formats that are newer than this package.

    newest: the highest number that is understood; what: what the file should be, for error messages.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        values = None
    version = values.get("format") if isinstance(values, dict) else None
    if not isinstance(version, int):
        raise UserError(f"{path}: not {what}")
    if version > newest:
        raise UserError(
            f"{path}: is of format {version}, but this anyorder ({__version__}) reads only up to {newest}"
        )
    return dict(values)


def write_array(file: IO[bytes], values: NDArray[Any]) -> None:
    """Write an array in .npy format. Unlike np.save, this notices a full disk."""
    values = np.ascontiguousarray(values)
    np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(values))
    file.write(values.data)


@contextmanager
def published_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to write, which replaces the old one only when it is complete.

    If the path is a link, its target is replaced. Devices and pipes are written directly.
    """
    final = path.resolve()
    unfinished = final.with_name(f".{final.name}.{os.getpid()}")
    try:
        if final.exists() and not final.is_file():
            with path.open("wb") as file:
                yield file
            return
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if final.exists():
            unfinished.chmod(stat.S_IMODE(final.stat().st_mode))
        unfinished.replace(final)
    except OSError as error:
        raise UserError(f"{path}: can't be written: {error.strerror}") from error
    finally:
        with suppress(OSError):  # it was renamed, or never created
            unfinished.unlink()


@contextmanager
def published(folder: Path, *, key: str) -> Iterator[Path]:
    """Create a temporary folder to fill, which gets its real name only when it is complete.

    If another process was faster, its folder is kept, so equal names must mean equal content.
    key: the recipe key of the folder, for error messages.
    """
    unfinished = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder.parent))
        yield unfinished
        umask = os.umask(0)
        os.umask(umask)
        unfinished.chmod(0o777 & ~umask)  # the usual permissions, not those of a temporary folder
        _rename(unfinished, folder)
    except OSError as error:
        raise UserError(f"{folder}: can't be written: {error.strerror} ({key})") from error
    finally:
        if unfinished is not None:
            shutil.rmtree(unfinished, ignore_errors=True)


def _rename(unfinished: Path, folder: Path) -> None:
    try:
        unfinished.rename(folder)
    except OSError:
        if not folder.exists():
            raise
