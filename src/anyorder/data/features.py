"""Feature files: feature vectors of many images in one file.

photos.npy            (images, vectors, width), memory-mapped
photos.npy.json       written by `anyorder features` next to it: the images' names and the extractor
photos.npz            names, grid and, if the numbers are quantised, scale and zero_point
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from anyorder.config.section import Section, checked
from anyorder.errors import UserError
from anyorder.system.files import published_file

FORMAT = 1  # version of the .json file
SUFFIXES = (".npy", ".npz")
ARRAYS = "names, grid and, for quantised numbers, scale and zero_point"
_STORED = np.dtype("<f2")
_NUMBERS_CHECKED_AT_ONCE = 2**22  # the features may be larger than the memory


class BadGrid(Exception):
    """A file of features is wrong; the caller adds the file's name to the message."""


@dataclass(frozen=True)
class NamedVectors:
    """The features of one image."""

    name: str
    vectors: npt.NDArray[Any]  # (vectors, width)


@dataclass(frozen=True)
class Grid:
    """Feature vectors of many images, one row per image."""

    numbers: npt.NDArray[Any]  # (images, vectors, width), memory-mapped if possible
    names: tuple[str, ...] | None = None  # names of the images
    extractor: str | None = None  # network that made the features, if known
    scale: float = 1.0  # a value is (number − zero_point) · scale
    zero_point: float = 0.0

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, row: int) -> npt.NDArray[Any]:
        """The values of one image, (vectors, width)."""
        numbers = self.numbers[row]
        if (self.scale, self.zero_point) == (1.0, 0.0) and np.issubdtype(numbers.dtype, np.floating):
            return numbers
        return (numbers.astype(np.float32) - self.zero_point) * self.scale

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        return (self[row] for row in range(len(self)))

    @property
    def vectors(self) -> int:
        """Number of vectors per image."""
        return int(self.numbers.shape[1])

    @property
    def width(self) -> int:
        """Width of a vector."""
        return int(self.numbers.shape[2])

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Row of each image by its name."""
        if self.names is None:
            raise BadGrid(
                f"its images have no names; allowed: what `anyorder features` wrote, or an .npz of {ARRAYS}"
            )
        rows = {name: row for row, name in enumerate(self.names)}
        if len(rows) < len(self.names):
            twice = next(name for row, name in enumerate(self.names) if rows[name] != row)
            raise BadGrid(f"holds two images that are named {twice}")
        return rows

    def check_values(self) -> None:
        """Refuse numbers that are not finite. This reads the whole file."""
        rows = max(1, _NUMBERS_CHECKED_AT_ONCE // (self.vectors * self.width))
        for start in range(0, len(self), rows):
            finite = np.isfinite(self.numbers[start : start + rows]).all(axis=2)  # (rows, vectors)
            if not finite.all():
                row, vector = np.argwhere(~finite)[0]
                raise BadGrid(
                    f"vector {vector + 1} of line {start + row + 1} isn't finite; allowed: no nan or inf"
                )


class _About(Section):
    """Content of the .json file next to an .npy."""

    format: int = FORMAT
    extractor: str | None
    names: tuple[str, ...]


def about_file(path: Path) -> Path:
    """Path of the .json file that belongs to an .npy; it may not exist."""
    return path.with_name(f"{path.name}.json")


def open_grid(path: Path) -> Grid:
    """Open a feature file: an .npy is memory-mapped, an .npz is loaded. Values are not checked."""
    try:
        content = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(content, np.ndarray):
            return _with_names(_as_grid(content), path)
        content.close()
        return _unpacked(path, path.stat().st_mtime_ns)
    except (ValueError, zipfile.BadZipFile, zlib.error, MemoryError, OverflowError, KeyError):
        raise BadGrid("not an .npy or .npz file of numbers") from None


def save_grid(path: Path, images: Iterable[NamedVectors], *, extractor: str | None = None) -> Grid:
    """Write an .npy, in float16, and its .json; both are written completely or not at all."""
    names: list[str] = []
    with published_file(about_file(path)) as about, published_file(path) as file:
        for image in images:
            if not names:
                shape = image.vectors.shape
                file.write(_header((0, *shape)))
            assert image.vectors.shape == shape, "all images need the same shape"
            file.write(_stored(image, path=path))
            names.append(image.name)
        if not names:
            raise UserError(f"{path}: not written: there are no images")
        file.seek(0)
        file.write(_header((len(names), *shape)))
        facts = _About(extractor=extractor, names=tuple(names))
        about.write(facts.model_dump_json(indent=2).encode())
    return open_grid(path)


def _stored(image: NamedVectors, *, path: Path) -> memoryview:
    with np.errstate(over="ignore"):
        stored = np.ascontiguousarray(image.vectors, dtype=_STORED)
    if not np.isfinite(stored).all():
        raise UserError(
            f"{path}: not written: image {image.name!r} has numbers that are not finite, or beyond "
            f"±{np.finfo(_STORED).max:.0f}"
        )
    return stored.data


def _number(name: str, array: npt.NDArray[Any]) -> float:
    if array.size != 1 or array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        raise BadGrid(f"{name!r} has shape {array.shape} and type {array.dtype.name}; allowed: one number")
    return float(array.item())


def _header(shape: tuple[int, ...]) -> bytes:
    """Header of an .npy file. NumPy pads it, so its length doesn't depend on the number of images."""
    header = io.BytesIO()
    values = {"descr": _STORED.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, values)
    return header.getvalue()


def _as_grid(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Check the shape, and flatten rows and columns of vectors into one dimension."""
    if numbers.dtype.kind not in "fiu":
        raise BadGrid(f"holds values of type {numbers.dtype.name}; allowed: real numbers")
    if numbers.ndim not in (3, 4) or 0 in numbers.shape[1:]:
        raise BadGrid(
            f"has shape {numbers.shape}; allowed: (lines, vectors, width) or (lines, rows, columns, width), "
            "all but lines from 1"
        )
    return numbers if numbers.ndim == 3 else numbers.reshape(len(numbers), -1, numbers.shape[-1])


def _with_names(numbers: npt.NDArray[Any], path: Path) -> Grid:
    beside = about_file(path)
    if not beside.exists():
        return Grid(numbers=numbers)
    try:
        values = json.loads(beside.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise BadGrid(f"{beside.name} beside it isn't what `anyorder features` wrote") from None
    about = checked(_About, values, origin=str(beside))
    if len(about.names) != len(numbers):
        raise BadGrid(f"holds {len(numbers)} images, but {beside} names {len(about.names)}")
    return Grid(numbers=numbers, names=about.names, extractor=about.extractor)


@lru_cache(maxsize=1)  # all splits of a recipe may be in one file
def _unpacked(path: Path, modified: int) -> Grid:
    """Load an .npz. modified: its time stamp, so that the cache notices changes."""
    with np.load(path, allow_pickle=False) as arrays:
        for name in ("names", "grid"):
            if name not in arrays:
                raise BadGrid(f"has no array {name!r}; allowed: {ARRAYS}")
        found = {name: arrays[name] for name in arrays}
    if not all(isinstance(array, np.ndarray) for array in found.values()):
        raise BadGrid(f"holds something that is no array; allowed: {ARRAYS}")
    numbers, named = _as_grid(found["grid"]), found["names"]
    if named.ndim != 1 or named.dtype.kind != "U":
        raise BadGrid(f"'names' has shape {named.shape} and type {named.dtype.name}; allowed: a list of text")
    names = tuple(map(str, named))
    scale, zero_point = (
        _number(name, found.get(name, np.array(usual)))
        for name, usual in (("scale", 1.0), ("zero_point", 0.0))
    )
    if len(names) != len(numbers):
        raise BadGrid(f"holds {len(numbers)} images, but {len(names)} names")
    return Grid(numbers=numbers, names=names, scale=scale, zero_point=zero_point)
