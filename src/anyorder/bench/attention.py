"""What relations cost: a self-attention sublayer with them, against torch's fused one without."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from anyorder.bench.measure import Row, calibration, interleaved, time_rows
from anyorder.insertion import relations
from anyorder.models.attention import Relations, SelfAttention, join_heads

BASELINE = "scaled_dot_product_attention, no relations"


def bench_attention(*, batch: int, length: int, width: int, heads: int, repeats: int) -> list[Row]:
    """Whole sublayers, forward and backward, all with a causal mask and the same projections."""
    torch.manual_seed(0)
    states = torch.randn(batch, length, width, requires_grad=True)
    slots = torch.stack([torch.randperm(length) for _ in range(batch)])
    later = torch.ones(length, length, dtype=torch.bool).triu(diagonal=1)
    ternary = SelfAttention(width=width, heads=heads, kinds=3, dropout=0.0)
    clipped = SelfAttention(width=width, heads=heads, kinds=33, dropout=0.0)
    plain = SelfAttention(width=width, heads=heads, kinds=0, dropout=0.0)

    def distances() -> Relations:
        return Relations.distances(length, clip=16, device=states.device, dtype=states.dtype)

    # Relations are made once a batch and serve all layers; here they are charged to one.
    variants: dict[str, Callable[[], None]] = {
        BASELINE: lambda: _train(plain, lambda: _fused(plain, states)),
        "relations of the decoder (left, itself, right)": lambda: _train(
            ternary,
            lambda: ternary(
                states, relations=Relations.signed(relations(slots), dtype=states.dtype), blocked=later
            ),
        ),
        "distances of the encoder (clipped to 16)": lambda: _train(
            clipped, lambda: clipped(states, relations=distances(), blocked=later)
        ),
    }
    return [*time_rows(interleaved(variants, repeats=repeats), against=BASELINE), calibration()]


def _fused(attention: SelfAttention, states: Tensor) -> Tensor:
    query, key, value = attention.queries_keys_values(states)
    attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=1.0)
    return attention.output(join_heads(attended))


def _train(attention: SelfAttention, forward: Callable[[], Tensor]) -> None:
    attention.zero_grad(set_to_none=True)
    forward().sum().backward()
