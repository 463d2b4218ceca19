"""kill -9 at random moments: what goes on afterwards ends as if nothing had happened, bit for bit.

`python tests/faults/kill.py --seed 1 --tries 100`
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from corpora import write_corpus
from faults.report import Table, begin, command_line, ended, finish, run, unfinished, warm_up, workplace

PATIENCE = 300
SEARCHED = (
    *(
        "order.name=sao",
        "search.method=guided",
        "search.bootstrap_steps=4",
        "search.beam=3",
        "search.refresh=1",
    ),
    *("train.steps=24", "train.validate_every=4", "train.keep=3", "train.average=2"),
)
DRAWN = ("order.name=rnd", "train.steps=40", "train.validate_every=5", "train.keep=3", "canvas.share=0.3")
NEVER_EQUAL = ("seconds", "tokens_per_second")  # keys of metrics.jsonl
NOT_COMPARED = ("events.out", ".json", "metrics.jsonl")  # files that hold times


@dataclass(frozen=True)
class Victim:
    """A command that may be killed at any moment and is then given again."""

    name: str
    arguments: Callable[[Path], Sequence[object]]  # by the folder of the trial
    again: Callable[[Path], Sequence[object]]  # the command that goes on
    prepare: Callable[[Path], None]  # makes what the command starts from
    outcome: Callable[[Path], dict[str, bytes]]  # what must be equal in the end, by name
    done_already: str = "\0"  # what it may say when it is given again because it had ended before


def files(folder: Path) -> dict[str, bytes]:
    """All files of a folder whose bytes must be equal."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part in path.name for part in NOT_COMPARED)
    }


def run_outcome(run_folder: Path) -> dict[str, bytes]:
    """The model, the checkpoints, the stored orders, and the log without its times."""
    rows = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
    kept = [{key: value for key, value in row.items() if key not in NEVER_EQUAL} for row in rows]
    return {**files(run_folder), "metrics.jsonl": json.dumps(kept).encode()}


def results_outcome(run_folder: Path) -> dict[str, bytes]:
    """Results without the time that they took."""
    report = json.loads((run_folder / "results" / "dev.json").read_text())
    for name in ("finished_at", "decoding_seconds"):
        report.pop(name)
    return {**files(run_folder / "results"), "dev.json": json.dumps(report).encode()}


def victims(recipe: Path, trained: Path) -> list[Victim]:
    """All commands that write for long."""

    def training(name: str, settings: Sequence[str]) -> Victim:
        def arguments(folder: Path) -> Sequence[object]:
            return ["train", recipe, *settings, f"run={folder / 'run'}"]

        return Victim(
            name,
            arguments,
            again=lambda folder: [*arguments(folder), *(["--resume"] if _begun(folder / "run") else [])],
            prepare=lambda folder: None,
            outcome=lambda folder: run_outcome(folder / "run"),
        )

    def of_run(name: str, *arguments: object, outcome: Callable[[Path], dict[str, bytes]]) -> Victim:
        def made(folder: Path) -> Sequence[object]:
            return [str(one).format(folder=folder) for one in arguments]

        return Victim(
            name,
            made,
            again=made,
            prepare=lambda folder: shutil.copytree(trained, folder / "run") and None,
            outcome=outcome,
            done_already="is a model already",
        )

    out = "{folder}/out"
    return [
        training("train, searched orders", SEARCHED),
        training("train, drawn orders", DRAWN),
        of_run(
            *("search-orders", "search-orders", "{folder}/run", "--output", "{folder}/orders.jsonl"),
            outcome=lambda folder: {
                **files(folder / "run" / "orders"),
                "orders.jsonl": (folder / "orders.jsonl").read_bytes(),
            },
        ),
        of_run(
            *("average", "average", "{folder}/run", "--last", 2, "--output", out),
            outcome=lambda folder: files(folder / "out"),
        ),
        of_run("export", "export", "{folder}/run", out, outcome=lambda folder: files(folder / "out")),
        of_run(
            *("evaluate", "evaluate", "{folder}/run", "--split", "dev", "--beam", "1,2,3"),
            outcome=lambda folder: results_outcome(folder / "run"),
        ),
        Victim(
            "prepare",
            arguments=lambda folder: ["prepare", recipe, f"data.cache={folder / 'cache'}"],
            again=lambda folder: ["prepare", recipe, f"data.cache={folder / 'cache'}"],
            prepare=lambda folder: None,
            outcome=lambda folder: {
                name: content
                for name, content in files(folder / "cache").items()
                if ".unfinished" not in name
            },
        ),
    ]


def _begun(run_folder: Path) -> bool:
    return (run_folder / "recipe.json").exists()


def kill_again_and_again(place: Path, *, seed: int, tries: int, minutes: float) -> Table:
    """Kill each command in turn; `tries` kills in all."""
    chance, table = random.Random(seed), Table("kill -9 in")
    recipe, trained = write_corpus(place), place / "trained"
    warm_up(recipe, place)
    assert run("train", recipe, *SEARCHED, f"run={trained}", folder=place).code == 0
    expected: dict[str, tuple[float, dict[str, bytes]]] = {}
    killed, number = 0, 0
    while killed < tries and time.monotonic() - table.began < 60 * minutes:
        for victim in victims(recipe, trained):
            if victim.name not in expected:
                folder = fresh(place / "unstopped")
                victim.prepare(folder)
                answer = run(*victim.arguments(folder), folder=folder)
                assert answer.code == 0, answer.remarked
                expected[victim.name] = (answer.seconds, victim.outcome(folder))
            if killed >= tries:
                break
            seconds, wanted = expected[victim.name]
            fault, hit = _trial(
                fresh(place / "trial"), victim, wanted, after=chance.uniform(0, 1.05 * seconds)
            )
            number += 1
            if hit:  # else it had ended before
                killed += 1
                table.row(victim.name).note(fault)
    return table


def _trial(
    folder: Path, victim: Victim, wanted: dict[str, bytes], *, after: float
) -> tuple[str | None, bool]:
    victim.prepare(folder)
    output = folder / ".answer"
    process = begin(victim.arguments(folder), output=output, folder=folder)
    time.sleep(after)
    os.kill(process, signal.SIGKILL)
    hit = ended(process, output=output, patience=PATIENCE).code == -signal.SIGKILL
    answer = run(*victim.again(folder), folder=folder, patience=PATIENCE)
    if answer.code != 0 and victim.done_already not in answer.remarked:
        return f"after {after:.3f} s: {answer.wrong(allowed=(0,))}", hit
    found = victim.outcome(folder)
    different = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if different:
        return f"after {after:.3f} s: {', '.join(different[:5])} differ", hit
    left = [] if victim.name == "prepare" else unfinished(folder)
    return (f"after {after:.3f} s: left {left}" if left else None), hit


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


if __name__ == "__main__":
    given = command_line(__doc__ or "", tries=100, minutes=30)
    with workplace(given.folder) as place:
        finish(kill_again_and_again(place, seed=given.seed, tries=given.tries, minutes=given.minutes))
