"""A part of torch that is left out until somebody asks for it, each time in a new process."""

from __future__ import annotations

import subprocess
import sys

LATER = """
import sys
from anyorder.ground.quick_start import SHAPES, put_off_shapes
put_off_shapes()
import torch
assert "torch._refs" not in sys.modules  # which it would have imported
assert float(torch.nn.Linear(3, 2)(torch.ones(4, 3)).softmax(dim=1).sum()) > 3.9
"""
ASKED = """
assert callable(torch._meta_registrations.meta_mm)
import torch._meta_registrations as shapes
assert "torch._refs" in sys.modules and shapes.meta_mm is torch._meta_registrations.meta_mm
assert torch.ones(2, 3, device="meta").mm(torch.ones(3, 4, device="meta")).shape == (2, 4)
"""
TOO_LATE = """
import sys, torch
from anyorder.ground.quick_start import SHAPES, put_off_shapes
there = sys.modules[SHAPES]
put_off_shapes()
assert sys.modules[SHAPES] is there
"""


def run(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True)


def test_torch_works_without_it() -> None:
    run(LATER)


def test_whoever_asks_gets_it() -> None:
    run(LATER + ASKED)


def test_what_is_there_stays() -> None:
    run(TOO_LATE)
