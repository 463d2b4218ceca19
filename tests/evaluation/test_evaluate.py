"""Evaluate a run: decoding, scoring, stored files, and refusals."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from corpora import (
    PAIRS,
    PATIENCE,
    QUIET,
    assert_one_line_refusal,
    call_here,
    command,
    full_disk,
    hear_ctrl_c,
    json_lines,
    learn,
    learned,
    write_lines,
    write_picture_corpus,
)
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU

import anyorder
from anyorder.cli.evaluate import parse_beams
from anyorder.errors import UserError
from anyorder.evaluation.evaluate import Evaluator, ScoringSettings, distinct_unknowns
from anyorder.evaluation.results import load_results
from anyorder.metrics.metric import Options

Capture = pytest.CaptureFixture[str]

# The corpus of the tests has no test split, so its training pairs take that role.
TEST_SPLIT = ["data.test.source=train.source", "data.test.target=train.target"]
OF_TIME = ("finished_at", "decoding_seconds", "recipe")  # in a report; the recipe names the run's folder


@dataclass
class Watcher:
    """Records what was decoded, and can interrupt the evaluation at a given task."""

    interrupt_at: str = ""
    decoded: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        pass

    def preparing(self, what: str, done: int, total: int) -> None:
        if what == self.interrupt_at:
            raise KeyboardInterrupt
        if done == total:
            self.decoded.append(what)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A trained model without results."""
    return shutil.copytree(learned().run, tmp_path / "run", ignore=shutil.ignore_patterns("last"))


def evaluator(run: Path, *, interrupt_at: str = "", **how: Any) -> Evaluator:  # noqa: ANN401 (as load has it)
    return Evaluator.load(
        run, listener=Watcher(interrupt_at=interrupt_at), overrides=TEST_SPLIT, device="cpu", **how
    )


def decoded_by(one: Evaluator) -> list[str]:
    assert isinstance(one.listener, Watcher)
    return one.listener.decoded


def text_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def generated(capsys: Capture, run: Path, source: str, *, beam: int) -> list[str]:
    """Return the hypotheses of `anyorder generate`."""
    answer = call_here(capsys, "generate", run, learned().folder / source, "--beam", beam)
    return answer.stdout.decode().splitlines()


def bleu(hypotheses: list[str], reference: list[str]) -> float:
    """Compute BLEU with sacreBLEU itself."""
    return BLEU(tokenize="none", force=True).corpus_score(hypotheses, [reference]).score


# What is decoded and scored


def test_hypotheses_and_scores_of_a_split(capsys: Capture, run: Path) -> None:
    flags = ["--split", "test", "--beam", "2", "--metrics", "bleu,exact,python", "--json"]
    (report,) = json_lines(call_here(capsys, "evaluate", run, *TEST_SPLIT, *flags))
    hypotheses, reference = text_of(run / "results/test.txt"), text_of(learned().folder / "train.target")
    assert hypotheses == generated(capsys, run, "train.source", beam=2)
    assert text_of(run / "results/test.ref1.txt") == reference
    assert report["lines"] == PAIRS["train"]
    assert report["scores"]["bleu"]["score"] == pytest.approx(bleu(hypotheses, reference))
    assert "tok:none" in report["scores"]["bleu"]["signature"]
    right = sum(hypothesis == wanted for hypothesis, wanted in zip(hypotheses, reference, strict=True))
    assert report["scores"]["exact"]["score"] == pytest.approx(100 * right / len(hypotheses))
    assert set(report["scores"]) == {"bleu", "exact", "python"}
    assert report["decode"]["beam"] == 2
    assert set(report["versions"]) == {"python", "torch", "sacrebleu"}
    assert report == json.loads((run / "results/test.json").read_text())


def test_the_beam_is_picked_on_dev(capsys: Capture, run: Path) -> None:
    beams = [1, 2, 4]
    evaluated = evaluator(run).evaluate("test", beams=beams, all_beams=True)
    sweep = evaluated.report.sweep
    assert sweep is not None
    for split, source in (("dev", "dev"), ("test", "train")):
        reference = text_of(learned().folder / f"{source}.target")
        wanted = {
            beam: bleu(generated(capsys, run, f"{source}.source", beam=beam), reference) for beam in beams
        }
        assert sweep.scores[split] == pytest.approx(wanted)
    dev = sweep.scores["dev"]
    assert sweep.beam == min(beam for beam in beams if dev[beam] == max(dev.values()))
    assert evaluated.report.decode.beam == sweep.beam
    assert evaluated.report.scores["bleu"].score == pytest.approx(sweep.scores["test"][sweep.beam])


def test_the_lowest_edit_rate_is_the_best(run: Path) -> None:
    sweep = evaluator(run).evaluate("dev", beams=[1, 2, 3], by="ter").report.sweep
    assert sweep is not None
    assert sweep.scores["dev"][sweep.beam] == min(sweep.scores["dev"].values())
    assert set(sweep.scores) == {"dev"}


def test_the_beam_is_picked_by_what_picked_the_checkpoint(run: Path) -> None:
    config = run / "config.json"
    config.write_text(config.read_text().replace('"select": "loss"', '"select": "exact"'))
    sweep = evaluator(run).evaluate("dev", beams=[1, 2]).report.sweep
    assert sweep is not None
    assert sweep.by == "exact"


def test_first_lines_are_decoded_as_in_the_whole_split(run: Path) -> None:
    whole = evaluator(run).evaluate("test")
    part = evaluator(run, first_lines=7).evaluate("test")
    assert part.path.name == "test-first-7.json"
    assert part.report.lines == 7
    assert text_of(part.path.with_suffix(".txt")) == text_of(whole.path.with_suffix(".txt"))[:7]
    assert load_results(run, "test").report == whole.report  # the other one is left alone


def test_evaluating_twice_gives_the_same(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    one, other = (
        json.loads(evaluator(folder).evaluate("test", beams=[1, 3]).path.read_text())
        for folder in (run, copy)
    )
    for values in (one, other):
        for key in OF_TIME:
            del values[key]
    assert one == other


def test_a_blank_source_has_a_blank_hypothesis(capsys: Capture, run: Path, tmp_path: Path) -> None:
    source, target = (
        write_lines(tmp_path / "s", ["a b", "", "c"]),
        write_lines(tmp_path / "t", ["b a", "x", ""]),
    )
    files = [f"data.test.source={source}", f"data.test.target={target}"]
    (report,) = json_lines(call_here(capsys, "evaluate", run, *files, "--json"))
    assert report["lines"] == 3
    assert text_of(run / "results/test.txt")[1] == ""


def test_lines_that_dev_leaves_out_are_not_scored(run: Path, tmp_path: Path) -> None:
    source, target = write_lines(tmp_path / "s", ["a b", "", "c d"]), write_lines(tmp_path / "t", list("xyz"))
    how = [f"data.dev.source={source}", f"data.dev.target={target}", "data.bad_lines=skip"]
    one = Evaluator.load(run, listener=Watcher(), overrides=how, device="cpu")
    scoring = ScoringSettings(references=[["first", "second", "third"], ["1", "2", "3"]])
    evaluated = one.evaluate("dev", scoring=scoring)
    assert evaluated.report.lines == 2
    assert load_results(run, "dev").references == [["first", "third"], ["1", "3"]]
    assert "nrefs:2" in evaluated.report.scores["bleu"].signature


def test_models_of_feature_vectors(tmp_path: Path) -> None:
    recipe = write_picture_corpus(tmp_path)
    learn(recipe, tmp_path / "run", "train.steps=4")
    evaluated = Evaluator.load(tmp_path / "run", listener=Watcher(), device="cpu").evaluate("dev")
    assert evaluated.report.lines == PAIRS["dev"]
    assert len(text_of(tmp_path / "run/results/dev.txt")) == PAIRS["dev"]


# Remarks on the scores


def some_seen(folder: Path) -> tuple[list[str], list[str]]:
    """Write a test split: the pairs of dev, two of train, and one with a source of train only."""
    source, target = (text_of(learned().folder / f"dev.{side}") for side in ("source", "target"))
    train_source, train_target = (
        text_of(learned().folder / f"train.{side}") for side in ("source", "target")
    )
    assert not set(source) & set(train_source)
    sources = [train_source[0], *source, train_source[1].replace(" ", "  "), train_source[2]]
    targets = [train_target[0], *target, train_target[1], "h h h h h h h"]
    write_lines(folder / "test.source", sources)
    write_lines(folder / "test.target", targets)
    return sources, targets


def test_scores_without_what_training_has_seen(capsys: Capture, run: Path, tmp_path: Path) -> None:
    _, targets = some_seen(tmp_path)
    files = [f"data.test.{side}={tmp_path / f'test.{side}'}" for side in ("source", "target")]
    answer = call_here(capsys, "evaluate", run, *files, "--metrics", "bleu,exact")
    report = load_results(run, "test").report
    hypotheses = text_of(run / "results/test.txt")
    unseen = [*range(1, 1 + PAIRS["dev"]), len(targets) - 1]
    assert report.unseen is not None
    assert report.unseen.lines == len(unseen)
    alone = [hypotheses[line] for line in unseen], [targets[line] for line in unseen]
    right = sum(hypothesis == target for hypothesis, target in zip(*alone, strict=True))
    assert report.unseen.scores == pytest.approx({"bleu": bleu(*alone), "exact": 100 * right / len(unseen)})
    shown = "without the 2 lines that also occur in train: BLEU {bleu:.2f}, exact match {exact:.2f}"
    assert shown.format(**report.unseen.scores) in answer.stdout.decode().splitlines()


def test_no_score_remains_if_training_has_seen_all_lines(run: Path) -> None:
    report = evaluator(run).evaluate("test").report
    assert report.unseen is not None
    assert (report.unseen.lines, report.unseen.scores) == (0, {})
    assert report.remarks == ["without the 60 lines that also occur in train: no line remains"]


def test_missing_training_data_does_not_lose_scores(capsys: Capture, run: Path) -> None:
    answer = call_here(capsys, "evaluate", run, "data.train.source=gone", "--split", "dev", "--json")
    (report,) = json_lines(answer)
    assert report["unseen"] is None
    assert set(report["scores"]) == {"bleu", "chrf", "ter", "exact"}
    assert b"can't find out which lines training has seen: " in answer.stderr


def test_the_upper_bound_on_exact_match(run: Path, tmp_path: Path) -> None:
    targets = ["a b", "a new", "c", "d newer newest"]
    source, target = write_lines(tmp_path / "s", targets), write_lines(tmp_path / "t", targets)
    how = [f"data.test.source={source}", f"data.test.target={target}"]
    one = Evaluator.load(run, listener=Watcher(), overrides=how, device="cpu")
    report = one.evaluate("test").report
    assert report.reachable == 50.0
    assert "upper bound on exact match, given the model's vocabulary: 50.00" in report.remarks
    own = one.evaluate("test", scoring=ScoringSettings(references=[targets])).report
    assert own.reachable is None
    caseless = ScoringSettings(options=replace(Options.for_side(one.recipe.text.target), lowercase=True))
    assert one.evaluate("test", scoring=caseless).report.reachable is None  # "New" may be known, and right


LINES = st.lists(
    st.lists(st.sampled_from(["a", "<unk>", "b<unk>"]), max_size=3).map(" ".join), min_size=1, max_size=4
)


@given(lines=LINES)
def test_an_unknown_word_is_never_right(lines: list[str]) -> None:
    shown = distinct_unknowns(lines, [lines])
    for hypothesis, written in zip(shown, lines, strict=True):
        assert (hypothesis == written) == ("<unk>" not in written)
        assert len(hypothesis.split()) == len(written.split())


# Stored hypotheses


def test_hypotheses_are_stored_until_something_changes(run: Path) -> None:
    first, same, other_metrics, wider = (evaluator(run) for _ in range(4))
    first.evaluate("dev", beams=[1, 2])
    assert decoded_by(first) == ["decoding dev, beam 1", "decoding dev, beam 2"]
    same.evaluate("dev", beams=[1, 2])
    other_metrics.evaluate("dev", beams=[2], scoring=ScoringSettings(metrics=["chrf"]))
    assert decoded_by(same) == decoded_by(other_metrics) == []
    wider.evaluate("dev", beams=[2, 3])
    assert decoded_by(wider) == ["decoding dev, beam 3"]


def test_another_model_or_search_is_decoded_again(run: Path, tmp_path: Path) -> None:
    evaluator(run).evaluate("dev")
    penalised = Evaluator.load(run, listener=Watcher(), overrides=["decode.length_penalty=0"], device="cpu")
    penalised.evaluate("dev")
    assert decoded_by(penalised) == ["decoding dev, beam 1"]
    learn(learned().recipe, tmp_path / "other", "train.steps=4", "order.name=rnd")
    shutil.copy(tmp_path / "other/model.safetensors", run)
    retrained = evaluator(run)
    retrained.evaluate("dev")
    assert decoded_by(retrained) == ["decoding dev, beam 1"]


def test_a_stopped_sweep_goes_on_where_it_was(run: Path) -> None:
    stopped = evaluator(run, interrupt_at="decoding dev, beam 3")
    with pytest.raises(KeyboardInterrupt):
        stopped.evaluate("test", beams=[1, 2, 3])
    stored = sorted(path.name for path in (run / "results").rglob("*") if path.is_file())
    assert stored == ["dev-beam-1.json", "dev-beam-2.json"]
    gone_on = evaluator(run)
    gone_on.evaluate("test", beams=[1, 2, 3])
    assert "decoding dev, beam 3" in decoded_by(gone_on)
    assert not set(decoded_by(gone_on)) & set(decoded_by(stopped))


def test_again_ignores_stored_hypotheses(capsys: Capture, run: Path) -> None:
    stored = run / "results/decoded/dev-beam-1.json"
    json_lines(call_here(capsys, "evaluate", run, "--split", "dev", "--json"))
    forged = json.loads(stored.read_text()) | {"hypotheses": ["forged"] * PAIRS["dev"]}
    stored.write_text(json.dumps(forged))
    json_lines(call_here(capsys, "evaluate", run, "--split", "dev", "--json"))
    assert "forged" in text_of(run / "results/dev.txt")
    json_lines(call_here(capsys, "evaluate", run, "--split", "dev", "--again", "--json"))
    assert "forged" not in text_of(run / "results/dev.txt")


def test_again_deletes_only_what_it_decodes(capsys: Capture, run: Path) -> None:
    json_lines(call_here(capsys, "evaluate", run, "--split", "dev", "--beam", "1,2", "--json"))
    stored = sorted((run / "results/decoded").iterdir())
    refused = call_here(capsys, "evaluate", run, "data.test.source=gone", "--split", "test", "--again")
    assert refused.returncode == 2
    assert sorted((run / "results/decoded").iterdir()) == stored


def test_surplus_references_of_an_earlier_evaluation_are_deleted(run: Path) -> None:
    lines = [["a"] * PAIRS["dev"]] * 3
    evaluator(run).evaluate("dev", scoring=ScoringSettings(references=lines))
    evaluator(run).evaluate("dev")
    assert [path.name for path in sorted((run / "results").glob("dev.ref*.txt"))] == ["dev.ref1.txt"]


def test_broken_leftovers_are_decoded_again(run: Path) -> None:
    evaluator(run).evaluate("dev")
    (run / "results/decoded/dev-beam-1.json").write_text('{"hypotheses": [')
    mended = evaluator(run)
    mended.evaluate("dev")
    assert decoded_by(mended) == ["decoding dev, beam 1"]


def test_interrupting_leaves_nothing_half_written(run: Path) -> None:
    arguments = command("evaluate", run, *TEST_SPLIT, "--beam", "1-400")
    process = subprocess.Popen(
        arguments,
        env=QUIET,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=hear_ctrl_c,
    )
    deadline = time.monotonic() + PATIENCE
    while not (run / "results/decoded/dev-beam-1.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert b"Traceback" not in said
    left = [path for path in (run / "results").rglob("*") if path.is_file()]
    assert all(path.name.startswith("dev-beam-") for path in left)
    for path in left:
        json.loads(path.read_text())


def test_a_full_disk_is_reported_in_one_line(capsys: Capture, run: Path) -> None:
    with full_disk():
        answer = call_here(capsys, "evaluate", run, "--split", "dev")
    assert_one_line_refusal(answer, "dev-beam-1.json: can't be written")
    assert [path for path in (run / "results").rglob("*") if path.is_file()] == []


# The command


def test_the_command_shows_beams_scores_and_the_path(capsys: Capture, run: Path) -> None:
    answer = call_here(capsys, "evaluate", run, *TEST_SPLIT, "--beam", "1,2", "--all-beams")
    shown = answer.stdout.decode().splitlines()
    report = load_results(run, "test").report
    assert report.sweep is not None
    assert shown[0].split() == ["beam", "dev", "BLEU", "test", "BLEU"]
    for line, beam in zip(shown[1:3], (1, 2), strict=True):
        dev, test = (report.sweep.scores[split][beam] for split in ("dev", "test"))
        assert line.split() == [str(beam), f"{dev:.2f}", f"{test:.2f}"]
    assert f"{run}: 60 lines of test, beam {report.sweep.beam}, the best on dev by BLEU" in shown
    assert any(
        line.startswith("BLEU") and f"{report.scores['bleu'].score:.2f}  nrefs:1|" in line for line in shown
    )
    assert shown[-1] == f"results: {run / 'results/test.json'}"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("5", [5]), ("1-4", [1, 2, 3, 4]), ("5,1,2", [1, 2, 5]), ("1-3,2, 8-9", [1, 2, 3, 8, 9]), (None, [])],
)
def test_beams_are_numbers_ranges_and_lists(given: str | None, wanted: list[int]) -> None:
    assert parse_beams(given) == wanted


@pytest.mark.parametrize(
    "given", ["", "0", "a", "3-1", "1-", "-2", "1,,2", "1.5", "0-3", "1-10000", "9" * 5000]
)
def test_other_beams_are_refused(given: str) -> None:
    with pytest.raises(UserError, match=r"^--beam .*: must be a number from 1 to 9999, a range or a list"):
        parse_beams(given)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ("RUN", "data.test: missing"),
        ("RUN --hyp h", "--hyp h: is for files, and RUN is given as a run"),
        ("RUN --sentences", "--sentences: is for files"),
        ("RUN --by exact", "--by exact: is for several beams, e.g. --beam 1-20"),
        ("RUN --beam 3 --all-beams", "--all-beams: is for several beams"),
        ("RUN --beam 1,2 --by rouge", "--by rouge: no metric 'rouge'; allowed: bleu,"),
        ("RUN --beam 2 decode.beam=3", "--beam 2 and decode.beam: give one of them, not both"),
        ("RUN --split dev --beam 2 decode.search=sample", '--beam 2: decode.search = "sample" has no beam'),
        ("RUN --split dev train.lr=1", "'train.lr=1': of a trained model only keys of [data] and [decode]"),
        ("RUN --split dev decode.bean=2", "decode.bean = 2: no such key; did you mean beam?"),
        ("RUN --split dev --ref short", "reference 1 has 2 lines, but dev has 8; the numbers must be equal"),
        ("RUN --split dev --tokenize x", "tokenize 'x': allowed: "),
        ("RUN --split dev data.root=/nowhere", "/nowhere/dev.source: no such file (data.dev.source)"),
        ("nowhere --split dev", "nowhere: no such folder"),
        ("--beam 3", "--beam 3: is for the folder of a run, and none is given"),
        ("--hyp short --ref short --lines 3", "--lines 3: is for the folder of a run"),
        ("", "give RUN, the folder of a trained model, or --hyp and --ref"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, run: Path, arguments: str, part: str
) -> None:
    monkeypatch.chdir(run.parent)
    run.rename("RUN")
    write_lines(run.parent / "short", ["a", "b"])
    assert_one_line_refusal(call_here(capsys, "evaluate", *arguments.split()), part)
    assert not list(run.parent.glob("RUN/results/*.json"))


# Reading results


def spoil(path: Path, old: str, new: str) -> None:
    content = path.read_text()
    assert old in content
    path.write_text(content.replace(old, new, 1))


def test_results_are_read_as_they_were_written(run: Path) -> None:
    evaluated = evaluator(run).evaluate("test", beams=[1, 2])
    found = load_results(run, "test")
    assert found.report == evaluated.report
    assert found.hypotheses == text_of(run / "results/test.txt")
    assert found.references == [text_of(learned().folder / "train.target")]


def test_files_with_earlier_names_of_keys_are_read(run: Path) -> None:
    evaluated = evaluator(run).evaluate("dev")
    spoil(run / "results/dev.json", '"hypotheses":', '"outputs":')
    spoil(run / "results/dev.json", '"reachable":', '"writable":')
    assert load_results(run, "dev").report == evaluated.report
    spoil(run / "results/decoded/dev-beam-1.json", '"hypotheses":', '"texts":')
    spoil(run / "results/decoded/dev-beam-1.json", '"inputs":', '"work":')
    again = evaluator(run)
    again.evaluate("dev")
    assert decoded_by(again) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "part"),
    [
        ("results/dev.txt", "\n", " x\n", "dev.txt: is not the text that was scored"),
        ("results/dev.ref1.txt", "\n", " x\n", "dev.ref1.txt: is not the text that was scored"),
        ("results/dev.json", '"lines": ', '"lines": "many', "not the results of an evaluation"),
        ("results/dev.json", '"lines": 8', '"lines": "8!"', "dev.json: lines = "),
        ("results/dev.json", '"format": 1', '"format": 99', "is of format 99, but this anyorder"),
    ],
)
def test_spoiled_results_are_refused(run: Path, file: str, old: str, new: str, part: str) -> None:
    evaluator(run).evaluate("dev")
    spoil(run / file, old, new)
    with pytest.raises(UserError) as refused:
        load_results(run, "dev")
    assert part in str(refused.value)


def test_results_of_another_model_are_refused(run: Path) -> None:
    evaluator(run).evaluate("dev")
    with (run / "model.safetensors").open("ab") as weights:
        weights.write(b"more")
    with pytest.raises(UserError, match=r"its model has changed since .*`anyorder evaluate .* --split dev`"):
        load_results(run, "dev")


def test_missing_results_are_refused_with_the_command_that_creates_them(run: Path) -> None:
    with pytest.raises(UserError) as refused:
        load_results(run, "test", first_lines=9)
    remedy = f"`anyorder evaluate {run} --split test --lines 9` creates them"
    wanted = f"{run}: has no results of test-first-9; {remedy}"
    assert str(refused.value) == wanted


def test_what_killed_evaluations_left_is_removed(tmp_path: Path) -> None:
    run = shutil.copytree(learned().run, tmp_path / "run")
    decoded = run / "results" / "decoded"
    decoded.mkdir(parents=True)
    mine = [run / "results/.dev.json.7-abc.unfinished", decoded / ".dev-beam-1.json.7-abc.unfinished"]
    others = [run / "results/.test.json.7-abc.unfinished", decoded / ".test-beam-1.json.7-abc.unfinished"]
    for path in (*mine, *others):
        path.touch()
    anyorder.evaluate(run, split="dev", metrics=["exact"], device="cpu")
    assert [path.exists() for path in (*mine, *others)] == [False, False, True, True]
