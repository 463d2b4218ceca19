"""Photos: find the files and read their pixels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from anyorder.data.readers import read_lines
from anyorder.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 224  # pixels; the input size of ImageNet networks
SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
LIST_SUFFIX = ".txt"
INSTALL = "pip install 'anyorder[images]'"

Pixels = npt.NDArray[np.uint8]  # (SIDE, SIDE, 3), red, green and blue


def is_photo(path: Path) -> bool:
    """Whether a file's suffix is that of a photo."""
    return path.suffix.lower() in SUFFIXES


def find_photos(inputs: Iterable[Path]) -> list[Path]:
    """List the photos that are given as files, folders or text files with one path per line.

    Captions refer to a photo by its file name, so every name must be unique.
    """
    photos: dict[str, Path] = {}
    for path in (photo for given in inputs for photo in _expanded(given)):
        if not path.is_file():
            raise UserError(f"{path}: no such photo")
        if path.name in photos:
            other = photos[path.name]
            raise UserError(
                f"{path}: has the same name as {other}, but captions refer to photos by their names"
            )
        photos[path.name] = path
    return list(photos.values())


def read_photo(path: Path) -> Pixels:
    """Read a photo, turn it upright and resize it to a square.

    Nothing is cropped, because a caption may describe what is at the edge.
    """
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ModuleNotFoundError:
        raise UserError(f"{path}: reading photos needs Pillow; {INSTALL}") from None
    try:
        with Image.open(path) as photo:
            upright = _in_colours(ImageOps.exif_transpose(photo))
    except FileNotFoundError:
        raise UserError(f"{path}: no such photo") from None
    except UnidentifiedImageError:
        raise UserError(f"{path}: can't be read as a photo: its format isn't known") from None
    # Pillow raises many types of errors, depending on the format and on what is broken.
    except Exception as error:
        raise UserError(f"{path}: can't be read as a photo: {error}") from None
    return np.asarray(upright.resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def _expanded(given: Path) -> Sequence[Path]:
    if given.is_dir():
        photos = sorted(path for path in given.iterdir() if is_photo(path))
        if not photos:
            raise UserError(f"{given}: holds no photos; allowed: {', '.join(SUFFIXES)}")
        return photos
    if given.suffix == LIST_SUFFIX:
        return list(_listed(given))
    return [given]


def _listed(listing: Path) -> Iterator[Path]:
    """Read a list of photos, whose paths are relative to the list's folder."""
    for number, name in read_lines(listing):
        path = listing.parent / name.strip()
        if not name.strip():
            raise UserError(f"{listing}:{number}: empty line; allowed: one photo per line")
        if not path.is_file():
            raise UserError(f"{listing}:{number}: {path}: no such photo")
        yield path


def _in_colours(photo: Image) -> Image:
    """Convert a photo to RGB, with a white background where it is transparent."""
    from PIL import Image

    if photo.mode.startswith("I"):  # 16 bits per pixel, which Pillow would clip at 255
        photo = Image.fromarray((np.asarray(photo) // 256).astype(np.uint8))
    if not photo.has_transparency_data:
        return photo.convert("RGB")
    paper = Image.new("RGBA", photo.size, "white")
    return Image.alpha_composite(paper, photo.convert("RGBA")).convert("RGB")
