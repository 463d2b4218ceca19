from __future__ import annotations

import pytest
import torch

from anyorder.models.attention import CrossAttention
from anyorder.models.kernels.training import Dropout


@pytest.mark.parametrize("probability", [0.1, 0.25, 0.5, 0.9])
def test_dropout_drops_its_share_and_keeps_the_mean(probability: float) -> None:
    torch.manual_seed(0)
    dropped = Dropout(probability)(torch.ones(1000, 333))
    assert (dropped == 0).float().mean().item() == pytest.approx(probability, abs=0.004)
    assert dropped.mean().item() == pytest.approx(1, abs=0.01)
    assert len(dropped.unique()) == 2


def test_each_element_has_its_own_chance() -> None:
    """Neither along rows nor along columns, nor with a period of eight, does one tell anything of another."""
    torch.manual_seed(0)
    kept = (Dropout(0.5)(torch.ones(4000, 64)) > 0).float() - 0.5
    together = kept.T @ kept / len(kept)  # (64, 64), 0.25 on the diagonal
    assert (together - 0.25 * torch.eye(64)).abs().max() < 0.03


def test_dropout_is_drawn_from_the_seed_and_off_when_not_learning() -> None:
    layer, states = Dropout(0.3), torch.randn(5, 7)
    torch.manual_seed(3)
    first, second = layer(states), layer(states)
    torch.manual_seed(3)
    assert torch.equal(layer(states), first)
    assert not torch.equal(first, second)
    assert torch.equal(layer.eval()(states), states)


def test_gradients_pass_where_values_do() -> None:
    states = torch.randn(50, 50, requires_grad=True)
    dropped = Dropout(0.4)(states)
    dropped.sum().backward()
    assert states.grad is not None
    assert torch.equal(states.grad == 0, dropped == 0)


def test_cross_attention_with_dropout_has_the_mean_of_the_one_without() -> None:
    torch.manual_seed(0)
    attention = CrossAttention(width=8, heads=2, dropout=0.2).double()
    source, states = torch.randn(1, 5, 8).double(), torch.randn(1, 3, 8).double()
    padding = torch.tensor([0, 0, 0, 0, float("-inf")]).view(1, 1, 1, 5)
    keys = attention.keys_values(source)
    with torch.no_grad():
        noisy = torch.stack([attention(states, *keys, padding=padding) for _ in range(4000)]).mean(dim=0)
        plain = attention.eval()(states, *keys, padding=padding)
    torch.testing.assert_close(noisy, plain, atol=0.03, rtol=0)
