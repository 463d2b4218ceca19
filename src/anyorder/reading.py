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
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from typing import IO, Any, TypeVar, cast, get_args

import numpy as np
import numpy.typing as npt

from anyorder.config import Recipe, Splits
from anyorder.errors import UserError
from anyorder.tokens import SideName

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SHOWN_CHARACTERS = 60  # of a wrong value, in messages
_JSON_SHAPE = '{"source": ..., "target": ...}'
_NUMBERS_CHECKED_AT_ONCE = 2**22  # of features, which may be larger than the memory

AnyEntry = TypeVar("AnyEntry")


@dataclass(frozen=True)
class File:
    """A file of data, and what the recipe calls it."""

    path: Path
    key: str = ""  # e.g. data.train.source; empty: not from a recipe

    @property
    def packing(self) -> str:
        """How its text is unpacked: .gz, .xz, or empty for what is read as it is."""
        return self.path.suffix if self.path.suffix in (".gz", ".xz") else ""

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
    return list(stream_pairs(recipe, split, lines=lines))


def stream_pairs(recipe: Recipe, split: Splits, *, lines: Collection[int] | None = None) -> Iterator[Pair]:
    """Like `raw_pairs`, but pair by pair, for text that may be larger than the memory."""
    files = split_files(recipe, split)
    total = count_pairs(files)  # also because files that don't go together would give wrong pairs
    wanted = np.full(total + 1, lines is None)  # a byte a line, counted from 1
    if lines is not None:
        wanted[np.fromiter(lines, dtype=np.int64)] = True
    for entry in read_pairs(files):
        if not wanted[entry.line]:
            continue
        if isinstance(entry, Fault):
            raise UserError(str(entry))
        yield entry


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
    counts = {name: _count_lines(name, file) for name, file in files.items()}
    if len(set(counts.values())) > 1:
        (one, count), (other, other_count) = counts.items()
        raise UserError(
            f"{files[one].path} has {count} lines but {files[other].path} has {other_count}; "
            f"{files[one].key} and {files[other].key} must have as many"
        )
    return next(iter(counts.values()))


def read_pairs(files: Files) -> Iterator[Pair | Fault]:
    """A split's pairs in order; a line or a side of it that can't be read makes a fault.

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


def in_chunks(entries: Iterable[AnyEntry], *, size: int) -> Iterator[list[AnyEntry]]:
    """So many at a time; the last chunk holds what is left."""
    waiting = iter(entries)
    while chunk := list(islice(waiting, size)):
        yield chunk


def side_fault(files: Files, side: SideName, *, line: int, reason: str, detail: str = "") -> Fault:
    """What is wrong with one side of a pair; in JSONL, where a line holds both, the detail says which."""
    if "jsonl" not in files:
        return Fault(path=files[side].path, line=line, reason=reason, detail=detail)
    detail = f"{side}: {detail}" if detail else side
    return Fault(path=files["jsonl"].path, line=line, reason=reason, detail=detail)


def open_features(file: File) -> npt.NDArray[Any]:
    """Vectors of all lines, (lines, vectors, width), mapped from the file; their values aren't looked at."""
    with _complaints(file):
        try:
            grid = np.load(file.path, mmap_mode="r")
        except ValueError:
            raise file.complaint("not an .npy file of numbers") from None
    if not isinstance(grid, np.ndarray):
        raise file.complaint("holds several arrays; allowed: one, of shape (lines, vectors, width)")
    if grid.dtype.kind not in "fiu":
        raise file.complaint(f"holds values of type {grid.dtype.name}; allowed: real numbers")
    if grid.ndim != 3 or 0 in grid.shape[1:]:
        raise file.complaint(f"has shape {grid.shape}; allowed: (lines, vectors, width), the last two from 1")
    return grid


def check_features(file: File) -> None:
    """Refuse vectors that hold anything but finite numbers, which takes reading all of them."""
    grid = open_features(file)
    rows = max(1, _NUMBERS_CHECKED_AT_ONCE // (grid.shape[1] * grid.shape[2]))
    for start in range(0, len(grid), rows):
        finite = np.isfinite(grid[start : start + rows]).all(axis=2)  # (rows, vectors)
        if not finite.all():
            row, vector = np.argwhere(~finite)[0]
            raise file.complaint(
                f"vector {vector + 1} of line {start + row + 1} isn't finite; allowed: no nan or inf"
            )


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


def _open(file: File) -> IO[bytes]:
    match file.packing:
        case ".gz":
            return cast(IO[bytes], gzip.open(file.path, "rb"))
        case ".xz":
            return cast(IO[bytes], lzma.open(file.path, "rb"))
        case _:
            return file.path.open("rb")


def _byte_lines(file: File) -> Iterator[bytes]:
    with _complaints(file), _open(file) as lines:
        yield from lines


def _count_lines(name: str, file: File) -> int:
    match name:
        case "features":
            return len(open_features(file))
        case "jsonl":
            return sum(1 for _ in _without_blank_end(_byte_lines(file)))
        case _:
            return sum(1 for _ in _byte_lines(file))


def _without_blank_end(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Lines up to the last one that isn't blank: editors and scripts like to add some."""
    blank: list[bytes] = []
    for line in lines:
        if line.isspace():
            blank.append(line)
        else:
            yield from blank
            blank.clear()
            yield line


def _texts(file: File) -> Iterator[str | Fault]:
    return _decoded(_byte_lines(file), path=file.path)


def _decoded(lines: Iterable[bytes], *, path: Path) -> Iterator[str | Fault]:
    """Each line's text, or what is wrong with its encoding."""
    for number, line in enumerate(lines, start=1):
        if number == 1:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        try:
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            detail = f"byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line"
            yield Fault(path=path, line=number, reason="not valid UTF-8", detail=detail)


def _json_pairs(file: File) -> Iterator[Pair | Fault]:
    lines = _without_blank_end(_byte_lines(file))
    for number, text in enumerate(_decoded(lines, path=file.path), start=1):
        yield text if isinstance(text, Fault) else _json_pair(text, path=file.path, line=number)


def _json_pair(text: str, *, path: Path, line: int) -> Pair | Fault:
    fault = partial(Fault, path=path, line=line)
    if not text.strip():
        return fault(reason="empty line")
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        return fault(reason="not valid JSON", detail=f"{error.msg} at column {error.colno}")
    except (ValueError, RecursionError) as error:  # thousands of digits in a number, of brackets in brackets
        return fault(reason="not valid JSON", detail=str(error))
    if not isinstance(value, dict):
        return fault(reason="no JSON object", detail=f"allowed: {_JSON_SHAPE}")
    for side in get_args(SideName):
        if side not in value:
            return fault(reason=f'no "{side}"', detail=f"allowed: {_JSON_SHAPE}")
        if not isinstance(value[side], str):
            given = json.dumps(value[side])[:_SHOWN_CHARACTERS]
            return fault(reason=f'"{side}" is no string', detail=f"given: {given}")
        if _has_half_characters(value[side]):
            return fault(reason=f'"{side}" holds half of a surrogate pair', detail="which is no character")
    return Pair(line=line, source=value["source"], target=value["target"])


def _has_half_characters(text: str) -> bool:
    """Whether JSON's escapes have made what UTF-8 can't hold."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)
