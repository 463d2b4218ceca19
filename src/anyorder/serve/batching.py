"""The worker of a model: one thread that owns it, and a queue in front of it.

Questions that arrive while others are being answered join them between two steps. The event loop hands over
questions and gets back answers; nothing of the model runs on it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from anyorder.errors import UserError
from anyorder.inference.loaded_model import LoadedModel
from anyorder.inference.session import Question, Session, Written
from anyorder.inference.watching import WatchedStep
from anyorder.serve.metrics import Metrics

_log = logging.getLogger("anyorder.serve")

# Newcomers join when they number so much of those under way, or when they have waited for so many steps.
JOINING_SHARE, JOINING_PATIENCE = 0.5, 6


class QueueFullError(Exception):
    """No more questions can wait."""


class DeadlinePassedError(Exception):
    """A question took longer than it was allowed to."""


class BrokenError(Exception):
    """The model failed in a way that is nobody's mistake but ours."""


# What is answered in one go, such as scores.
Whole = Callable[[LoadedModel], Any]
Tell = Callable[[Any], None]


@dataclass(eq=False)
class Job:
    """A question on its way."""

    work: Question | Whole
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]
    deadline: float  # as time.monotonic counts
    tell: Callable[[WatchedStep], None] | None = None
    given_up: bool = False
    number: int = field(default_factory=itertools.count().__next__)


class ModelWorker:
    """Answers questions with one model.

    queue: most questions that wait; at_once: most that are answered together.
    """

    def __init__(self, model: LoadedModel, *, name: str, queue: int, at_once: int, metrics: Metrics) -> None:
        self.model, self.name = model, name
        self._queue, self._at_once, self._metrics = queue, at_once, metrics
        self._waiting: deque[Job] = deque()
        self._open: dict[int, Job] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._steps_alone = 0  # since somebody joined
        self._session = Session(model, most=at_once)
        self._thread = threading.Thread(target=self._run, name=f"model-{name}", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, once its step is over."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    @property
    def waiting(self) -> int:
        """Number of questions in the queue."""
        return len(self._waiting)

    def submit(
        self, works: Iterable[Question | Whole], *, seconds: float, tell: Tell | None = None
    ) -> list[Job]:
        """Put questions into the queue; all of them find room there, or none. Call it on the event loop."""
        loop, now = asyncio.get_running_loop(), time.monotonic()
        jobs = [Job(work, loop, loop.create_future(), now + seconds, tell) for work in works]
        with self._changed:
            if len(self._waiting) + len(jobs) > self._queue:
                raise QueueFullError
            self._waiting.extend(jobs)
            self._changed.notify()
        return jobs

    def give_up(self, jobs: Iterable[Job]) -> None:
        """Stop working on questions whose answers nobody waits for."""
        with self._changed:
            for job in jobs:
                job.given_up = True
            self._changed.notify()

    # --- on the worker's thread ---

    def _run(self) -> None:
        while True:
            new = self._next()
            if new is None:
                return
            try:
                self._work(new)
            except Exception:  # a mistake of ours must not take the server down
                _log.exception("model %s failed", self.name)
                lost = {*self._open.values(), *new}
                self._open.clear()
                self._session = Session(self.model, most=self._at_once)
                _deliver([(job, BrokenError()) for job in lost])

    def _next(self) -> list[Job] | None:
        """Questions to begin with; waits while there is nothing at all to do. None: the end."""
        with self._changed:
            while not (self._waiting or self._open or self._stopping):
                self._changed.wait()
            if self._stopping:
                return None
            new: list[Job] = []
            if self._should_join():
                while self._waiting and len(new) < self._session.room:
                    new.append(self._waiting.popleft())
                self._steps_alone = 0
            else:
                self._steps_alone += 1
        return new

    def _should_join(self) -> bool:
        """Whether those who wait join now. A few cost hardly more than one, so one waits for others."""
        many = len(self._waiting) >= JOINING_SHARE * len(self._open)
        return many or self._steps_alone >= JOINING_PATIENCE

    def _work(self, new: list[Job]) -> None:
        delivered: list[tuple[Job, Any]] = []
        now = time.monotonic()
        delivered += [(job, DeadlinePassedError()) for job in new if job.deadline < now]
        for job in new:
            if not job.given_up and job.deadline >= now:
                self._open[job.number] = job
        wholes = [job for job in new if job.number in self._open and not isinstance(job.work, Question)]
        for job in wholes:
            del self._open[job.number]
            delivered.append((job, self._whole(job)))
        delivered += self._drop(now)
        questions: dict[Hashable, Question] = {
            job.number: job.work for job in new if job.number in self._open and isinstance(job.work, Question)
        }
        if questions:
            self._session.ask(questions)
        if self._open:
            self._metrics.step(self.name, sentences=len(self._open))
            answers = self._session.step()
            steps = [(self._open.get(key), step) for key, step in self._session.steps()]  # type: ignore[call-overload]
            told = [(job, step) for job, step in steps if job is not None and job.tell is not None]
            delivered += [(self._open.pop(key), answer) for key, answer in answers.items()]  # type: ignore[call-overload]
            _deliver(delivered, told)
        else:
            _deliver(delivered)

    def _whole(self, job: Job) -> Any:  # noqa: ANN401
        assert not isinstance(job.work, Question)
        try:
            return job.work(self.model)
        except UserError as error:
            return error

    def _drop(self, now: float) -> list[tuple[Job, Written | Exception]]:
        late = [job for job in self._open.values() if job.deadline < now]
        gone = [job for job in self._open.values() if job.given_up]
        if late or gone:
            keys = {job.number for job in (*late, *gone)}
            self._session.drop(keys)
            for key in keys:
                del self._open[key]
        return [(job, DeadlinePassedError()) for job in late if not job.given_up]


def _deliver(answers: list[tuple[Job, Any]], steps: list[tuple[Job, WatchedStep]] | None = None) -> None:
    """Hand over answers to the event loop, all with one call."""
    if not answers and not steps:
        return

    def hand_over() -> None:
        for job, step in steps or ():
            if job.tell is not None:
                job.tell(step)
        for job, answer in answers:
            if not job.answer.done():
                job.answer.set_result(answer)

    loop = (answers[0][0] if answers else steps[0][0]).loop  # type: ignore[index]
    if not loop.is_closed():
        loop.call_soon_threadsafe(hand_over)
