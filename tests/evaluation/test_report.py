"""The report: what its pictures show, which lines it studies, and that it is one harmless file."""

from __future__ import annotations

import base64
import html
import json
import re
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from corpora import Watcher, assert_one_line_refusal, call_here, learn, learned
from hypothesis import given, settings
from hypothesis import strategies as st
from test_compare import REFERENCE, evaluated, sweep

from anyorder.evaluation.case_studies import WrittenAgain, most_different, write_again
from anyorder.evaluation.compare import compare_runs
from anyorder.evaluation.curves import (
    BeamCurve,
    TrainingCurve,
    TrainingFigure,
    beam_curves_if_any,
    training_curves,
)
from anyorder.evaluation.evaluate import Evaluator
from anyorder.evaluation.report import Cases, Content, report
from anyorder.evaluation.results import RunResults, load_results

Capture = pytest.CaptureFixture[str]

LINES = 8  # of dev


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs with results of dev, one of which has a sweep."""
    folder = tmp_path_factory.mktemp("runs")
    swept, single = folder / "swept", folder / "single"
    shutil.copytree(learned().run, swept)
    learn(learned().recipe, single, "model.dropout=0")
    for run, beams in ((swept, [1, 2]), (single, [1])):
        Evaluator.load(run, listener=Watcher()).evaluate("dev", beams=beams)
    return [swept, single]


def loaded(runs: list[Path]) -> list[RunResults]:
    return [load_results(run, "dev") for run in runs]


# Training curves


def logged(folder: Path, *, seed: int, lines: list[str], order: str = "l2r") -> RunResults:
    """Results of a run whose metrics.jsonl has these lines."""
    results = evaluated(f"{order}-{seed}", REFERENCE, order=order, seed=seed, folder=folder)
    results.run.mkdir()
    (results.run / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return results


def test_training_curves_are_means_where_all_seeds_have_an_update(tmp_path: Path) -> None:
    lines = [f'{{"step": {step}, "dev_bleu": {step}.0, "lr": 1}}' for step in (1, 2, 3)]
    one = logged(tmp_path, seed=1, lines=lines)
    other = logged(tmp_path, seed=2, lines=[*(line.replace(".0", ".5") for line in lines[1:]), '{"step": 4,'])
    (figure,) = training_curves([one, other])
    assert figure.title == "BLEU on dev"
    assert [(curve.label, curve.points) for curve in figure.curves] == [("L2R", {2: 2.25, 3: 3.25})]


def test_what_is_not_known_is_left_out_of_training_curves(tmp_path: Path) -> None:
    silent = evaluated("silent", REFERENCE, order="odd", folder=tmp_path)
    broken = logged(tmp_path, seed=1, lines=['{"step": 1, "loss": NaN}', "[]", '{"step": 2, "loss": 3.0}'])
    (figure,) = training_curves([silent, broken])
    assert [curve.points for curve in figure.curves] == [{}, {2: 3.0}]
    assert training_curves([silent]) == []


@settings(max_examples=30)
@given(losses=st.lists(st.floats(0, 10), min_size=1, max_size=900))
def test_long_curves_are_thinned_to_means(losses: list[float]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lines = [json.dumps({"step": step, "loss": loss}) for step, loss in enumerate(losses, start=1)]
        (figure,) = training_curves([logged(Path(folder), seed=1, lines=lines)])
    points = figure.curves[0].points
    assert len(points) <= 200
    ends = list(points)
    for start, end in zip([0, *ends], ends, strict=False):
        assert points[end] == pytest.approx(fmean(losses[start:end]))
    assert ends[-1] == len(losses)


# Charts


def test_runs_without_a_sweep_have_no_beam_curve() -> None:
    swept = evaluated("one", REFERENCE, beam=2, swept=sweep({"dev": {1: 1.0, 2: 2.0}}, beam=2))
    single = evaluated("odd", REFERENCE, order="odd")
    found = beam_curves_if_any([single, swept])
    assert found is not None
    assert found.curves == [BeamCurve("ODD", {}, picked=None), BeamCurve("L2R", {1: 1.0, 2: 2.0}, picked=2)]
    by_exact = evaluated("blt", REFERENCE, order="blt", swept=sweep({"dev": {1: 1.0}}, beam=1, by="exact"))
    assert beam_curves_if_any([swept, by_exact]) is None
    assert beam_curves_if_any([single]) is None


def curves_of_two(*losses: float) -> list[TrainingFigure]:
    curves = [TrainingCurve(label, {1: 3.0, 2: loss}) for label, loss in zip(("A", "B"), losses, strict=True)]
    return [TrainingFigure("loss on train", curves)]


@pytest.mark.parametrize(("losses", "said"), [((1.0, 1.0), 1), ((1.0, 1.5), 0)])
def test_the_report_says_where_one_curve_hides_another(losses: tuple[float, float], said: int) -> None:
    page = report(replace(content([evaluated("one", REFERENCE)]), training=curves_of_two(*losses)))
    (chart,) = images(page).values()
    assert "".join(chart.itertext()).count("A and B coincide") == said


# Case studies


def hypotheses(*texts: str) -> list[str]:
    return [*texts, *["same"] * (len(REFERENCE) - len(texts))]


def test_cases_are_where_outputs_have_least_in_common() -> None:
    one = evaluated("one", hypotheses("same", "a b c d", "a b c d", "a b c d"))
    two = evaluated("two", hypotheses("same", "a b c x", "w x y z", "a b y z"), order="odd")
    assert most_different([one, two], count=1) == [3]
    assert most_different([one, two], count=2) == [3, 4]
    assert most_different([one, two], count=4) == [1, 2, 3, 4]
    assert most_different([one, two], count=0) == []
    assert most_different([one], count=2) == [1, 2]


def test_lines_are_written_again_as_they_were(runs: list[Path]) -> None:
    results = loaded(runs)
    wanted = [1, 2, 5, 8]
    written = write_again(results, wanted, listener=Watcher())
    sources = (learned().folder / "dev.source").read_text().splitlines()
    assert written.sources == {line: sources[line - 1] for line in wanted}
    assert [row.label for row in written.rows] == ["RND", "L2R"]
    for row, one in zip(written.rows, results, strict=True):
        texts = {line: hypothesis.text for line, hypothesis in row.hypotheses.items()}
        assert texts == {line: one.hypotheses[line - 1] for line in wanted}


# The report


def images(page: str) -> dict[str, ElementTree.Element]:
    """Pictures by what they show."""
    found = re.findall(r'<img alt="([^"]*)" src="data:image/svg\+xml;base64,([^"]*)">', page)
    return {html.unescape(alt): ElementTree.fromstring(base64.b64decode(data)) for alt, data in found}


def replayed(page: str) -> dict[str, Any]:
    """The data of the page in the frame."""
    (frame,) = re.findall(r'srcdoc="([^"]*)"', page)
    (data,) = re.findall(r'id="data">(.*?)</script>', html.unescape(frame), flags=re.DOTALL)
    found: dict[str, Any] = json.loads(data)
    return found


def test_the_command_writes_one_file_with_all_parts(
    runs: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "report.html"
    flags = ["--split", "dev", "--samples", "10", "--case-lines", "8,3"]
    answer = call_here(capsys, "compare", *runs, *flags, "--html", path)
    assert answer.returncode == 0, answer.stderr
    page = path.read_text(encoding="utf-8")
    assert re.findall("<h2>(.*?)</h2>", page) == ["Scores", "Training", "Beams", "Orders", "Case studies"]
    assert list(images(page)) == [
        *["BLEU on dev", "exact match on dev, %", "loss on dev", "loss on train"],
        *["loss of words on dev", "loss of gaps on dev", "BLEU on dev by beam", "RND", "L2R"],
    ]
    cases = replayed(page)
    assert cases["title"] == "Lines 3 and 8 of dev"
    for line, replay in zip((3, 8), cases["replays"], strict=True):
        assert replay["reference"] == load_results(runs[0], "dev").references[0][line - 1]
        assert [one["order"] for one in replay["renditions"]] == ["RND", "L2R"]
        for one, run in zip(replay["renditions"], runs, strict=True):
            assert " ".join(one["words"]) == load_results(run, "dev").hypotheses[line - 1]
            assert one["equalsReference"] == (" ".join(one["words"]) == replay["reference"])


def test_the_report_asks_for_nothing_from_outside(runs: list[Path], tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "report.html"
    call_here(capsys, "compare", *runs, "--split", "dev", "--samples", "10", "--html", path)
    page = path.read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert not any(sign in page for sign in ("http:", "https:", "url(", "@import", "<script"))
    links = re.findall(r'\b(?:src|href)="([^"]*)"', page)
    assert links and all(link.startswith("data:") for link in links)


def content(results: list[RunResults]) -> Content:
    """A report of results alone."""
    return Content(
        compared=compare_runs(results),
        training=[],
        beams=None,
        written=WrittenAgain(sources={}, rows=[]),
        order_lines=0,
        cases=Cases(lines=[], why="", references=[]),
    )


def test_scores_are_those_of_the_tables_with_the_best_in_bold() -> None:
    page = report(content([evaluated("one", REFERENCE), evaluated("odd", hypotheses(), order="odd")]))
    assert '<td>L2R</td><td class="figure"><b>100.00</b></td>' in page
    assert re.findall("<h2>(.*?)</h2>", page) == ["Scores"]


@pytest.mark.parametrize("texts", [["nothing right"] * len(REFERENCE), REFERENCE])
def test_a_column_of_equal_scores_has_no_best(texts: list[str]) -> None:
    page = report(content([evaluated("one", texts), evaluated("odd", texts, order="odd")]))
    assert page.count("<tr>") > 2
    assert "<b>" not in page


def test_no_text_becomes_html_or_a_placeholder() -> None:
    nasty = "<script>{{sections}}\"&'"
    made = content([evaluated("one", REFERENCE)])
    row = replace(made.compared.rows[0], label=nasty)
    page = report(replace(made, compared=replace(made.compared, rows=[row])))
    assert "<script>" not in page
    assert page.count("<main>") == page.count("<table>") == 1
    assert page.count(html.escape(nasty)) == 4  # title, heading, table, origin


def test_without_cases_and_orders_neither_model_nor_data_is_needed(
    runs: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    bare, path = tmp_path / "bare", tmp_path / "report.html"
    shutil.copytree(runs[0] / "results", bare / "results")
    flags = ["--split", "dev", "--cases", "0", "--order-lines", "0"]
    answer = call_here(capsys, "compare", bare, *flags, "--html", path)
    assert answer.returncode == 0, answer.stderr
    assert re.findall("<h2>(.*?)</h2>", path.read_text(encoding="utf-8")) == ["Scores", "Beams"]


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--cases", "3"], "--cases 3: is for a report, and there is no --html FILE"),
        (["--html", "nowhere/r.html"], "--html nowhere/r.html: there is no folder nowhere"),
        (["--html", "r.html", "--cases", "3", "--case-lines", "1"], "give one of them, not both"),
        (["--html", "r.html", "--case-lines", "3,9"], f"--case-lines 3,9: must be lines from 1 to {LINES}"),
        (["--html", "r.html", "--case-lines", "first"], "with commas, e.g. 3,17"),
    ],
)
def test_wrong_flags_are_answered_in_one_line(
    runs: list[Path], capsys: Capture, flags: list[str], part: str
) -> None:
    assert_one_line_refusal(call_here(capsys, "compare", runs[0], "--split", "dev", *flags), part)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_a_browser_opens_it_without_complaint(runs: list[Path], tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "report.html"
    call_here(capsys, "compare", *runs, "--split", "dev", "--samples", "10", "--html", path)
    browser = ["chromium", "--headless", "--no-sandbox", "--enable-logging=stderr", "--v=0", "--dump-dom"]
    opened = subprocess.run(
        [*browser, path.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    assert "Case studies" in opened.stdout
    assert "CONSOLE" not in opened.stderr
