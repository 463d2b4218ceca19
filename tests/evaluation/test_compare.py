"""Compare runs: rows, significance tests, tables and charts."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import mean, stdev
from typing import Any

import pytest
from corpora import assert_one_line_refusal, call_here, json_lines
from hypothesis import given
from hypothesis import strategies as st

from anyorder.config.data import Splits
from anyorder.config.decode import Decode
from anyorder.config.recipe import Recipe
from anyorder.evaluation.compare import (
    RunComparison,
    SignificanceSettings,
    compare_runs,
    group_trainings,
    row_labels,
)
from anyorder.evaluation.curves import BeamCurve, BeamCurves, beam_chart, beam_curves
from anyorder.evaluation.results import (
    BeamSweep,
    EvaluationReport,
    ReportedScore,
    RunResults,
    UnseenScores,
    digest,
    save_results,
)
from anyorder.evaluation.significance import paired_tests
from anyorder.evaluation.tables import as_latex, as_markdown, difference_table, explanation, score_table
from anyorder.metrics import Options, evaluate

Capture = pytest.CaptureFixture[str]

REFERENCE = [f"{line} a b c d e" for line in range(40)]
FEW = SignificanceSettings(samples=50)


def written(*, right: float, seed: int) -> list[str]:
    """Return the reference with random mistakes."""
    random = Random(seed)
    return [line if random.random() < right else line.replace("c d", "d x") for line in REFERENCE]


def sweep(scores: dict[str, dict[int, float]], *, beam: int, by: str = "bleu") -> BeamSweep:
    return BeamSweep(by=by, metric=by.upper(), signature=f"of {by}", beam=beam, scores=scores)


def evaluated(
    name: str,
    hypotheses: Sequence[str],
    *,
    order: str = "l2r",
    kind: str = "indigo",
    seed: int = 1,
    beam: int = 1,
    swept: BeamSweep | None = None,
    metrics: Sequence[str] = ("bleu", "ter", "exact"),
    tokenize: str = "none",
    references: Sequence[str] = REFERENCE,
    folder: Path = Path("runs"),
    **train: Any,  # noqa: ANN401 (keys of a recipe)
) -> RunResults:
    """Return the results of a run that has no model."""
    files = {"source": "s", "target": "t"}
    recipe = {
        "run": folder / name,
        "data": {"train": files, "dev": files},
        "order": {"name": order},
        "model": {"kind": kind},
    }
    options = Options(tokenize=tokenize)
    scored = evaluate(hypotheses, [references], metrics=metrics, options=options)
    report = EvaluationReport(
        versions={},
        finished_at="",
        decoding_seconds=0.0,
        split="test",
        lines=len(hypotheses),
        unfinished=0,
        unknown=0,
        scores={
            name: ReportedScore(
                metric=one.metric.name,
                score=one.score,
                higher_is_better=one.metric.higher_is_better,
                signature=one.signature,
            )
            for name, one in scored.items()
        },
        options=options,
        decode=Decode(beam=beam),
        sweep=swept,
        model="",
        hypotheses=digest(hypotheses),
        references=[digest(references)],
        recipe=Recipe.model_validate(recipe | {"train": {"seed": seed, **train}}),
    )
    return RunResults(
        folder / name, report=report, hypotheses=list(hypotheses), references=[list(references)]
    )


L2R = [evaluated(f"l2r-{seed}", written(right=0.5, seed=seed), seed=seed) for seed in (1, 2, 3)]
SAO = [
    evaluated(f"sao-{seed}", written(right=0.8, seed=9 + seed), order="sao", seed=seed) for seed in (1, 2, 3)
]


def names(groups: list[list[RunResults]]) -> list[list[str]]:
    return [[one.run.name for one in group] for group in groups]


# Rows


@given(order=st.permutations([*L2R, *SAO]))
def test_trainings_of_a_system_are_one_row_in_any_order(order: list[RunResults]) -> None:
    found = {frozenset(group) for group in names(group_trainings(order))}
    assert found == {frozenset(f"{kind}-{seed}" for seed in (1, 2, 3)) for kind in ("l2r", "sao")}


def test_labels_of_rows() -> None:
    kinds = [evaluated(kind, REFERENCE, kind=kind) for kind in ("transformer", "insertion")]
    groups = group_trainings([L2R[0], SAO[0], *kinds])
    assert row_labels(groups) == ["L2R", "SAO (drawn)", "Transformer", "Insertion Transformer"]
    again = evaluated("longer", REFERENCE, kind="transformer", steps=7)
    assert row_labels([kinds[:1], [again]]) == ["Transformer transformer", "Transformer longer"]
    namesake = replace(again, run=Path("elsewhere") / again.run.name)
    elsewhere = replace(again, run=Path("here") / again.run.name)
    assert row_labels([[namesake], [elsewhere]]) == [
        "Transformer elsewhere/longer",
        "Transformer here/longer",
    ]


SWEPT = sweep({"dev": {1: 1.0, 2: 2.0}}, beam=2)


@pytest.mark.parametrize(
    ("other", "together"),
    [
        ({"seed": 2}, True),
        ({"seed": 2, "device": "cuda"}, True),
        ({"seed": 1}, False),  # the same training twice says nothing about chance
        ({"seed": 2, "lr": 1e-3}, False),
        ({"seed": 2, "order": "r2l"}, False),
        ({"seed": 2, "beam": 5}, False),
        ({"seed": 2, "swept": SWEPT}, False),
    ],
    ids=str,
)
def test_what_makes_another_system(other: dict[str, Any], together: bool) -> None:
    both = [evaluated("one", REFERENCE), evaluated("other", REFERENCE, **other)]
    assert len(group_trainings(both)) == (1 if together else 2)


def test_beams_that_a_sweep_picked_may_differ() -> None:
    one = evaluated("one", REFERENCE, beam=2, swept=SWEPT)
    other = sweep({"dev": {1: 3.0, 2: 2.0}}, beam=1)
    assert len(group_trainings([one, evaluated("other", REFERENCE, seed=2, beam=1, swept=other)])) == 1


def test_a_copied_set_of_runs_is_a_second_row() -> None:
    copies = [evaluated(f"copy-{seed}", REFERENCE, seed=seed) for seed in (1, 2, 3)]
    assert names(group_trainings([*L2R, *copies])) == [
        ["l2r-1", "l2r-2", "l2r-3"],
        ["copy-1", "copy-2", "copy-3"],
    ]


def test_scores_are_means_with_their_deviation() -> None:
    row, single = compare_runs([*L2R, SAO[0]], significance=FEW).rows
    for name, score in row.scores.items():
        scores = [one.report.scores[name].score for one in L2R]
        assert score.mean == pytest.approx(mean(scores))
        assert score.deviation == pytest.approx(stdev(scores))
    assert {name: score.mean for name, score in single.scores.items()} == pytest.approx(
        {name: score.score for name, score in SAO[0].report.scores.items()}
    )
    assert all(score.deviation is None for score in single.scores.values())
    assert (row.label, row.seeds, single.label) == ("L2R", [1, 2, 3], "SAO (drawn)")


def test_scores_that_round_to_the_best_are_marked() -> None:
    worse, better = (
        evaluated("worse", written(right=0.2, seed=1)),
        evaluated("better", REFERENCE, order="odd"),
    )
    as_good = evaluated("as-good", REFERENCE, order="blt")
    rows = compare_runs([worse, better, as_good], significance=FEW).rows
    for name in ("bleu", "ter", "exact"):  # the lowest TER is the best
        assert [row.scores[name].best for row in rows] == [False, True, True]


def test_rows_of_the_same_order_have_distinct_labels() -> None:
    runs = [L2R[0], evaluated("slow", REFERENCE, lr=1e-4), SAO[0]]
    assert [row.label for row in compare_runs(runs, significance=FEW).rows] == [
        "L2R l2r-1",
        "L2R slow",
        "SAO (drawn)",
    ]


# Significance


def test_two_runs_are_tested_as_any_two_texts() -> None:
    baseline, row = compare_runs([L2R[0], SAO[0]], significance=FEW).rows
    assert baseline.differences == {}
    assert list(row.differences) == ["bleu", "exact"]
    for name, difference in row.differences.items():
        results = [
            evaluate(one.hypotheses, one.references, metrics=[name], options=Options(tokenize="none"))[name]
            for one in (SAO[0], L2R[0])
        ]
        assert difference.over_lines == paired_tests(*results, samples=50)
        assert difference.seeds_p is None


def test_several_trainings_are_tested_by_their_means() -> None:
    baseline, row = compare_runs([*L2R, *SAO], significance=FEW).rows
    for name, difference in row.differences.items():
        wanted = row.scores[name].mean - baseline.scores[name].mean
        assert difference.over_lines.difference.score == pytest.approx(wanted)
        assert difference.seeds_p == pytest.approx(2 / 20)  # each of one is better than all of the other


def test_the_baseline_is_left_to_right_or_what_is_asked_for() -> None:
    def tested(**how: Any) -> tuple[str | None, list[str]]:  # noqa: ANN401 (as compare_runs has them)
        compared = compare_runs([SAO[0], L2R[0]], significance=FEW, **how)
        return compared.baseline, [row.label for row in compared.rows if row.differences]

    assert tested() == ("L2R", ["SAO (drawn)"])
    assert tested(baseline=SAO[0].run) == ("SAO (drawn)", ["L2R"])
    insertion = evaluated(
        "insertion", REFERENCE, kind="insertion"
    )  # its recipe says l2r, but it has no order
    assert compare_runs([insertion, L2R[0]], significance=FEW).baseline == "L2R"
    alone = compare_runs([SAO[0], evaluated("odd", REFERENCE, order="odd")], significance=FEW)
    assert alone.baseline is None
    assert not any(row.differences for row in alone.rows)


# Tables


def small_comparison() -> RunComparison:
    return compare_runs([*L2R, evaluated("a_b&c|d", REFERENCE, order="my_orders:first")], significance=FEW)


def test_tables_hold_what_was_compared() -> None:
    compared = small_comparison()
    scores, differences = score_table(compared), difference_table(compared)
    bleu = compared.rows[0].scores["bleu"]
    assert scores.columns == ["order", "seeds", "BLEU", "TER ↓", "exact match"]
    assert [cell.text for cell in scores.rows[0][:3]] == [
        "L2R",
        "3",
        f"{bleu.mean:.2f} ± {bleu.deviation:.2f}",
    ]
    assert [(cell.text, cell.bold) for cell in scores.rows[1]] == [
        ("MY_ORDERS:FIRST", False),
        ("1", False),
        ("100.00", True),
        ("0.00", True),
        ("100.00", True),
    ]
    assert differences is not None
    assert differences.columns == ["against L2R", "by", "difference", "95 %", "p (bs)", "p (ar)"]
    assert [row[1].text for row in differences.rows] == ["BLEU", "exact match"]


def test_p_over_seeds_is_shown_if_known() -> None:
    differences = difference_table(compare_runs([*L2R, *SAO], significance=FEW))
    assert differences is not None
    assert differences.columns[-1] == "p (seeds)"
    assert [row[-1].text for row in differences.rows] == ["0.1000", "0.1000"]


def test_markdown() -> None:
    lines = as_markdown(small_comparison()).splitlines()
    assert lines[0] == "| order | seeds | BLEU | TER ↓ | exact match |"
    assert lines[1] == "| --- | ---: | ---: | ---: | ---: |"
    assert lines[3] == r"| MY\_ORDERS:FIRST | 1 | **100.00** | **0.00** | **100.00** |"
    assert "- 40 lines of test; the best of each column is bold" in lines


def test_latex() -> None:
    made = as_latex(small_comparison())
    lines = made.splitlines()
    assert lines[:3] == [
        r"\begin{tabular}{lrrrr}",
        r"\toprule",
        r"order & seeds & BLEU & TER $\downarrow$ & exact match \\",
    ]
    assert lines[5] == r"MY\_ORDERS:FIRST & 1 & \textbf{100.00} & \textbf{0.00} & \textbf{100.00} \\"
    body = [line for line in lines if not line.startswith("%")]
    assert "\n".join(body).isascii()
    assert made.count(r"\begin{tabular}") == made.count(r"\end{tabular}") == 2
    rows = [line for line in body if line.endswith(r"\\")]
    assert {line.replace(r"\&", "").count("&") for line in rows} == {4, 5}


def test_every_run_is_named() -> None:
    text = "\n".join(explanation(small_comparison()))
    assert all(str(one.run) in text for one in L2R)
    assert "runs/a_b&c|d (beam 1)" in text


# Beams


def test_curves_are_means_of_trainings() -> None:
    runs = [
        evaluated("one", REFERENCE, swept=sweep({"dev": {1: 1.0, 2: 4.0}}, beam=2)),
        evaluated("two", REFERENCE, seed=2, swept=sweep({"dev": {2: 6.0, 1: 2.0}}, beam=2)),
        evaluated("odd", REFERENCE, order="odd", swept=sweep({"dev": {1: 3.0, 8: 2.0}}, beam=1)),
    ]
    found = beam_curves(runs)
    assert (found.split, found.metric) == ("dev", "BLEU")
    assert found.curves == [
        BeamCurve(label="L2R", scores={1: 1.5, 2: 5.0}, picked=2),
        BeamCurve(label="ODD", scores={1: 3.0, 8: 2.0}, picked=1),
    ]


def test_curves_are_of_the_compared_split_where_all_runs_have_it() -> None:
    both = sweep({"dev": {1: 1.0, 2: 2.0}, "test": {1: 5.0, 2: 6.0}}, beam=2)
    runs = [evaluated("one", REFERENCE, swept=both), evaluated("odd", REFERENCE, order="odd", swept=both)]
    assert beam_curves(runs).split == "test"
    runs.append(evaluated("blt", REFERENCE, order="blt", swept=sweep({"dev": {1: 1.0}}, beam=1)))
    assert beam_curves(runs).split == "dev"


CURVES = [
    BeamCurve(label="<L2R>", scores={1: 30.0, 2: 32.0, 10: 31.0}, picked=2),
    BeamCurve(label="SAO (drawn)", scores={1: 28.0, 10: 36.0}, picked=None),
]


def test_the_chart_has_a_point_for_each_score() -> None:
    figure = beam_chart(BeamCurves(split="dev", metric="BLEU", curves=CURVES))
    (axes,) = figure.axes
    by_size: dict[float, list[tuple[float, float]]] = {}
    for line in axes.lines:
        assert line.get_marker() != "None"
        by_size.setdefault(line.get_markersize(), []).extend(map(tuple, line.get_xydata().tolist()))
    small, large = sorted(by_size)
    assert by_size[small] == [(1, 30), (2, 32), (10, 31), (1, 28), (10, 36)]
    assert by_size[large] == [(2, 32)]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["<L2R>", "SAO (drawn)"]
    assert figure.legends[0].get_title().get_text() == "large: picked on dev"
    assert (figure.get_suptitle(), axes.get_xlabel(), axes.get_ylabel()) == (
        "BLEU on dev by beam",
        "beam",
        "BLEU",
    )
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "10"]


# The command


def saved(results: RunResults, folder: Path) -> Path:
    """Save results and return the folder of the run."""
    run = folder / results.run.name
    moved = RunResults(
        run=run, report=results.report, hypotheses=results.hypotheses, references=results.references
    )
    save_results(moved, name="test")
    return run


def test_the_command_in_all_formats(capsys: Capture, tmp_path: Path) -> None:
    runs = [saved(one, tmp_path) for one in (*L2R, *SAO)]
    how = ["--samples", "50"]
    (printed,) = json_lines(call_here(capsys, "compare", *runs, *how, "--format", "json"))
    assert [row["label"] for row in printed["rows"]] == ["L2R", "SAO (drawn)"]
    assert printed["rows"][1]["differences"]["bleu"]["over_lines"]["samples"] == 50
    text = call_here(capsys, "compare", *runs, *how).stdout.decode()
    best = printed["rows"][1]["scores"]["bleu"]
    assert f"{best['mean']:.2f} ± {best['deviation']:.2f}*" in text
    assert "p (seeds): all ways to deal the trainings to the two rows" in text
    for form, sign in (("markdown", "**"), ("latex", r"\textbf")):
        shown = call_here(capsys, "compare", *runs, *how, "--format", form).stdout.decode()
        assert sign in shown
        assert f"{best['mean']:.2f}" in shown


def test_the_command_takes_a_baseline_from_elsewhere(capsys: Capture, tmp_path: Path) -> None:
    baseline, run = (saved(one, tmp_path) for one in (L2R[0], SAO[0]))
    flags = ["--baseline", baseline, "--metrics", "exact", "--samples", "20", "--format", "json"]
    (printed,) = json_lines(call_here(capsys, "compare", run, *flags))
    assert printed["baseline"] == "L2R"
    assert list(printed["metrics"]) == ["exact"]
    assert list(printed["rows"][0]["differences"]) == ["exact"]
    spelled = tmp_path / "elsewhere" / ".." / baseline.name
    spelled.parent.parent.mkdir()
    again = call_here(capsys, "compare", run, baseline, *flags[2:], "--baseline", spelled)
    assert json_lines(again)[0]["baseline"] == "L2R"


def test_the_command_says_if_nothing_is_tested(capsys: Capture, tmp_path: Path) -> None:
    answer = call_here(capsys, "compare", saved(SAO[0], tmp_path))
    assert (
        "Nothing is tested: no run writes in the order l2r, and there is no --baseline"
        in answer.stdout.decode()
    )


def test_the_command_draws_sweeps(capsys: Capture, tmp_path: Path) -> None:
    runs = [
        saved(evaluated(order, REFERENCE, order=order, swept=SWEPT), tmp_path) for order in ("l2r", "sao")
    ]
    answer = call_here(capsys, "compare", *runs, "--svg", tmp_path / "beams.svg", "--samples", "10")
    assert answer.returncode == 0
    root = ElementTree.parse(tmp_path / "beams.svg").getroot()
    assert root.find("{*}title").text == "BLEU on dev by beam"


OTHER = ["x", *REFERENCE[1:]]


@pytest.mark.parametrize(
    ("other", "flags", "part"),
    [
        (
            evaluated("b", OTHER, references=OTHER),
            "",
            "a and FOLDER/b: were evaluated on different references",
        ),
        (
            evaluated("b", OTHER, tokenize="13a"),
            "",
            "a and FOLDER/b: bleu was computed in different ways: nrefs",
        ),
        (evaluated("b", OTHER, metrics=["chrf"]), "", "FOLDER/a and the others: have no metric in common"),
        (
            evaluated("b", OTHER, metrics=["exact"]),
            "--metrics bleu",
            "FOLDER/b: was not scored by bleu; `anyorder evaluate FOLDER/b --split test --metrics exact,bl",
        ),
        (evaluated("b", OTHER), "--metrics rouge", "--metrics rouge: no metric 'rouge'"),
        (evaluated("b", OTHER), "--tested x", "--tested x: no metric 'x'"),
        (
            evaluated("b", OTHER),
            "--split dev",
            "FOLDER/a: has no results of dev; `anyorder evaluate FOLDER/a",
        ),
        (evaluated("b", OTHER), "--baseline nowhere", "nowhere: no such folder; give the folder of a run"),
        (evaluated("b", OTHER), "FOLDER/a", "FOLDER/a: given twice; each run is compared once"),
        (
            evaluated("b", OTHER),
            "--svg s.svg",
            "FOLDER/b: was evaluated with one beam only; `anyorder evaluate",
        ),
        (
            evaluated("b", OTHER, swept=sweep({"dev": {1: 1.0}}, beam=1, by="exact")),
            "--svg s.svg",
            "FOLDER/a and FOLDER/b: their beams were picked by different metrics: bleu (of bleu) and exact",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_compared_is_refused_in_one_line(
    capsys: Capture, tmp_path: Path, other: RunResults, flags: str, part: str
) -> None:
    runs = [saved(one, tmp_path) for one in (evaluated("a", REFERENCE, swept=SWEPT), other)]
    arguments = flags.replace("FOLDER", str(tmp_path)).split()
    answer = call_here(capsys, "compare", *runs, *arguments)
    assert_one_line_refusal(answer, part.replace("FOLDER", str(tmp_path)))


def test_metrics_that_are_not_shown_may_differ() -> None:
    runs = [L2R[0], evaluated("other", OTHER, order="odd", tokenize="13a")]
    compared = compare_runs(runs, metrics=["exact"], significance=FEW)
    assert [row.scores["exact"].mean for row in compared.rows] == pytest.approx(
        [one.report.scores["exact"].score for one in runs]
    )


# Lines that training has seen


def unseen(one: RunResults, *, lines: int, **scores: float) -> RunResults:
    return replace(
        one, report=one.report.model_copy(update={"unseen": UnseenScores(lines=lines, scores=scores)})
    )


def test_a_row_has_mean_scores_of_unseen_lines() -> None:
    rows = [unseen(one, lines=30, bleu=score, exact=50) for one, score in zip(L2R, (10, 20, 33), strict=True)]
    other = unseen(SAO[0], lines=30, bleu=40, exact=60)
    compared = compare_runs([*rows, other], metrics=["bleu", "exact"], significance=FEW)
    assert (compared.seen_lines, [row.unseen_scores["bleu"] for row in compared.rows]) == (10, [21, 40])
    scores = "L2R: BLEU 21.00, exact match 50.00; SAO (drawn): BLEU 40.00, exact match 60.00"
    assert f"without the 10 lines that also occur in train: {scores}" in explanation(compared)


def test_unseen_scores_need_to_be_known_of_all_runs() -> None:
    known = unseen(L2R[0], lines=30, bleu=1, ter=1, exact=1)
    compared = compare_runs([known, SAO[0]], significance=FEW)
    assert (compared.seen_lines, [row.unseen_scores for row in compared.rows]) == (0, [{}, {}])
    all_seen = compare_runs([unseen(one, lines=0) for one in (L2R[0], SAO[0])], significance=FEW)
    assert all_seen.seen_lines == 0
    assert not any("also occur in train" in line for line in explanation(all_seen))


def test_the_default_split_is_one_that_all_runs_have_results_of(capsys: Capture, tmp_path: Path) -> None:
    def save_all(split: Splits, *runs: RunResults) -> list[Path]:
        for run in runs:
            report = run.report.model_copy(update={"split": split})
            save_results(replace(run, run=tmp_path / run.run.name, report=report), name=split)
        return [tmp_path / run.run.name for run in runs]

    runs = save_all("dev", L2R[0], SAO[0])
    few = ("--samples", "10", "--format", "json")
    answer = call_here(capsys, "compare", *runs, *few)
    assert json_lines(answer)[0]["split"] == "dev"
    assert answer.stderr.decode() == "results of dev; --split compares those of another split\n"
    save_all("test", L2R[0])
    assert json_lines(call_here(capsys, "compare", *runs, *few))[0]["split"] == "dev"
    save_all("test", SAO[0])
    assert json_lines(call_here(capsys, "compare", *runs, *few))[0]["split"] == "test"
    explicit = call_here(capsys, "compare", *runs, *few, "--split", "dev")
    assert (json_lines(explicit)[0]["split"], explicit.stderr) == ("dev", b"")
