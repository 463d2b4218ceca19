"""card: describe a model for those who did not train it."""

from __future__ import annotations

from pathlib import Path

import typer

from anyorder.cli.options import RUN
from anyorder.cli.output import check_output_file, print_line, remarks, results


def card(
    run: RUN,
    output: Path | None = typer.Option(
        None, "--output", help="File to write instead of stdout, e.g. RUN/README.md."
    ),
) -> None:
    """Write the card of a model, in Markdown, for those who did not train it.

    The card lists the model's data, size, training, scores and limits, and how to reproduce it. All of it
    comes from the files of the run; `anyorder evaluate` makes the scores.

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
