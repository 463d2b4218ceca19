"""Reranking by partners, and by a reverse model that writes sources from targets."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Sequence
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
from anyorder.config.decode import Decode
from anyorder.errors import UserError
from anyorder.evaluation.split import decoded_file
from anyorder.inference.generator import Generator
from anyorder.inference.hypothesis import Hypothesis
from anyorder.inference.model_folder import CONFIG_FILE, export
from anyorder.inference.reranking import Candidate, rerank

Capture = pytest.CaptureFixture[str]
LINES = [*sentences(6, seed=8), "", "a word nobody knows"]


@pytest.fixture(scope="module")
def generator() -> Generator:
    """A model of a task that is its own reverse: write the words backwards."""
    return anyorder.load(learned().run)


@pytest.fixture(scope="module")
def partner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the same task from right to left, trained for fewer updates."""
    run = tmp_path_factory.mktemp("partner") / "run"
    learn(learned().recipe, run, "order.name=r2l", "model.dropout=0", "train.steps=30")
    return run


def by_hand(generator: Generator, source: str, *, weight: float, penalty: float) -> list[tuple[str, float]]:
    """The texts that a beam finds with the sums of their score and the reverse score, best first."""
    found = generator.generate([source], beam=4, n_best=4, length_penalty=penalty)[0]
    both: dict[str, float] = {}
    for one in found:  # the same text may be there in several orders, the likeliest first
        back = generator.score([one.text], [source], order="l2r")[0]
        both.setdefault(one.text, one.score + weight * back.score / (len(source.split()) + 1) ** penalty)
    return sorted(both.items(), key=lambda each: each[1], reverse=True)


def each_text_once(answers: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
    """Leave out all but the first, and so likeliest, hypothesis of each text."""
    return [
        [one for at, one in enumerate(hypotheses) if one.text not in [each.text for each in hypotheses[:at]]]
        for hypotheses in answers
    ]


@pytest.mark.parametrize(("weight", "penalty"), [(0.3, 1.0), (5.0, 1.0), (5.0, 0.0)])
def test_ranks_are_those_of_both_scores_together(generator: Generator, weight: float, penalty: float) -> None:
    options: dict[str, Any] = {
        "reverse": learned().run,
        "reverse_weight": weight,
        "length_penalty": penalty,
        "beam": 4,
    }
    answers = generator.generate(LINES, n_best=4, **options)
    changed = 0
    for source, hypotheses in zip(LINES, answers, strict=True):
        wanted = by_hand(generator, source, weight=weight, penalty=penalty) if source else [("", 0.0)]
        assert [one.text for one in hypotheses] == [text for text, _ in wanted]
        assert [one.score for one in hypotheses] == pytest.approx([score for _, score in wanted], abs=1e-4)
        plain = generator.generate([source], beam=4, length_penalty=penalty)[0]
        changed += [one.text for one in hypotheses[:1]] != [one.text for one in plain]
    assert changed > 0 or weight < 1, "a heavy weight changes nothing: the test shows nothing"
    best = generator.generate(LINES, **options)
    assert [[one.text for one in some] for some in best] == [
        [one.text for one in some[:1]] for some in answers
    ]


def test_without_weight_nothing_changes(generator: Generator) -> None:
    plain = each_text_once(generator.generate(LINES, beam=3, n_best=3))
    assert generator.generate(LINES, beam=3, n_best=3, reverse=learned().run, reverse_weight=0) == plain


def test_of_blanks_and_others_the_others_are_chosen() -> None:
    def output(text: str, score: float) -> Hypothesis:
        return Hypothesis(text, score, score, True, (), (), (), (), 0)

    def nobody(places: Sequence[Candidate]) -> list[float]:
        return [0.0] * len(places)

    def back(places: Sequence[Candidate]) -> list[float]:
        return [{"a": -3.0, "b": -1.0}[text] for _, text in places]

    found = [[output("", -0.1), output("a", -0.5), output("b", -0.6)], [], [output(" ", -2.0)]]
    best = rerank([found], [nobody], reverse=back, reverse_weight=0.5, n_best=5)
    assert [[(one.text, one.score) for one in line] for line in best] == [
        [("b", -1.1), ("a", -2.0)],
        [],
        [(" ", -2.0)],
    ]


def test_partners_find_more_and_score_it_together(generator: Generator, partner: Path) -> None:
    """By brute force: all texts that the two find, each scored by both in their own orders."""
    other = anyorder.load(partner)
    options: dict[str, Any] = {"beam": 3, "length_penalty": 0.0}
    answers = generator.generate(LINES, n_best=3, partners=[partner], **options)
    news = 0
    for source, hypotheses in zip(LINES, answers, strict=True):
        if not source:
            assert [one.text for one in hypotheses] == [""]
            continue
        mine, theirs = (
            {one.text: one.score for one in reversed(each.generate([source], n_best=3, **options)[0])}
            for each in (generator, other)
        )
        means = {
            text: (
                mine.get(text, generator.score([source], [text], order="l2r")[0].score)
                + theirs.get(text, other.score([source], [text], order="r2l")[0].score)
            )
            / 2
            for text in {**mine, **theirs}
        }
        wanted = sorted(means, key=means.__getitem__, reverse=True)[:3]
        assert [one.text for one in hypotheses] == wanted
        assert [one.score for one in hypotheses] == pytest.approx([means[text] for text in wanted], abs=1e-4)
        news += any(text not in mine for text in wanted)
    assert news > 0, "the partner finds nothing new: the test shows nothing"


def test_a_partner_of_its_own_changes_nothing(generator: Generator) -> None:
    plain = each_text_once(generator.generate(LINES, beam=3, n_best=3))
    assert generator.generate(LINES, beam=3, n_best=3, partners=[learned().run]) == plain


def test_completions_of_partners_keep_to_what_is_given(generator: Generator, partner: Path) -> None:
    canvases = [{"must": ["c"]}, {"prefix": "b"}]
    with_c, after_b = generator.complete(["a b c", "a b"], canvases, beam=3, n_best=3, partners=[partner])
    assert with_c and all("c" in one.text.split() and one.given == 1 for one in with_c)
    assert after_b and all(one.text.split()[0] == "b" for one in after_b)


def test_completions_are_ranked_too(generator: Generator) -> None:
    source, canvas = "a b c", {"must": ["a"]}
    options: dict[str, Any] = {"beam": 4, "n_best": 4}
    plain = generator.complete([source], [canvas], **options)[0]
    ranked = generator.complete([source], [canvas], reverse=learned().run, reverse_weight=5.0, **options)[0]
    back = {
        one.text: one.score
        + 5 * generator.score([one.text], [source], order="l2r")[0].score / (len(source.split()) + 1)
        for one in plain
    }
    assert [one.text for one in ranked] == sorted(back, key=back.__getitem__, reverse=True)
    assert all("a" in one.text.split() for one in ranked)


def test_command_line_says_the_same(capsys: Capture, tmp_path: Path, generator: Generator) -> None:
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in LINES))
    run = learned().run
    flags = ["--beam", 4, "--reverse", run, "--reverse-weight", 2, "--json"]
    shown = json_lines(call_here(capsys, "generate", run, tmp_path / "in", *flags))
    wanted = generator.generate(LINES, beam=4, reverse=run, reverse_weight=2)
    assert [[each["text"] for each in line["hypotheses"]] for line in shown] == [
        [each.text for each in hypotheses] for hypotheses in wanted
    ]


def test_an_evaluation_decodes_again_for_another_reverse_model(capsys: Capture, tmp_path: Path) -> None:
    run, reverse = tmp_path / "run", tmp_path / "reverse"
    for copy in (run, reverse):
        export(learned().run, copy, precision="fp32")
    command = [
        "evaluate",
        run,
        f"data.root={learned().folder}",
        f"decode.reverse={reverse}",
        "--beam",
        "2",
        "--split",
        "dev",
    ]
    answer = call_here(capsys, *command)
    assert answer.returncode == 0
    assert f"lines of dev, beam 2, with {reverse}\n" in answer.stdout.decode()
    kept = decoded_file(run, name="dev", beam=2)
    first = json.loads(kept.read_text())["inputs"]
    shutil.rmtree(reverse)
    export(learned().run, reverse, precision="int8")
    assert call_here(capsys, *command).returncode == 0
    second = json.loads(kept.read_text())["inputs"]
    assert first.pop("others") != second.pop("others")
    assert first == second


def test_an_evaluation_with_nothing_to_choose_from_is_refused(capsys: Capture) -> None:
    answer = call_here(capsys, "evaluate", learned().run, f"decode.reverse={learned().run}", "--beam", "1")
    assert_one_line_refusal(answer, "picks from what a beam finds; decode.beam must be 2 or more")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("decode.reverse=nowhere", "nowhere: no such folder"),
        ('decode.partners=["nowhere"]', "nowhere: no such folder"),
        ("decode.partners=nowhere", 'decode.partners = "nowhere": must be a list, in brackets'),
    ],
)
def test_an_evaluation_names_the_run_that_is_wrong(capsys: Capture, given: str, complaint: str) -> None:
    answer = call_here(capsys, "evaluate", learned().run, given, "--beam", "2", "--split", "dev")
    assert_one_line_refusal(answer, complaint)


def test_the_command_on_a_card_can_be_run(capsys: Capture, tmp_path: Path) -> None:
    """The command on the card is split as a shell does, run, and gives the same results."""
    run = tmp_path / "run"
    export(learned().run, run, precision="fp32")
    others = [f'decode.partners=["{learned().run}"]', f"decode.reverse={learned().run}"]
    root = f"data.root={learned().folder}"
    given = ["evaluate", run, root, *others, "--split", "dev", "--beam", "2", "--metrics", "bleu"]
    assert call_here(capsys, *given).returncode == 0
    first = (run / "results" / "dev.json").read_text()
    card = call_here(capsys, "card", run).stdout.decode()
    [line] = [line for line in card.splitlines() if line.startswith("anyorder evaluate")]
    _, _, _, *words = shlex.split(line)
    assert call_here(capsys, "evaluate", run, root, *words).returncode == 0
    second = (run / "results" / "dev.json").read_text()
    assert json.loads(first)["decode"] == json.loads(second)["decode"]


def test_a_model_is_given_away_without_the_other(tmp_path: Path) -> None:
    run = tmp_path / "run"
    export(learned().run, run, precision="fp32")
    configuration = json.loads((run / CONFIG_FILE).read_text())
    configuration["recipe"]["decode"] |= {"beam": 2, "reverse": "/home/me/reverse", "partners": ["~/other"]}
    (run / CONFIG_FILE).write_text(json.dumps(configuration))
    export(run, tmp_path / "given", precision="fp32")
    decode = json.loads((tmp_path / "given" / CONFIG_FILE).read_text())["recipe"]["decode"]
    assert (decode["reverse"], decode["partners"]) == (None, [])


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--beam", 1], "picks from what a beam finds; decode.beam must be 2 or more"),
        (["--search", "sample", "--beam", 2], "decode: partners and reverse are for beams"),
        (["--beam", 2, "--reverse", "nowhere"], "nowhere: no such folder"),
        (["--partners", "nowhere"], "nowhere: no such folder"),
        (["--beam", 2, "--reverse-weight", -1], "reverse_weight = -1"),
    ],
    ids=str,
)
def test_a_mistake_is_refused_in_one_line(capsys: Capture, flags: list[object], complaint: str) -> None:
    run = learned().run
    reverse = [] if {"--reverse", "--partners"} & set(flags) else ["--reverse", run]
    assert_one_line_refusal(call_here(capsys, "generate", run, *reverse, *flags), complaint)


def test_pictures_have_no_reverse(capsys: Capture, tmp_path: Path) -> None:
    learn(write_picture_corpus(tmp_path), tmp_path / "run", "train.steps=4")
    with pytest.raises(UserError, match=r"^decode\.reverse = .*: is for models that read text"):
        anyorder.load(tmp_path / "run").generate([], beam=2, reverse=learned().run)
    given = f"decode.reverse={learned().run}"
    answer = call_here(capsys, "evaluate", tmp_path / "run", given, "--beam", "2", "--split", "dev")
    assert_one_line_refusal(answer, "is for models that read text")


def test_a_reverse_that_has_no_order_is_refused(tmp_path: Path) -> None:
    learn(learned().recipe, tmp_path / "run", "model.kind=insertion", "train.steps=4")
    with pytest.raises(UserError, match=r"run: model\.kind = \"insertion\" has no log p"):
        anyorder.load(learned().run).generate([], beam=2, reverse=tmp_path / "run")


def test_settings_say_what_each_searches_for_by_itself() -> None:
    plain, both = Decode(beam=5, n_best=2), Decode(beam=5, n_best=2, reverse=Path("r"), partners=(Path("p"),))
    assert plain.alone == plain
    assert both.alone == Decode(beam=5, n_best=5)
    assert both.others == (Path("p"), Path("r"))
