"""What the server says: the library's answers byte for byte, and refusals in one sentence."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from corpora import call_here, learned, sentences
from servers import Reply, request, serving

import anyorder
from anyorder.inference.answers import Completed, Generated, json_line
from anyorder.inference.generator import Generator
from anyorder.serve.app import ServerSettings
from anyorder.serve.bounds import Bounds

SOURCES = sentences(12, seed=5)
BOUNDS = Bounds(
    max_body=4000, max_sources=12, max_tokens=30, max_characters=200, max_beam=4, max_samples=5, max_blanks=3
)


@pytest.fixture(scope="module")
def model() -> Generator:
    return Generator.load(learned().run, device="cpu")


@pytest.fixture(scope="module")
def address(model: Generator) -> Iterator[str]:
    with serving({"run": model, "again": model}, ServerSettings(bounds=BOUNDS)) as at:
        yield at


def events(reply: Reply) -> list[tuple[str, Any]]:
    parts = [part.split("\n") for part in reply.text.strip().split("\n\n")]
    return [(kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for kind, data in parts]


# --- the same question has the same answer in all three ---


@pytest.mark.parametrize(
    "options", [{}, {"beam": 3, "n_best": 2}, {"search": "sample", "n_best": 3, "seed": 7}]
)
def test_generate_in_all_three(
    options: dict[str, Any],
    model: Generator,
    address: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = SOURCES[0]
    by_library = Generated(source=source, hypotheses=model.generate(source, **options)).as_json()
    by_server = request(f"{address}/v1/generate", {"source": source, **options})
    (tmp_path / "lines").write_text(source + "\n")
    flags = [part for key, value in options.items() for part in (f"--{key.replace('_', '-')}", value)]
    by_command = call_here(
        capsys, "generate", learned().run, tmp_path / "lines", "--json", "--device", "cpu", *flags
    )
    assert by_server.text == by_library == by_command.stdout.decode().removesuffix("\n")


@pytest.mark.parametrize(
    "canvas", [{"must": ["a", "h"]}, {"template": "b ___ a ___{0,2}"}, {"draft": "c d", "forbid": ["e"]}]
)
def test_complete_in_all_three(
    canvas: dict[str, Any],
    model: Generator,
    address: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = SOURCES[1]
    asked = {"source": source, **canvas}
    by_library = Completed(source=source, hypotheses=model.complete(source, canvas, beam=2)).as_json()
    by_server = request(f"{address}/v1/complete", {**asked, "beam": 2})
    (tmp_path / "requests.jsonl").write_text(json.dumps(asked) + "\n")
    by_command = call_here(
        capsys,
        "complete",
        learned().run,
        tmp_path / "requests.jsonl",
        "--json",
        "--beam",
        2,
        "--device",
        "cpu",
    )
    assert by_server.text == by_library == by_command.stdout.decode().removesuffix("\n")


@pytest.mark.parametrize("order", ["own", "marginal", "r2l"])
def test_score_in_all_three(
    order: str, model: Generator, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = "a b c", "c b a"
    by_library = json_line(asdict(model.score(source, target, order=order, beam=3)))
    asked = {"source": source, "target": target, "order": order, "beam": 3}
    by_server = request(f"{address}/v1/score", asked)
    for name, text in (("source", source), ("target", target)):
        (tmp_path / name).write_text(text + "\n")
    files = ["--source", tmp_path / "source", "--target", tmp_path / "target"]
    by_command = call_here(
        capsys, "score", learned().run, *files, "--order", order, "--beam", 3, "--json", "--device", "cpu"
    )
    assert by_server.text == by_library == by_command.stdout.decode().removesuffix("\n")


def test_several_sources(model: Generator, address: str) -> None:
    answers = request(f"{address}/v1/generate", {"sources": SOURCES}).json["answers"]
    assert [one["source"] for one in answers] == SOURCES
    texts = [one["hypotheses"][0]["text"] for one in answers]
    assert texts == [answer.text for answer in model.generate(SOURCES)]


def test_requests_at_once_get_the_answers_of_the_library(model: Generator, address: str) -> None:
    """Free and bound, greedy and wide, watched and not, all in one crowd."""

    def ask(number: int) -> tuple[str, str]:
        source = SOURCES[number % len(SOURCES)]
        beam = 1 + number % 3
        if number % 4 == 1:
            reply = request(f"{address}/v1/complete", {"source": source, "must": ["a"], "beam": beam})
            return reply.json["hypotheses"][0]["text"], model_text(source, beam, must=True)
        if number % 4 == 2:
            reply = request(f"{address}/v1/generate", {"source": source, "beam": beam, "stream": True})
            return events(reply)[-1][1]["hypotheses"][0]["text"], model_text(source, beam)
        reply = request(f"{address}/v1/generate", {"source": source, "beam": beam})
        return reply.json["hypotheses"][0]["text"], model_text(source, beam)

    expected: dict[tuple[str, int, bool], str] = {}
    lock = threading.Lock()

    def model_text(source: str, beam: int, *, must: bool = False) -> str:
        with lock:
            key = (source, beam, must)
            if key not in expected:
                answer = (
                    model.complete(source, {"must": ["a"]}, beam=beam)
                    if must
                    else model.generate(source, beam=beam)
                )
                expected[key] = answer.text
            return expected[key]

    with ThreadPoolExecutor(16) as pool:
        for found, wanted in pool.map(ask, range(96)):
            assert found == wanted


# --- steps ---


def test_steps_lead_to_the_answer(address: str) -> None:
    reply = request(
        f"{address}/v1/generate", {"source": SOURCES[2], "stream": True, "alternatives": 3, "beam": 3}
    )
    assert reply.headers["content-type"].startswith("text/event-stream")
    *steps, (last, answer) = events(reply)
    assert last == "answer" and {kind for kind, _ in steps} == {"step"}
    best = answer["hypotheses"][0]
    beam = [{"canvas": []}]
    for number, (_, step) in enumerate(steps, start=1):
        assert step["step"] == number
        for entry in step["beam"]:
            before = beam[entry["parent"]]["canvas"]
            assert entry["canvas"] == [*before[: entry["gap"]], entry["token"], *before[entry["gap"] :]]
        for options in step["options"]:
            assert len(options["words"]) == 3
            for word in options["words"]:
                assert len(word["gaps"]) == number
                assert sum(word["gaps"]) == pytest.approx(1, abs=1e-3)
        beam = step["beam"]
    ended = [one["canvas"] for _, step in steps for one in step["ended"]]
    in_order = [token for _, token in sorted(zip(best["positions"], best["tokens"], strict=True))]
    assert in_order in ended


def test_a_sentence_goes_on_from_given_steps(model: Generator, address: str) -> None:
    begin = [{"token": "h", "gap": 0}, {"token": "a", "gap": 0}, {"token": "h", "gap": 1}]
    *_, (_, answer) = events(
        request(f"{address}/v1/generate", {"source": "a b", "stream": True, "begin": begin})
    )
    best = answer["hypotheses"][0]
    assert best["tokens"][:3] == ["h", "a", "h"]
    assert sorted(best["positions"][:3]) == [best["positions"][index] for index in (1, 2, 0)]
    # log p of each step is what the model gives them, as scoring the same steps says.
    target = best["text"]
    score = model.score("a b", target, order=best["positions"])
    assert score.score == pytest.approx(best["log_prob"], abs=1e-3)


def test_its_own_steps_change_nothing(model: Generator, address: str) -> None:
    free = model.generate(SOURCES[3])
    steps = [{"token": step.token, "gap": step.gap} for step in free.best.steps]
    asked = {"source": SOURCES[3], "stream": True, "begin": steps[:2]}
    *_, (_, answer) = events(request(f"{address}/v1/generate", asked))
    assert answer["hypotheses"][0]["tokens"] == list(free.best.tokens)
    assert answer["hypotheses"][0]["log_prob"] == pytest.approx(free.best.log_prob, abs=1e-4)


# --- refusals ---

LONG = "a " * 31
REFUSED: list[tuple[str, object, int, str]] = [
    ("generate", b"{", 422, "body: not valid JSON"),
    ("generate", b"[1]", 422, "body: must be a JSON object"),
    ("generate", b'{"source": NaN}', 422, "NaN"),
    ("generate", b"[" * 3000, 422, "body"),
    ("generate", b'{"source": "' + b"a" * 4000 + b'"}', 413, "4000 bytes"),
    ("generate", {"source": LONG}, 422, "source: 31 words given"),
    ("generate", {"source": "a" * 201}, 422, "source: 201 characters"),
    ("generate", {"source": "a", "beam": 5}, 422, "beam: 5 given, this server allows at most 4"),
    ("generate", {"source": "a", "search": "sample", "n_best": 6}, 422, "n_best: 6"),
    ("generate", {"source": "a", "max_length": 100_000}, 422, "max_length"),
    ("generate", {"source": "a", "deadline": 99}, 422, "deadline: 99"),
    ("generate", {"source": "a", "deadline": 0.00001}, 408, "deadline = 1e-05"),
    ("generate", {"source": "a", "beem": 5}, 422, "did you mean beam?"),
    ("generate", {"source": 5}, 422, "source = 5"),
    ("generate", {"source": "a", "n_best": 3, "beam": 2}, 422, "n_best (3) must not exceed beam (2)"),
    ("generate", {"source": "a", "partners": ["/etc"]}, 422, "partners"),
    ("generate", {"source": "a", "reverse": "/etc/passwd"}, 422, "reverse"),
    ("generate", {"source": "a", "model": "../../etc"}, 404, "no such model; this server has run, again"),
    ("generate", {"source": "a", "photo": "aaaa"}, 422, "source and photo"),
    ("generate", {"source": "a", "sources": ["b"]}, 422, "source and sources"),
    ("generate", {"sources": []}, 422, "sources"),
    ("generate", {"sources": ["a"] * 13}, 422, "sources: 13 given"),
    ("generate", {"sources": ["a"], "stream": True}, 422, "stream"),
    ("generate", {"source": "a", "begin": [{"token": "a", "gap": 0}]}, 422, "begin: is for stream"),
    ("generate", {"source": "\ud800"}, 422, "surrogate"),
    ("complete", {"source": "a", "template": "___ a ___ b ___ c ___"}, 422, "template: 4 blanks"),
    ("complete", {"source": "a", "template": "___{99}"}, 422, "template: 99 words in a blank"),
    ("complete", {"source": "a", "template": "a"}, 422, "template = 'a': has no blank"),
    ("complete", {"source": "a", "must": ["a"] * 17}, 422, "must: 17 words"),
    ("complete", {"source": "a", "must": ["a"], "forbid": ["a"]}, 422, "forbid = 'a'"),
    ("complete", {"must": ["a"]}, 422, "source"),
    ("score", {"source": "a"}, 422, "target: missing"),
    ("score", {"source": "a", "target": "b", "order": "nonsense"}, 422, "nonsense"),
    ("score", {"source": "a", "target": "b", "order": "file"}, 422, 'order = "file": must be own'),
    ("score", {"source": "a", "target": "b", "order": "os:system"}, 422, 'order = "os:system": must be own'),
    ("score", {"source": "a", "target": "b", "beam": 99}, 422, "beam: 99"),
]


@pytest.mark.parametrize(
    ("path", "body", "status", "said"), REFUSED, ids=[f"{path}: {said}" for path, _, _, said in REFUSED]
)
def test_refusals(path: str, body: object, status: int, said: str, address: str) -> None:
    reply = request(f"{address}/v1/{path}", body)
    assert (reply.status, list(reply.json)) == (status, ["error"]), reply.text
    assert said in reply.json["error"]
    assert "\n" not in reply.json["error"]


def test_begin_is_refused_by_step(address: str) -> None:
    for begin, said in (
        ([{"token": "zzz", "gap": 0}], "step 1: token = 'zzz'"),
        ([{"token": "a", "gap": 0}, {"token": "a", "gap": 2}], "step 2: gap = 2: must be from 0 to 1"),
    ):
        reply = request(f"{address}/v1/generate", {"source": "a", "stream": True, "begin": begin})
        assert reply.status == 200 or reply.status == 422
        assert said in reply.text


def test_only_json_is_taken(address: str) -> None:
    """A form of another page can't be sent as JSON without asking first, which is refused."""
    reply = request(f"{address}/v1/generate", b"{}", headers={"Content-Type": "text/plain"})
    assert reply.status == 415
    assert request(f"{address}/v1/generate", method="OPTIONS").status == 405
    assert request(f"{address}/v1/generate").status == 405


@pytest.mark.parametrize(
    "path", ["/../pyproject.toml", "/%2e%2e/%2e%2e/etc/passwd", "/studio.js", "/v1", "//etc/passwd"]
)
def test_no_file_can_be_reached(path: str, address: str) -> None:
    reply = request(address + path)
    assert reply.status == 404
    assert "there is nothing here" in reply.json["error"]


def test_full_queue(model: Generator) -> None:
    few = ServerSettings(bounds=replace(BOUNDS, queue=2))
    with serving({"run": model}, few) as address:
        reply = request(f"{address}/v1/generate", {"sources": ["a", "b", "c"]})
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert request(f"{address}/v1/generate", {"sources": ["a", "b"]}).status == 200


# --- who may ask ---


def test_keys(model: Generator) -> None:
    with serving({"run": model}, ServerSettings(keys=[b"correct-horse", b"battery-staple"])) as address:
        for given in (None, "Bearer wrong", "correct-horse", "Basic correct-horse", "Bearer"):
            headers = {} if given is None else {"Authorization": given}
            reply = request(f"{address}/v1/generate", {"source": "a"}, headers=headers)
            assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
            assert request(f"{address}/metrics", headers=headers).status == 401
        for key in ("correct-horse", "battery-staple"):
            headers = {"Authorization": f"Bearer {key}"}
            assert request(f"{address}/v1/generate", {"source": "a"}, headers=headers).status == 200
        for path in ("/", "/docs", "/health", "/openapi.json"):
            assert request(address + path).status == 200


def test_other_names_of_this_machine_are_refused_without_a_key(address: str) -> None:
    reply = request(f"{address}/v1/models", headers={"Host": "evil.example:8000"})
    assert (reply.status, reply.json["error"][:4]) == (403, "host")
    for name in ("localhost:1", "[::1]:8000", "127.0.0.1"):
        assert request(f"{address}/v1/models", headers={"Host": name}).status == 200


def test_cors_is_off_unless_given(model: Generator, address: str) -> None:
    origin = {"Origin": "https://example.org"}
    assert "access-control-allow-origin" not in request(f"{address}/health", headers=origin).headers
    with serving({"run": model}, ServerSettings(origins=["https://example.org"])) as open_to_one:
        reply = request(f"{open_to_one}/health", headers=origin)
        assert reply.headers["access-control-allow-origin"] == "https://example.org"
        other = request(f"{open_to_one}/health", headers={"Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers


# --- what is read ---


def test_models_metrics_and_descriptions(address: str) -> None:
    (first, second) = request(f"{address}/v1/models").json["models"]
    assert (first["name"], second["name"], first["kind"], first["order"]) == ("run", "again", "indigo", "rnd")
    assert request(f"{address}/health").json == {"status": "ok", "models": ["run", "again"]}
    before = request(f"{address}/metrics").text
    request(f"{address}/v1/generate", {"source": "a b", "model": "again"})
    after = request(f"{address}/metrics").text
    line = 'anyorder_sentences_total{model="again"} '
    counted = [float(text.partition(line)[2].partition("\n")[0] or 0) for text in (before, after)]
    assert counted[1] == counted[0] + 1
    document = request(f"{address}/openapi.json").json
    assert {"/v1/generate", "/v1/complete", "/v1/score", "/v1/models", "/metrics"} <= set(document["paths"])
    page = request(f"{address}/docs").text
    assert all(path in page for path in document["paths"])
    assert "https://" not in page and "src=" not in page


def test_the_studio_is_one_small_page(address: str) -> None:
    reply = request(f"{address}/")
    assert len(reply.body) < 300_000
    assert not any(sign in reply.text for sign in ("http:", "https:", "url(", "@import", "innerHTML", "{{"))
    assert "default-src 'none'" in reply.headers["content-security-policy"]


# --- clients that go away ---


def test_who_goes_away_costs_no_more_time(model: Generator) -> None:
    """A long answer is given up when its client leaves."""
    with serving({"run": model}) as address:
        host, port = address.removeprefix("http://").split(":")
        long = {"source": "a b c", "template": "___{400,}", "max_length": 500}
        for stream in (True, False):
            body = json.dumps({**long, "stream": stream})
            head = f"POST /v1/complete HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            with socket.create_connection((host, int(port))) as client:
                client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
                if stream:
                    assert client.recv(12) == b"HTTP/1.1 200"
                else:
                    time.sleep(0.1)
            given_up, deadline = 0.0, time.monotonic() + 20
            while given_up < 1 + (not stream):
                assert time.monotonic() < deadline, "never given up"
                text = request(f"{address}/metrics").text
                line = 'anyorder_given_up_total{why="disconnected"} '
                given_up = float(text.partition(line)[2].partition("\n")[0] or 0)
        assert request(f"{address}/v1/generate", {"source": "a"}).status == 200


def test_answers_are_those_of_the_shipped_model() -> None:
    shipped = anyorder.load("django-small", device="cpu")
    with serving({"django-small": shipped}) as address:
        reply = request(f"{address}/v1/generate", {"source": "params is an empty list ."})
    assert reply.json["hypotheses"][0]["text"] == "params = [ ]"
