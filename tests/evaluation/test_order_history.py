"""How orders form over a training: one row per checkpoint, positions by the mean step that writes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpora import assert_one_line_refusal, call_here, json_lines, learn, learned, write_lines

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose two checkpoints write from right to left."""
    run = tmp_path_factory.mktemp("history") / "run"
    learn(learned().recipe, run, "order.name=r2l", "train.steps=80", "train.validate_every=40")
    return run


def test_a_taught_order_is_found_in_the_last_checkpoint(capsys: Capture, run: Path) -> None:
    first, last = json_lines(call_here(capsys, "order-history", run, "--json"))
    assert (first["step"], last["step"]) == (40, 80)
    assert last["mean_step"]["1"] == 1, "the leftmost is written last"
    rightmost = max(map(int, last["mean_step"]))
    assert last["mean_step"][str(rightmost)] == 0
    assert all(0 <= mean <= 1 for mean in last["mean_step"].values())


def test_positions_are_counted_from_a_marked_word(capsys: Capture, run: Path) -> None:
    sources = (learned().folder / "dev.source").read_text().splitlines()
    mark = sources[0].split()[0]
    *_, last = json_lines(call_here(capsys, "order-history", run, "--around", mark, "--json"))
    with_mark = [line for line in sources if mark in line.split()]
    assert last["sentences"] <= len(with_mark)
    assert "0" in last["mean_step"]


def test_the_table_and_the_chart_have_a_row_per_checkpoint(
    capsys: Capture, run: Path, tmp_path: Path
) -> None:
    answer = call_here(capsys, "order-history", run, "--svg", tmp_path / "forming.svg")
    rows = answer.stdout.decode().splitlines()
    assert [row.split()[0] for row in rows] == ["updates", "40", "80"]
    assert "written first" in (tmp_path / "forming.svg").read_text()


def test_what_has_no_history_is_refused(capsys: Capture, run: Path, tmp_path: Path) -> None:
    learn(learned().recipe, tmp_path / "short", "train.steps=2")
    refused = call_here(capsys, "order-history", tmp_path / "short")
    assert_one_line_refusal(refused, "has 1 checkpoints, and a history needs two or more")
    refused = call_here(capsys, "order-history", run, "--around", "nothing-like-this")
    assert_one_line_refusal(refused, "--around nothing-like-this: no word of data.dev.source begins with it")
    write_lines(tmp_path / "a", ["a"])
    assert_one_line_refusal(call_here(capsys, "order-history", tmp_path / "a"), "a")
