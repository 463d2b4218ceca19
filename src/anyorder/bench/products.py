"""What it brings to lay matrices out ahead, or to have them in eight bits, by how many rows there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from anyorder.bench.measure import Row, calibration, interleaved, time_rows
from anyorder.models.kernels.packed import Int8Linear, PackedLinear, can_pack

BASELINE = "as torch multiplies"
MATRICES = 24  # together too large for a cache, as a model's are


def bench_products(*, width: int, hidden: int, rows: Sequence[int], repeats: int) -> list[Row]:
    """Products with matrices of (hidden, width), one after the other."""
    torch.manual_seed(0)
    plain = [nn.Linear(width, hidden, bias=False) for _ in range(MATRICES)]
    maps: dict[str, list[nn.Module]] = {BASELINE: [*plain]}
    if can_pack():
        maps["laid out ahead"] = [PackedLinear(each.weight) for each in plain]
    maps["int8"] = [Int8Linear(each.weight) for each in plain]
    found = []
    for number in rows:
        states = torch.randn(number, width)
        variants = {name: _all(some, states) for name, some in maps.items()}
        with torch.inference_mode():
            timed = time_rows(interleaved(variants, repeats=repeats), against=BASELINE)
        found += [replace(row, name=f"{number} rows: {row.name}") for row in timed]
    return [*found, calibration()]


def _all(maps: Sequence[nn.Module], states: Tensor) -> Callable[[], object]:
    return lambda: [each(states) for each in maps]
