"""Start the server on uvicorn (`anyorder[serve]`), and end it gracefully."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

from anyorder.errors import UserError
from anyorder.inference.generator import Generator
from anyorder.serve.access import is_loopback
from anyorder.serve.app import Server, ServerSettings

KEEP_ALIVE = 75  # seconds; longer than proxies keep connections
BACKLOG = 2048


class _Graceful(uvicorn.Server):
    """A web server for which a signal is a reason to finish its work and end well."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn would raise the signal again at the end, and the exit code would not be 0."""
        before = {
            number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve(
    models: Mapping[str, Generator],
    settings: ServerSettings,
    *,
    host: str,
    port: int,
    grace: int,
    ready: Callable[[str], None],
) -> None:
    """Serve models until a signal comes; requests under way are finished within `grace` seconds.

    ready: called with the address as soon as connections are accepted.
    """
    check_host(host, has_key=bool(settings.keys))
    listening = _bound(host, port)
    app: Starlette = Server(models, settings).app()
    config = uvicorn.Config(
        app,
        timeout_graceful_shutdown=grace,
        timeout_keep_alive=KEEP_ALIVE,
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=64 * 2**10,
    )
    address, number = listening.getsockname()[:2]
    shown = f"[{address}]" if ":" in address else address
    ready(f"http://{shown}:{number}")
    try:
        _Graceful(config).run(sockets=[listening])
    finally:
        listening.close()


def check_host(host: str, *, has_key: bool) -> None:
    """Refuse to serve other machines without a key."""
    if not has_key and not is_loopback(host):
        raise UserError(
            f"--host {host}: without --api-key-file only this machine is served; "
            "allowed: 127.0.0.1, ::1 or localhost"
        )


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as error:
        raise UserError(f"--host {host} --port {port}: can't be listened to: {error.strerror}") from None
    return bound
