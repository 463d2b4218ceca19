"""Counts and times for Prometheus, by its client library (`anyorder[serve]`)."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPEN_METRICS

__all__ = ["CONTENT_TYPE_LATEST", "OPEN_METRICS", "Metrics"]

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """What one server has done."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "anyorder_requests", "Requests answered", ["path", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "anyorder_request_seconds",
            "Time from a request to its answer",
            ["path"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self._sentences = Counter(
            "anyorder_sentences", "Sentences written or scored", ["model"], registry=self.registry
        )
        self._tokens = Counter(
            "anyorder_tokens", "Tokens of the best hypotheses", ["model"], registry=self.registry
        )
        self._batch = Histogram(
            "anyorder_batch_sentences",
            "Sentences that take a step together",
            ["model"],
            buckets=SENTENCES,
            registry=self.registry,
        )
        self._waiting = Gauge("anyorder_waiting", "Questions in the queue", ["model"], registry=self.registry)
        self._given_up = Counter(
            "anyorder_given_up",
            "Questions that were dropped: deadline or disconnected",
            ["why"],
            registry=self.registry,
        )

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def written(self, model: str, *, sentences: int, tokens: int) -> None:
        """Count sentences."""
        self._sentences.labels(model).inc(sentences)
        self._tokens.labels(model).inc(tokens)

    def step(self, model: str, *, sentences: int) -> None:
        """Count a step of a batch."""
        self._batch.labels(model).observe(sentences)

    def given_up(self, why: str) -> None:
        """Count a question that was dropped."""
        self._given_up.labels(why).inc()

    def watch_queue(self, model: str, waiting: Callable[[], float]) -> None:
        """Ask for the length of a model's queue whenever metrics are read."""
        self._waiting.labels(model).set_function(waiting)

    def text(self) -> bytes:
        """All metrics, in Prometheus' text format."""
        return generate_latest(self.registry)
