"""Several processes: two in one folder, and several that train one model together.

`python tests/faults/processes.py`
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from corpora import command, write_corpus
from faults.report import Answer, Table, begin, command_line, ended, finish, run, warm_up, workplace
from safetensors.numpy import load_file

RANDOM = (
    *(
        "model.dropout=0.3",
        "order.name=rnd",
        "train.label_smoothing=0.1",
        "train.steps=30",
        "train.accumulate=2",
    ),
    *("train.batch_tokens=200", "train.validate_every=10", "train.validate_lines=0"),
)
SEARCHED = (
    *(
        "order.name=sao",
        "search.bootstrap_steps=2",
        "search.refresh=0",
        "search.beam=3",
        "search.dropout=0.2",
    ),
    *("model.dropout=0.2", "train.steps=12", "train.batch_tokens=300", "train.validate_lines=0"),
)
LONG = ("train.steps=100000", "train.validate_every=20", "train.validate_lines=0", "model.dropout=0.1")
LARGEST_DIFFERENCE = 1e-5  # of any weight, from the order of float sums
SOON = 60.0  # seconds until processes notice that another has ended


def in_one_folder(table: Table, recipe: Path, place: Path) -> None:
    """Two commands that write to the same folder at once: one goes on, the other says why not."""
    used = place / "used"
    busy = begin(["train", recipe, *LONG, f"run={used}"], output=place / "busy", folder=place)
    _wait_for(used / "last", busy)
    wanted = f"{used}: is in use by process {busy} on {socket.gethostname()}"
    second = {
        "train": ["train", recipe, *LONG, f"run={used}"],
        "train --resume": ["train", recipe, *LONG, f"run={used}", "--resume"],
        "train --overwrite": ["train", recipe, *LONG, f"run={used}", "--overwrite"],
        "search-orders": ["search-orders", used, "--output", place / "orders.jsonl"],
        "export into it": ["export", "django-small", used],
        "average into it": ["average", used, "--last", 1, "--output", used],
    }
    _wait_for_checkpoint(used, busy)
    for name, line in second.items():
        answer = run(*line, folder=place)
        fault = answer.wrong(allowed=(2,)) or (None if wanted in answer.remarked else answer.remarked)
        table.row(f"{name} while train writes").note(fault)
    evaluated = run("evaluate", used, "--split", "dev", folder=place)
    table.row("evaluate while train writes").note(evaluated.wrong(allowed=(0,)))
    os.kill(busy, signal.SIGKILL)
    ended(busy, output=place / "busy", patience=SOON)
    steps = min(200_000, 20 + max(int(path.name[5:]) for path in (used / "last").glob("step-*")))
    again = run("train", recipe, *LONG, f"train.steps={steps}", f"run={used}", "--resume", folder=place)
    logged = [
        json.loads(line)["step"]
        for line in (used / "metrics.jsonl").read_text().splitlines()
        if '"loss"' in line
    ]
    twice = len(logged) != len(set(logged))
    table.row("train --resume once it is killed").note(
        again.wrong(allowed=(0,)) or ("steps twice" if twice else None)
    )


def at_once(table: Table, recipe: Path, place: Path) -> None:
    """The same command twice at the same moment."""
    cases = {
        "train": (["train", recipe, "train.steps=40", f"run={place / 'both'}"], [0, 2]),
        "export": (["export", "django-small", place / "shared"], [0, 2]),
        "prepare, into one cache": (["prepare", recipe, f"data.cache={place / 'cache'}"], [0, 0]),
    }
    for name, (line, codes) in cases.items():
        answers = both(line, place)
        fault = next((wrong for one in answers if (wrong := one.wrong()) is not None), None)
        found = sorted(one.code or 0 for one in answers)
        # One may have ended before the other began; then the second is refused because the result is there.
        table.row(f"{name}, twice at once").note(fault or (None if found == codes else f"exit codes {found}"))
    left = [path.name for path in (place / "cache").rglob(".unfinished*")]
    table.row("nothing unfinished in the cache").note(str(left) if left else None)


def both(line: Sequence[object], place: Path) -> list[Answer]:
    outputs = [place / f"both-{number}" for number in range(2)]
    started = [begin(line, output=output, folder=place) for output in outputs]
    return [
        ended(process, output=output, patience=120) for process, output in zip(started, outputs, strict=True)
    ]


def together(table: Table, recipe: Path, place: Path, *, counts: Sequence[int] = (2, 3)) -> None:
    """1, 2 and more processes train the same model, up to the order of float sums."""
    for name, settings in {
        "dropout, drawn orders, two parts": RANDOM,
        "orders searched at each update": SEARCHED,
    }.items():
        alone = place / "alone"
        shutil.rmtree(alone, ignore_errors=True)
        assert run("train", recipe, *settings, f"run={alone}", folder=place).code == 0
        for count in counts:
            many = place / f"by-{count}"
            shutil.rmtree(many, ignore_errors=True)
            answer = launch(count, "train", recipe, *settings, f"run={many}").communicate(timeout=300)
            fault = None if (many / "model.safetensors").exists() else answer[1][-300:]
            if fault is None:
                difference = largest_difference(alone, many)
                fault = None if difference < LARGEST_DIFFERENCE else f"weights differ by {difference:.2g}"
                print(f"{count} processes, {name}: weights differ by {difference:.2g} at most", flush=True)
            table.row(f"{count} processes against one: {name}").note(fault)


def largest_difference(run_folder: Path, other: Path) -> float:
    """Of any weight of the last checkpoints."""
    one, two = (
        load_file(max(folder.glob("last/step-*"), key=lambda path: int(path.name[5:])) / "model.safetensors")
        for folder in (run_folder, other)
    )
    return max(float(np.abs(one[name] - two[name]).max()) for name in one)


def a_worker_dies(table: Table, recipe: Path, place: Path) -> None:
    """kill -9 of one of two processes: the other stops with one line, and the run goes on afterwards."""
    for victim in (0, 1):
        trained = place / f"orphan-{victim}"
        port = _free_port()
        workers = [worker(rank, port, "train", recipe, *LONG, f"run={trained}") for rank in range(2)]
        _wait_for_checkpoint(trained, workers[0].pid)
        began = time.monotonic()
        workers[victim].kill()
        try:
            _, said = workers[1 - victim].communicate(timeout=SOON)
        except subprocess.TimeoutExpired:
            workers[1 - victim].kill()
            said = "still running"
        workers[victim].communicate()
        lines = [line for line in said.splitlines() if line.startswith("anyorder: ")]
        fault = None
        if len(lines) != 1 or "another process has ended" not in lines[0] or "Traceback" in said:
            fault = said[-400:]
        print(
            f"process {victim + 1} killed: the other stopped after {time.monotonic() - began:.1f} s",
            flush=True,
        )
        table.row(f"process {victim + 1} of 2 is killed").note(fault)
        last = max(int(path.name[5:]) for path in (trained / "last").glob("step-*"))
        answer = run(
            "train", recipe, *LONG, f"train.steps={last + 3}", f"run={trained}", "--resume", folder=place
        )
        table.row("and resumed by one").note(answer.wrong(allowed=(0,)))


def launch(count: int, *arguments: object) -> subprocess.Popen[str]:
    """Start processes as torchrun does."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    line = [*launcher, "-m", "anyorder", *map(str, arguments)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def worker(rank: int, port: int, *arguments: object) -> subprocess.Popen[str]:
    """Start one of two processes without a launcher, which would end the others by itself."""
    place = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": 2,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    environment = {**os.environ, **{name: str(value) for name, value in place.items()}}
    return subprocess.Popen(
        command(*arguments), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _wait_for(path: Path, process: int, *, patience: float = 120) -> None:
    ends = time.monotonic() + patience
    while not path.exists():
        assert time.monotonic() < ends, f"{path} is not there yet; process {process}"
        time.sleep(0.01)


def _wait_for_checkpoint(run_folder: Path, process: int) -> None:
    ends = time.monotonic() + 120
    while not list(run_folder.glob("last/step-*")):
        assert time.monotonic() < ends, f"no checkpoint yet; process {process}"
        time.sleep(0.01)


def try_all(place: Path) -> Table:
    """All cases with several processes."""
    table = Table("several processes")
    recipe = write_corpus(place)
    warm_up(recipe, place)
    in_one_folder(table, recipe, place)
    at_once(table, recipe, place)
    a_worker_dies(table, recipe, place)
    together(table, recipe, place, counts=(2, 3, 4))
    return table


if __name__ == "__main__":
    asked = command_line(__doc__ or "", tries=0, minutes=0)
    with workplace(asked.folder) as place:
        finish(try_all(place))
