"""Files of feature vectors: what is written is read back, and what can't be is said in one line."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import full_disk
from hypothesis import given
from hypothesis import strategies as st

from anyorder.data.features import BadGrid, Grid, NamedVectors, about_file, open_grid, save_grid
from anyorder.errors import UserError

NAMES = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, unique=True)


def images(number: int, *, vectors: int = 2, width: int = 3) -> list[NamedVectors]:
    values = np.arange(number * vectors * width, dtype=np.float32).reshape(number, vectors, width)
    return [NamedVectors(f"{row}.jpg", grid) for row, grid in enumerate(values)]


def archive(path: Path, **arrays: Any) -> Path:  # noqa: ANN401 (whatever NumPy takes)
    np.savez_compressed(path, **arrays)
    return path


# Laws


@given(NAMES, st.integers(1, 4), st.integers(1, 5), st.sampled_from([None, "a network"]))
def test_what_is_saved_is_opened(names: list[str], vectors: int, width: int, extractor: str | None) -> None:
    values = np.random.default_rng(1).standard_normal((len(names), vectors, width))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "grid.npy"
        given_images = (NamedVectors(name, grid) for name, grid in zip(names, values, strict=True))
        save_grid(path, given_images, extractor=extractor)
        grid = open_grid(path)
        assert (grid.names, grid.extractor) == (tuple(names), extractor)
        assert (len(grid), grid.vectors, grid.width) == values.shape
        assert [grid.row_of[name] for name in names] == list(range(len(names)))
        by_numpy = np.load(path)
        assert by_numpy.dtype == np.float16
        assert np.array_equal(by_numpy, values.astype(np.float16))
        assert np.array_equal(list(grid), by_numpy)


@given(st.floats(0.125, 2, width=32), st.integers(0, 255))
def test_quantised_numbers_stay_small_until_they_are_asked_for(scale: float, zero_point: int) -> None:
    numbers = np.random.default_rng(1).integers(0, 256, (3, 2, 2, 5)).astype(np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        arrays = {"names": ["a", "b", "c"], "scale": np.float32(scale), "zero_point": np.int32(zero_point)}
        grid = open_grid(archive(Path(folder) / "grid.npz", grid=numbers, **arrays))
    assert grid.numbers.dtype == np.uint8
    for row in range(3):
        expected = [
            [(int(number) - zero_point) * scale for number in numbers[row, high, wide]]
            for high in range(2)
            for wide in range(2)
        ]
        assert grid[row].dtype == np.float32
        assert np.allclose(grid[row], expected, rtol=1e-6, atol=1e-6)


# Whole or not at all


def test_a_grid_that_is_not_finished_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "grid.npy"
    save_grid(path, images(2))
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def interrupted() -> Iterator[NamedVectors]:
        yield from images(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_grid(path, interrupted(), extractor="other")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    with full_disk(largest_file=1000), pytest.raises(UserError, match=r"grid\.npy: can't be written"):
        save_grid(tmp_path / "grid.npy", images(100))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [1e6, np.nan, -np.inf])
def test_numbers_that_can_not_be_kept_are_refused(tmp_path: Path, number: float) -> None:
    vectors = np.array([[0.0, number]], dtype=np.float32)
    with pytest.raises(
        UserError, match="not written: image 'a' has numbers that are not finite, or beyond ±65504"
    ):
        save_grid(tmp_path / "grid.npy", [NamedVectors("a", vectors)])
    assert list(tmp_path.iterdir()) == []


def test_no_image_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"grid\.npy: not written: there are no images"):
        save_grid(tmp_path / "grid.npy", [])
    assert list(tmp_path.iterdir()) == []


# Files of others


def test_an_array_without_names_is_a_grid(tmp_path: Path) -> None:
    np.save(tmp_path / "grid.npy", np.ones((2, 3, 4), dtype=np.float32))
    grid = open_grid(tmp_path / "grid.npy")
    assert (grid.names, grid.extractor, grid[1].tolist()) == (None, None, np.ones((3, 4)).tolist())
    with pytest.raises(BadGrid, match="its images have no names"):
        _ = grid.row_of


def test_rows_and_columns_are_read_row_by_row(tmp_path: Path) -> None:
    np.save(tmp_path / "grid.npy", np.arange(6).reshape(1, 2, 3, 1))
    assert open_grid(tmp_path / "grid.npy")[0].tolist() == [[0], [1], [2], [3], [4], [5]]


def test_an_archive_that_has_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "grid.npz"
    for value in (1.0, 2.0):
        archive(path, names=["a"], grid=np.full((1, 1, 1), value))
        assert open_grid(path)[0].item() == value


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"grid": np.ones((1, 2, 3))}, "has no array 'names'"),
        ({"names": ["a"]}, "has no array 'grid'"),
        ({"names": ["a"], "grid": np.ones((2, 1, 1))}, "holds 2 images, but 1 names"),
        ({"names": ["a"], "grid": np.ones((1, 2))}, r"has shape \(1, 2\); allowed"),
        ({"names": ["a"], "grid": [[["b"]]]}, "holds values of type"),
        ({"names": "a", "grid": np.ones((1, 1, 1))}, r"'names' has shape \(\) and type str"),
        ({"names": [b"a"], "grid": np.ones((1, 1, 1))}, "'names' has shape .* and type bytes"),
        ({"names": ["a"], "grid": np.ones((1, 1, 2)), "scale": [1.0, 2.0]}, "'scale' has shape .*one number"),
        ({"names": ["a"], "grid": np.ones((1, 1, 1)), "scale": np.nan}, "'scale' has shape .*one number"),
    ],
)
def test_archives_that_are_refused(tmp_path: Path, arrays: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadGrid, match=complaint):
        open_grid(archive(tmp_path / "grid.npz", **arrays))


def test_two_images_of_one_name_are_refused() -> None:
    with pytest.raises(BadGrid, match="two images that are named b"):
        _ = Grid(numbers=np.ones((3, 1, 1)), names=("a", "b", "b")).row_of


@pytest.mark.parametrize(
    ("beside", "kind", "complaint"),
    [
        ("{", BadGrid, "grid.npy.json beside it isn't what"),
        (json.dumps({"names": ["a"]}), UserError, "extractor: missing"),
        (json.dumps({"names": ["a"], "extractor": None}), BadGrid, "holds 2 images, but .* names 1"),
    ],
)
def test_names_that_do_not_fit_are_refused(
    tmp_path: Path, beside: str, kind: type[Exception], complaint: str
) -> None:
    save_grid(tmp_path / "grid.npy", images(2))
    about_file(tmp_path / "grid.npy").write_text(beside)
    with pytest.raises(kind, match=complaint):
        open_grid(tmp_path / "grid.npy")
