"""Matrix products in eight bits, for a model that is only used: a quarter of the memory to read at each step.

Each row of a weight matrix has a scale of its own, and so has each row of what it is multiplied with.
Products are summed in integers by a kernel that ships with torch; all between them stays in single precision.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

LARGEST = 127  # of the integers that stand for weights


class Int8Linear(nn.Module):
    """A linear map whose weights are integers."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.bias = None if bias is None else bias.detach()
        self._packed = _packed(weight.detach())
        self._ends = torch.zeros(1, weight.shape[1])
        self._ends[0, :2] = torch.tensor([-1.0, 1.0])

    def forward(self, states: Tensor) -> Tensor:
        """states: (..., D)."""
        rows = states.reshape(-1, states.shape[-1])
        size = torch.linalg.vector_norm(rows, ord=float("inf"), dim=1, keepdim=True)
        size = size.clamp_(min=torch.finfo(states.dtype).tiny)
        # Torch takes one scale for all rows, from the least to the largest number. So they are made alike,
        # and one row more has both 1 and -1: none depends on its neighbours.
        scaled = torch.cat([rows / size, self._ends])
        product = _multiplied(scaled, self._packed)[:-1].mul_(size)
        return self._added(product).view(*states.shape[:-1], -1)

    def _added(self, product: Tensor) -> Tensor:
        return product if self.bias is None else product.add_(self.bias)


_multiply = torch.ops.quantized.linear_dynamic.default  # looked up once: it is called many times a word


def _multiplied(states: Tensor, packed: Any) -> Tensor:  # noqa: ANN401
    # Seven bits: with eight, sums of two products could overflow where a processor adds in sixteen.
    product: Tensor = _multiply(states, packed, True)
    return product


def row_scales(weight: Tensor) -> Tensor:
    """What the integers of each row are to be multiplied with; weight: (..., in), returns (..., 1)."""
    return (weight.abs().amax(dim=-1, keepdim=True) / LARGEST).clamp(min=torch.finfo(weight.dtype).tiny)


def _packed(weight: Tensor) -> Any:  # noqa: ANN401
    """As the kernel reads it; weight: (out, in)."""
    scale = row_scales(weight).squeeze(1)
    with warnings.catch_warnings():  # that torch moves such tensors to another package
        warnings.simplefilter("ignore")
        integers = torch.quantize_per_channel(
            weight.float(), scale.double(), torch.zeros(len(scale), dtype=torch.long), 0, torch.qint8
        )
    return torch.ops.quantized.linear_prepack(integers, None)
