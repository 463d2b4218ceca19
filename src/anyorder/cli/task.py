"""task: write a made-up task on which the order of writing decides."""

from __future__ import annotations

from pathlib import Path

import typer

from anyorder.cli.output import results
from anyorder.tasks import TASKS

NAMES = "; ".join(f"{name}: {task.title}" for name, task in TASKS.items())


def task(
    name: str = typer.Argument(help=f"{NAMES}.", show_default=False),
    folder: Path = typer.Argument(help="Folder for the files.", show_default=False),
    size: int | None = typer.Option(None, "--size", min=1, help="Number of training problems."),
    seed: int = typer.Option(1, "--seed", min=0, help="The same seed draws the same problems."),
    force: bool = typer.Option(False, "--force", help="Replace an earlier task in the folder."),
) -> None:
    """Write the problems of a made-up task, an order in which each is easy, and a recipe to train with.

    No test problem is in the training split. `anyorder check` checks answers by the rules of the task.

    Example: `anyorder task pivot pivot && anyorder train pivot/pivot.toml order.name=sao`
    """
    from anyorder.cli.progress import Watcher
    from anyorder.tasks.files import write_task

    with Watcher() as watcher:
        written = write_task(name, folder, seed=seed, train=size, replace=force, progress=watcher.preparing)
    counts = ", ".join(f"{count:,} {split}" for split, count in written.sizes.items())
    results.print(f"wrote {folder}: {counts}; next: anyorder train {written.recipe}", soft_wrap=True)
