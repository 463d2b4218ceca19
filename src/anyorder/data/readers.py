"""Files of a split, and the pairs of lines in them.

Text is plain, .gz or .xz, pairs may come as JSONL, and images as feature vectors, with a caption each or with
several that name their image. What is wrong with a file is answered by its name and the recipe's key for it,
what is wrong with a line by file and line.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from typing import IO, Any, TypeVar, cast, get_args

import numpy as np
import numpy.typing as npt

from anyorder.config.data import Splits
from anyorder.config.recipe import Recipe
from anyorder.data.features import BadGrid, Grid, about_file, open_grid
from anyorder.errors import UserError
from anyorder.text.tokenizer import SideName

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SHOWN_CHARACTERS = 60  # of a wrong value, in messages
_JSON_SHAPE = '{"source": ..., "target": ...}'
_CAPTION_SHAPE = "image<TAB>caption"
_NO_LINES = ("about",)  # files that say something about another one
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


# Of a split, by their keys in it: source, features, target, captions, jsonl. What stands beside features, if
# anything does, is called `about`.
Files = dict[str, File]


@dataclass(frozen=True)
class Pair:
    """One example as text; image features have no source text."""

    line: int
    source: str | None
    target: str
    row: int | None = None  # of its image in the features, from 0


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
    """The images of kept pairs, each (vectors, width); several captions may share one."""

    grid: Grid
    rows: npt.NDArray[np.int64]  # in the grid, of each pair's image

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> npt.NDArray[Any]:
        return self.grid[int(self.rows[index])]

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        return (self[index] for index in range(len(self)))

    def chosen(self, pairs: Sequence[int]) -> Features:
        """Those of some pairs only."""
        return Features(grid=self.grid, rows=self.rows[np.asarray(pairs, dtype=np.int64)])

    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of vectors of each image, which is the same for all."""
        return np.full(len(self), self.grid.vectors, dtype=np.int64)

    def first(self, number: int) -> Features:
        """Only so many of the rows."""
        return replace(self, rows=self.rows[:number])


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
    files = {
        name: File(path=recipe.path(path), key=f"data.{split}.{name}")
        for name, path in given
        if path is not None
    }
    features = files.get("features")
    if features is not None and about_file(features.path).exists():
        files["about"] = File(path=about_file(features.path), key=features.key)
    return files


def texts_of(files: Files) -> Files:
    """Those with lines of text."""
    return {name: file for name, file in files.items() if name not in ("features", *_NO_LINES)}


def count_pairs(files: Files) -> int:
    """Lines of a split; files that don't go together are refused."""
    # Captions find their images by name, so there may be as many images as there like to be.
    counted = texts_of(files) if "captions" in files else files
    counts = {name: _count_lines(name, file) for name, file in counted.items() if name not in _NO_LINES}
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
    if "captions" in files:
        yield from _captioned_images(files)
        return
    sources = _texts(files["source"]) if "source" in files else repeat(None)
    for line, (source, target) in enumerate(zip(sources, _texts(files["target"]), strict=False), start=1):
        if isinstance(source, Fault):
            yield source
        elif isinstance(target, Fault):
            yield target
        else:
            yield Pair(line=line, source=source, target=target, row=line - 1 if "features" in files else None)


def in_chunks(entries: Iterable[AnyEntry], *, size: int) -> Iterator[list[AnyEntry]]:
    """So many at a time; the last chunk holds what is left."""
    waiting = iter(entries)
    while chunk := list(islice(waiting, size)):
        yield chunk


def side_fault(files: Files, side: SideName, *, line: int, reason: str, detail: str = "") -> Fault:
    """What is wrong with one side of a pair; in JSONL, where a line holds both, the detail says which."""
    if "jsonl" not in files:
        file = files[side] if side in files else files["captions"]
        return Fault(path=file.path, line=line, reason=reason, detail=detail)
    detail = f"{side}: {detail}" if detail else side
    return Fault(path=files["jsonl"].path, line=line, reason=reason, detail=detail)


def open_features(file: File) -> Grid:
    """Vectors of all images, mapped from the file or loaded; their values aren't looked at."""
    with _complaints(file):
        return open_grid(file.path)


def image_rows(file: File) -> Mapping[str, int]:
    """Where each image is in the features, by its name."""
    with _complaints(file):
        return open_grid(file.path).row_of


def check_features(file: File) -> None:
    """Refuse vectors that hold anything but finite numbers, which takes reading all of them."""
    with _complaints(file):
        open_grid(file.path).check_values()


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
    except BadGrid as error:
        raise file.complaint(str(error)) from None
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


def _captioned_images(files: Files) -> Iterator[Pair | Fault]:
    """Captions with the rows of their images, or the captions alone where no features are asked for."""
    captions = files["captions"]
    rows = image_rows(files["features"]) if "features" in files else None
    for line, text in enumerate(_texts(captions), start=1):
        yield text if isinstance(text, Fault) else _captioned(text, rows, path=captions.path, line=line)


def _captioned(text: str, rows: Mapping[str, int] | None, *, path: Path, line: int) -> Pair | Fault:
    image, tab, caption = text.partition("\t")
    if not tab:
        return Fault(path=path, line=line, reason="no tab", detail=f"allowed: {_CAPTION_SHAPE}")
    if rows is None:
        return Pair(line=line, source=None, target=caption)
    if image not in rows:
        return Fault(path=path, line=line, reason="image without features", detail=image[:_SHOWN_CHARACTERS])
    return Pair(line=line, source=None, target=caption, row=rows[image])


def _json_pairs(file: File) -> Iterator[Pair | Fault]:
    lines = _without_blank_end(_byte_lines(file))
    for number, text in enumerate(_decoded(lines, path=file.path), start=1):
        yield text if isinstance(text, Fault) else _json_pair(text, path=file.path, line=number)


def _json_pair(text: str, *, path: Path, line: int) -> Pair | Fault:
    fault = partial(Fault, path=path, line=line)
    if not text.strip():
        return fault(reason="empty line")
    try:
        value = parsed_json(text)
    except ValueError as error:
        return fault(reason="not valid JSON", detail=str(error))
    if not isinstance(value, dict):
        return fault(reason="no JSON object", detail=f"allowed: {_JSON_SHAPE}")
    for side in get_args(SideName):
        if side not in value:
            return fault(reason=f'no "{side}"', detail=f"allowed: {_JSON_SHAPE}")
        if not isinstance(value[side], str):
            given = json.dumps(value[side])[:_SHOWN_CHARACTERS]
            return fault(reason=f'"{side}" is no string', detail=f"given: {given}")
        if has_half_characters(value[side]):
            return fault(reason=f'"{side}" holds half of a surrogate pair', detail="which is no character")
    return Pair(line=line, source=value["source"], target=value["target"])


def parsed_json(text: str) -> Any:  # noqa: ANN401 (whatever it holds)
    """What a line holds; a ValueError says what is wrong with it."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at column {error.colno}") from None
    except RecursionError as error:  # thousands of brackets in brackets
        raise ValueError(str(error)) from None


def has_half_characters(text: str) -> bool:
    """Whether JSON's escapes have made what UTF-8 can't hold."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)
