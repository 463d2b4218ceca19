"""Files, pairs of lines, and memory-mapped arrays of their tokens.

A split is tokenised once and kept in the cache under a key of everything that it depends on, contents of the
files included: a change of data, text rules or vocabulary makes a new entry, never a stale one.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import os
import shutil
import tempfile
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice, repeat
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt

from anyorder.config import Recipe, Splits
from anyorder.errors import UserError
from anyorder.tokens import UNK, Tokenizer, Tokens

Progress = Callable[[int, int], None]  # lines done, lines in all

_FORMAT = 1  # of the cache; a change of it leaves older entries alone
_CHUNK = 4096  # lines tokenised at once
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Pair:
    """One example as text; image features have no source text."""

    line: int
    source: str | None
    target: str


@dataclass(frozen=True)
class Ragged:
    """Many sequences in one array: sequence i is values[offsets[i] : offsets[i + 1]]."""

    values: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> npt.NDArray[np.int32]:
        if not 0 <= index < len(self):
            raise IndexError(f"{index} of {len(self)} sequences")
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of values in each sequence."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Features:
    """Rows of the recipe's features that belong to kept pairs, each (vectors, width)."""

    grid: npt.NDArray[Any]  # (lines, vectors, width), memory-mapped
    rows: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> npt.NDArray[Any]:
        return cast(npt.NDArray[Any], self.grid[self.rows[index]])

    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of vectors in each row, which is the same for all."""
        return np.full(len(self), self.grid.shape[1], dtype=np.int64)


@dataclass(frozen=True)
class Corpus:
    """One tokenised split, without boundary tokens."""

    key: str  # of its content; what is derived from the corpus can be kept under it
    folder: Path
    source: Ragged | Features
    target: Ragged
    pieces: Ragged  # tokens of each word of each target
    lines: npt.NDArray[np.int64]  # of each pair in its file, from 1
    skipped: dict[str, int]  # reason → pairs left out for it

    def __len__(self) -> int:
        return len(self.lines)


@dataclass(frozen=True)
class Statistics:
    """A split in numbers; lengths are in tokens, or in vectors for image features."""

    pairs: int
    skipped: int
    vocabulary: int
    target_vocabulary: int
    mean_source: float
    mean_target: float
    longest_target: int
    unknown_source: float  # share of <unk> among the tokens
    unknown_target: float


def read_lines(path: Path, *, key: str = "") -> Iterator[tuple[int, str]]:
    """Lines of a text file, plain, .gz or .xz, with their numbers from 1.

    Only \\n and \\r\\n end a line: a separator such as \\u2028 inside a sentence would otherwise shift all
    pairs behind it. `key` is the recipe's name for the file, for complaints.
    """
    for number, text in enumerate(_texts(_File(path=path, key=key)), start=1):
        if isinstance(text, _Fault):
            raise UserError(str(text))
        yield number, text


def raw_pairs(recipe: Recipe, split: Splits, *, lines: Collection[int] | None = None) -> list[Pair]:
    """Text of a split's pairs, or only of those at the given lines, e.g. the `lines` of its corpus."""
    wanted = None if lines is None else {int(line) for line in lines}
    files = _files(recipe, split)
    _count_pairs(files)
    pairs = []
    for entry in _entries(files):
        if wanted is not None and entry.line not in wanted:
            continue
        if isinstance(entry, _Fault):
            raise UserError(str(entry))
        pairs.append(entry)
    return pairs


def train_tokenizer(recipe: Recipe, *, progress: Progress | None = None) -> Tokenizer:
    """Learn the vocabulary of the recipe's training text, or fetch it from the cache."""
    files = _files(recipe, "train")
    texts = {name: file for name, file in files.items() if name != "features"}
    key = _key(files=texts, settings={"text": recipe.text.model_dump()})
    folder = _cache(recipe) / "tokenizers" / key
    if not folder.exists():
        tokenizer = _learn(recipe, files, progress=progress)
        with _published(folder) as unfinished:
            tokenizer.save(unfinished)
            (unfinished / "target_size.json").write_text(json.dumps(tokenizer.target_size))
    target_size = json.loads((folder / "target_size.json").read_text())
    return Tokenizer.load(folder, recipe.text, target_size)


def load_split(
    recipe: Recipe, split: Splits, tokenizer: Tokenizer, *, progress: Progress | None = None
) -> Corpus:
    """Tokenise a split, or open what the cache has of it.

    Empty, over-long and wrongly encoded lines of train and dev are refused or skipped as data.bad_lines says.
    The test split is kept whole, because scores are over all of its lines.
    """
    files = _files(recipe, split)
    settings = {
        "text": recipe.text.model_dump(),
        "tokenizer": tokenizer.to_json(),
        "target_size": tokenizer.target_size,
        "max_length": recipe.data.max_length,
        "bad_lines": recipe.data.bad_lines,
        "keep_all": split == "test",
    }
    key = _key(files=files, settings=settings)
    folder = _cache(recipe) / "corpora" / key
    if not folder.exists():
        tokenised = _tokenise(recipe, split, tokenizer, progress=progress)
        with _published(folder) as unfinished:
            tokenised.save(unfinished)
    return _open_corpus(folder, features=files.get("features"))


def statistics(corpus: Corpus, tokenizer: Tokenizer) -> Statistics:
    """Count what the paper's table of datasets counts, and what was lost on the way."""
    source, target = corpus.source, corpus.target
    return Statistics(
        pairs=len(corpus),
        skipped=sum(corpus.skipped.values()),
        vocabulary=tokenizer.size,
        target_vocabulary=tokenizer.target_size,
        mean_source=float(source.lengths().mean()),
        mean_target=float(target.lengths().mean()),
        longest_target=int(target.lengths().max()),
        unknown_source=_unknown_share(source) if isinstance(source, Ragged) else 0.0,
        unknown_target=_unknown_share(target),
    )


def _unknown_share(sequences: Ragged) -> float:
    return float(np.count_nonzero(sequences.values == UNK) / max(1, len(sequences.values)))


# Files


@dataclass(frozen=True)
class _File:
    path: Path
    key: str = ""  # how the recipe names it

    def complaint(self, text: str) -> UserError:
        return UserError(f"{self.path}: {text} ({self.key})" if self.key else f"{self.path}: {text}")


@dataclass(frozen=True)
class _Fault:
    """A line that can't be used, and why."""

    path: Path
    line: int
    reason: str  # what skipped lines are counted by
    detail: str = ""

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.path}:{self.line}: {self.reason}{detail}"


_Files = dict[str, _File]  # by the key in a recipe's split: source, features, target, jsonl


def _files(recipe: Recipe, split: Splits) -> _Files:
    given = getattr(recipe.data, split)
    if given is None:
        raise UserError(f"data.{split}: missing; give data.{split}.source and data.{split}.target")
    return {
        name: _File(path=recipe.path(path), key=f"data.{split}.{name}")
        for name, path in given
        if path is not None
    }


@contextmanager
def _complaints(file: _File) -> Iterator[None]:
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


def _byte_lines(file: _File) -> Iterator[bytes]:
    with _complaints(file), _open(file.path) as lines:
        yield from lines


def _texts(file: _File) -> Iterator[str | _Fault]:
    """Each line's text, or what is wrong with its encoding."""
    for number, line in enumerate(_byte_lines(file), start=1):
        if number == 1:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        try:
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            detail = f"byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line"
            yield _Fault(path=file.path, line=number, reason="not valid UTF-8", detail=detail)


def _count_pairs(files: _Files) -> int:
    """Lines of a split; files that don't go together are refused."""
    counts = {
        name: len(_open_features(file)) if name == "features" else sum(1 for _ in _byte_lines(file))
        for name, file in files.items()
    }
    if len(set(counts.values())) > 1:
        (one, count), (other, other_count) = counts.items()
        raise UserError(
            f"{files[one].path} has {count} lines but {files[other].path} has {other_count}; "
            f"{files[one].key} and {files[other].key} must have as many"
        )
    return next(iter(counts.values()))


def _open_features(file: _File) -> npt.NDArray[Any]:
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


# Pairs


def _entries(files: _Files) -> Iterator[Pair | _Fault]:
    """A split's pairs in order; a pair with an unreadable side is a fault."""
    if "jsonl" in files:
        yield from _json_pairs(files["jsonl"])
        return
    sources = _texts(files["source"]) if "source" in files else repeat(None)
    for line, (source, target) in enumerate(zip(sources, _texts(files["target"]), strict=False), start=1):
        if isinstance(source, _Fault):
            yield source
        elif isinstance(target, _Fault):
            yield target
        else:
            yield Pair(line=line, source=source, target=target)


def _json_pairs(file: _File) -> Iterator[Pair | _Fault]:
    for line, text in enumerate(_texts(file), start=1):
        if isinstance(text, _Fault):
            yield text
            continue
        where = f"{file.path}:{line}"
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise UserError(f"{where}: not valid JSON: {error.msg} at column {error.colno}") from None
        if not isinstance(value, dict):
            raise UserError(f'{where}: must be {{"source": ..., "target": ...}}')
        yield Pair(line=line, source=_string(value, "source", where), target=_string(value, "target", where))


def _string(value: dict[str, object], name: str, where: str) -> str:
    if name not in value:
        raise UserError(f'{where}: no "{name}"; allowed: {{"source": ..., "target": ...}}')
    given = value[name]
    if not isinstance(given, str):
        raise UserError(f'{where}: "{name}" is {json.dumps(given)[:60]}; must be a string')
    return given


# Tokenising


def _learn(recipe: Recipe, files: _Files, *, progress: Progress | None) -> Tokenizer:
    total = 2 * _count_pairs(files)  # every pair is read for its source and again for its target
    reads = count(start=1)

    def pairs() -> Iterator[Pair]:
        for entry, done in zip(_entries(files), reads, strict=False):
            if progress is not None and (done % _CHUNK == 0 or done == total):
                progress(done, total)
            if isinstance(entry, Pair):
                yield entry
            elif recipe.data.bad_lines == "refuse":
                raise UserError(_refusal(entry, more=0))

    return Tokenizer.train(
        recipe.text,
        sources=(pair.source for pair in pairs() if pair.source is not None),
        targets=(pair.target for pair in pairs()),
    )


class _Growing:
    """A ragged array while its sequences come in; a compact list of lists."""

    def __init__(self) -> None:
        self._values = array("i")
        self._offsets = array("q", [0])

    def append(self, sequence: list[int]) -> None:
        self._values.extend(sequence)
        self._offsets.append(len(self._values))

    def save(self, folder: Path, name: str) -> None:
        np.save(folder / f"{name}.values.npy", np.asarray(self._values, dtype=np.int32))
        np.save(folder / f"{name}.offsets.npy", np.asarray(self._offsets, dtype=np.int64))


class _Tokenised:
    """A split while its pairs come in: what is kept, and what isn't."""

    def __init__(self) -> None:
        self.source, self.target, self.pieces = _Growing(), _Growing(), _Growing()
        self.lines = array("q")
        self.skipped: Counter[str] = Counter()
        self.first_fault: _Fault | None = None

    def keep(self, line: int, source: Tokens | None, target: Tokens) -> None:
        if source is not None:
            self.source.append(source.ids)
        self.target.append(target.ids)
        self.pieces.append(target.pieces)
        self.lines.append(line)

    def skip(self, fault: _Fault) -> None:
        self.first_fault = self.first_fault or fault
        self.skipped[fault.reason] += 1

    def save(self, folder: Path) -> None:
        self.source.save(folder, "source")
        self.target.save(folder, "target")
        self.pieces.save(folder, "pieces")
        np.save(folder / "lines.npy", np.asarray(self.lines, dtype=np.int64))
        (folder / "skipped.json").write_text(json.dumps(self.skipped))


def _tokenise(
    recipe: Recipe, split: Splits, tokenizer: Tokenizer, *, progress: Progress | None
) -> _Tokenised:
    files = _files(recipe, split)
    total = _count_pairs(files)
    limit = None if split == "test" else recipe.data.max_length
    tokenised = _Tokenised()
    done = 0
    for chunk in _chunks(_entries(files)):
        _tokenise_chunk(chunk, files, tokenizer, limit=limit, into=tokenised)
        done += len(chunk)
        if progress is not None:
            progress(done, total)
    fault = tokenised.first_fault
    if fault is not None and split == "test":
        raise UserError(f"{fault}; a test line can't be left out")
    if fault is not None and recipe.data.bad_lines == "refuse":
        raise UserError(_refusal(fault, more=tokenised.skipped.total() - 1))
    if not tokenised.lines:
        raise UserError(f"data.{split}: none of its {total} lines can be used")
    return tokenised


def _refusal(fault: _Fault, *, more: int) -> str:
    others = f" (and {more} more bad line{'s' if more > 1 else ''})" if more else ""
    return f'{fault}{others}; set data.bad_lines = "skip" to leave them out'


def _chunks(entries: Iterable[Pair | _Fault]) -> Iterator[list[Pair | _Fault]]:
    entries = iter(entries)
    while chunk := list(islice(entries, _CHUNK)):
        yield chunk


def _tokenise_chunk(
    chunk: list[Pair | _Fault],
    files: _Files,
    tokenizer: Tokenizer,
    *,
    limit: int | None,
    into: _Tokenised,
) -> None:
    """Keep a chunk's pairs or skip them; without a limit, empty and long lines are kept as well."""
    pairs = [entry for entry in chunk if isinstance(entry, Pair)]
    sources = iter(tokenizer.encode_all([pair.source for pair in pairs if pair.source is not None], "source"))
    targets = iter(tokenizer.encode_all([pair.target for pair in pairs], "target"))
    for entry in chunk:
        if isinstance(entry, _Fault):
            into.skip(entry)
            continue
        source = None if entry.source is None else next(sources)
        target = next(targets)
        fault = None if limit is None else _fault_of(entry.line, source, target, files, limit=limit)
        if fault is None:
            into.keep(entry.line, source, target)
        else:
            into.skip(fault)


def _fault_of(
    line: int, source: Tokens | None, target: Tokens, files: _Files, *, limit: int
) -> _Fault | None:
    """What is wrong with a pair's lengths, if anything."""
    for name, tokens in (("source", source), ("target", target)):
        if tokens is None or 0 < len(tokens.ids) <= limit:
            continue
        side = name if "jsonl" in files else ""
        path = files["jsonl" if "jsonl" in files else name].path
        if not tokens.ids:
            return _Fault(path=path, line=line, reason="empty line", detail=side)
        size = f"{len(tokens.ids)} tokens, data.max_length = {limit}"
        detail = f"{side}: {size}" if side else size
        return _Fault(path=path, line=line, reason="over-long line", detail=detail)
    return None


# The cache


def _cache(recipe: Recipe) -> Path:
    if recipe.data.cache is not None:
        return recipe.path(recipe.data.cache)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "anyorder"


def _key(*, files: _Files, settings: dict[str, object]) -> str:
    """A name for all that an entry depends on."""
    contents = {name: _digest(file) for name, file in files.items()}
    parts = json.dumps([_FORMAT, contents, settings], sort_keys=True)
    return hashlib.sha256(parts.encode()).hexdigest()


def _digest(file: _File) -> str:
    with _complaints(file), file.path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@contextmanager
def _published(folder: Path) -> Iterator[Path]:
    """A folder to fill, which takes its real name only when it is complete.

    Where another process was faster its entry stands: equal keys mean equal content.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder.parent))
    except OSError as error:
        raise UserError(f"{folder.parent}: {error.strerror}; data.cache must be a writable folder") from None
    try:
        yield unfinished
        try:
            unfinished.rename(folder)
        except OSError:
            if not folder.exists():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _open_corpus(folder: Path, *, features: _File | None) -> Corpus:
    lines = _mapped(folder, "lines")
    source: Ragged | Features
    if features is None:
        source = _open_ragged(folder, "source")
    else:
        source = Features(grid=_open_features(features), rows=lines - 1)
    return Corpus(
        key=folder.name,
        folder=folder,
        source=source,
        target=_open_ragged(folder, "target"),
        pieces=_open_ragged(folder, "pieces"),
        lines=lines,
        skipped=json.loads((folder / "skipped.json").read_text()),
    )


def _open_ragged(folder: Path, name: str) -> Ragged:
    return Ragged(values=_mapped(folder, f"{name}.values"), offsets=_mapped(folder, f"{name}.offsets"))


def _mapped(folder: Path, name: str) -> npt.NDArray[Any]:
    return cast(npt.NDArray[Any], np.load(folder / f"{name}.npy", mmap_mode="r"))
