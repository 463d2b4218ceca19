"""Answers that a second model, which writes sources from targets, has a say in."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from corpora import (
    assert_one_line_refusal,
    call_here,
    json_lines,
    learn,
    learned,
    sentences,
    write_picture_corpus,
)

import anyorder
from anyorder.ground.config import Decode
from anyorder.ground.errors import UserError
from anyorder.runs.checkpoint import CONFIG_FILE
from anyorder.runs.export import export
from anyorder.runs.generate import Writer
from anyorder.runs.outputs import Output, ranked_both_ways
from anyorder.runs.results import decoded_file

Capture = pytest.CaptureFixture[str]
LINES = [*sentences(6, seed=8), "", "a word nobody knows"]


@pytest.fixture(scope="module")
def writer() -> Writer:
    """What it learns is its own reverse: to write the words backwards."""
    return anyorder.load(learned().run)


def by_hand(writer: Writer, source: str, *, weight: float, penalty: float) -> list[tuple[str, float]]:
    """All that a beam finds, each with its score and that of writing the source back from it."""
    found = writer.generate([source], beam=4, n_best=4, length_penalty=penalty)[0]
    both = []
    for one in found:
        back = writer.score([one.text], [source], order="l2r")[0]
        both.append((one.text, one.score + weight * back.score / (len(source.split()) + 1) ** penalty))
    return sorted(both, key=lambda each: each[1], reverse=True)


@pytest.mark.parametrize(("weight", "penalty"), [(0.3, 1.0), (5.0, 1.0), (5.0, 0.0)])
def test_ranks_are_those_of_both_scores_together(writer: Writer, weight: float, penalty: float) -> None:
    options: dict[str, Any] = {
        "reverse": learned().run,
        "reverse_weight": weight,
        "length_penalty": penalty,
        "beam": 4,
    }
    answers = writer.generate(LINES, n_best=4, **options)
    changed = 0
    for source, outputs in zip(LINES, answers, strict=True):
        wanted = by_hand(writer, source, weight=weight, penalty=penalty) if source else []
        assert [one.text for one in outputs] == [text for text, _ in wanted]
        assert [one.score for one in outputs] == pytest.approx([score for _, score in wanted], abs=1e-4)
        plain = writer.generate([source], beam=4, length_penalty=penalty)[0]
        changed += [one.text for one in outputs[:1]] != [one.text for one in plain]
    assert changed > 0 or weight < 1, "a heavy weight changes nothing: the test shows nothing"
    best = writer.generate(LINES, **options)
    assert [[one.text for one in some] for some in best] == [
        [one.text for one in some[:1]] for some in answers
    ]


def test_without_weight_nothing_changes(writer: Writer) -> None:
    plain = writer.generate(LINES, beam=3, n_best=3)
    assert writer.generate(LINES, beam=3, n_best=3, reverse=learned().run, reverse_weight=0) == plain


def test_what_can_not_be_read_comes_last() -> None:
    def output(text: str, score: float) -> Output:
        return Output(text, score, score, True, (), (), (), (), 0)

    ranked = ranked_both_ways(
        [output("", -0.1), output("a", -0.5), output("b", -0.6)], [None, -3.0, -1.0], weight=0.5
    )
    assert [(one.text, one.score) for one in ranked] == [("b", -1.1), ("a", -2.0), ("", -0.1)]


def test_completions_are_ranked_too(writer: Writer) -> None:
    source, canvas = "a b c", {"must": ["a"]}
    options: dict[str, Any] = {"beam": 4, "n_best": 4}
    plain = writer.complete([source], [canvas], **options)[0]
    ranked = writer.complete([source], [canvas], reverse=learned().run, reverse_weight=5.0, **options)[0]
    back = {
        one.text: one.score + 5 * writer.score([one.text], [source])[0].score / (len(source.split()) + 1)
        for one in plain
    }
    assert [one.text for one in ranked] == sorted(back, key=back.__getitem__, reverse=True)
    assert all("a" in one.text.split() for one in ranked)


def test_command_line_says_the_same(capsys: Capture, tmp_path: Path, writer: Writer) -> None:
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in LINES))
    run = learned().run
    flags = ["--beam", 4, "--reverse", run, "--reverse-weight", 2, "--json"]
    shown = json_lines(call_here(capsys, "generate", run, tmp_path / "in", *flags))
    wanted = writer.generate(LINES, beam=4, reverse=run, reverse_weight=2)
    assert [[each["text"] for each in line["hypotheses"]] for line in shown] == [
        [each.text for each in outputs] for outputs in wanted
    ]


def test_an_evaluation_keeps_apart_what_other_reverse_models_picked(capsys: Capture, tmp_path: Path) -> None:
    run, reverse = tmp_path / "run", tmp_path / "reverse"
    for copy in (run, reverse):
        export(learned().run, copy, precision="fp32")
    command = [
        "evaluate",
        run,
        f"data.root={learned().folder}",
        "decode.beam=2",
        f"decode.reverse={reverse}",
        "--split",
        "dev",
    ]
    assert call_here(capsys, *command).returncode == 0
    kept = decoded_file(run, name="dev", beam=2)
    first = json.loads(kept.read_text())["work"]
    shutil.rmtree(reverse)
    export(learned().run, reverse, precision="int8")
    assert call_here(capsys, *command).returncode == 0
    second = json.loads(kept.read_text())["work"]
    assert first.pop("reverse") != second.pop("reverse")
    assert first == second


def test_a_model_is_given_away_without_the_other(tmp_path: Path) -> None:
    run = tmp_path / "run"
    export(learned().run, run, precision="fp32")
    configuration = json.loads((run / CONFIG_FILE).read_text())
    configuration["recipe"]["decode"] |= {"beam": 2, "reverse": "/home/me/reverse"}
    (run / CONFIG_FILE).write_text(json.dumps(configuration))
    export(run, tmp_path / "given", precision="fp32")
    assert json.loads((tmp_path / "given" / CONFIG_FILE).read_text())["recipe"]["decode"]["reverse"] is None


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--beam", 1], "decode: reverse picks from the hypotheses of a beam: beam must be 2 or more"),
        (["--search", "sample", "--beam", 2], "decode: reverse is for beams"),
        (["--beam", 2, "--reverse", "nowhere"], "nowhere: no such folder"),
        (["--beam", 2, "--reverse-weight", -1], "reverse_weight = -1"),
    ],
    ids=str,
)
def test_what_is_wrong_is_told_in_one_line(capsys: Capture, flags: list[object], complaint: str) -> None:
    run = learned().run
    reverse = [] if "--reverse" in flags else ["--reverse", run]
    assert_one_line_refusal(call_here(capsys, "generate", run, *reverse, *flags), complaint)


def test_pictures_have_no_reverse(tmp_path: Path) -> None:
    learn(write_picture_corpus(tmp_path), tmp_path / "run", "train.steps=4")
    with pytest.raises(UserError, match=r"^decode\.reverse = .*: is for models that read text"):
        anyorder.load(tmp_path / "run").generate([], beam=2, reverse=learned().run)


def test_a_reverse_that_has_no_order_is_refused(tmp_path: Path) -> None:
    learn(learned().recipe, tmp_path / "run", "model.kind=insertion", "train.steps=4")
    with pytest.raises(UserError, match=r"^rank answers: model\.kind = \"insertion\" has no log p"):
        anyorder.load(learned().run).generate([], beam=2, reverse=tmp_path / "run")


def test_settings_say_how_many_to_choose_from() -> None:
    assert Decode(beam=5, n_best=2).to_choose_from.n_best == 2
    assert Decode(beam=5, n_best=2, reverse=Path("r")).to_choose_from.n_best == 5
