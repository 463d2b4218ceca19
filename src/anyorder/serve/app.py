"""The server: requests in, answers out. It needs the extra `anyorder[serve]`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from anyorder.errors import UserError
from anyorder.inference.answers import json_line
from anyorder.inference.generator import Generator
from anyorder.serve.access import Access
from anyorder.serve.batching import (
    BrokenError,
    DeadlinePassedError,
    Job,
    ModelWorker,
    QueueFullError,
    Tell,
)
from anyorder.serve.bounds import Bounds
from anyorder.serve.metrics import CONTENT_TYPE_LATEST, Metrics
from anyorder.serve.openapi import docs_page, openapi
from anyorder.serve.questions import Asked, ask_complete, ask_generate, ask_score, model_card, parse
from anyorder.serve.requests_log import Entry, RequestLog
from anyorder.serve.schema import TooMuch
from anyorder.viz.component import studio_page

RETRY_AFTER = {"Retry-After": "1"}
KEPT_ALIVE = 10.0  # seconds between two signs of life of a stream
# A page can't be framed by others, takes nothing from other hosts, and runs only its own script.
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self' data: blob:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@dataclass
class Served:
    """A model and its worker."""

    generator: Generator
    worker: ModelWorker


@dataclass(frozen=True)
class ServerSettings:
    """How a server behaves."""

    bounds: Bounds = field(default_factory=Bounds)
    deadline: float = 30.0  # seconds, of requests that give none
    at_once: int = 64  # questions that are answered together
    keys: Sequence[bytes] = ()  # any of these opens the server; none: no key is needed
    origins: Sequence[str] = ()  # pages of other hosts that may ask
    log_sources: bool = False


class Server:
    """The routes, and what they share."""

    def __init__(self, models: Mapping[str, Generator], settings: ServerSettings) -> None:
        self.settings, self.metrics, self.log = settings, Metrics(), RequestLog(sources=settings.log_sources)
        self._access = Access(settings.keys)
        self.models: dict[str, Served] = {}
        for name, generator in models.items():
            worker = ModelWorker(
                generator.loaded,
                name=name,
                queue=settings.bounds.queue,
                at_once=settings.at_once,
                metrics=self.metrics,
            )
            self.metrics.watch_queue(name, lambda worker=worker: worker.waiting)  # type: ignore[misc]
            self.models[name] = Served(generator, worker)

    def app(self) -> Starlette:
        """The application that a web server runs."""
        routes = [
            Route("/v1/generate", self._posted(ask_generate), methods=["POST"]),
            Route("/v1/complete", self._posted(ask_complete), methods=["POST"]),
            Route("/v1/score", self._posted(ask_score), methods=["POST"]),
            # Editing has its place here: Route("/v1/edit", ...), once models edit drafts.
            Route("/v1/models", self._guarded(self._list_models), methods=["GET"]),
            Route("/metrics", self._guarded(self._show_metrics), methods=["GET"]),
            Route("/health", self._health, methods=["GET"]),
            Route("/openapi.json", self._openapi, methods=["GET"]),
            Route("/docs", self._docs, methods=["GET"]),
            Route("/", self._studio, methods=["GET"]),
        ]
        middleware = []
        if self.settings.origins:
            middleware.append(
                Middleware(
                    CORSMiddleware,
                    allow_origins=list(self.settings.origins),
                    allow_methods=["GET", "POST"],
                    allow_headers=["Authorization", "Content-Type"],
                )
            )
        handlers: Any = {404: _not_found, 405: _not_allowed}
        return Starlette(
            routes=routes, middleware=middleware, lifespan=self._lifespan, exception_handlers=handlers
        )

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        for served in self.models.values():
            served.worker.start()
        yield
        for served in self.models.values():
            await asyncio.to_thread(served.worker.stop)

    # --- what is read ---

    async def _list_models(self, _: Request) -> Response:
        cards = [model_card(name, one.generator, self.settings.bounds) for name, one in self.models.items()]
        return _json(json_line({"models": cards}))

    async def _show_metrics(self, _: Request) -> Response:
        return Response(self.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    async def _health(self, _: Request) -> Response:
        return _json(json_line({"status": "ok", "models": list(self.models)}))

    async def _openapi(self, _: Request) -> Response:
        return _json(json_line(openapi(self.settings.bounds, needs_key=bool(self.settings.keys))))

    async def _docs(self, _: Request) -> Response:
        return Response(docs_page(), media_type="text/html", headers=PAGE_HEADERS)

    async def _studio(self, _: Request) -> Response:
        return Response(studio_page(), media_type="text/html", headers=PAGE_HEADERS)

    # --- what is asked ---

    def _guarded(
        self, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            refused = self._access.refusal(request)
            if refused is not None:
                status, why = refused
                headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
                return _error(status, why, headers)
            return await answer(request)

        return guarded

    def _posted(self, ask: Callable[..., Asked]) -> Callable[[Request], Awaitable[Response]]:
        async def posted(request: Request) -> Response:
            began = time.perf_counter()
            entry = self.log.entry(request)
            try:
                response = await self._answered(request, ask, entry)
            except TooMuch as error:
                response = _error(422, str(error))
            except UserError as error:
                response = _error(422, str(error))
            except _Refusal as refusal:
                response = _error(refusal.status, str(refusal), refusal.headers)
            except ClientDisconnect:
                response = Response(status_code=499)

            def done() -> None:
                seconds = time.perf_counter() - began
                self.metrics.request(request.url.path, response.status_code, seconds)
                entry.done(response.status_code, seconds)

            if isinstance(response, StreamingResponse):
                response.body_iterator = _then(response.body_iterator, done)
            else:
                done()
            return response

        return self._guarded(posted)

    async def _answered(self, request: Request, ask: Callable[..., Asked], entry: Entry) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise _Refusal(415, f"content-type: {kind[:40] or 'missing'}: must be application/json")
        values = parse(await self._body(request))
        name = values.get("model")
        served = self._served(name)
        asked = ask(values, served.generator, self.settings.bounds)
        entry.asked(asked.sources, values.get("source") or values.get("sources"))
        seconds = asked.deadline or self.settings.deadline
        if asked.stream:
            return await self._streamed(request, served, asked, seconds)
        try:
            jobs = served.worker.submit(asked.works, seconds=seconds)
        except QueueFullError:
            raise _full() from None
        found = await self._waited(request, served.worker, jobs, seconds)
        self._count(served, asked, found)
        return _json(asked.as_json(found))

    async def _waited(
        self, request: Request, worker: ModelWorker, jobs: Sequence[Job], seconds: float
    ) -> list[Any]:
        """The answers to all jobs, unless time runs out or nobody waits for them any more."""
        answers = asyncio.gather(*(job.answer for job in jobs))
        gone: asyncio.Future[Any] = asyncio.ensure_future(_gone(request))
        both: set[asyncio.Future[Any]] = {answers, gone}
        try:
            await asyncio.wait(both, timeout=seconds + 1, return_when=asyncio.FIRST_COMPLETED)
            if not answers.done():
                self.metrics.given_up("disconnected" if gone.done() else "deadline")
                raise ClientDisconnect if gone.done() else _late(seconds)
            found = answers.result()
        finally:
            gone.cancel()
            if not answers.done():
                worker.give_up(jobs)
                answers.cancel()
        for one in found:
            if isinstance(one, DeadlinePassedError):
                self.metrics.given_up("deadline")
                raise _late(seconds)
            if isinstance(one, BrokenError):
                raise _Refusal(500, "the model failed; the server's log says why")
        return list(found)

    async def _streamed(self, request: Request, served: Served, asked: Asked, seconds: float) -> Response:
        events: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        tell: Tell = lambda step: events.put_nowait(("step", json_line(asdict(step))))  # noqa: E731
        try:
            (job,) = served.worker.submit(asked.works, seconds=seconds, tell=tell)
        except QueueFullError:
            raise _full() from None

        def ended(answer: asyncio.Future[Any]) -> None:
            if not answer.cancelled():
                events.put_nowait(self._last_event(served, asked, answer.result(), seconds))

        job.answer.add_done_callback(ended)

        async def chunks() -> AsyncIterator[bytes]:
            try:
                kind = ""
                while kind not in ("answer", "error"):
                    try:
                        kind, data = await asyncio.wait_for(events.get(), timeout=KEPT_ALIVE)
                    except TimeoutError:
                        yield b": still writing\n\n"
                        continue
                    yield f"event: {kind}\ndata: {data}\n\n".encode()
            finally:
                if not job.answer.done():
                    self.metrics.given_up("disconnected")
                    served.worker.give_up([job])

        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        return StreamingResponse(chunks(), media_type="text/event-stream", headers=headers)

    def _last_event(
        self,
        served: Served,
        asked: Asked,
        answer: Any,  # noqa: ANN401
        seconds: float,
    ) -> tuple[str, str]:
        if isinstance(answer, DeadlinePassedError):
            self.metrics.given_up("deadline")
            return "error", json_line({"error": str(_late(seconds))})
        if isinstance(answer, BrokenError):
            return "error", json_line({"error": "the model failed; the server's log says why"})
        try:
            text = asked.as_json([answer])
        except UserError as error:
            return "error", json_line({"error": str(error)})
        self._count(served, asked, [answer])
        return "answer", text

    def _count(self, served: Served, asked: Asked, found: Sequence[Any]) -> None:
        answers = [one for one in found if isinstance(one, list)]
        tokens = sum(len(one[0].tokens) for one in answers if hasattr(one[0], "tokens"))
        self.metrics.written(served.worker.name, sentences=asked.sources, tokens=tokens)

    def _served(self, name: object) -> Served:
        if name is None:
            return next(iter(self.models.values()))
        if not isinstance(name, str) or name not in self.models:
            known = ", ".join(self.models)
            raise _Refusal(404, f"model = {str(name)[:60]!r}: no such model; this server has {known}")
        return self.models[name]

    async def _body(self, request: Request) -> bytes:
        """Read the body, but no more of it than is allowed."""
        most = self.settings.bounds.max_body
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise _Refusal(413, f"body: more than {most} bytes, the most that this server allows")
            parts.append(part)
        return b"".join(parts)


class _Refusal(Exception):
    """A request that gets no answer, with its status."""

    def __init__(self, status: int, why: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(why)
        self.status, self.headers = status, headers


def _late(seconds: float) -> _Refusal:
    return _Refusal(408, f"deadline = {seconds:g}: the answer took longer than so many seconds")


def _full() -> _Refusal:
    return _Refusal(503, "the queue is full; try again in a second", RETRY_AFTER)


async def _gone(request: Request) -> None:
    """Wait until the client has gone away. Its body has been read, so nothing else can come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _then(chunks: AsyncIterable[Any], done: Callable[[], None]) -> AsyncIterator[Any]:
    """The same chunks; calls `done` after the last one, or when nobody wants more."""
    try:
        async for chunk in chunks:
            yield chunk
    finally:
        done()
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()  # gives up what is under way at once, not when garbage is collected


def _json(text: str) -> Response:
    return Response(text, media_type="application/json")


def _error(status: int, why: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json_line({"error": why}), status, headers, media_type="application/json")


async def _not_found(request: Request, _: Exception) -> Response:
    return _error(404, f"{request.url.path[:80]}: there is nothing here; /docs lists what there is")


async def _not_allowed(request: Request, error: Any) -> Response:  # noqa: ANN401
    allowed = (getattr(error, "headers", None) or {}).get("Allow", "")
    return _error(405, f"{request.method}: must be {allowed}", getattr(error, "headers", None))
