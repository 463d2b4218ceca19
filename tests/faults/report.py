"""What the harnesses share: a corpus, commands in forked processes, and the table that they print."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import pkgutil
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # where `corpora` lies, if this runs as a script
os.environ.update(OMP_NUM_THREADS="1", NO_COLOR="1", COLUMNS="100", TOKENIZERS_PARALLELISM="false")

import torch

torch.set_num_threads(1)  # before the first fork: threads don't survive one

import anyorder
from anyorder.__main__ import main

GIGABYTE = 2**30
MEMORY = 8 * GIGABYTE  # of a command, at most; torch alone maps two


@dataclass
class Row:
    """How often a case was tried, and how often the answer was right."""

    case: str
    tried: int = 0
    right: int = 0
    faults: list[str] = field(default_factory=list)

    def note(self, fault: str | None) -> None:
        """Count one trial. fault: what was wrong; None if nothing was."""
        self.tried += 1
        self.right += fault is None
        if fault is not None:
            self.faults.append(fault)


class Table:
    """The rows of a harness."""

    def __init__(self, title: str) -> None:
        self.title, self.began = title, time.monotonic()
        self.rows: dict[str, Row] = {}

    def row(self, case: str) -> Row:
        return self.rows.setdefault(case, Row(case))

    @property
    def faults(self) -> list[str]:
        return [f"{row.case}: {fault}" for row in self.rows.values() for fault in row.faults]

    def __str__(self) -> str:
        width = max(map(len, (*self.rows, self.title)), default=0)
        tried, right = (sum(getattr(row, name) for row in self.rows.values()) for name in ("tried", "right"))
        lines = [f"| {self.title:<{width}} | tried | right |", f"|{'-' * (width + 2)}|------:|------:|"]
        lines += [f"| {row.case:<{width}} | {row.tried:5} | {row.right:5} |" for row in self.rows.values()]
        lines += [f"| {'in all':<{width}} | {tried:5} | {right:5} |"]
        return "\n".join([*lines, *(f"FAULT {fault}" for fault in self.faults)])


@dataclass(frozen=True)
class Answer:
    """How a command ended. code: negative for a signal, None if it was still running."""

    code: int | None
    said: str
    remarked: str
    seconds: float

    def wrong(self, *, allowed: Sequence[int] = (0, 2), refusals: int = 1) -> str | None:
        """What is wrong with the way in which it ended; None if nothing is. refusals: lines of error, at most."""
        if "Traceback" in self.remarked:
            return f"traceback: {self.remarked.strip().splitlines()[-1][:200]}"
        if self.code not in allowed:
            return f"exit code {self.code}: {self.remarked[-300:]}"
        lines = [line for line in self.remarked.splitlines() if line.startswith("anyorder: ")]
        if self.code == 2 and not 1 <= len(lines) <= refusals:
            return f"{len(lines)} lines of error: {self.remarked[-300:]}"
        return None


def begin(
    arguments: Sequence[object], *, output: Path, folder: Path, before: Callable[[], None] | None = None
) -> int:
    """Run a command in a fork of this process, which has imported everything; returns its process id.

    output: files for stdout and stderr; folder: to work in; before: called in the new process first.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process:
        return process
    code = 70
    try:
        os.setpgid(0, 0)
        os.chdir(folder)
        for number, name in ((0, os.devnull), (1, f"{output}.out"), (2, f"{output}.err")):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(name, flags, 0o600), number)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        sys.argv = ["anyorder", *map(str, arguments)]
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(number, mode, encoding="utf-8", errors="surrogateescape")
            for number, mode in ((0, "r"), (1, "w"), (2, "w"))
        )
        if before is not None:
            before()
        main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                if stream is not None:
                    stream.flush()
            except OSError:
                pass
        os._exit(code)


def ended(process: int, *, output: Path, patience: float) -> Answer:
    """Wait for a command; one that runs out of patience is killed."""
    began = time.monotonic()
    code: int | None = None
    while time.monotonic() - began < patience:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(0.002)
    else:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    said, remarked = (_content(Path(f"{output}.{name}")) for name in ("out", "err"))
    return Answer(code, said, remarked, time.monotonic() - began)


def warm_up(recipe: Path, folder: Path) -> None:
    """Import all that commands import, so that forked processes need not: train and use a model here."""
    for module in pkgutil.walk_packages(anyorder.__path__, "anyorder."):
        if not module.name.endswith(("__main__", ".peers")):
            importlib.import_module(module.name)
    model = folder / "warm"
    settings = (
        "train.steps=8",
        "order.name=sao",
        "search.method=guided",
        "search.bootstrap_steps=4",
        "train.device=cpu",
    )
    lines = [
        ["train", recipe, *settings, f"run={model}"],
        ["evaluate", model, "--split", "dev", "--metrics", "bleu,chrf,ter,exact"],
        [
            "score",
            model,
            "--source",
            recipe.with_name("dev.source"),
            "--target",
            recipe.with_name("dev.target"),
        ],
        ["generate", model, recipe.with_name("dev.source"), "--svg", folder / "warm.svg", "--trace"],
        ["orders", model, "--svg", folder / "orders.svg"],
    ]
    for line in lines:
        here = Path.cwd(), sys.argv
        sys.argv = ["anyorder", *map(str, line)]
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                main()
        except SystemExit as left:
            assert not left.code, line
        finally:
            sys.argv = here[1]
    shutil.rmtree(model)


def _content(path: Path) -> str:
    """What a command has printed; nothing if it was killed before it could."""
    return path.read_bytes().decode("utf-8", errors="replace") if path.exists() else ""


def run(
    *arguments: object, folder: Path, patience: float = 120, before: Callable[[], None] | None = None
) -> Answer:
    """Run a command to its end."""
    with tempfile.TemporaryDirectory(prefix="answer-") as place:
        output = Path(place) / "answer"
        process = begin(arguments, output=output, folder=folder, before=before)
        return ended(process, output=output, patience=patience)


def unfinished(folder: Path) -> list[str]:
    """Names of what is left half-written in a folder."""
    return [path.name for path in folder.rglob("*unfinished*")]


@contextmanager
def workplace(given: Path | None) -> Iterator[Path]:
    """A folder to work in, removed at the end unless it was given."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="anyorder-faults-") as place:
        yield Path(place)


def command_line(description: str, *, tries: int, minutes: float) -> argparse.Namespace:
    """The arguments that each harness takes when it is run as a script."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tries", type=int, default=tries)
    parser.add_argument("--minutes", type=float, default=minutes, help="stop after this time")
    parser.add_argument("--folder", type=Path, default=None, help="work here and keep it")
    return parser.parse_args()


def finish(table: Table) -> None:
    """Print the table and exit with 1 if anything was wrong."""
    print(table, flush=True)
    print(f"{time.monotonic() - table.began:.0f} s", flush=True)
    sys.exit(1 if table.faults else 0)
