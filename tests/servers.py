"""Servers for the tests: one in this process, and one in a process of its own."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from corpora import PATIENCE, QUIET, command

from anyorder.inference.generator import Generator
from anyorder.serve.app import Server, ServerSettings


@dataclass(frozen=True)
class Reply:
    """What a server said."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:  # noqa: ANN401
        return json.loads(self.body)


def request(
    address: str,
    body: object = None,
    *,
    headers: Mapping[str, str] | None = None,
    method: str | None = None,
    timeout: float = PATIENCE,
) -> Reply:
    """Ask a server. body: bytes, or what is to be sent as JSON; None to read."""
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    kind = {} if data is None else {"Content-Type": "application/json"}
    asked = urllib.request.Request(address, data=data, headers={**kind, **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=timeout) as reply:
            return Reply(reply.status, reply.read(), dict(reply.headers))
    except urllib.error.HTTPError as error:
        return Reply(error.code, error.read(), dict(error.headers))


@contextmanager
def serving(models: Mapping[str, Generator], settings: ServerSettings | None = None) -> Iterator[str]:
    """A server in a thread of this process; yields its address."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        app = Server(models, settings or ServerSettings()).app()
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + PATIENCE
        while not server.started:
            assert thread.is_alive() and time.monotonic() < deadline, "the server has not started"
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(PATIENCE)


@dataclass(frozen=True)
class Process:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    address: str


@contextmanager
def started(*arguments: object) -> Iterator[Process]:
    """`anyorder serve` on a free port."""
    process = subprocess.Popen(
        command("serve", *arguments, "--port", 0), env=QUIET, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        found = re.search(r"http://\S+", said)
        assert found is not None, said + process.stderr.read()
        yield Process(process, found[0])
    finally:
        process.kill()
        process.communicate()
