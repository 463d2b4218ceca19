"""Memory that is given back and taken again, counted by the pages that the system had to fill."""

from __future__ import annotations

import subprocess
import sys

import pytest

PAGES = """
import resource, sys
import torch
from anyorder.models.kernels.malloc import keep_memory
if sys.argv[1] == "keep":
    keep_memory()
def fill():
    torch.ones(16 * 2**20)  # 64 MB: more than glibc keeps by itself
fill()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    fill()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def filled_pages(how: str) -> int:
    command = [sys.executable, "-c", PAGES, how]
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be told to keep memory")
def test_most_memory_is_filled_once() -> None:
    """Otherwise each tensor of 64 MB is 16,384 pages that are filled with zeros first."""
    assert filled_pages("as it is") >= 20 * 16_384
    assert filled_pages("keep") < 15 * 16_384
