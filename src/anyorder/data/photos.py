"""Photos: finding them, and reading them as people see them."""

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

SIDE = 224  # pixels; what networks of ImageNet's photos look at
SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
LIST_SUFFIX = ".txt"
INSTALL = "pip install 'anyorder[images]'"

Pixels = npt.NDArray[np.uint8]  # (SIDE, SIDE, 3), red, green and blue


def is_photo(path: Path) -> bool:
    """By its name."""
    return path.suffix.lower() in SUFFIXES


def find_photos(inputs: Iterable[Path]) -> list[Path]:
    """Photos that are given themselves, by their folder or by a list of them, in that order.

    Captions know a photo by its file's name, so no two may have the same one.
    """
    photos: dict[str, Path] = {}
    for path in (photo for given in inputs for photo in _expanded(given)):
        if not path.is_file():
            raise UserError(f"{path}: no such photo")
        if path.name in photos:
            other = photos[path.name]
            raise UserError(f"{path}: has the name of {other}, but captions know photos by their names alone")
        photos[path.name] = path
    return list(photos.values())


def read_photo(path: Path) -> Pixels:
    """A photo, the way up that its camera says, squeezed into a square.

    Nothing is cut off, for a caption may be about what stands at the edge.
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
    # What Pillow raises depends on the format and on what is broken in it: it may be anything.
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
    """Names a line, from the folder of the list."""
    for number, name in read_lines(listing):
        path = listing.parent / name.strip()
        if not name.strip():
            raise UserError(f"{listing}:{number}: empty line; allowed: a photo a line")
        if not path.is_file():
            raise UserError(f"{listing}:{number}: {path}: no such photo")
        yield path


def _in_colours(photo: Image) -> Image:
    """In RGB, whatever it is in; what can be seen through stands on white."""
    from PIL import Image

    if photo.mode.startswith("I"):  # 16 bits a pixel, which Pillow would cut off at 255
        photo = Image.fromarray((np.asarray(photo) // 256).astype(np.uint8))
    if not photo.has_transparency_data:
        return photo.convert("RGB")
    paper = Image.new("RGBA", photo.size, "white")
    return Image.alpha_composite(paper, photo.convert("RGBA")).convert("RGB")
