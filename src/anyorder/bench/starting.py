"""How long a command takes from nothing to an answer, beside the import of torch alone."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from anyorder.bench.measure import Row, interleaved, time_rows
from anyorder.errors import UserError

BASELINE = "import torch"


def bench_starting(run: str, line: str, *, repeats: int) -> list[Row]:
    """Milliseconds by the clock to write one line, each time in a new process. line: a source."""
    if not line.strip():
        raise UserError(f"--source {line!r}: is blank, and nothing is written for it; must hold a word")
    with TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.write_text(f"{line}\n", encoding="utf-8")
        commands = {
            BASELINE: ["-c", "import torch"],
            f"generate {run}": ["-m", "anyorder", "generate", run, str(source)],
        }
        # Files are in the system's cache from the first turn on.
        seconds = interleaved(
            {name: partial(_run, arguments) for name, arguments in commands.items()},
            repeats=repeats,
            warmup=1,
        )
    return time_rows(seconds, against=BASELINE)


def _run(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(done.stderr.strip().removeprefix("anyorder: "))
