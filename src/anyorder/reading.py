"""Files of a split, and the pairs of lines in them.

Text is plain, .gz or .xz, pairs may come as JSONL, and image features as .npy. What is wrong with a file is
answered by its name and the recipe's key for it, what is wrong with a line by file and line.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, repeat
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt

from anyorder.config import Recipe, Splits
from anyorder.errors import UserError
from anyorder.tokens import SideName

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SHOWN_CHARACTERS = 60  # of a wrong value, in messages
_JSON_SHAPE = '{"source": ..., "target": ...}'


@dataclass(frozen=True)
class File:
    """A file of data, and what the recipe calls it."""

    path: Path
    key: str = ""  # e.g. data.train.source; empty: not from a recipe

    def complaint(self, text: str) -> UserError:
        """An error about the file as a whole."""
        return UserError(f"{self.path}: {text} ({self.key})" if self.key else f"{self.path}: {text}")


Files = dict[str, File]  # of a split, by their keys in it: source, features, target, jsonl


@dataclass(frozen=True)
class Pair:
    """One example as text; image features have no source text."""

    line: int
    source: str | None
    target: str


@dataclass(frozen=True)
class Fault:
    """A line that can't be used, and why."""

    path: Path
    line: int
    reason: str  # what skipped lines are counted by
    detail: str = ""

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.path}:{self.line}: {self.reason}{detail}"

    def refusal(self, *, more: int = 0) -> UserError:
        """An error that says how to do without this line and however many more bad ones there are."""
        others = f" (and {more} more bad line{'s' if more > 1 else ''})" if more else ""
        return UserError(f'{self}{others}; set data.bad_lines = "skip" to leave them out')


@dataclass(frozen=True)
class Features:
    """Rows of the recipe's features that belong to kept pairs, each (vectors, width)."""

    grid: npt.NDArray[Any]  # (lines, vectors, width), memory-mapped
    rows: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> npt.NDArray[Any]:
        return self.grid[self.rows[index]]

    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of vectors in each row, which is the same for all."""
        return np.full(len(self), self.grid.shape[1], dtype=np.int64)


def read_lines(path: Path, *, key: str = "") -> Iterator[tuple[int, str]]:
    """Lines of a text file, plain, .gz or .xz, with their numbers from 1.

    Only \\n and \\r\\n end a line: a separator such as \\u2028 inside a sentence would otherwise shift all
    pairs behind it. `key` is the recipe's name for the file, for complaints.
    """
    for number, text in enumerate(_texts(File(path=path, key=key)), start=1):
        if isinstance(text, Fault):
            raise UserError(str(text))
        yield number, text


def raw_pairs(recipe: Recipe, split: Splits, *, lines: Collection[int] | None = None) -> list[Pair]:
    """Text of a split's pairs, or only of those at the given lines, e.g. the `lines` of its corpus."""
    wanted = None if lines is None else {int(line) for line in lines}
    files = split_files(recipe, split)
    count_pairs(files)  # files that don't go together would give wrong pairs
    pairs = []
    for entry in read_pairs(files):
        if wanted is not None and entry.line not in wanted:
            continue
        if isinstance(entry, Fault):
            raise UserError(str(entry))
        pairs.append(entry)
    return pairs


def split_files(recipe: Recipe, split: Splits) -> Files:
    """The files that the recipe gives for a split; nothing is opened yet."""
    given = getattr(recipe.data, split)
    if given is None:
        raise UserError(f"data.{split}: missing; give data.{split}.source and data.{split}.target")
    return {
        name: File(path=recipe.path(path), key=f"data.{split}.{name}")
        for name, path in given
        if path is not None
    }


def count_pairs(files: Files) -> int:
    """Lines of a split; files that don't go together are refused."""
    counts = {
        name: len(open_features(file)) if name == "features" else sum(1 for _ in _byte_lines(file))
        for name, file in files.items()
    }
    if len(set(counts.values())) > 1:
        (one, count), (other, other_count) = counts.items()
        raise UserError(
            f"{files[one].path} has {count} lines but {files[other].path} has {other_count}; "
            f"{files[one].key} and {files[other].key} must have as many"
        )
    return next(iter(counts.values()))


def read_pairs(files: Files) -> Iterator[Pair | Fault]:
    """A split's pairs in order; a pair with an unreadable side is a fault.

    The files are taken to have as many lines, which `count_pairs` checks.
    """
    if "jsonl" in files:
        yield from _json_pairs(files["jsonl"])
        return
    sources = _texts(files["source"]) if "source" in files else repeat(None)
    for line, (source, target) in enumerate(zip(sources, _texts(files["target"]), strict=False), start=1):
        if isinstance(source, Fault):
            yield source
        elif isinstance(target, Fault):
            yield target
        else:
            yield Pair(line=line, source=source, target=target)


def read_chunks(files: Files, *, size: int) -> Iterator[list[Pair | Fault]]:
    """A split's pairs, so many at a time."""
    entries = read_pairs(files)
    while chunk := list(islice(entries, size)):
        yield chunk


def side_fault(files: Files, side: SideName, *, line: int, reason: str, detail: str = "") -> Fault:
    """What is wrong with one side of a pair; in JSONL, where a line holds both, the detail says which."""
    if "jsonl" not in files:
        return Fault(path=files[side].path, line=line, reason=reason, detail=detail)
    detail = f"{side}: {detail}" if detail else side
    return Fault(path=files["jsonl"].path, line=line, reason=reason, detail=detail)


def open_features(file: File) -> npt.NDArray[Any]:
    """Vectors of all lines, (lines, vectors, width), mapped from the file."""
    with _complaints(file):
        try:
            grid = np.load(file.path, mmap_mode="r")
        except ValueError:
            raise file.complaint("not an .npy file of numbers") from None
    if not isinstance(grid, np.ndarray):
        raise file.complaint("holds several arrays; allowed: one, of shape (lines, vectors, width)")
    if grid.ndim != 3:
        raise file.complaint(f"has shape {grid.shape}; allowed: (lines, vectors, width)")
    return grid


def content_digest(file: File) -> str:
    """A name for the bytes of a file, packed as they are."""
    with _complaints(file), file.path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@contextmanager
def _complaints(file: File) -> Iterator[None]:
    """Answer what goes wrong while reading in one line."""
    try:
        yield
    except FileNotFoundError:
        raise file.complaint("no such file") from None
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error):
        raise file.complaint(f"not a whole {file.path.suffix} file") from None
    except OSError as error:
        raise file.complaint(error.strerror or str(error)) from None


def _open(path: Path) -> IO[bytes]:
    match path.suffix:
        case ".gz":
            return cast(IO[bytes], gzip.open(path, "rb"))
        case ".xz":
            return cast(IO[bytes], lzma.open(path, "rb"))
        case _:
            return path.open("rb")


def _byte_lines(file: File) -> Iterator[bytes]:
    with _complaints(file), _open(file.path) as lines:
        yield from lines


def _texts(file: File) -> Iterator[str | Fault]:
    """Each line's text, or what is wrong with its encoding."""
    for number, line in enumerate(_byte_lines(file), start=1):
        if number == 1:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        try:
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            detail = f"byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line"
            yield Fault(path=file.path, line=number, reason="not valid UTF-8", detail=detail)


def _json_pairs(file: File) -> Iterator[Pair | Fault]:
    """Pairs of a JSONL file; a line of another shape is refused at once, because then the file is wrong."""
    for line, text in enumerate(_texts(file), start=1):
        if isinstance(text, Fault):
            yield text
            continue
        where = f"{file.path}:{line}"
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise UserError(f"{where}: not valid JSON: {error.msg} at column {error.colno}") from None
        if not isinstance(value, dict):
            raise UserError(f"{where}: must be {_JSON_SHAPE}")
        yield Pair(
            line=line,
            source=_string(value, "source", where=where),
            target=_string(value, "target", where=where),
        )


def _string(value: dict[str, object], name: str, *, where: str) -> str:
    if name not in value:
        raise UserError(f'{where}: no "{name}"; allowed: {_JSON_SHAPE}')
    given = value[name]
    if not isinstance(given, str):
        raise UserError(f'{where}: "{name}" is {json.dumps(given)[:_SHOWN_CHARACTERS]}; must be a string')
    if not given.isascii() and any("\ud800" <= character <= "\udfff" for character in given):
        raise UserError(f'{where}: "{name}" holds half of a surrogate pair, which is no character')
    return given
