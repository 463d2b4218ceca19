"""The command that compares runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from anyorder.cli.evaluating import metric_names
from anyorder.cli.output import print_json, print_line, results, table
from anyorder.config import Splits

if TYPE_CHECKING:
    from anyorder.comparison import RunComparison
    from anyorder.comparison_tables import Table
    from anyorder.results import RunResults


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders of trained models.", show_default=False)],
    split: Splits = typer.Option("test", "--split", help="That they were evaluated on."),
    lines: int | None = typer.Option(
        None, "--lines", min=1, help="Results of `evaluate --lines`, of the first so many."
    ),
    metrics: str | None = typer.Option(
        None, "--metrics", help="With commas; default all that every run was scored by."
    ),
    baseline: Path | None = typer.Option(
        None, "--baseline", help="Run to test the others against; default the first in the order l2r."
    ),
    tested: str | None = typer.Option(
        None, "--tested", help="Metrics whose differences are tested; default bleu and exact."
    ),
    samples: int = typer.Option(1000, "--samples", min=1, help="Of each test."),
    seed: int = typer.Option(12345, "--seed", min=0, help="Of the samples; the default is sacreBLEU's."),
    form: Literal["text", "markdown", "latex", "json"] = typer.Option(
        "text", "--format", help="text, markdown, latex (with booktabs) or json."
    ),
    svg: Path | None = typer.Option(None, "--svg", help="File for a picture of score against beam."),
) -> None:
    """Scores of several runs, the best marked, and how often chance alone makes their differences.

    The runs must have been evaluated on the same lines, and those that differ in nothing but their seed are
    one row. --svg draws what `evaluate --beam 1-20` has found out about beams.

    Example: `anyorder compare runs/l2r runs/sao --format latex`
    """
    from anyorder.comparison import Significance, compare_runs
    from anyorder.comparison_tables import as_latex, as_markdown
    from anyorder.results import load_results

    given = [*runs, *([baseline] if baseline is not None and baseline not in runs else [])]
    loaded = [load_results(run, split, first_lines=lines) for run in given]
    compared = compare_runs(
        loaded,
        metrics=None if metrics is None else metric_names("--metrics", metrics),
        baseline=baseline,
        significance=Significance(
            metrics=None if tested is None else metric_names("--tested", tested), samples=samples, seed=seed
        ),
    )
    if svg is not None:
        _draw(loaded, path=svg)
    match form:
        case "text":
            _show(compared)
        case "markdown":
            typer.echo(as_markdown(compared), nl=False)
        case "latex":
            typer.echo(as_latex(compared), nl=False)
        case "json":
            print_json(asdict(compared))


def _draw(loaded: list[RunResults], *, path: Path) -> None:
    from anyorder.beam_curves import beam_curves
    from anyorder.beam_plot import plot
    from anyorder.files import write_file

    found = beam_curves(loaded)
    title = f"{found.metric} on {found.split} by beam"
    write_file(path, plot(found.curves, title=title, metric=found.metric).encode())


def _show(compared: RunComparison) -> None:
    from anyorder.comparison_tables import difference_table, explanation, score_table

    for drawn in (score_table(compared), difference_table(compared)):
        if drawn is not None:
            _print_table(drawn)
            print_line("")
    if compared.baseline is None:
        print_line("Nothing is tested: no run writes in the order l2r, and there is no --baseline")
    for line in explanation(compared, best="marked *"):
        print_line(line)


def _print_table(made: Table) -> None:
    marked = any(cell.bold for row in made.rows for cell in row)
    drawn = table(*made.columns)
    for column in drawn.columns[: made.labels]:
        column.justify = "left"
    for row in made.rows:
        # Bold is marked as well, for where it can't be seen, and what isn't stays in line.
        rest = " " if marked else ""
        drawn.add_row(
            *(Text(cell.text + ("*" if cell.bold else rest), style="bold" * cell.bold) for cell in row)
        )
    results.print(drawn)
