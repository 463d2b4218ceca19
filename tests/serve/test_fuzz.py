"""Requests that nobody would write: no answer but 200 and refusals, and good answers stay as they were."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from corpora import learned
from hypothesis import HealthCheck, given, settings
from servers import Reply, request, serving, started

from anyorder.inference.generator import Generator
from anyorder.serve.app import ServerSettings
from anyorder.serve.bounds import Bounds
from anyorder.serve.schema import PATHS, CompleteRequest, GenerateRequest, ScoreRequest

GOOD = {"source": "a b c d", "beam": 3}
ALLOWED = {200, 400, 401, 403, 404, 405, 408, 413, 415, 422, 503}
BOUNDS = Bounds(max_length=40, max_beam=4, max_samples=9, max_deadline=5)
MANY = int(os.environ.get("ANYORDER_FUZZ", "10000"))


@pytest.fixture(scope="module")
def model() -> Generator:
    return Generator.load(learned().run, device="cpu")


@pytest.fixture(scope="module")
def address(model: Generator) -> Iterator[str]:
    with serving({"run": model}, ServerSettings(bounds=BOUNDS, deadline=5)) as at:
        yield at


PIECES: list[Any] = [
    *(
        "a b c",
        "",
        " ",
        "x" * 3000,
        "___ a ___",
        "___{1,2} b",
        "___{9,1}",
        "a|b",
        "|",
        "\u202e\u0000",
        "日本語 العربية",
        "</script>",
    ),
    *(0, 1, -1, 2, 3, 10**9, 10**400, 0.5, -0.0, 1e308, True, False, None),
    *([], ["a"], ["a", "b"], [[]], {}, {"token": "a", "gap": 0}, [{"token": "a", "gap": 0}], [{"token": 1}]),
    *("sample", "joint", "two-step", "own", "marginal", "sao", "rnd", "../../etc/passwd", "run"),
]
KEYS = (
    *GenerateRequest.model_fields,
    *CompleteRequest.model_fields,
    *ScoreRequest.model_fields,
    *PATHS,
    "nonsense",
)


def strange_body(chance: random.Random) -> bytes:
    """JSON with strange values, and sometimes no JSON at all."""
    values = {key: chance.choice(PIECES) for key in chance.sample(KEYS, chance.randint(0, 6))}
    if chance.random() < 0.7:
        values.setdefault("source", "a b")
        values.pop("sources", None)
    body = json.dumps(values).encode()
    if chance.random() < 0.1:
        cut = chance.randrange(len(body) + 1)
        body = body[:cut] + chance.randbytes(chance.randint(0, 5)) + body[cut:]
    return body


def check(reply: Reply, body: bytes) -> None:
    assert reply.status in ALLOWED, (reply.status, body, reply.text)
    if reply.status != 200:
        assert list(reply.json) == ["error"], body
        assert reply.json["error"] and "\n" not in reply.json["error"], body


def fuzz(address: str, *, requests: int, seed: int) -> None:
    chance = random.Random(seed)
    expected = request(f"{address}/v1/generate", GOOD).body
    for number in range(requests):
        body = strange_body(chance)
        path = chance.choice(("generate", "complete", "score"))
        check(request(f"{address}/v1/{path}", body), body)
        if number % 50 == 0:
            assert request(f"{address}/v1/generate", GOOD).body == expected


def test_strange_bodies(address: str) -> None:
    fuzz(address, requests=300, seed=1)


@pytest.mark.skipif(find_spec("schemathesis") is None, reason="needs schemathesis (pip install schemathesis)")
def test_requests_made_of_the_schema(address: str) -> None:
    """What the server says is what its own description allows."""
    import schemathesis

    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    for result in schema.get_all_operations():
        operation = result.ok()

        @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:  # noqa: ANN401
            reply = case.call()
            assert reply.status_code in ALLOWED, (case.body, reply.text)

        ask()


@pytest.mark.slow
def test_ten_thousand_strange_bodies_leave_memory_as_it_was() -> None:
    with started(learned().run, "--max-length", 40, "--max-beam", 4) as server:
        status = f"/proc/{server.process.pid}/status"

        def resident() -> int:
            lines = Path(status).read_text().splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

        assert server.process.stderr is not None
        threading.Thread(target=server.process.stderr.read, daemon=True).start()
        fuzz(server.address, requests=MANY // 10, seed=2)
        before = resident()
        fuzz(server.address, requests=MANY, seed=3)
        assert resident() <= 1.05 * before
