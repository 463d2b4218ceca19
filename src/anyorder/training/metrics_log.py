"""What happened in a training: `metrics.jsonl` for programs, TensorBoard and listeners for people."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch.utils.tensorboard.writer import SummaryWriter

from anyorder.adaptive.schedule import SearchSummary
from anyorder.errors import UserError
from anyorder.system.files import read_text, write_file
from anyorder.system.progress import ProgressListener
from anyorder.training.step import Sums

METRICS_FILE = "metrics.jsonl"


class TrainingListener(ProgressListener, Protocol):
    """What `train` reports to, such as the progress bar of the command line."""

    def trained(self, step: int, steps: int, metrics: dict[str, float]) -> None:
        """Updates up to this step were made and logged."""

    def validated(self, step: int, scores: dict[str, Any], *, best: bool) -> None:
        """The model was scored on the dev set."""


class MetricsLog:
    """Appends lines to `metrics.jsonl` and TensorBoard.

    Lines that a stopped run logged after its last checkpoint are removed first: its updates will be repeated.
    """

    def __init__(self, run: Path, *, from_step: int) -> None:
        path = run / METRICS_FILE
        if path.exists():
            lines = _lines(path)
            write_file(path, "".join(f"{line}\n" for line in lines if _step(line) <= from_step).encode())
        self._file = path.open("a", encoding="utf-8")
        self._board = SummaryWriter(str(run / "tensorboard"), purge_step=from_step + 1)

    def write(self, step: int, values: dict[str, Any]) -> None:
        """Write one line, which is on disk at once."""
        try:
            self._file.write(json.dumps({"step": step, **values}) + "\n")
            self._file.flush()
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(name, value, step)
        except OSError as error:
            raise UserError(f"{self._file.name}: can't be written: {error.strerror}") from error

    def close(self) -> None:
        """Close both files."""
        for log in (self._file, self._board):
            with suppress(OSError):  # `write` has already reported a full disk
                log.close()


@dataclass(frozen=True)
class LastUpdate:
    """How far a training has come."""

    step: int
    epoch: int  # counted from 0
    seconds: float  # of all updates and the searches for their orders


def last_update(run: Path) -> LastUpdate | None:
    """The newest update in a run's log; None if there is none."""
    for entry in reversed(entries(run)):
        with suppress(ValueError, KeyError, TypeError):  # lines of validations and searches lack these keys
            return LastUpdate(
                step=int(entry["step"]), epoch=int(entry["epoch"]), seconds=float(entry["seconds"])
            )
    return None


def searches(run: Path) -> dict[int, SearchSummary]:
    """The order searches in a run's log, by the update that each was made for."""
    found = [(int(entry["step"]), SearchSummary.of_log(entry)) for entry in entries(run)]
    return {step: summary for step, summary in found if summary is not None}


def entries(run: Path) -> list[dict[str, Any]]:
    """All complete lines of a run's log; empty if there is no log."""
    path = run / METRICS_FILE
    try:
        lines = _lines(path)
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        with suppress(ValueError, RecursionError):  # a training that was killed may leave half a line
            found.append(json.loads(line))
    return [entry for entry in found if isinstance(entry, dict) and "step" in entry]


def _lines(path: Path) -> list[str]:
    return read_text(path).splitlines()


def _step(line: str) -> float:
    """The step of a line; infinite for half a line, so that it is removed."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return float("inf")


@dataclass(frozen=True)
class Window:
    """Losses and speed since the last line of the log."""

    word: float = 0.0  # -log p of all words
    gap: float = 0.0  # -log p of all gaps
    words: float = 0.0
    gaps: float = 0.0
    gradient_norm: float = 0.0  # of the last update
    tokens: int = 0
    seconds: float = 0.0

    def with_update(self, sums: Sums, *, tokens: int, seconds: float) -> Window:
        """The window with one more update. tokens: source and target tokens of its pairs."""
        return Window(
            word=self.word + sums.word,
            gap=self.gap + sums.gap,
            words=self.words + sums.words,
            gaps=self.gaps + sums.gaps,
            gradient_norm=sums.gradient_norm,
            tokens=self.tokens + tokens,
            seconds=self.seconds + seconds,
        )

    def metrics(self) -> dict[str, float]:
        """Losses per step, per word and per gap, and source and target tokens per second."""
        return {
            "loss": (self.word + self.gap) / max(1.0, self.words, self.gaps),
            "word_loss": self.word / max(1.0, self.words),
            "gap_loss": self.gap / max(1.0, self.gaps),
            "gradient_norm": self.gradient_norm,
            "tokens_per_second": self.tokens / self.seconds,
        }
