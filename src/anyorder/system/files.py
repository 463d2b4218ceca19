"""Files and folders that are written whole or not at all, and formats that are known or refused."""

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
    """With those around it; it may be there already."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path}: can't be made a folder: {error.strerror}") from None


def write_file(path: Path, content: bytes) -> None:
    """Replace a file at once: it is never seen half-written."""
    with published_file(path) as file:
        file.write(content)


def read_versioned(path: Path, *, newest: int, what: str) -> dict[str, Any]:
    """A JSON object that has a format number, which must not be newer than this package's.

    what: it should be, for the refusal of anything else.
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
    """In the format of .npy; np.save wouldn't notice that an array's last bytes find no room on the disk."""
    values = np.ascontiguousarray(values)
    np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(values))
    file.write(values.data)


@contextmanager
def published_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to fill, which takes its real name, another's place if need be, only when it is complete.

    Of a link, that is the name of what it points to. A device or a pipe is written to as it is.
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
        with suppress(OSError):  # it is gone where all went well, and was never there without a folder
            unfinished.unlink()


@contextmanager
def published(folder: Path, *, key: str) -> Iterator[Path]:
    """A folder to fill, which takes its real name only when it is complete.

    Where another process was faster its folder stands, so equal names must mean equal content.
    key: what the recipe calls the place, for complaints.
    """
    unfinished = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder.parent))
        yield unfinished
        umask = os.umask(0)
        os.umask(umask)
        unfinished.chmod(0o777 & ~umask)  # others may read it as they may read the folder that it is in
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
