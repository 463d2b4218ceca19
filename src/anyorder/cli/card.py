"""The command that writes a model's card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anyorder.cli.output import check_output_file, print_line, remarks, results


def card(
    run: Annotated[Path, typer.Argument(help="Folder of a trained model.", show_default=False)],
    output: Path | None = typer.Option(
        None, "--output", help="Write it to this file instead, e.g. RUN/README.md."
    ),
) -> None:
    """Tell what a model is, for those who did not train it, as Markdown.

    Its data, size, training, scores and limits, and how to make it again. All of it comes from the files of
    the run; `anyorder evaluate` makes the scores.

    Example: `anyorder card runs/l2r --output runs/l2r/README.md`
    """
    from anyorder.evaluation.cards import model_card
    from anyorder.evaluation.results import evaluated_splits
    from anyorder.pretrained import is_shipped
    from anyorder.system.files import write_file

    check_output_file("--output", output)
    text = model_card(run)
    if not evaluated_splits(run) and not is_shipped(run):
        remarks.print(f"{run}: has no results yet; `anyorder evaluate {run}` makes them", soft_wrap=True)
    if output is None:
        print_line(text.rstrip("\n"))
        return
    write_file(output, text.encode())
    results.print(f"card: {output}", soft_wrap=True)
