"""One log line for each request (`anyorder[serve]`), without what was asked unless that is wanted."""

from __future__ import annotations

import json
import logging
import time
from itertools import count
from typing import Any

from starlette.requests import Request

_log = logging.getLogger("anyorder.serve.requests")
_numbers = count(1)


class Entry:
    """The log line of a request."""

    def __init__(self, request: Request, *, sources: bool) -> None:
        self._with_sources = sources
        self.number = next(_numbers)
        self._fields: dict[str, Any] = {
            "request": self.number,
            "method": request.method,
            "path": request.url.path,
            "client": request.client.host if request.client else "",
        }

    def asked(self, number: int, sources: object) -> None:
        """Say how many sources there were, once the request has been read, and perhaps which."""
        self._fields["sources"] = number
        if self._with_sources:
            self._fields["source"] = sources

    def done(self, status: int, seconds: float) -> None:
        """Write the line."""
        fields = {**self._fields, "status": status, "ms": round(1000 * seconds, 1)}
        _log.info("request", extra={"fields": fields})


class RequestLog:
    """Makes log lines."""

    def __init__(self, *, sources: bool) -> None:
        self.sources = sources

    def entry(self, request: Request) -> Entry:
        """Begin the line of a request."""
        return Entry(request, sources=self.sources)


class TextFormat(logging.Formatter):
    """A line for people."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level and what there is to say."""
        fields = getattr(record, "fields", None)
        said = record.getMessage() if fields is None else " ".join(f"{k}={v}" for k, v in fields.items())
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        line = f"{moment} {record.levelname.lower()} {said}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormat(logging.Formatter):
    """A line for programs."""

    def format(self, record: logging.LogRecord) -> str:
        """One JSON object."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        line: dict[str, Any] = {"time": moment, "level": record.levelname.lower()}
        fields = getattr(record, "fields", None)
        line |= {"message": record.getMessage()} if fields is None else fields
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure_logging(*, as_json: bool, level: str = "info") -> None:
    """Send the log of the server, and of what it runs on, to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormat() if as_json else TextFormat())
    for name in ("anyorder", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper())
    logging.getLogger("uvicorn").setLevel("WARNING")
    for name in ("uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).handlers = []
