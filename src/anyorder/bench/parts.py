"""The speed of single parts: attention with relations, matrix products, and a cold start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from anyorder.bench.timing import Measurement, calibration, interleaved, time_rows
from anyorder.errors import UserError
from anyorder.insertion import relations
from anyorder.models.attention import Relations, SelfAttention, join_heads
from anyorder.models.kernels.packed import Int8Linear, PackedLinear, can_pack

NO_RELATIONS = "scaled_dot_product_attention, no relations"


def bench_attention(*, batch: int, length: int, width: int, heads: int, repeats: int) -> list[Measurement]:
    """Measure attention sublayers, forward and backward, with a causal mask and the same projections."""
    torch.manual_seed(0)
    states = torch.randn(batch, length, width, requires_grad=True)
    positions = torch.stack([torch.randperm(length) for _ in range(batch)])
    later = torch.ones(length, length, dtype=torch.bool).triu(diagonal=1)
    ternary = SelfAttention(width=width, heads=heads, kinds=3, dropout=0.0)
    clipped = SelfAttention(width=width, heads=heads, kinds=33, dropout=0.0)
    plain = SelfAttention(width=width, heads=heads, kinds=0, dropout=0.0)

    def distances() -> Relations:
        return Relations.distances(length, clip=16, device=states.device, dtype=states.dtype)

    # A model computes relations once a batch for all layers. Here a single layer bears their cost.
    variants: dict[str, Callable[[], None]] = {
        NO_RELATIONS: lambda: _train(plain, lambda: _fused(plain, states)),
        "relations of the decoder (left, itself, right)": lambda: _train(
            ternary,
            lambda: ternary(
                states, relations=Relations.signed(relations(positions), dtype=states.dtype), blocked=later
            ),
        ),
        "distances of the encoder (clipped to 16)": lambda: _train(
            clipped, lambda: clipped(states, relations=distances(), blocked=later)
        ),
    }
    return [*time_rows(interleaved(variants, repeats=repeats), against=NO_RELATIONS), calibration()]


def _fused(attention: SelfAttention, states: Tensor) -> Tensor:
    query, key, value = attention.queries_keys_values(states)
    attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=1.0)
    return attention.output(join_heads(attended))


def _train(attention: SelfAttention, forward: Callable[[], Tensor]) -> None:
    attention.zero_grad(set_to_none=True)
    forward().sum().backward()


PLAIN_PRODUCTS = "plain torch"
MATRICES = 24  # together they exceed the cache, like the weights of a model


def bench_products(*, width: int, hidden: int, rows: Sequence[int], repeats: int) -> list[Measurement]:
    """Measure products with a series of (hidden, width) matrices: plain, packed ahead, and in int8.

    rows: numbers of rows to multiply; each is measured.
    """
    torch.manual_seed(0)
    plain = [nn.Linear(width, hidden, bias=False) for _ in range(MATRICES)]
    maps: dict[str, list[nn.Module]] = {PLAIN_PRODUCTS: [*plain]}
    if can_pack():
        maps["packed"] = [PackedLinear(linear.weight) for linear in plain]
    maps["int8"] = [Int8Linear(linear.weight) for linear in plain]
    measured = []
    for number in rows:
        states = torch.randn(number, width)
        variants = {name: _all(some, states) for name, some in maps.items()}
        with torch.inference_mode():
            timed = time_rows(interleaved(variants, repeats=repeats), against=PLAIN_PRODUCTS)
        measured += [replace(row, name=f"{number} rows: {row.name}") for row in timed]
    return [*measured, calibration()]


def _all(maps: Sequence[nn.Module], states: Tensor) -> Callable[[], object]:
    return lambda: [each(states) for each in maps]


IMPORT_TORCH = "import torch"


def bench_cold_start(run: str, line: str, *, repeats: int) -> list[Measurement]:
    """Measure the milliseconds that `generate` takes for one source line in a new process.

    The baseline is the import of torch. line: the source.
    """
    if not line.strip():
        raise UserError(f"--source {line!r}: is blank; must contain a word")
    with TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.write_text(f"{line}\n", encoding="utf-8")
        commands = {
            IMPORT_TORCH: ["-c", "import torch"],
            f"generate {run}": ["-m", "anyorder", "generate", run, str(source)],
        }
        # The warm-up turn brings all files into the cache of the operating system.
        seconds = interleaved(
            {name: partial(_run, arguments) for name, arguments in commands.items()},
            repeats=repeats,
            warmup=1,
        )
    return time_rows(seconds, against=IMPORT_TORCH)


def _run(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(done.stderr.strip().removeprefix("anyorder: "))
