"""Short versions of the harnesses, which `make faults` runs in full."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PATHS = [
    str(HERE.parent),
    *os.environ.get("PYTHONPATH", "").split(os.pathsep),
]  # the tests' own modules first
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, PATHS))}
SHORT = {
    "kill": ("--tries", "3", "--minutes", "0.2"),
    "fuzz": ("--tries", "40", "--minutes", "0.1"),
    "disk": ("--tries", "3", "--minutes", "0.1"),
    "hostile": (),
}


@pytest.mark.parametrize("harness", SHORT)
def test_a_harness_finds_no_fault(harness: str, tmp_path: Path) -> None:
    # In a process of its own: the harness forks, and a process of pytest has threads.
    answer = subprocess.run(
        [sys.executable, str(HERE / f"{harness}.py"), "--folder", str(tmp_path), *SHORT[harness]],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=ENVIRONMENT,
    )
    assert answer.returncode == 0, f"{answer.stdout}\n{answer.stderr}"
    assert "| in all" in answer.stdout
    assert "FAULT" not in answer.stdout


@pytest.mark.slow
def test_several_processes_find_no_fault(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, str(HERE / "processes.py"), "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
    )
    assert answer.returncode == 0, answer.stdout
