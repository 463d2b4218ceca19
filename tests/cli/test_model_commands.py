"""Commands that use a trained model: what they answer, draw and refuse."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from corpora import assert_one_line_refusal, call, call_here, json_lines, learned, write_lines

from anyorder.inference.generator import Generator
from anyorder.inference.hypothesis import written_at

Capture = pytest.CaptureFixture[str]

GOOD = [{"source": "a b", "template": "d ___ e"}, {"source": "c d", "must": ["f"]}]


def write_requests(path: Path, *requests: object) -> Path:
    return write_lines(path, [one if isinstance(one, str) else json.dumps(one) for one in requests])


# complete


def test_a_bad_request_does_not_keep_others_from_an_answer(capsys: Capture, tmp_path: Path) -> None:
    good = call_here(capsys, "complete", learned().run, write_requests(tmp_path / "good", *GOOD))
    first, second = good.stdout.decode().splitlines()
    unknown_key = {"source": "a", "muss": "b"}
    no_room = {"source": "a", "template": "___{1}", "must": ["b c"]}
    path = write_requests(tmp_path / "asked", GOOD[0], "{", unknown_key, GOOD[1], no_room)
    answer = call_here(capsys, "complete", learned().run, path)
    assert answer.returncode == 2
    assert answer.stdout.decode().splitlines() == [first, "", "", second, ""]
    reported = answer.stderr.decode().splitlines()
    assert [re.match(r"anyorder: (\S+): ", line)[1] for line in reported] == [
        f"{path}:{number}" for number in (2, 3, 5)
    ]


def test_a_bad_request_is_an_object_with_its_error(capsys: Capture, tmp_path: Path) -> None:
    path = write_requests(tmp_path / "asked", GOOD[0], {"source": "a", "muss": "b"})
    answer = call_here(capsys, "complete", learned().run, path, "--json")
    good, bad = (json.loads(line) for line in answer.stdout.decode().splitlines())
    assert answer.returncode == 2
    assert good["hypotheses"][0]["text"].startswith("d ")
    assert bad.keys() == {"source", "error"}
    assert bad["source"] == "a"
    assert answer.stderr.decode() == f"anyorder: {bad['error']}\n"
    assert bad["error"].startswith(f"{path}:2: muss")


def test_requests_that_can_not_be_met_are_found_after_decoding(capsys: Capture, tmp_path: Path) -> None:
    words = Generator.load(learned().run).tokenizer
    everything = [words.piece(token) for token in range(words.target_size)]
    forbidden = {"source": "a", "template": "___", "forbid": [*everything, "<unk>"]}
    path = write_requests(tmp_path / "asked", GOOD[0], forbidden, GOOD[1])
    answer = call_here(capsys, "complete", learned().run, path)
    assert answer.returncode == 2
    assert [bool(line) for line in answer.stdout.decode().splitlines()] == [True, False, True]
    assert f"{path}:2: " in answer.stderr.decode()


def test_wrong_settings_are_refused_once(capsys: Capture, tmp_path: Path) -> None:
    path = write_requests(tmp_path / "asked", *GOOD)
    answer = call_here(capsys, "complete", learned().run, path, "--beam", "0")
    assert_one_line_refusal(answer, "decode: beam = 0")


def test_requests_come_from_stdin() -> None:
    given = "".join(f"{json.dumps(one)}\n" for one in GOOD) + "[]\n"
    answer = call("complete", learned().run, given=given.encode())
    assert answer.returncode == 2
    assert [bool(line) for line in answer.stdout.decode().splitlines()] == [True, True, False]
    assert answer.stderr.decode().startswith("anyorder: stdin:3: no JSON object")


# --html


def replayed(page: Path) -> list[dict[str, object]]:
    """The replays that lie in a page as JSON."""
    data = re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page.read_text(), re.DOTALL)
    assert data is not None
    return json.loads(data[1])["replays"]


def test_all_hypotheses_are_replayed(capsys: Capture, tmp_path: Path) -> None:
    sources, page = write_lines(tmp_path / "sources", ["a b c", "", "d e"]), tmp_path / "page.html"
    answer = call_here(capsys, "generate", learned().run, sources, "--n-best", "2", "--html", page)
    assert answer.returncode == 0, answer.stderr.decode()
    expected = list(Generator.load(learned().run).generate(["a b c", "d e"], n_best=2))
    replays = replayed(page)
    assert [replay["source"] for replay in replays] == ["a b c", "d e"]
    for replay, hypotheses in zip(replays, expected, strict=True):
        assert [one["writtenAt"] for one in replay["renditions"]] == [
            written_at(hypothesis.steps) for hypothesis in hypotheses
        ]


def test_completions_are_replayed_and_drawn(capsys: Capture, tmp_path: Path) -> None:
    page, picture = tmp_path / "page.html", tmp_path / "picture.svg"
    flags = ("--source", "a b", "--must", "h", "--html", page, "--svg", picture)
    assert call_here(capsys, "complete", learned().run, *flags).returncode == 0
    assert len(replayed(page)) == 1
    assert picture.read_text().startswith("<svg")


# score


def test_targets_are_scored_in_the_order_that_the_model_was_trained_in(
    capsys: Capture, tmp_path: Path
) -> None:
    lines = write_lines(tmp_path / "lines", ["a b c", "d e"])
    flags = ("--source", lines, "--target", lines, "--json")
    scores = json_lines(call_here(capsys, "score", learned().run, *flags))
    assert scores == json_lines(call_here(capsys, "score", learned().run, *flags, "--order", "own"))
    model = Generator.load(learned().run)
    expected = model.score(["a b c", "d e"], ["a b c", "d e"], order="own")
    assert [one["score"] for one in scores] == [one.score for one in expected]
    refused = call_here(capsys, "score", learned().run, *flags, "--order-file", lines)
    assert_one_line_refusal(refused, f"--order-file {lines}: is for the orders syn and file, not for own")
