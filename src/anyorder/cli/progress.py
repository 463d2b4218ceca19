"""Progress on stderr: a live bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from anyorder.cli.output import remarks


class Watcher:
    """Shows the progress of preparation, training and benchmarks."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[metrics]}"),
            TimeRemainingColumn(),
            console=remarks,
            transient=True,
            disable=not remarks.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def note(self, text: str) -> None:
        """Print a remark."""
        remarks.print(text, soft_wrap=True)

    def preparing(self, what: str, done: int, total: int) -> None:
        """Show how many items of some work are done."""
        task = self._task(what, total)
        self._bar.update(task, completed=done, visible=done < total)

    def measured(self, what: str, done: int, total: int) -> None:
        """Show how many repetitions of a benchmark are done."""
        self.preparing(what, done, total)
        if not remarks.is_terminal:
            remarks.print(f"{what}: {done} of {total} repetitions", soft_wrap=True)

    def trained(self, step: int, steps: int, metrics: dict[str, float]) -> None:
        """Show the losses and the speed of the last updates."""
        shown = (
            f"word {metrics['word_loss']:.3f}  gap {metrics['gap_loss']:.3f}  "
            f"{metrics['tokens_per_second']:,.0f} tokens/s"
        )
        self._bar.update(self._task("training", steps), completed=step, metrics=shown)
        if not remarks.is_terminal:
            left = self._bar.tasks[self._task("training", steps)].time_remaining
            remarks.print(
                f"step {step}/{steps}  {shown}" + (f"  {left:.0f} s left" if left else ""), soft_wrap=True
            )

    def validated(self, step: int, scores: dict[str, Any], *, best: bool) -> None:
        """Print the scores of a validation on dev. best: it is the best so far."""
        shown = "  ".join(
            f"{name.removeprefix('dev_').replace('_', ' ')} {_shown(value)}" for name, value in scores.items()
        )
        line = Text.assemble((f"step {step}", "bold"), f"  dev: {shown}", ("  best" if best else "", "green"))
        remarks.print(line, soft_wrap=True)

    def _task(self, name: str, total: int) -> TaskID:
        if name not in self._tasks:
            self._tasks[name] = self._bar.add_task(name, total=total, metrics="")
        return self._tasks[name]


def _shown(value: float | dict[str, float]) -> str:
    """Format a score, or the share of each token."""
    if isinstance(value, dict):
        return ", ".join(f"{token} {share:.0%}" for token, share in value.items())
    return f"{value:.3f}"
