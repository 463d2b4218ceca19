"""What happened in a training: `metrics.jsonl` for programs, TensorBoard for eyes."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.utils.tensorboard.writer import SummaryWriter

from anyorder.adaptive.schedule import SearchSummary
from anyorder.errors import UserError
from anyorder.system.files import write_file
from anyorder.training.step import Sums


class MetricsLog:
    """Appends; what a stopped run logged beyond its checkpoint is taken back first."""

    def __init__(self, run: Path, *, from_step: int) -> None:
        path = run / "metrics.jsonl"
        if path.exists():
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            write_file(path, "".join(line for line in lines if _step(line) <= from_step).encode())
        self._file = path.open("a", encoding="utf-8")
        self._board = SummaryWriter(str(run / "tensorboard"), purge_step=from_step + 1)

    def write(self, step: int, values: dict[str, Any]) -> None:
        """One line, on disk at once."""
        try:
            self._file.write(json.dumps({"step": step, **values}) + "\n")
            self._file.flush()
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(name, value, step)
        except OSError as error:
            raise UserError(f"{self._file.name}: can't be written: {error.strerror}") from error

    def close(self) -> None:
        """No more lines."""
        for log in (self._file, self._board):
            with suppress(OSError):  # of a full disk: `write` has said it
                log.close()


@dataclass(frozen=True)
class LastUpdate:
    """How far a training has come."""

    step: int
    epoch: int  # counted from 0
    seconds: float  # of all updates, their searches included


def last_update(run: Path) -> LastUpdate | None:
    """What the log tells of the newest update; None: of none."""
    for entry in reversed(entries(run)):
        with suppress(ValueError, KeyError, TypeError):  # of a validation or a search
            return LastUpdate(
                step=int(entry["step"]), epoch=int(entry["epoch"]), seconds=float(entry["seconds"])
            )
    return None


def searches(run: Path) -> dict[int, SearchSummary]:
    """What the log tells of searches for the orders of all training targets, by the updates they were for."""
    found = [(int(entry["step"]), SearchSummary.of_log(entry)) for entry in entries(run)]
    return {step: summary for step, summary in found if summary is not None}


def entries(run: Path) -> list[dict[str, Any]]:
    """All that is logged, none without a log; a half-written line of a stopped training tells nothing."""
    path = run / "metrics.jsonl"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror}") from None
    found = []
    for line in lines:
        with suppress(ValueError):
            found.append(json.loads(line))
    return [entry for entry in found if isinstance(entry, dict) and "step" in entry]


def _step(line: str) -> float:
    """The step of a line; a half-written one counts as too late to keep."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")


@dataclass(frozen=True)
class Window:
    """Losses and speed since the last line of the log."""

    word: float = 0.0
    gap: float = 0.0
    words: float = 0.0
    gaps: float = 0.0
    gradient_norm: float = 0.0  # of the last update
    tokens: int = 0
    seconds: float = 0.0

    def with_update(self, sums: Sums, *, tokens: int, seconds: float) -> Window:
        """One update more."""
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
        """Losses a word and a gap; source and target tokens a second."""
        return {
            "loss": (self.word + self.gap) / max(1.0, self.words, self.gaps),
            "word_loss": self.word / max(1.0, self.words),
            "gap_loss": self.gap / max(1.0, self.gaps),
            "gradient_norm": self.gradient_norm,
            "tokens_per_second": self.tokens / self.seconds,
        }
