"""The results under docs/results can be compared, and contain no path of a machine."""

from __future__ import annotations

import shutil
from itertools import groupby
from pathlib import Path

import pytest
from corpora import call_here, json_lines, learned

from anyorder.errors import UserError
from anyorder.evaluation.compare import SignificanceSettings, compare_runs
from anyorder.evaluation.results import RunResults, read_report
from anyorder.evaluation.tables import as_markdown

STORED = Path(__file__).parents[2] / "docs" / "results"


def tables(folder: Path) -> dict[Path, str]:
    """Compare the runs of each folder, as Markdown. Without their text there are no significance tests."""
    reports = sorted(folder.rglob("*.json"))
    made = {}
    for task, of_task in groupby(reports, key=lambda path: path.parent):
        runs = [
            RunResults(run=path, report=read_report(path), hypotheses=[], references=[]) for path in of_task
        ]
        made[task] = as_markdown(compare_runs(runs, significance=SignificanceSettings(metrics=())))
    return made


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Path:
    run = shutil.copytree(learned().run, tmp_path / "run", ignore=shutil.ignore_patterns("last"))
    json_lines(call_here(capsys, "evaluate", run, "--split", "dev", "--metrics", "bleu,exact", "--json"))
    return run / "results" / "dev.json"


def test_a_new_report_can_be_added(report: Path, tmp_path: Path) -> None:
    folder = tmp_path / "stored" / "reverse"
    folder.mkdir(parents=True)
    for name in ("one.json", "two.json"):
        shutil.copy(report, folder / name)
    (made,) = tables(tmp_path / "stored").values()
    score = read_report(report).scores["bleu"].score
    assert made.count(f"{score:.2f}") == 2
    (folder / "three.json").write_text("{}")
    with pytest.raises(UserError, match=r"three\.json: not the results of an evaluation"):
        tables(tmp_path / "stored")


def test_all_stored_results_can_be_compared() -> None:
    assert set(tables(STORED)) == {path.parent for path in STORED.rglob("*.json")}


def test_stored_results_contain_no_absolute_path() -> None:
    for path in STORED.rglob("*.json"):
        recipe = read_report(path).recipe
        given = [recipe.run, recipe.data.root, recipe.data.cache, recipe.train.init]
        assert [folder for folder in given if folder is not None and folder.is_absolute()] == [], path
