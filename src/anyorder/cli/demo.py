"""The command that shows the idea, with no data from outside."""

from __future__ import annotations

from pathlib import Path

import typer

from anyorder.cli.output import check_output_file, results


def demo(
    folder: Path = typer.Option(Path("runs/demo"), "--folder", help="Where models and the page go."),
    page: Path = typer.Option(Path("demo.html"), "--page", help="The page that replays the sentences."),
) -> None:
    """Learn to describe pictures that the package draws, in two orders, and show how captions are written.

    Example: `anyorder demo`
    """
    from anyorder.cli.progress import Watcher
    from anyorder.demo.demo import run_demo

    check_output_file("--page", page)
    run_demo(folder=folder, page=page, console=results, watch=Watcher)
