"""Files and folders that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from anyorder.errors import UserError


def make_folder(path: Path) -> None:
    """With those around it; it may be there already."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path}: can't be made a folder: {error.strerror}") from None


def write_file(path: Path, content: bytes) -> None:
    """Replace a file at once: it is never seen half-written."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise UserError(f"{path}: can't be written: {error.strerror}") from error
