"""A trained model in use: laws of its answers, and the command line that agrees with the library."""

from __future__ import annotations

import inspect
import itertools
import json
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import (
    PATIENCE,
    QUIET,
    assert_one_line_refusal,
    call,
    call_here,
    command,
    hear_ctrl_c,
    json_lines,
    learn,
    learned,
    sentences,
    write_corpus,
    write_lines,
    write_picture_corpus,
)

import anyorder
from anyorder.config.order import Order
from anyorder.errors import UserError
from anyorder.inference.generator import Generator
from anyorder.inference.hypothesis import Answer, Hypothesis
from anyorder.viz.animation import svg

LINES = [*sentences(7, seed=3), "", "a word nobody knows", "   "]
BLANK = {7, 9}
FIELDS = {
    "text",
    "score",
    "log_prob",
    "finished",
    "tokens",
    "positions",
    "word_scores",
    "gap_scores",
    "iterations",
}
EMPTY = Hypothesis("", 0.0, 0.0, True, (), (), (), (), 0)
BEAM: dict[str, Any] = {"beam": 3, "n_best": 3}
SEARCHES: list[dict[str, Any]] = [
    {},
    {"beam": 4, "n_best": 4},
    {"search": "joint", "beam": 3, "n_best": 2},
    {"search": "sample", "n_best": 3, "seed": 5},
    {"beam": 4, "n_best": 2, "merge": True},
    {"beam": 3, "merge_partial": True, "max_ratio": 0.5, "max_extra": 1},
]


@pytest.fixture(scope="module")
def generator() -> Generator:
    return anyorder.load(learned().run)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lines(tmp_path_factory.mktemp("sources") / "sources.txt", LINES)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that reads feature vectors and chooses the gap before the word."""
    folder = tmp_path_factory.mktemp("pictures")
    learn(write_picture_corpus(folder), folder / "run", "model.first=position", "train.steps=8")
    return folder / "run"


def approximately(hypotheses: list[list[Hypothesis]]) -> list[list[dict[str, Any]]]:
    """Compare floats approximately, because rounding differs with the size of a batch."""
    return [[_approximately(asdict(one)) for one in some] for some in hypotheses]


def _approximately(fields: dict[str, Any]) -> dict[str, Any]:
    exact = {"text", "finished", "tokens", "positions"}
    return {
        name: value if name in exact else pytest.approx(value, abs=1e-4) for name, value in fields.items()
    }


def as_json(hypotheses: list[list[Hypothesis]]) -> list[list[dict[str, Any]]]:
    return json.loads(json.dumps([[asdict(one) for one in some] for some in hypotheses]))


# Laws


@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_lines_together_are_answered_as_one_by_one(generator: Generator, options: dict[str, Any]) -> None:
    together = generator.generate(LINES, **options)
    one_by_one = list(generator.stream(LINES, at_once=1, **options))
    assert [[asdict(one) for one in some] for some in one_by_one] == approximately(together)


@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_a_hypothesis_adds_up(generator: Generator, options: dict[str, Any]) -> None:
    for number, hypotheses in enumerate(generator.generate(LINES, **options)):
        assert 1 <= len(hypotheses) <= options.get("n_best", 1)
        if number in BLANK:
            assert hypotheses == [EMPTY]
            continue
        for one in hypotheses:
            words = len(one.tokens)
            assert sorted(one.positions) == list(range(1, words + 1))
            by_position = dict(zip(one.positions, one.tokens, strict=True))
            assert one.text == " ".join(by_position[position] for position in range(1, words + 1))
            assert len(one.word_scores) == words + one.finished  # that of <eod> comes last
            assert len(one.gap_scores) == words
            assert one.log_prob == pytest.approx(sum(one.word_scores) + sum(one.gap_scores))
            assert max(*one.word_scores, *one.gap_scores) < 1e-5
        ranks = [(not one.finished, -one.score) for one in hypotheses]
        assert ranks == sorted(ranks)


def test_position_first_the_end_is_a_gap(pictures: Path) -> None:
    found = Generator.load(pictures).generate(np.load(pictures.parent / "dev.npy"), search="sample", n_best=4)
    finished = [one for hypotheses in found for one in hypotheses if one.finished]
    assert finished
    for one in finished:
        assert len(one.gap_scores) == len(one.tokens) + 1
        assert len(one.word_scores) == len(one.tokens)
        assert len(one.steps) == len(one.tokens)


def test_steps_lead_from_nothing_to_the_text(generator: Generator) -> None:
    for (best,) in generator.generate(LINES[:7]):
        steps = best.steps
        assert [step.token for step in steps] == list(best.tokens)
        assert [len(step.canvas) for step in steps] == list(range(1, len(steps) + 1))
        assert " ".join(steps[-1].canvas) == best.text
        written = sum(step.log_prob for step in steps)
        assert written + best.word_scores[-1] == pytest.approx(best.log_prob) or not best.finished


def test_the_score_of_a_hypothesis_in_its_own_order_is_its_log_prob(
    generator: Generator, tmp_path: Path
) -> None:
    pairs = [
        (source, one)
        for source, hypotheses in zip(LINES, generator.generate(LINES, **BEAM), strict=True)
        for one in hypotheses
        if one.finished and source.strip()
    ]
    assert len(pairs) > 7
    orders = write_lines(tmp_path / "orders", [" ".join(map(str, one.positions)) for _, one in pairs])
    sources, texts = [source for source, _ in pairs], [one.text for _, one in pairs]
    scores = generator.score(sources, texts, order=[one.positions for _, one in pairs])
    assert scores == generator.score(sources, texts, order=Order(name="file", files={"test": orders}))
    for (_, one), score in zip(pairs, scores, strict=True):
        assert score.score == pytest.approx(one.log_prob, abs=1e-4)
        assert score.word_score == pytest.approx(sum(one.word_scores), abs=1e-4)
        assert score.gap_score == pytest.approx(sum(one.gap_scores), abs=1e-4)
        assert score.positions == one.positions


def test_scores_do_not_depend_on_the_batch(generator: Generator) -> None:
    sources, targets = sentences(70, seed=1), sentences(70, seed=2)  # more than are scored together
    together = generator.score(sources, targets, order="r2l")
    for number in (0, 63, 64, 69):
        (alone,) = generator.score([sources[number]], [targets[number]], order="r2l")
        assert together[number].score == pytest.approx(alone.score, abs=1e-4)
        assert together[number].positions == tuple(range(len(targets[number].split()), 0, -1))


def test_an_empty_target_can_be_scored(generator: Generator) -> None:
    empty, word = generator.score(["a b", "a b"], ["", "b"])
    assert empty.positions == ()
    assert empty.score == empty.word_score < 0
    assert empty.gap_score == 0
    assert word.positions == (1,)
    assert generator.score(["a b"], [""])[0].score == pytest.approx(empty.score, abs=1e-5)


def test_a_random_order_comes_from_the_seed(generator: Generator) -> None:
    long = ["a b c d e f g h"] * 4
    drawn = [score.positions for score in generator.score(long, long, order="rnd", seed=1)]
    assert drawn == [score.positions for score in generator.score(long, long, order="rnd", seed=1)]
    assert drawn != [score.positions for score in generator.score(long, long, order="rnd", seed=2)]
    assert len(set(drawn)) > 1


def test_the_best_order_found_is_a_score_like_any_other(generator: Generator) -> None:
    sources, targets = sentences(5, seed=4), sentences(5, seed=5)
    found = generator.score(sources, targets, order="sao", beam=3)
    assert found == generator.score(sources, targets, order=Order(name="sao"), beam=3)
    given = generator.score(sources, targets, order=[one.positions for one in found])
    for one, again in zip(found, given, strict=True):
        assert one.positions == again.positions
        assert one.score == pytest.approx(again.score, abs=1e-4)
        assert one.word_score == pytest.approx(again.word_score, abs=1e-4)


def test_all_orders_of_a_short_target_add_up(generator: Generator) -> None:
    orders = list(itertools.permutations(range(1, 5)))
    each = generator.score(["d c b b"] * len(orders), ["b b c d"] * len(orders), order=orders)
    (found,) = generator.score(["d c b b"], ["b b c d"], order="marginal", beam=len(orders))
    assert found.complete
    assert found.score == pytest.approx(np.logaddexp.reduce([one.score for one in each]), abs=1e-4)
    (estimate,) = generator.score(["d c b b"], ["b b c d"], order="marginal", beam=2, samples=200, seed=3)
    assert estimate.standard_error is not None
    assert estimate.score == pytest.approx(found.score, abs=4 * estimate.standard_error)


@pytest.mark.parametrize("order", ["r2l", "scored_orders:backwards"])
def test_the_order_that_a_model_was_trained_in_is_always_added_up(
    tmp_path: Path, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scored_orders.py").write_text("backwards = lambda words: list(range(len(words), 0, -1))\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    options = [f"order.name={order}", "train.steps=1", "train.validate_lines=0"]
    learn(learned().recipe, tmp_path / "run", *options)
    generator = anyorder.load(tmp_path / "run", trust_code=True)
    pair = ["a b c d e f"], ["b a d c f e"]
    (own,) = generator.score(*pair, order="r2l")
    (greedy,) = generator.score(*pair, order="sao", beam=1)
    assert greedy.positions != own.positions
    (both,) = generator.score(*pair, order="marginal", beam=1)
    assert both.orders == 2
    assert both.score == pytest.approx(np.logaddexp(own.score, greedy.score), abs=1e-4)


def test_given_orders_are_over_words_and_their_pieces_follow(tmp_path: Path) -> None:
    unit = ["text.unit=bpe", "text.vocabulary=30", "train.steps=1", "train.validate_lines=0"]
    learn(learned().recipe, tmp_path / "run", *unit)
    generator = anyorder.load(tmp_path / "run")
    (tokens,) = generator.tokenizer.encode_all(["abc d ef"], "target")
    first, second, third = tokens.pieces
    assert max(first, third) > 1
    (score,) = generator.score(["a"], ["abc d ef"], order=[[3, 1, 2]])
    of_the_third = range(first + second + 1, first + second + third + 1)
    assert score.positions == (*of_the_third, *range(1, first + second + 1))


# Options and mistakes of the library


def test_more_hypotheses_than_beams_widen_the_beam(generator: Generator) -> None:
    assert len(generator.generate(["a b c"], n_best=4)[0]) == 4
    assert generator.settings(n_best=4).beam == generator.settings(n_best="4").beam == 4
    assert generator.settings(n_best=1).beam == generator.trained.recipe.decode.beam


def test_a_sentence_may_be_cut(generator: Generator) -> None:
    (one,) = generator.generate(["a b c d"], max_length=1)[0]
    assert len(one.tokens) == len(one.word_scores) == 1
    assert not one.finished


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ({"beem": 3}, "decode: beem = 3: no such key; did you mean beam? allowed: beam, cautious"),
        ({"beam": 0}, "decode: beam = 0: must be greater than or equal to 1"),
        ({"beam": 2, "n_best": 3}, "decode: n_best (3) must not exceed beam (2)"),
        ({"n_best": "many"}, 'decode: n_best = "many": must be a valid integer'),
        ({"n_best": 0}, "decode: n_best = 0: must be greater than or equal to 1"),
        ({"search": "deep"}, "decode: search = \"deep\": must be 'two-step', 'joint' or 'sample'"),
    ],
)
def test_a_wrong_option_is_answered_by_name(
    generator: Generator, options: dict[str, Any], answer: str
) -> None:
    with pytest.raises(UserError) as refused:
        generator.generate(["a"], **options)
    assert str(refused.value).startswith(answer)


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ({"order": "sao", "beam": 0}, "beam = 0: must be from 1 to 9999"),
        ({"order": "sao", "samples": 5}, "samples = 5: is only for order = 'marginal'"),
        ({"order": "marginal", "samples": 1}, "samples = 1: must be 2 or more"),
    ],
)
def test_a_wrong_search_of_orders_is_answered(
    generator: Generator, options: dict[str, Any], answer: str
) -> None:
    with pytest.raises(UserError) as refused:
        generator.score(["a"], ["a"], **options)
    assert str(refused.value).startswith(answer)


def test_sources_and_targets_go_in_pairs(generator: Generator) -> None:
    with pytest.raises(UserError, match="2 sources but 1 targets: they go in pairs"):
        generator.score(["a", "b"], ["a"])


@pytest.mark.parametrize(
    ("orders", "answer"),
    [
        ([[2, 1]], "1 orders but 2 targets: each target has its own"),
        ([[2, 1], [1, 2]], "order 2: 2 positions given, must be 3, one for each word"),
        ([[2, 1], [1, 3, 3]], "order 2: not a permutation of 1 to 3; missing: 2; more than once: 3"),
        ([[0, 1], [1, 2, 3]], "order 1: positions are counted from 0, must be counted from 1"),
        ([2, 1], "order 1: 2 given, must be a list of whole numbers, the positions counted from 1"),
    ],
)
def test_a_given_order_is_a_permutation_of_the_words(
    generator: Generator, orders: list[list[int]], answer: str
) -> None:
    with pytest.raises(UserError) as refused:
        generator.score(["a b", "a b"], ["a b", "a b c"], order=orders)
    assert str(refused.value) == answer


def test_one_source_gets_one_answer_and_a_list_a_list(generator: Generator, pictures: Path) -> None:
    assert generator.generate("a b c", **BEAM) == generator.generate(["a b c"], **BEAM)[0]
    assert generator.generate("a b c").text == generator.generate("a b c").best.text
    grids = np.load(pictures.parent / "dev.npy")
    painter = Generator.load(pictures)
    assert [painter.generate(grids[0])] == painter.generate(grids[:1])
    one = generator.score("a b c", "c b a")
    assert [one] == generator.score(["a b c"], ["c b a"])
    assert generator.score("a b c", "c b a", order=[3, 1, 2]).positions == (3, 1, 2)
    assert [generator.score("a b", "b a", order="marginal")] == generator.score(
        ["a b"], ["b a"], order="marginal"
    )


def test_the_answer_to_a_blank_source_is_empty(generator: Generator) -> None:
    assert generator.generate("") == generator.generate(" ", **BEAM) == [EMPTY]
    assert generator.generate("").best.steps == []
    assert generator.complete("", {}).text == ""


def test_targets_are_scored_in_the_order_that_the_model_was_trained_in(tmp_path: Path) -> None:
    learn(learned().recipe, tmp_path / "run", "order.name=r2l", "train.steps=1", "train.validate_lines=0")
    generator = anyorder.load(tmp_path / "run")
    found = generator.score("a b c", "c b a")
    assert found.positions == (3, 2, 1)
    assert (
        found
        == generator.score("a b c", "c b a", order="own")
        == generator.score("a b c", "c b a", order="r2l")
    )


def test_a_model_and_an_answer_show_what_they_are(generator: Generator) -> None:
    assert re.fullmatch(r"<Generator \w+: indigo, order rnd, [\d,]+ parameters, cpu>", repr(generator))
    best = replace(generator.generate("a b c").best, text="a < b", score=-0.123456)
    assert repr(best) == f"Hypothesis(text='a < b', score=-0.1235, finished={best.finished})"


def test_an_answer_draws_its_steps_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anyorder.inference.hypothesis.draw_in_notebook", None)  # which `load` sets
    tokens, positions = ("<b>", "a"), (2, 1)
    best = Hypothesis("a <b>", -0.5, -1.0, True, tokens, positions, (-0.5, -0.25, 0.0), (0.0, 0.0), 2)
    drawn = Answer([best, replace(best, text="other <b>")])._repr_html_()
    assert drawn.startswith(best._repr_html_())
    assert "<td" in drawn
    assert "other &lt;b&gt;" in drawn
    assert drawn.count("<tr>") == 1 + len(best.steps)
    assert ">&lt;b&gt;</td>" in drawn
    assert "a <b>" not in drawn
    assert "0.607" in drawn  # exp(-0.5)


def test_the_members_of_a_model_can_be_inspected(generator: Generator) -> None:
    assert not hasattr(generator, "extractor")
    assert {"generate", "complete", "score"} <= {name for name, _ in inspect.getmembers(generator)}


def test_a_list_is_needed_where_several_are_meant(generator: Generator) -> None:
    with pytest.raises(
        UserError, match=r"sources: one string given, must be a list of them, e.g. \['w1 w2'\]"
    ):
        next(generator.stream("w1 w2"))
    with pytest.raises(UserError, match="sources: one string given"):
        generator.score("a", ["b"])
    with pytest.raises(UserError, match="targets: one string given"):
        generator.score(["a"], "b")


def test_a_model_of_text_reads_no_pictures_and_the_other_way_round(
    generator: Generator, pictures: Path
) -> None:
    with pytest.raises(UserError, match="this model reads text, not feature vectors"):
        generator.generate([np.zeros((2, 3))])
    with pytest.raises(UserError, match="this model reads feature vectors of width 3, not text"):
        Generator.load(pictures).generate(["a"])
    with pytest.raises(UserError, match=r"feature vectors of shape \(2, 4\) given, must be \(vectors, 3\)"):
        Generator.load(pictures).generate([np.zeros((2, 4))])


# The command line gives the same


@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_the_command_gives_what_the_library_gives(
    generator: Generator, sources: Path, options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [
        text
        for name, value in options.items()
        for text in [f"--{name.replace('_', '-')}", *([] if value is True else [value])]
    ]
    rows = json_lines(call_here(capsys, "generate", learned().run, sources, "--json", *flags))
    found = generator.generate(LINES, **options)
    assert rows == [
        {"source": line, "hypotheses": hypotheses}
        for line, hypotheses in zip(LINES, as_json(found), strict=True)
    ]
    assert {name for row in rows for one in row["hypotheses"] for name in one} == FIELDS
    plain = call_here(capsys, "generate", learned().run, sources, *flags)
    texts = [one.text for hypotheses in found for one in hypotheses]
    assert plain.stdout.decode() == "".join(f"{text}\n" for text in texts)


def test_the_command_reads_pictures(pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    features = pictures.parent / "dev.npy"
    rows = json_lines(call_here(capsys, "generate", pictures, features, "--json"))
    assert [row["source"] for row in rows] == [None] * len(np.load(features))
    assert [row["hypotheses"] for row in rows] == as_json(
        Generator.load(pictures).generate(np.load(features))
    )


def test_a_trace_has_a_row_for_each_word(
    generator: Generator, sources: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = call_here(capsys, "generate", learned().run, sources, "--trace").stdout.decode()
    for hypotheses in generator.generate([line for line in LINES if line.strip()]):
        for one in hypotheses:
            assert f"{one.text}  ({one.score:.3f})" in drawn
    steps = sum(len(one.tokens) for hypotheses in generator.generate(LINES) for one in hypotheses)
    assert sum(line.split()[:1] != [] and line.split()[0].isdecimal() for line in drawn.splitlines()) == steps


def test_a_trace_leaves_a_line_for_a_blank_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blank_first = write_lines(tmp_path / "sources", ["", "a b c", " "])
    drawn = call_here(capsys, "generate", learned().run, blank_first, "--trace").stdout.decode().split("\n")
    assert drawn[0] == drawn[-2] == ""
    assert drawn[1].strip() != ""


def test_the_first_hypothesis_becomes_an_animation(
    generator: Generator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "first.svg"
    blank_first = write_lines(tmp_path / "sources", ["", "a b c", "d e"])
    assert call_here(capsys, "generate", learned().run, blank_first, "--svg", path).returncode == 0
    (best,) = generator.generate(["a b c"])[0]
    written = [line.partition("<title>")[2] for line in path.read_text().splitlines() if "<title>" in line]
    assert written == [f"{best.text}: written by insertion</title>"]
    assert path.read_text() == svg(best.steps)
    nothing = write_lines(tmp_path / "nothing", [])
    assert_one_line_refusal(
        call_here(capsys, "generate", learned().run, nothing, "--svg", path),
        f"--svg {path}: no sentence with words was written",
    )


def test_the_command_scores_as_the_library_does(
    generator: Generator, sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = write_lines(tmp_path / "targets", LINES)
    arguments = ["score", learned().run, "--source", sources, "--target", targets, "--order", "blt"]
    wanted = generator.score(LINES, LINES, order="blt")
    rows = json_lines(call_here(capsys, *arguments, "--json"))
    assert rows == [{**asdict(score), "positions": list(score.positions)} for score in wanted]
    assert set(rows[0]) == {"score", "word_score", "gap_score", "positions"}
    plain = call_here(capsys, *arguments).stdout.decode().splitlines()
    assert plain == [f"{one.score:.4f}\t{one.word_score:.4f}\t{one.gap_score:.4f}" for one in wanted]


@pytest.mark.parametrize("options", [{}, {"beam": 3}, {"beam": 2, "samples": 4, "seed": 7}], ids=str)
def test_the_command_scores_in_any_order_as_the_library_does(
    generator: Generator,
    sources: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: dict[str, int],
) -> None:
    targets = write_lines(tmp_path / "targets", LINES)
    arguments = ["score", learned().run, "--source", sources, "--target", targets, "--order", "marginal"]
    arguments += [part for name, value in options.items() for part in (f"--{name}", value)]
    wanted = generator.score(LINES, LINES, order="marginal", **options)
    assert json_lines(call_here(capsys, *arguments, "--json")) == json.loads(
        json.dumps([asdict(one) for one in wanted])
    )
    plain = call_here(capsys, *arguments).stdout.decode().splitlines()
    for line, one in zip(plain, wanted, strict=True):
        last = f"{one.standard_error:.4f}" if "samples" in options else str(one.orders)
        assert line.split("\t") == [f"{one.score:.4f}", f"{one.best.score:.4f}", last]
    (sums,) = json_lines(call_here(capsys, *arguments, "--total", "--json"))
    assert sums["pairs"] == len(LINES)
    assert sums["score"] == pytest.approx(sum(one.score for one in wanted))
    assert sums["best_score"] == pytest.approx(sum(one.best.score for one in wanted))
    assert ("standard_error" in sums) == ("samples" in options)


def test_the_command_adds_up_all_pairs(
    generator: Generator, sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = write_lines(tmp_path / "targets", LINES)
    arguments = [
        "score",
        learned().run,
        "--source",
        sources,
        "--target",
        targets,
        "--order",
        "sao",
        "--total",
    ]
    wanted = generator.score(LINES, LINES, order="sao")
    score, steps = sum(one.score for one in wanted), sum(len(line.split()) + 1 for line in LINES)
    (sums,) = json_lines(call_here(capsys, *arguments, "--json"))
    assert sums == {
        "pairs": len(LINES),
        "steps": steps,
        "score": pytest.approx(score),
        "score_a_step": pytest.approx(score / steps),
        "word_score": pytest.approx(sum(one.word_score for one in wanted)),
        "gap_score": pytest.approx(sum(one.gap_score for one in wanted)),
    }
    heads, figures = call_here(capsys, *arguments).stdout.decode().splitlines()
    assert " ".join(heads.split()) == "pairs steps score score a step word score gap score"
    assert figures.split()[:3] == [str(len(LINES)), str(steps), f"{score:,.4f}"]


def test_the_command_scores_in_an_order_from_a_file(
    generator: Generator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (best,) = generator.generate(["a b c d e"])[0]
    assert best.finished
    rows = json_lines(
        call_here(
            capsys,
            "score",
            learned().run,
            *("--source", write_lines(tmp_path / "source", ["a b c d e"])),
            *("--target", write_lines(tmp_path / "target", [best.text])),
            *(
                "--order",
                "file",
                "--order-file",
                write_lines(tmp_path / "order", [" ".join(map(str, best.positions))]),
            ),
            "--json",
        )
    )
    assert rows[0]["score"] == pytest.approx(best.log_prob, abs=1e-4)


# Streams


@pytest.fixture
def streaming() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """A function that starts the command with pipes; the process ends with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: object) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        started.append(
            subprocess.Popen(
                command(*arguments),
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                bufsize=0,
                env=QUIET,
                preexec_fn=hear_ctrl_c,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ask(process: subprocess.Popen[bytes], line: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{line}\n".encode())
    return process.stdout.readline().decode()


def test_a_line_is_answered_before_the_next_one_comes_and_ctrl_c_ends_it(
    generator: Generator, streaming: Callable[..., subprocess.Popen[bytes]]
) -> None:
    process = streaming("generate", learned().run)
    for line, hypotheses in zip(LINES, generator.generate(LINES), strict=True):
        assert ask(process, line) == (hypotheses[0].text if hypotheses else "") + "\n"
    process.send_signal(signal.SIGINT)
    rest, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert rest == b""
    assert said.strip() == b""


def test_a_reader_that_has_had_enough_gets_no_traceback(
    streaming: Callable[..., subprocess.Popen[bytes]],
) -> None:
    process = streaming("generate", learned().run, "--json")
    assert [one["text"] for one in json.loads(ask(process, ""))["hypotheses"]] == [""]
    process.stdout.close()
    process.stdin.write(b"a b c\n")
    assert process.wait(timeout=PATIENCE) in (0, 1)
    assert process.stderr.read() == b""


def test_lines_of_stdin_are_answered_in_order_whatever_their_ends() -> None:
    given = b"a b c\r\n\nd e\nf"
    rows = json_lines(call("generate", learned().run, "--json", "--at-once", "2", given=given))
    assert [row["source"] for row in rows] == ["a b c", "", "d e", "f"]
    assert [len(row["hypotheses"]) for row in rows] == [1, 1, 1, 1]
    assert rows[1]["hypotheses"][0]["text"] == ""


def test_bad_utf8_on_stdin_is_answered_by_its_line_after_the_good_ones() -> None:
    answer = call("generate", learned().run, "--json", given=b"a b\na \xff b\nc\n")
    assert [json.loads(line)["source"] for line in answer.stdout.splitlines()] == ["a b"]
    assert answer.stderr == b"anyorder: stdin:2: not valid UTF-8 (invalid start byte)\n"
    assert answer.returncode == 2


# Mistakes on the command line


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return shutil.copytree(learned().run, tmp_path / "broken", ignore=shutil.ignore_patterns("last"))


def test_a_folder_that_is_no_model(tmp_path: Path, sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["generate", tmp_path, sources], ["info", tmp_path], ["average", tmp_path]):
        assert_one_line_refusal(call_here(capsys, *arguments), f"{tmp_path}: no config.json in it")
    assert_one_line_refusal(call_here(capsys, "generate", tmp_path / "x", sources), "x: no such folder")


def test_a_model_of_the_future(broken: Path, sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps({**config, "format": 99}))
    assert_one_line_refusal(
        call_here(capsys, "generate", broken, sources), "config.json: is of format 99", "reads only up to 1"
    )


def test_half_a_model(broken: Path, sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    assert_one_line_refusal(call_here(capsys, "generate", broken, sources), "model.safetensors: broken: ")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["generate", "RUN", "SOURCES", "--device", "abacus"], ["device 'abacus' can't be used here"]),
        (["generate", "RUN", "SOURCES", "--beam", "0"], ["beam = 0: must be greater than or equal to 1"]),
        (["generate", "RUN", "SOURCES", "--beam", "x"], ["--beam"]),
        (
            ["generate", "RUN", "SOURCES", "--beam", "2", "--n-best", "3"],
            ["n_best (3) must not exceed beam (2)"],
        ),
        (["generate", "RUN", "nowhere.txt"], ["nowhere.txt: no such file"]),
        (["generate", "RUN", "nowhere.npy"], ["nowhere.npy: no such file"]),
        (["generate", "RUN", "BYTES"], ["bytes.txt:2: not valid UTF-8 (byte 0xff at byte 3 of the line)"]),
        (["score", "RUN", "--source", "SOURCES", "--target", "BYTES"], ["bytes.txt:2: not valid UTF-8"]),
        (
            ["score", "RUN", "--source", "SOURCES", "--target", "SHORT"],
            ["has 10 lines", "short.txt has 1: they must"],
        ),
        (["score", "RUN", "--source", "SOURCES"], ["Missing option '--target'"]),
        (
            ["score", "RUN", "--source", "SHORT", "--target", "SHORT", "--order", "up"],
            ["order.name = 'up': no such order; allowed: l2r, r2l"],
        ),
        (
            ["score", "RUN", "--source", "SHORT", "--target", "SHORT", "--order", "file"],
            ["order file needs --order-file FILE, one permutation per line, counted from 1"],
        ),
        (
            [*("score", "RUN", "--source", "SHORT", "--target", "SHORT"), "--order-file", "SHORT"],
            ["short.txt: is for the orders syn and file, not for own"],
        ),
        (
            [
                *("score", "RUN", "--source", "SHORT", "--target", "SHORT", "--order", "file"),
                "--order-file",
                "x",
            ],
            ["--order-file x: no such file"],
        ),
        (
            ["score", "RUN", "--source", "SHORT", "--target", "SHORT", "--samples", "5"],
            ["--samples 5: is for --order marginal, not for own"],
        ),
        (
            ["score", "RUN", "--source", "SHORT", "--target", "SHORT", "--beam", "0"],
            ["Invalid value for '--beam'"],
        ),
        (
            [
                *("score", "RUN", "--source", "SHORT", "--target", "SHORT", "--order", "marginal"),
                *("--order-file", "SHORT"),
            ],
            ["short.txt: is for the orders syn and file, not for marginal"],
        ),
        (["generate", "RUN", "FLAT"], ["flat.npy: has shape (2, 3)"]),
    ],
    ids=lambda value: " ".join(value[:1] + value[-2:]) if "RUN" in value else "",
)
def test_a_mistake_is_answered_in_one_line(
    sources: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], parts: list[str]
) -> None:
    paths = {
        "RUN": learned().run,
        "SOURCES": sources,
        "BYTES": sources.with_name("bytes.txt"),
        "FLAT": sources.with_name("flat.npy"),
        "SHORT": write_lines(sources.with_name("short.txt"), ["a b"]),
    }
    paths["BYTES"].write_bytes(b"a\na \xff b\n")
    np.save(paths["FLAT"], np.zeros((2, 3)))
    assert_one_line_refusal(call_here(capsys, *(paths.get(text, text) for text in arguments)), *parts)


def test_a_bag_has_one_answer_whatever_its_order(tmp_path: Path) -> None:
    changes = ["text.bag=true", "model.encoder_positions=none", "train.steps=4", "train.validate_lines=0"]
    learn(write_corpus(tmp_path), tmp_path / "run", *changes)
    generator = Generator.load(tmp_path / "run", device="cpu")
    (one,), (other,) = (generator.generate([bag], beam=3) for bag in ("a b b c d", "d b a c b"))
    assert one == other
