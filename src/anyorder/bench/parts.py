"""Speed of single parts: attention with relations, matrix products, start-up."""

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

from anyorder.bench.timing import Row, calibration, interleaved, time_rows
from anyorder.errors import UserError
from anyorder.insertion import relations
from anyorder.models.attention import Relations, SelfAttention, join_heads
from anyorder.models.kernels.packed import Int8Linear, PackedLinear, can_pack

NO_RELATIONS = "scaled_dot_product_attention, no relations"


def bench_attention(*, batch: int, length: int, width: int, heads: int, repeats: int) -> list[Row]:
    """Whole sublayers, forward and backward, all with a causal mask and the same projections."""
    torch.manual_seed(0)
    states = torch.randn(batch, length, width, requires_grad=True)
    positions = torch.stack([torch.randperm(length) for _ in range(batch)])
    later = torch.ones(length, length, dtype=torch.bool).triu(diagonal=1)
    ternary = SelfAttention(width=width, heads=heads, kinds=3, dropout=0.0)
    clipped = SelfAttention(width=width, heads=heads, kinds=33, dropout=0.0)
    plain = SelfAttention(width=width, heads=heads, kinds=0, dropout=0.0)

    def distances() -> Relations:
        return Relations.distances(length, clip=16, device=states.device, dtype=states.dtype)

    # Relations are made once a batch and serve all layers; here they are charged to one.
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


PLAIN_PRODUCTS = "as torch multiplies"
MATRICES = 24  # together too large for a cache, as a model's are


def bench_products(*, width: int, hidden: int, rows: Sequence[int], repeats: int) -> list[Row]:
    """Products with matrices of (hidden, width), one after the other."""
    torch.manual_seed(0)
    plain = [nn.Linear(width, hidden, bias=False) for _ in range(MATRICES)]
    maps: dict[str, list[nn.Module]] = {PLAIN_PRODUCTS: [*plain]}
    if can_pack():
        maps["laid out ahead"] = [PackedLinear(each.weight) for each in plain]
    maps["int8"] = [Int8Linear(each.weight) for each in plain]
    found = []
    for number in rows:
        states = torch.randn(number, width)
        variants = {name: _all(some, states) for name, some in maps.items()}
        with torch.inference_mode():
            timed = time_rows(interleaved(variants, repeats=repeats), against=PLAIN_PRODUCTS)
        found += [replace(row, name=f"{number} rows: {row.name}") for row in timed]
    return [*found, calibration()]


def _all(maps: Sequence[nn.Module], states: Tensor) -> Callable[[], object]:
    return lambda: [each(states) for each in maps]


IMPORT_TORCH = "import torch"


def bench_starting(run: str, line: str, *, repeats: int) -> list[Row]:
    """Milliseconds by the clock to write one line, each time in a new process. line: a source."""
    if not line.strip():
        raise UserError(f"--source {line!r}: is blank, and nothing is written for it; must hold a word")
    with TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.write_text(f"{line}\n", encoding="utf-8")
        commands = {
            IMPORT_TORCH: ["-c", "import torch"],
            f"generate {run}": ["-m", "anyorder", "generate", run, str(source)],
        }
        # Files are in the system's cache from the first turn on.
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
