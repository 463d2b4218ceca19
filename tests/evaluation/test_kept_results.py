"""Results that are kept under docs/results can be put into tables, and tell nothing of someone's machine."""

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

KEPT = Path(__file__).parents[2] / "docs" / "results"


def tables(folder: Path) -> dict[Path, str]:
    """The runs of each folder side by side, as Markdown; without their text nothing is tested."""
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


def test_what_evaluate_writes_can_be_kept(report: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kept" / "reverse"
    folder.mkdir(parents=True)
    for name in ("one.json", "two.json"):
        shutil.copy(report, folder / name)
    (made,) = tables(tmp_path / "kept").values()
    score = read_report(report).scores["bleu"].score
    assert made.count(f"{score:.2f}") == 2
    (folder / "three.json").write_text("{}")
    with pytest.raises(UserError, match=r"three\.json: not the results of an evaluation"):
        tables(tmp_path / "kept")


def test_all_that_is_kept_makes_tables() -> None:
    assert set(tables(KEPT)) == {path.parent for path in KEPT.rglob("*.json")}


def test_what_is_kept_names_no_folder_of_a_machine() -> None:
    for path in KEPT.rglob("*.json"):
        recipe = read_report(path).recipe
        given = [recipe.run, recipe.data.root, recipe.data.cache, recipe.train.init]
        assert [folder for folder in given if folder is not None and folder.is_absolute()] == [], path
