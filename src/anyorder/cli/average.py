"""average: make a model of the mean of a run's last checkpoints."""

from __future__ import annotations

from pathlib import Path

import typer

from anyorder.cli.options import AS_JSON, RUN
from anyorder.cli.output import print_json, results


def average(
    run: RUN,
    last: int = typer.Option(5, "--last", min=1, help="Number of checkpoints."),
    output: Path | None = typer.Option(None, "--output", help="Folder to write; default: RUN-average."),
    as_json: bool = AS_JSON,
) -> None:
    """Make a model from the mean weights of a run's last checkpoints.

    Example: `anyorder average runs/l2r --last 5`
    """
    from anyorder.training.checkpoint import save_average

    named = run if run.name not in ("", "..") else run.resolve()
    folder = output or named.with_name(f"{named.name}-average")
    steps = save_average(run, last=last, folder=folder).steps
    if as_json:
        print_json({"folder": str(folder), "steps": steps})
        return
    results.print(
        f"{folder}: the mean of the checkpoints at steps {', '.join(map(str, steps))}", soft_wrap=True
    )
