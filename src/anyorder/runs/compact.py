"""Weights in fewer bytes, as a model to give away is kept on disk; they are read as single precision again.

In eight bits each row of a matrix, such as a word's vector, has a scale of its own, kept beside it under
another name. Vectors are few, and matter more each: they stay in half precision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from anyorder.models.kernels.packed import LARGEST, row_scales

Precision = Literal["fp32", "fp16", "int8"]
SCALES = ":scales"  # after a matrix's name; names of parameters have no colon


def packed(weights: Mapping[str, Tensor], precision: Precision) -> dict[str, Tensor]:
    """As they are to be kept on disk."""
    if precision == "fp32":
        return dict(weights)
    small: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if precision == "int8" and weight.dim() > 1:
            scales = row_scales(weight)
            small[name] = (weight / scales).round().clamp(-LARGEST, LARGEST).to(torch.int8)
            small[name + SCALES] = scales
        else:
            small[name] = weight.half()
    return small


def unpacked(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What was packed, in whichever precision; half precision is widened when a model takes it."""
    return {
        name: tensor * tensors[name + SCALES] if name + SCALES in tensors else tensor
        for name, tensor in tensors.items()
        if not name.endswith(SCALES)
    }
