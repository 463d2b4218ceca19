"""Readers: the files of a split, and the pairs of source and target in them.

Text is plain, .gz or .xz. Pairs may also come as JSONL. Images come as feature vectors, with one caption each
or with several captions that name their image. Error messages name the file and its recipe key, or file and
line.
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
from typing import IO, Any, Literal, TypeVar, cast, get_args

import numpy as np
import numpy.typing as npt

from anyorder.config.data import Splits
from anyorder.config.recipe import Recipe
from anyorder.data.features import BadGrid, Grid, about_file, open_grid
from anyorder.errors import UserError
from anyorder.text.tokenizer import SideName

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SHOWN_CHARACTERS = 60  # longer wrong values are cut in messages
_JSON_SHAPE = '{"source": ..., "target": ...}'
_CAPTION_SHAPE = "image<TAB>caption"
_NO_LINES = ("about",)  # files that describe another file
AnyEntry = TypeVar("AnyEntry")


@dataclass(frozen=True)
class File:
    """A file of data, and its key in the recipe."""

    path: Path
    key: str = ""  # e.g. data.train.source; empty: not from a recipe

    @property
    def packing(self) -> str:
        """The compression of its text: .gz, .xz or none (empty)."""
        return self.path.suffix if self.path.suffix in (".gz", ".xz") else ""

    def complaint(self, text: str) -> UserError:
        """Build an error about the whole file."""
        return UserError(f"{self.path}: {text} ({self.key})" if self.key else f"{self.path}: {text}")


# The files of a split by key: source, features, draft, target, captions, jsonl. The .json file of features is
# called `about`, if there is one.
Files = dict[str, File]


@dataclass(frozen=True)
class Pair:
    """A source and a target as text; images have no source text."""

    line: int
    source: str | None
    target: str
    row: int | None = None  # row of its image in the features, counted from 0
    draft: str | None = None  # what an editor changes into the target


@dataclass(frozen=True)
class Fault:
    """A line that can't be used, and the reason."""

    path: Path
    line: int
    reason: str  # skipped lines are counted by reason
    detail: str = ""

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.path}:{self.line}: {self.reason}{detail}"

    def refusal(self, *, more: int = 0) -> UserError:
        """Build an error that says how to skip bad lines. more: the number of other bad lines."""
        others = f" (and {more} more bad line{'s' if more > 1 else ''})" if more else ""
        return UserError(f'{self}{others}; set data.bad_lines = "skip" to leave them out')


@dataclass(frozen=True)
class Features:
    """Image features of the pairs of a corpus, (vectors, width) each; several captions may share an image."""

    grid: Grid
    rows: npt.NDArray[np.int64]  # row of each pair's image in the grid

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> npt.NDArray[Any]:
        return self.grid[int(self.rows[index])]

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        return (self[index] for index in range(len(self)))

    def chosen(self, pairs: Sequence[int]) -> Features:
        """Select some pairs."""
        return Features(grid=self.grid, rows=self.rows[np.asarray(pairs, dtype=np.int64)])

    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of vectors of each image; all images have the same number."""
        return np.full(len(self), self.grid.vectors, dtype=np.int64)

    def first(self, number: int) -> Features:
        """Keep only the first `number` pairs."""
        return replace(self, rows=self.rows[:number])


def read_lines(path: Path, *, key: str = "") -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file (plain, .gz or .xz) with their numbers, counted from 1.

    Only \\n and \\r\\n end a line: otherwise a separator such as \\u2028 inside a sentence would shift all
    pairs after it. key: the recipe's key for the file, for error messages.
    """
    for number, text in enumerate(_texts(File(path=path, key=key)), start=1):
        if isinstance(text, Fault):
            raise UserError(str(text))
        yield number, text


def raw_pairs(recipe: Recipe, split: Splits, *, lines: Collection[int] | None = None) -> list[Pair]:
    """Read the pairs of a split. lines: read only these line numbers, e.g. those of a corpus."""
    return list(stream_pairs(recipe, split, lines=lines))


def stream_pairs(recipe: Recipe, split: Splits, *, lines: Collection[int] | None = None) -> Iterator[Pair]:
    """Like `raw_pairs`, but pair by pair, for text that doesn't fit into memory."""
    files = split_files(recipe, split)
    total = count_pairs(files)  # refuses files of different lengths, which would give wrong pairs
    wanted = np.full(total + 1, lines is None)  # by line number
    if lines is not None:
        wanted[np.fromiter(lines, dtype=np.int64)] = True
    for entry in read_pairs(files):
        if not wanted[entry.line]:
            continue
        if isinstance(entry, Fault):
            raise UserError(str(entry))
        yield entry


def split_files(recipe: Recipe, split: Splits) -> Files:
    """List the files of a split. Nothing is opened yet."""
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
    """Select the files that consist of lines of text."""
    return {name: file for name, file in files.items() if name not in ("features", *_NO_LINES)}


def count_pairs(files: Files) -> int:
    """Count the pairs of a split; refuse files of different lengths."""
    # Captions refer to images by name, so the number of images doesn't matter.
    counted = texts_of(files) if "captions" in files else files
    counts = {name: _count_lines(name, file) for name, file in counted.items() if name not in _NO_LINES}
    if len(set(counts.values())) > 1:
        (one, count), *others = counts.items()
        other, other_count = next(entry for entry in others if entry[1] != count)
        raise UserError(
            f"{files[one].path} has {count} lines but {files[other].path} has {other_count}; "
            f"{files[one].key} and {files[other].key} must have equally many"
        )
    return next(iter(counts.values()))


def read_pairs(files: Files) -> Iterator[Pair | Fault]:
    """Yield the pairs of a split in order, and a fault for each line that can't be read.

    The files must have equally many lines; `count_pairs` checks that.
    """
    if "jsonl" in files:
        yield from _json_pairs(files["jsonl"])
        return
    if "captions" in files:
        yield from _captioned_images(files)
        return
    sources = _texts(files["source"]) if "source" in files else repeat(None)
    drafts = _texts(files["draft"]) if "draft" in files else repeat(None)
    texts = zip(sources, drafts, _texts(files["target"]), strict=False)
    for line, (source, draft, target) in enumerate(texts, start=1):
        if isinstance(source, Fault):
            yield source
        elif isinstance(draft, Fault):
            yield draft
        elif isinstance(target, Fault):
            yield target
        else:
            row = line - 1 if "features" in files else None
            yield Pair(line=line, source=source, target=target, row=row, draft=draft)


def in_chunks(entries: Iterable[AnyEntry], *, size: int) -> Iterator[list[AnyEntry]]:
    """Yield lists of `size` entries; the last one may be shorter."""
    waiting = iter(entries)
    while chunk := list(islice(waiting, size)):
        yield chunk


def side_fault(
    files: Files, side: SideName | Literal["draft"], *, line: int, reason: str, detail: str = ""
) -> Fault:
    """Build a fault of one side of a pair. A line of JSONL holds both, so the detail says which."""
    if "jsonl" not in files:
        file = files[side] if side in files else files["captions"]
        return Fault(path=file.path, line=line, reason=reason, detail=detail)
    detail = f"{side}: {detail}" if detail else side
    return Fault(path=files["jsonl"].path, line=line, reason=reason, detail=detail)


def open_features(file: File) -> Grid:
    """Open a file of features without checking its values."""
    with _complaints(file):
        return open_grid(file.path)


def image_rows(file: File) -> Mapping[str, int]:
    """Row of each image in the features, by its name."""
    with _complaints(file):
        return open_grid(file.path).row_of


def check_features(file: File) -> None:
    """Refuse features that are not finite numbers. This reads the whole file."""
    with _complaints(file):
        open_grid(file.path).check_values()


def content_digest(file: File) -> str:
    """Digest of a file's bytes, without decompression."""
    if file.path.exists() and not (file.path.is_file() or file.path.is_dir()):
        raise file.complaint("is no regular file")  # a pipe would be waited for
    with _complaints(file), file.path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@contextmanager
def _complaints(file: File) -> Iterator[None]:
    """Turn whatever goes wrong while reading into a one-line error."""
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
    """Drop blank lines at the end, which editors and scripts often add."""
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
    """Decode each line, or yield a fault if it isn't UTF-8."""
    for number, line in enumerate(lines, start=1):
        if number == 1:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        try:
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            detail = f"byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line"
            yield Fault(path=path, line=number, reason="not valid UTF-8", detail=detail)


def _captioned_images(files: Files) -> Iterator[Pair | Fault]:
    """Yield captions with the rows of their images, or without rows if there are no features."""
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
    for side in (*get_args(SideName), *(["draft"] if "draft" in value else [])):
        if side not in value:
            return fault(reason=f'no "{side}"', detail=f"allowed: {_JSON_SHAPE}")
        if not isinstance(value[side], str):
            given = json.dumps(value[side])[:_SHOWN_CHARACTERS]
            return fault(reason=f'"{side}" is no string', detail=f"given: {given}")
        if has_half_characters(value[side]):
            return fault(reason=f'"{side}" holds half of a surrogate pair', detail="which is no character")
    return Pair(line=line, source=value["source"], target=value["target"], draft=value.get("draft"))


def parsed_json(text: str) -> Any:  # noqa: ANN401 (any JSON value)
    """Parse a line of JSON; a ValueError says what is wrong with it."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at column {error.colno}") from None
    except RecursionError as error:  # thousands of nested brackets
        raise ValueError(str(error)) from None


def has_half_characters(text: str) -> bool:
    """Whether a text contains half of a surrogate pair, which JSON can escape but UTF-8 can't encode."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)
