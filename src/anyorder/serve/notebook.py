"""The studio from Python: a server in a thread (`anyorder[serve]`), and its page in a notebook."""

from __future__ import annotations

import html
import socket
import threading
import time
from typing import Self

import uvicorn

from anyorder.inference.generator import Generator
from anyorder.serve.app import Server, ServerSettings

STARTING = 30  # seconds at most
HEIGHT = 760  # pixels


class Studio:
    """A running studio. In a notebook it shows the page; `url` opens in any browser of this machine."""

    def __init__(self, models: dict[str, Generator], *, port: int) -> None:
        self._socket = socket.create_server(("127.0.0.1", port), backlog=128)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/"
        config = uvicorn.Config(Server(models, ServerSettings()).app(), log_config=None, access_log=False)
        self._server = uvicorn.Server(config)
        sockets = {"sockets": [self._socket]}
        self._thread = threading.Thread(target=self._server.run, kwargs=sockets, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + STARTING
        while not self._server.started and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)

    def stop(self) -> None:
        """End the server."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        """Where it is."""
        return f"<Studio at {self.url}>"

    def _repr_html_(self) -> str:
        """The page in a frame."""
        style = f"width:100%;height:{HEIGHT}px;border:0;border-radius:12px"
        return f'<iframe src="{html.escape(self.url)}" style="{style}" title="anyorder studio"></iframe>'


def studio(*models: Generator, port: int = 0) -> Studio:
    """Open the studio page with some models; in a notebook it appears below the cell.

    models: what `anyorder.load` returned; port: of this machine, 0 picks a free one. The page can be seen by
    this machine only. `stop()` ends it, and so does the end of the process.

    >>> import anyorder
    >>> with anyorder.studio(anyorder.load("django-small")) as page:
    ...     page.url.startswith("http://127.0.0.1:")
    True
    """
    return Studio({model.name: model for model in models}, port=port)
