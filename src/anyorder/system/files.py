"""Atomic writes of files and folders, and reads of files that a user or a crash may have spoiled."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal

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


UNFINISHED = ".unfinished"  # how the names of files and folders end or begin until they are complete


@contextmanager
def reading(path: Path, *, remedy: str = "", problem: str = "broken") -> Iterator[None]:
    """Turn whatever goes wrong while a file is read and understood into one line.

    Only that the file is missing is left to the caller. problem: what to call a broken file; remedy: what
    the user can do about it.
    """
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror or error}") from None
    except _BROKEN as error:
        raise UserError(f"{path}: {problem}: {_reason(error)}{remedy and f'; {remedy}'}") from None


# What the readers of JSON, TOML, NumPy and archives raise, and code that finds other values than it expects.
_BROKEN = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, EOFError, MemoryError),
    *(RecursionError, zipfile.BadZipFile, zlib.error),
)


def _reason(error: Exception) -> str:
    match error:
        case UnicodeDecodeError():
            wrong, line = error.object[error.start], error.object.count(b"\n", 0, error.start) + 1
            return f"not valid UTF-8 (byte 0x{wrong:02x} in line {line})"
        case json.JSONDecodeError():
            return f"not valid JSON ({error.msg} in line {error.lineno})"
        case RecursionError():
            return "nested too deeply"
        case MemoryError():
            return "larger than the memory"
        case KeyError():
            return f"no {error}"
    return " ".join(str(error).split())[:_SHOWN_CHARACTERS] or type(error).__name__


_SHOWN_CHARACTERS = 120  # longer reasons are cut


LARGEST_TEXT = 2**30  # bytes; no text that is read at once is that long


def check_regular(path: Path) -> None:
    """Refuse devices, pipes and folders, which have no end or no content."""
    with reading(path):
        mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise UserError(f"{path}: is no regular file")


def read_text(path: Path) -> str:
    """Read a text file in UTF-8."""
    check_regular(path)
    with reading(path):
        if path.stat().st_size > LARGEST_TEXT:
            raise ValueError(f"{path.stat().st_size:,} bytes, allowed: {LARGEST_TEXT:,}")
        return path.read_text(encoding="utf-8")


def read_json(path: Path, *, remedy: str = "") -> Any:  # noqa: ANN401 (any JSON value)
    """Read a JSON file."""
    text = read_text(path)
    with reading(path, remedy=remedy):
        return json.loads(text)


def read_array(path: Path, *, mode: Literal["r", "r+"] = "r", remedy: str = "") -> NDArray[Any]:
    """Map an array in .npy format into memory; nothing is ever unpickled."""
    check_regular(path)
    with reading(path, remedy=remedy):
        mapped: NDArray[Any] = np.load(path, mmap_mode=mode, allow_pickle=False)
        return mapped


def read_versioned(path: Path, *, newest: int, what: str) -> dict[str, Any]:
    """Read a JSON object with a format number, and refuse formats that are newer than this package.

    newest: the highest number that is understood; what: what the file should be, for error messages.
    """
    check_regular(path)
    with reading(path, problem=f"not {what}"):
        values = json.loads(read_text(path))
    version = values.get("format") if isinstance(values, dict) else None
    if type(version) is not int:
        raise UserError(f"{path}: not {what}")
    if version < 1:
        raise UserError(f"{path}: not {what}: format = {version}, allowed: 1 to {newest}")
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
    final = Path(os.path.realpath(path))
    # Two processes on two machines may have the same number.
    unfinished = final.with_name(f".{final.name}.{os.getpid()}-{secrets.token_hex(3)}{UNFINISHED}")
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
        _remove_forgotten(folder.parent)
        unfinished = Path(tempfile.mkdtemp(prefix=f"{UNFINISHED}-", dir=folder.parent))
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


FORGOTTEN = 7 * 24 * 3600  # seconds; nobody works on a temporary folder for so long without a new file


def _remove_forgotten(folder: Path) -> None:
    """Remove temporary folders that processes which were killed long ago have left."""
    for path in folder.glob(f"{UNFINISHED}-*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > FORGOTTEN:
                shutil.rmtree(path, ignore_errors=True)


def remove_unfinished(folder: Path) -> None:
    """Remove what killed processes have left in a folder that this process alone writes to."""
    for path in [*folder.glob(f".*{UNFINISHED}"), *folder.glob(f"{UNFINISHED}-*")]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _rename(unfinished: Path, folder: Path) -> None:
    try:
        unfinished.rename(folder)
    except OSError:
        if not folder.exists():
            raise
