"""The server as a process: it starts, it ends well, and it loses nothing on the way."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import threading
import time
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path

from corpora import PATIENCE, QUIET, assert_one_line_refusal, call, command, learned
from servers import request, started

HARD = {"source": "a b c d", "beam": 4}


def test_a_signal_under_load_loses_no_accepted_request() -> None:
    """Clients ask all the time. All that the server has logged was answered; the rest was not accepted."""
    answered: list[int] = []
    refused: list[str] = []
    with started(learned().run, "--log-format", "json", "--grace", 20) as server:
        assert server.process.stderr is not None
        stopping = threading.Event()
        lines: list[str] = []
        reader = threading.Thread(target=lambda: lines.extend(server.process.stderr))  # type: ignore[arg-type]
        reader.start()

        def ask(_: int) -> None:
            while not stopping.is_set():
                try:
                    answered.append(request(f"{server.address}/v1/generate", HARD).status)
                except (urllib.error.URLError, HTTPException, ConnectionError) as error:
                    refused.append(str(error))
                    return

        with ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(ask, number) for number in range(8)]
            while len(answered) < 30:
                time.sleep(0.01)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(PATIENCE) == 0
            stopping.set()
            for one in asked:
                one.result()
        reader.join(PATIENCE)
    logged = [json.loads(line) for line in lines if line.startswith("{")]
    finished = [entry["status"] for entry in logged if entry.get("path") == "/v1/generate"]
    assert set(answered) == set(finished) == {200}
    assert len(answered) == len(finished)
    assert refused  # those that came later never reached it


def test_log_lines_hold_no_source_unless_asked_for() -> None:
    for flags, expected in (([], False), (["--log-sources"], True)):
        with started(learned().run, *flags) as server:
            request(f"{server.address}/v1/generate", {"source": "a b h h g"})
            server.process.terminate()
            _, said = server.process.communicate(timeout=PATIENCE)
        assert "path=/v1/generate" in said and "status=200" in said
        assert ("a b h h g" in said) is expected


def test_it_refuses_to_serve_others_without_a_key(tmp_path: Path) -> None:
    assert_one_line_refusal(
        call("serve", learned().run, "--host", "0.0.0.0"), "--host 0.0.0.0", "--api-key-file"
    )
    empty = tmp_path / "keys"
    empty.write_text("# none yet\n\n")
    assert_one_line_refusal(call("serve", learned().run, "--api-key-file", empty), "holds no key")
    empty.write_text("short\n")
    assert_one_line_refusal(call("serve", learned().run, "--api-key-file", empty), "shorter than 8")
    assert_one_line_refusal(call("serve", learned().run, "--api-key-file", tmp_path / "none"), "No such file")


def test_names_of_models_differ() -> None:
    run = learned().run
    assert_one_line_refusal(call("serve", run, run), "two models are called run")
    with started(f"first={run}", f"second={run}") as server:
        assert request(f"{server.address}/health").json["models"] == ["first", "second"]


def test_a_port_in_use_is_refused() -> None:
    with started(learned().run) as server:
        port = server.address.rpartition(":")[2]
        assert_one_line_refusal(call("serve", learned().run, "--port", port), f"--port {port}", "in use")


def test_it_serves_with_a_key_in_a_file_that_only_its_user_reads(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a-long-enough-key\n")
    keys.chmod(stat.S_IRUSR)
    with started(learned().run, "--host", "0.0.0.0", "--api-key-file", keys) as server:
        address = server.address.replace("0.0.0.0", "127.0.0.1")
        headers = {"Authorization": "Bearer a-long-enough-key"}
        assert request(f"{address}/v1/generate", {"source": "a"}, headers=headers).status == 200
        assert request(f"{address}/v1/generate", {"source": "a"}).status == 401


def test_help_does_not_wait_for_torch() -> None:
    probe = "import sys; import anyorder.cli.serve; print('torch' in sys.modules, 'starlette' in sys.modules)"
    done = subprocess.run(
        [*command()[:1], "-c", probe], env=QUIET, capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert done.stdout.split() == ["False", "False"]
