"""Models that come with the package: found by name, and never written to."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpora import assert_one_line_refusal, call_here, learned

from anyorder import pretrained
from anyorder.errors import UserError
from anyorder.inference.generator import Generator
from anyorder.inference.model_folder import export

Capture = pytest.CaptureFixture[str]

NO_RESULTS = "small: comes with the package, which keeps no results; evaluate a copy"


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only shipped model of a package with a folder of its own; the working directory is empty."""
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path / "ours")
    export(learned().run, pretrained.FOLDER / "small", precision="fp16")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return pretrained.FOLDER / "small"


def test_a_name_is_a_shipped_model_unless_there_is_such_a_folder(small: Path) -> None:
    assert pretrained.shipped_models() == ["small"]
    assert Generator.load("small").generate(["a b"])
    with pytest.raises(UserError, match=r"^large: no such folder; by name there is small$"):
        Generator.load("large")
    Path("small").mkdir()
    assert not pretrained.is_shipped(Path("small"))
    with pytest.raises(UserError, match=r"^small: no config.json in it"):
        Generator.load("small")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["evaluate", "small"], NO_RESULTS),
        (["evaluate", "small", "--again"], NO_RESULTS),
        (["compare", "small"], NO_RESULTS),
        (["average", "small"], "small: has 0 checkpoints"),
        (["search-orders", "small"], "small: no such folder; give the folder of a run"),
        (["train", "small", "--resume"], "small: no such recipe"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_commands_that_would_write_to_it_refuse_and_change_nothing(
    arguments: list[str], complaint: str, capsys: Capture, small: Path
) -> None:
    came_with = {file: file.stat().st_mtime_ns for file in small.rglob("*")}
    assert_one_line_refusal(call_here(capsys, *arguments), complaint)
    assert list(Path().iterdir()) == []
    assert {file: file.stat().st_mtime_ns for file in small.rglob("*")} == came_with


def test_results_are_refused_for_its_folder_too(capsys: Capture, small: Path) -> None:
    assert_one_line_refusal(call_here(capsys, "evaluate", small), NO_RESULTS)
    assert not (small / "results").exists()


def test_a_copy_can_be_evaluated(capsys: Capture, small: Path) -> None:
    assert call_here(capsys, "export", "small", "copy").returncode == 0
    answer = call_here(
        capsys, "evaluate", "copy", f"data.root={learned().folder}", "--split", "dev", "--lines", "2"
    )
    assert answer.returncode == 0, answer.stderr
    assert Path("copy/results/dev-first-2.json").exists()


def test_its_card_is_the_shipped_one(capsys: Capture, small: Path) -> None:
    (small / "README.md").write_text("# small\n\nmade where it was trained\n")
    answer = call_here(capsys, "card", "small")
    assert (answer.stdout, answer.stderr) == (b"# small\n\nmade where it was trained\n", b"")
