"""Photos are read as people see them, whatever their file is like."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anyorder.data.photos import SIDE, Pixels, find_photos, is_photo, read_photo
from anyorder.errors import UserError

Image = pytest.importorskip("PIL.Image")

RED, BLUE, WHITE, GREY = (255, 0, 0), (0, 0, 255), (255, 255, 255), (128, 128, 128)
ORIENTATION = 0x0112  # of EXIF


def photo(path: Path, *, size: tuple[int, int] = (40, 30)) -> Path:
    Image.new("RGB", size, RED).save(path)
    return path


def colour(pixels: Pixels, where: str = "") -> tuple[int, ...]:
    """In the middle of the photo, or of one of its edges."""
    middle, edges = SIDE // 2, {"top": 5, "bottom": SIDE - 6, "left": 5, "right": SIDE - 6}
    row = edges[where] if where in ("top", "bottom") else middle
    column = edges[where] if where in ("left", "right") else middle
    return tuple(pixels[row, column].tolist())


# Laws


@pytest.mark.parametrize("size", [(1, 1), (7, 500), (500, 7), (224, 224), (640, 480)])
def test_a_photo_of_any_size_is_the_same_square(tmp_path: Path, size: tuple[int, int]) -> None:
    pixels = read_photo(photo(tmp_path / "photo.png", size=size))
    assert (pixels.shape, pixels.dtype) == ((SIDE, SIDE, 3), np.uint8)
    assert np.array_equal(np.unique(pixels.reshape(-1, 3), axis=0), [RED])


def test_nothing_is_cut_off(tmp_path: Path) -> None:
    wide = Image.new("RGB", (900, 100), GREY)
    wide.paste(RED, (0, 0, 90, 100))
    wide.paste(BLUE, (810, 0, 900, 100))
    wide.save(tmp_path / "wide.png")
    pixels = read_photo(tmp_path / "wide.png")
    assert (colour(pixels, "left"), colour(pixels), colour(pixels, "right")) == (RED, GREY, BLUE)


# Where the left of what is stored is to be seen, as EXIF 2.3 defines orientations (4.6.4, tag 274).
@pytest.mark.parametrize(
    ("orientation", "edge"),
    [
        (1, "left"),
        (2, "right"),
        (3, "right"),
        (4, "left"),
        (5, "top"),
        (6, "top"),
        (7, "bottom"),
        (8, "bottom"),
    ],
)
def test_the_camera_says_which_way_is_up(tmp_path: Path, orientation: int, edge: str) -> None:
    stored = Image.new("RGB", (80, 40), BLUE)
    stored.paste(RED, (0, 0, 40, 40))
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    stored.save(tmp_path / "photo.png", exif=exif)
    pixels = read_photo(tmp_path / "photo.png")
    opposite = {"left": "right", "right": "left", "top": "bottom", "bottom": "top"}[edge]
    assert (colour(pixels, edge), colour(pixels, opposite)) == (RED, BLUE)


# Kinds of photos


@pytest.mark.parametrize(
    ("mode", "given", "name", "seen"),
    [
        ("RGB", RED, "photo.png", RED),
        ("L", 128, "photo.png", GREY),
        ("LA", (0, 0), "photo.png", WHITE),
        ("1", 1, "photo.png", WHITE),
        ("I;16", 128 * 256, "photo.png", GREY),
        ("RGBA", (*RED, 255), "photo.png", RED),
        ("RGBA", (*RED, 0), "photo.png", WHITE),
        ("P", RED, "photo.gif", RED),
        ("CMYK", (0, 255, 255, 0), "photo.tif", RED),
    ],
)
def test_colours(tmp_path: Path, mode: str, given: object, name: str, seen: tuple[int, ...]) -> None:
    Image.new(mode, (20, 20), given).save(tmp_path / name)
    assert colour(read_photo(tmp_path / name)) == seen


def test_a_palette_may_have_a_colour_to_see_through(tmp_path: Path) -> None:
    Image.new("P", (20, 20), 0).save(tmp_path / "photo.gif", transparency=0)
    assert colour(read_photo(tmp_path / "photo.gif")) == WHITE


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "no such photo"),
        (b"", "can't be read as a photo"),
        (b"no photo at all", "can't be read as a photo"),
    ],
)
def test_what_is_no_photo_is_named(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    if content is not None:
        (tmp_path / "photo.jpg").write_bytes(content)
    with pytest.raises(UserError, match=rf"photo\.jpg: {complaint}"):
        read_photo(tmp_path / "photo.jpg")


def test_half_a_photo_is_none(tmp_path: Path) -> None:
    content = photo(tmp_path / "whole.jpg", size=(300, 300)).read_bytes()
    (tmp_path / "half.jpg").write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"half\.jpg: can't be read as a photo: .*truncated"):
        read_photo(tmp_path / "half.jpg")


# Finding them


def test_photos_come_in_the_order_given_and_those_of_a_folder_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("b.JPG", "a.png", "c.webp"):
        photo(folder / name)
    (folder / "notes.md").write_text("no photo")
    first, listed = photo(tmp_path / "z.jpg"), photo(tmp_path / "y.jpg")
    (tmp_path / "list.txt").write_text("y.jpg\n")
    found = find_photos([first, folder, tmp_path / "list.txt"])
    assert found == [first, folder / "a.png", folder / "b.JPG", folder / "c.webp", listed]
    assert all(map(is_photo, found))


def test_photos_that_can_not_be_told_apart_or_found_are_refused(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "empty").mkdir()
    one, other = photo(tmp_path / "a.jpg"), photo(tmp_path / "one" / "a.jpg")
    (tmp_path / "list.txt").write_text("a.jpg\n\n")
    (tmp_path / "lost.txt").write_text("a.jpg\nb.jpg\n")
    refused = {
        "has the same name as": [one, other],
        "empty: holds no photos; allowed: .bmp": [tmp_path / "empty"],
        "b.jpg: no such photo": [tmp_path / "b.jpg"],
        "list.txt:2: empty line": [tmp_path / "list.txt"],
        "lost.txt:2: ": [tmp_path / "lost.txt"],
    }
    for complaint, given in refused.items():
        with pytest.raises(UserError) as raised:
            find_photos(given)
        assert complaint in str(raised.value)
