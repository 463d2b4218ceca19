"""Matrices laid out ahead, against the products that they stand for."""

from __future__ import annotations

import pytest
import torch
from conftest import random_sources
from torch import nn

from anyorder import config
from anyorder.config.model import Shape
from anyorder.decoding.decode import decode
from anyorder.models.indigo import Indigo
from anyorder.models.kernels.packed import PackedLinear, pack


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 5), (2, 3, 4)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_packed_product_is_the_product(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(96, 70, bias=bias)
    states = torch.randn(*shape, 96)
    with torch.no_grad():
        torch.testing.assert_close(PackedLinear(linear.weight, linear.bias)(states), linear(states))


@pytest.mark.parametrize("threads", [1, 2, 4, 7])
def test_one_row_is_multiplied_by_parts(threads: int) -> None:
    """Also where the parts can't be alike, and where the number of threads changes afterwards."""
    torch.manual_seed(0)
    linear, states = nn.Linear(96, 70), torch.randn(1, 1, 96)
    packed, before = PackedLinear(linear.weight, linear.bias), torch.get_num_threads()
    with torch.no_grad():
        torch.testing.assert_close(packed(states), linear(states))
        try:
            torch.set_num_threads(threads)
            torch.testing.assert_close(packed(states), linear(states))
        finally:
            torch.set_num_threads(before)


@pytest.mark.parametrize("search", ["two-step", "joint"])
@pytest.mark.parametrize("first", ["word", "position"])
@pytest.mark.parametrize("beam", [1, 4])
def test_a_packed_model_writes_the_same(first: str, beam: int, search: str) -> None:
    """Large enough that its layers and its vocabulary are packed; many words, so that blocks are, too."""
    settings = config.Model(
        width=128,
        hidden=2048,
        heads=2,
        encoder_layers=1,
        decoder_layers=1,
        first=first,  # type: ignore[arg-type]
    )
    torch.manual_seed(1)
    model = Indigo(settings, Shape(vocabulary=9000, target_vocabulary=9000)).eval()
    source, mask = random_sources(lengths=[5, 3], words=8000, seed=0)
    options = config.Decode(beam=beam, search=search)  # type: ignore[arg-type]

    def written() -> list[list[tuple[tuple[int, ...], tuple[int, ...], float]]]:
        found = decode(model, source, mask, settings=options, limits=torch.full((2,), 6))
        return [[(one.tokens, one.positions, round(one.score, 3)) for one in best] for best in found]

    before = written()
    pack(model, precision="fp32")
    packed = [part for part in model.modules() if isinstance(part, PackedLinear)]
    assert packed
    assert model.packed_words is not None
    assert len(model.packed_words) > 1
    assert written() == before


def test_small_matrices_are_left_alone() -> None:
    """A call of the packed product costs more than it gains there."""
    settings = config.Model(width=32, hidden=64, heads=2, encoder_layers=1, decoder_layers=1)
    model = Indigo(settings, Shape(vocabulary=50, target_vocabulary=50)).eval()
    pack(model, precision="fp32")
    assert not any(isinstance(part, PackedLinear) for part in model.modules())
    assert model.packed_words is None
