"""demo: show the idea without any data of the user's."""

from __future__ import annotations

from pathlib import Path

import typer

from anyorder.cli.output import check_output_file, results


def demo(
    folder: Path = typer.Option(Path("runs/demo"), "--folder", help="Folder for the data and the models."),
    page: Path = typer.Option(
        Path("demo.html"), "--page", help="File for the web page that replays what they write."
    ),
) -> None:
    """Let a trained model write code, train small ones to describe pictures, and one that finds its order.

    Example: `anyorder demo`
    """
    from anyorder.cli.progress import Watcher
    from anyorder.demo.demo import run_demo

    check_output_file("--page", page)
    run_demo(folder=folder, page=page, console=results, watch=Watcher)
