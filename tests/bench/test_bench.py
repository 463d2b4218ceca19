"""Benchmarks of decoding and training, with a tiny model: only the form of their tables matters."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from corpora import PATIENCE, QUIET, command, hear_ctrl_c

from anyorder.bench.decode import BASELINE, DecodingWorkload, bench_engines, bench_scaling
from anyorder.bench.parts import bench_cold_start, bench_products
from anyorder.bench.sao import SaoWorkload, SingleBatchTrainer
from anyorder.bench.timing import Measurement, TimedCall, Worker, in_turns, shares_of_time
from anyorder.bench.train import bench_training
from anyorder.cli.bench import bench_chart
from anyorder.config.model import Model
from anyorder.config.train import Train
from anyorder.errors import UserError
from anyorder.models.indigo import Indigo
from anyorder.system.distributed import Processes
from anyorder.training.step import Optimiser

SMALL = DecodingWorkload(
    model=Model(width=16, hidden=32, heads=2, encoder_layers=1, decoder_layers=1), vocabulary=200, length=4
)


def test_engines_are_compared_with_indigo_at_each_batch_and_beam() -> None:
    reported: list[tuple[str, int, int]] = []
    rows = bench_engines(
        SMALL,
        batches=[1, 3],
        beams=[1, 2],
        peers=False,
        repeats=1,
        progress=lambda what, done, total: reported.append((what, done, total)),
    )
    measured = [row for row in rows if row.curve is not None]
    assert {(row.curve, row.at) for row in measured} >= {("InDIGO, greedy", 1), ("InDIGO int8, beam 2", 3)}
    assert all(row.against == BASELINE for row in measured)
    assert [row.ratio for row in measured if row.name.endswith(f": {BASELINE}")] == [1.0] * 4
    assert {row.unit for row in rows[-2:]} == {"GFLOPS", "GB/s"}
    assert reported == [
        (f"{search}, batch {batch}", done, 1)
        for search in ("greedy", "beam 2")
        for batch in (1, 3)
        for done in (0, 1)
    ]


# Workers


def test_variants_take_turns_after_warming_up() -> None:
    calls: list[str] = []

    def clock(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    found = in_turns({name: partial(clock, name) for name in "ab"}, repeats=2, warmup=1)
    assert calls == ["a", "b"] * 3
    assert found == {"a": [3, 5], "b": [4, 6]}


def notes_taken(file: Path) -> Callable[..., TimedCall]:
    """Record the process and its threads, then every call. A worker builds this."""

    def note(what: object) -> None:
        with file.open("a") as notes:
            notes.write(f"{what}\n")

    def prepare(turn: str) -> TimedCall:
        time.sleep(0.5)
        return lambda: note(turn)

    note(os.getpid())
    note(torch.get_num_threads())
    return prepare


def test_a_worker_builds_once_in_its_process_and_times_only_the_call(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    with Worker("w", partial(notes_taken, file)) as worker:
        seconds = [worker.seconds(turn) for turn in ("first", "second")]
        process, threads, *turns = file.read_text().split()
        assert int(process) != os.getpid()
        os.kill(int(process), 0)  # it is there, and waits
    assert turns == ["first", "second"]
    assert int(threads) == torch.get_num_threads()
    assert all(0 < each < 0.5 for each in seconds)
    with pytest.raises(ProcessLookupError):
        os.kill(int(process), 0)


def mishaps() -> Callable[..., TimedCall]:
    def fail() -> None:
        raise ValueError("two\nlines")

    works: dict[str, TimedCall] = {"fail": fail, "exit": lambda: os._exit(3)}
    return works.__getitem__


def test_failures_of_a_worker_are_reported_in_one_line() -> None:
    with Worker("w", mishaps) as worker:
        for mishap, line in {
            "fail": "w: ValueError: two lines",
            "unknown": "w: KeyError: 'unknown'",
            "exit": "w: its process ended, exit code 3",
        }.items():
            with pytest.raises(UserError) as raised:
                worker.seconds(mishap)
            assert str(raised.value) == line


def test_ctrl_c_leaves_no_process_behind() -> None:
    flags = ["--small", "--no-peers", "--batch", "1", "--beam", "1", "--length", "1", "--repeats", "100000"]
    with subprocess.Popen(
        command("bench", "decode", *flags),
        env=QUIET,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=hear_ctrl_c,
    ) as process:
        assert process.stderr is not None
        assert b"0 of 100000" in process.stderr.readline()
        os.killpg(process.pid, signal.SIGINT)  # to all, as a terminal does
        _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (130, b"")
    deadline = time.monotonic() + PATIENCE
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.05)


# Tables


def test_scaling_divides_by_what_was_written() -> None:
    rows = bench_scaling(SMALL, lengths=[2, 8], batch=2, repeats=1)
    assert [row.at for row in rows[:-1]] == [2, 8, 2, 8]
    assert rows[0].ratio == rows[2].ratio == 1.0


@pytest.mark.parametrize("able", [True, False])
def test_updates_are_compared_in_the_precisions_that_a_processor_has(
    monkeypatch: pytest.MonkeyPatch, able: bool
) -> None:
    asked: list[str] = []

    class Noted(Optimiser):
        def __init__(self, model: Indigo, settings: Train, processes: Processes) -> None:
            asked.append(settings.precision)
            # Not really in bf16, which kills the process on some machines.
            super().__init__(model, settings.model_copy(update={"precision": "fp32"}), processes)

    monkeypatch.setattr("anyorder.bench.train.Optimiser", Noted)
    monkeypatch.setattr("anyorder.bench.train.multiplies_in_bf16", lambda: able)
    rows = bench_training(SMALL, sentences=2, peers=False, repeats=1)
    timed = [row for row in rows if row.unit == "ms a token"]
    assert timed[0].ratio == 1.0
    assert any(row.name.endswith("bf16") for row in timed) == able == ("bf16" in asked)
    assert all(row.value > 0 for row in rows if row.unit != "MB")


def test_all_parts_of_a_search_take_time() -> None:
    """The benchmark finds the model's methods by their names."""
    workload = SaoWorkload(model=SMALL.model, vocabulary=SMALL.vocabulary, sentences=2, refresh=2)
    trainer = SingleBatchTrainer(workload)
    *parts, rest = shares_of_time(partial(trainer.search, 2), trainer.parts(), of="the search", repeats=1)
    shares = [row.ratio for row in parts if row.ratio is not None]
    assert all(share > 0 for share in shares)
    assert rest.ratio == pytest.approx(1 - sum(shares))


def test_a_cold_start_is_compared_with_an_import() -> None:
    rows = bench_cold_start("django-small", "raise an exception ValueError .", repeats=1)
    assert [row.name for row in rows] == ["import torch", "generate django-small"]
    assert all(row.value > 100 for row in rows)  # milliseconds: something was started
    with pytest.raises(UserError, match=r"^nowhere: no such folder"):
        bench_cold_start("nowhere", "a", repeats=1)
    with pytest.raises(UserError, match="is blank"):
        bench_cold_start("django-small", " ", repeats=1)


def test_a_chart_has_a_curve_for_each_variant() -> None:
    rows = [
        Measurement(name=f"{name} {at}", value=at, unit="ms", ratio=None, against=None, curve=name, at=at)
        for name in ("one", "other")
        for at in (1, 32)
    ]
    limit = Measurement("limit", 1.0, "ms", None, None)
    figure = bench_chart([*rows, limit], title="T", x_label="batch", y_label="ms")
    lines = figure.axes[0].lines
    assert [line.get_xydata().tolist() for line in lines] == [[[1, 1], [32, 32]]] * 2
    assert lines[0].get_color() != lines[1].get_color()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "other"]


def test_products_are_compared_row_by_row() -> None:
    rows = bench_products(width=8, hidden=16, rows=[1, 3], repeats=2)
    assert [row.ratio for row in rows if row.name.endswith("plain torch")] == [1, 1]
    assert sum(": packed" in row.name for row in rows) == 2
    assert sum("int8" in row.name for row in rows) == 2
