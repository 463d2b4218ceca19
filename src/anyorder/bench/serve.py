"""The server under load, beside the library: requests a second, latency, and the time to the first step.

The load comes from `wrk`, which needs next to no processor time of its own. The server runs in another
process. All that is compared is measured in turns, so that a busy machine slows everything alike.
"""

from __future__ import annotations

import http.client
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from anyorder.bench.timing import Measurement
from anyorder.errors import UserError
from anyorder.inference.generator import Generator
from anyorder.inference.session import Question, Session, Watch

CLIENTS = (1, 8, 64)
STARTING = 120  # seconds at most
SINGLE = 40  # requests of one client whose latency is compared with the library's

# Each connection asks for another source in turn.
LUA = """
local bodies = {}
for line in io.lines(%r) do bodies[#bodies + 1] = line end
local number = 0
function init(_) number = math.random(#bodies) end
request = function()
  number = number %% #bodies + 1
  return wrk.format("POST", "/v1/generate", {["Content-Type"] = "application/json"}, bodies[number])
end
"""
UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}


@dataclass(frozen=True)
class Load:
    """What a number of clients saw."""

    requests_per_second: float
    p50: float  # milliseconds
    p99: float


def bench_serve(
    run: Path,
    generator: Generator,
    sources: Sequence[str],
    *,
    clients: Sequence[int] = CLIENTS,
    seconds: int = 5,
    repeats: int = 3,
    progress: Callable[[int, int], None],
) -> list[Measurement]:
    """Measure a server with its default settings, and one that decodes one request at a time."""
    if shutil.which("wrk") is None:
        raise UserError("bench serve needs wrk, a program that makes load (Debian: apt install wrk)")
    most = max(clients)
    loads: dict[int, list[Load]] = {number: [] for number in clients}
    alone: list[float] = []
    library: list[float] = []
    generator.generate(sources[:64])
    with (
        tempfile.TemporaryDirectory() as folder,
        _server(run) as together,
        _server(run, "--at-once", 1) as single,
    ):
        script = _script(Path(folder), sources)
        for turn in range(repeats):
            progress(turn, repeats)
            library.append(_sentences_per_second(generator, sources))
            for number in clients:
                loads[number].append(_load(together, script, clients=number, seconds=seconds))
            alone.append(_load(single, script, clients=most, seconds=seconds).requests_per_second)
        latencies = _latencies(together, generator, sources)
        progress(repeats, repeats)
    return [*_throughput(loads, alone=alone, library=library), *latencies]


def _throughput(
    loads: dict[int, list[Load]], *, alone: list[float], library: list[float]
) -> list[Measurement]:
    at_library = statistics.median(library)
    at_alone = statistics.median(alone)
    rows = [Measurement("library, all in one call", at_library, "sentences/s", None, None)]
    for number, found in loads.items():
        rate = statistics.median(load.requests_per_second for load in found)
        name = f"server, {number} client{'s' if number > 1 else ''}"
        rows.append(Measurement(name, rate, "requests/s", rate / at_library, "library"))
        for part in ("p50", "p99"):
            latency = statistics.median(getattr(load, part) for load in found)
            rows.append(Measurement(f"{name}, {part}", latency, "ms", None, None))
    most = max(loads)
    rate = statistics.median(load.requests_per_second for load in loads[most])
    rows.append(
        Measurement(
            f"server, {most} clients, one at a time", at_alone, "requests/s", at_alone / at_library, "library"
        )
    )
    rows.append(Measurement("joining batches", rate / at_alone, "times one at a time", None, None))
    return rows


def _sentences_per_second(generator: Generator, sources: Sequence[str]) -> float:
    began = time.perf_counter()
    generator.generate(sources)
    return len(sources) / (time.perf_counter() - began)


@contextmanager
def _server(run: Path, *flags: object) -> Iterator[str]:
    """A server on a free port; yields its address."""
    command = [sys.executable, "-m", "anyorder", "serve", str(run), "--port", "0", *map(str, flags)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            found = re.search(r"http://\S+", process.stderr.readline())
            if found is None:
                raise UserError(f"bench serve: the server has not started: {process.stderr.read()[-200:]}")
            # Its log must go somewhere, or the pipe would fill up.
            with subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL) as drain:
                yield found[0]
                process.terminate()
                process.wait(STARTING)
                drain.wait()
        finally:
            process.kill()


def _script(folder: Path, sources: Sequence[str]) -> Path:
    bodies, script = folder / "bodies", folder / "load.lua"
    bodies.write_text("".join(json.dumps({"source": source}) + "\n" for source in sources), encoding="utf-8")
    script.write_text(LUA % str(bodies), encoding="utf-8")
    return script


def _load(address: str, script: Path, *, clients: int, seconds: int) -> Load:
    """Let clients ask for some seconds, each as soon as it has its answer."""
    command = [
        "wrk",
        "-t1",
        f"-c{clients}",
        f"-d{seconds}s",
        "--timeout",
        "60s",
        "--latency",
        "-s",
        script,
        address,
    ]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    wrong = re.search(r"Non-2xx or 3xx responses: (\d+)", done.stdout)
    if rate is None or wrong is not None:
        raise UserError(f"bench serve: {done.stderr.strip() or done.stdout.strip()}")
    return Load(float(rate[1]), _percentile(done.stdout, 50), _percentile(done.stdout, 99))


def _percentile(said: str, share: int) -> float:
    found = re.search(rf"{share}%\s+([\d.]+)(us|ms|s|m)\b", said)
    return float("nan") if found is None else float(found[1]) * UNITS[found[2]]


# --- one client ---


def _latencies(address: str, generator: Generator, sources: Sequence[str]) -> list[Measurement]:
    """Time to the first step and to the answer, in turns with the library."""
    host = address.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=STARTING)
    times: dict[str, list[float]] = {}
    for source in sources[:SINGLE]:
        for name, milliseconds in (
            *_of_server(connection, source).items(),
            *_of_library(generator, source).items(),
        ):
            times.setdefault(name, []).append(milliseconds)
    connection.close()
    median = {name: statistics.median(values) for name, values in times.items()}
    rows = []
    for what in ("first step", "answer"):
        of_library, of_server = median[f"library, {what}"], median[f"server, {what}"]
        rows.append(Measurement(f"one client: library, {what}", of_library, "ms", None, None))
        ratio = of_server / of_library
        rows.append(Measurement(f"one client: server, {what}", of_server, "ms", ratio, "library"))
    return rows


def _of_server(connection: http.client.HTTPConnection, source: str) -> dict[str, float]:
    headers = {"Content-Type": "application/json"}
    began = time.perf_counter()
    connection.request("POST", "/v1/generate", json.dumps({"source": source, "stream": True}), headers)
    reply = connection.getresponse()
    reply.readline()
    first = time.perf_counter() - began
    reply.read()
    began = time.perf_counter()
    connection.request("POST", "/v1/generate", json.dumps({"source": source}), headers)
    connection.getresponse().read()
    answered = time.perf_counter() - began
    return {"server, first step": 1000 * first, "server, answer": 1000 * answered}


def _of_library(generator: Generator, source: str) -> dict[str, float]:
    began = time.perf_counter()
    session = Session(generator.loaded)
    session.ask({0: Question(source, generator.settings(), watch=Watch())})
    first = time.perf_counter() - began
    while session.size:
        session.step()
    began = time.perf_counter()
    generator.generate(source)
    answered = time.perf_counter() - began
    return {"library, first step": 1000 * first, "library, answer": 1000 * answered}
