"""Weights of eight bits, against those of thirty-two."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import random_sources
from torch import nn

import anyorder
from anyorder import config
from anyorder.config.model import Shape
from anyorder.decoding.decode import decode
from anyorder.errors import UserError
from anyorder.models.indigo import Indigo
from anyorder.models.kernels.packed import Int8Linear, pack


@pytest.mark.parametrize("rows", [1, 7])
def test_products_differ_by_rounding_only(rows: int) -> None:
    torch.manual_seed(rows)
    linear = nn.Linear(64, 48)
    states = torch.randn(rows, 3, 64)
    exact = linear(states)
    error = (Int8Linear(linear.weight, linear.bias)(states) - exact).norm() / exact.norm()
    assert 0 < error < 0.02


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    torch.manual_seed(0)
    packed = Int8Linear(torch.randn(40, 32))
    quiet, loud = torch.randn(1, 32), 1000 * torch.randn(1, 32)
    lopsided = torch.rand(1, 32)
    alone = packed(quiet)
    for beside in (quiet, loud, lopsided, torch.zeros(1, 32)):
        assert torch.equal(packed(torch.cat([quiet, beside]))[:1], alone)


def test_zeros_stay_zeros() -> None:
    assert not Int8Linear(torch.randn(4, 8))(torch.zeros(2, 8)).any()


@pytest.mark.parametrize("first", ["word", "position"])
def test_a_quantised_model_scores_alike(first: str) -> None:
    """Of the sentences that a model writes, each word and gap is about as likely in eight bits."""
    torch.manual_seed(1)
    settings = config.Model(
        width=32,
        hidden=64,
        heads=4,
        encoder_layers=1,
        decoder_layers=2,
        first=first,  # type: ignore[arg-type]
    )
    model = Indigo(settings, Shape(vocabulary=90, target_vocabulary=90)).eval()
    source, mask = random_sources(lengths=[5, 3, 4], words=80, seed=0)
    limits = torch.full((3,), 6)
    before = decode(model, source, mask, settings=config.Decode(beam=3), limits=limits)
    pack(model, precision="int8")
    after = decode(model, source, mask, settings=config.Decode(beam=3), limits=limits)
    assert not any(isinstance(part, nn.Linear) for part in model.modules())
    for (exact,), (rounded,) in zip(before, after, strict=True):
        assert rounded.score == pytest.approx(exact.score, abs=0.1)


def test_an_unknown_precision_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="precision = 'int4': must be fp32 or int8"):
        anyorder.load(tmp_path, precision="int4")
