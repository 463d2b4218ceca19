"""compare: compare the scores of several runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from anyorder.cli.evaluate import metric_names
from anyorder.cli.options import DEVICE_HELP
from anyorder.cli.output import check_output_file, print_json, print_line, remarks, results, table
from anyorder.cli.progress import Watcher
from anyorder.config.data import Splits
from anyorder.errors import UserError

if TYPE_CHECKING:
    from anyorder.evaluation.compare import RunComparison
    from anyorder.evaluation.report import Cases
    from anyorder.evaluation.results import RunResults
    from anyorder.evaluation.tables import Table


DEFAULT_SPLITS: tuple[Splits, ...] = ("test", "dev")
DEFAULT_CASES, DEFAULT_ORDER_LINES = 5, 200
OF_REPORTS = "For a report"


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders of trained models.", show_default=False)],
    split: Splits | None = typer.Option(
        None,
        "--split",
        help="Split to compare; default: test if all runs have results of it, otherwise dev.",
    ),
    lines: int | None = typer.Option(
        None, "--lines", min=1, help="Compare the results of `evaluate --lines` with this number."
    ),
    metrics: str | None = typer.Option(
        None, "--metrics", help="Separated by commas; default: all that every run was scored by."
    ),
    baseline: Path | None = typer.Option(
        None, "--baseline", help="Run to test the others against; default: the first in the order l2r."
    ),
    tested: str | None = typer.Option(
        None, "--tested", help="Metrics whose differences are tested; default: bleu and exact."
    ),
    samples: int = typer.Option(1000, "--samples", min=1, help="Samples of each test."),
    seed: int = typer.Option(12345, "--seed", min=0, help="Seed of the samples; the default is sacreBLEU's."),
    form: Literal["text", "markdown", "latex", "json"] = typer.Option(
        "text", "--format", help="text, markdown, latex (with booktabs) or json."
    ),
    svg: Path | None = typer.Option(
        None, "--svg", help="File for a chart of score by beam: .svg, .png or .pdf."
    ),
    html: Path | None = typer.Option(
        None, "--html", help="File for a report with charts and case studies.", rich_help_panel=OF_REPORTS
    ),
    cases: int | None = typer.Option(
        None,
        "--cases",
        min=0,
        help=f"Lines to show step by step, where hypotheses differ most; default: {DEFAULT_CASES}.",
        rich_help_panel=OF_REPORTS,
    ),
    case_lines: str | None = typer.Option(
        None,
        "--case-lines",
        help="Lines to show instead, counted from 1, e.g. 3,17.",
        rich_help_panel=OF_REPORTS,
    ),
    order_lines: int | None = typer.Option(
        None,
        "--order-lines",
        min=0,
        help=f"Number of lines to study orders on; default: {DEFAULT_ORDER_LINES}.",
        rich_help_panel=OF_REPORTS,
    ),
    device: str | None = typer.Option(None, "--device", help=DEVICE_HELP, rich_help_panel=OF_REPORTS),
) -> None:
    """Compare the scores of several runs, mark the best, and test their differences for significance.

    The runs must have been evaluated on the same lines. Runs that differ only in their seed share a row.
    --svg draws what `evaluate --beam 1-20` has measured. --html writes one page with everything that is
    known, for which the models decode some lines again to show their steps.

    Example: `anyorder compare runs/l2r runs/sao --format latex`

    Example: `anyorder compare runs/l2r runs/sao --html report.html`
    """
    from anyorder.evaluation.compare import SignificanceSettings, compare_runs
    from anyorder.evaluation.results import load_results
    from anyorder.viz.charts import check_chart

    _check_report_flags(
        html,
        {"--cases": cases, "--case-lines": case_lines, "--order-lines": order_lines, "--device": device},
    )
    check_output_file("--svg", svg)
    check_chart("--svg", svg)
    named = {run.resolve() for run in runs}
    given = [*runs, *([baseline] if baseline is not None and baseline.resolve() not in named else [])]
    chosen = split or _default_split(given, lines=lines)
    loaded = [load_results(run, chosen, first_lines=lines) for run in given]
    compared = compare_runs(
        loaded,
        metrics=None if metrics is None else metric_names("--metrics", metrics),
        baseline=baseline,
        significance=SignificanceSettings(
            metrics=None if tested is None else metric_names("--tested", tested), samples=samples, seed=seed
        ),
    )
    if svg is not None:
        _draw(loaded, path=svg)
    if html is not None:
        _write_report(
            compared,
            loaded,
            path=html,
            cases=_cases(loaded, count=cases, given=case_lines),
            order_lines=DEFAULT_ORDER_LINES if order_lines is None else order_lines,
            first_lines=lines,
            device=device,
        )
    if split is None:
        remarks.print(f"results of {chosen}; --split compares those of another split")
    _show(compared, form=form)


def _default_split(runs: Sequence[Path], *, lines: int | None) -> Splits:
    """Choose the first split that all runs have results of; if there is none, the first one is missed."""
    from anyorder.evaluation.results import evaluated_splits

    evaluated = [evaluated_splits(run, first_lines=lines) for run in runs]
    shared = (split for split in DEFAULT_SPLITS if all(split in splits for splits in evaluated))
    return next(shared, DEFAULT_SPLITS[0])


def _draw(loaded: list[RunResults], *, path: Path) -> None:
    from anyorder.evaluation.curves import beam_chart, beam_curves
    from anyorder.viz.charts import save_chart

    save_chart(beam_chart(beam_curves(loaded)), path)


def _check_report_flags(html: Path | None, flags: Mapping[str, object]) -> None:
    """Refuse flags of a report that do not fit, before any line is decoded."""
    from anyorder.viz.charts import check_matplotlib

    for flag, value in flags.items():
        if html is None and value is not None:
            raise UserError(f"{flag} {value}: is for a report, and there is no --html FILE")
    if flags["--cases"] is not None and flags["--case-lines"] is not None:
        raise UserError("--cases and --case-lines: give one of them, not both")
    check_output_file("--html", html)
    if html is not None:
        check_matplotlib(f"--html {html}")


def _cases(loaded: Sequence[RunResults], *, count: int | None, given: str | None) -> Cases:
    from anyorder.evaluation.case_studies import most_different
    from anyorder.evaluation.report import Cases

    references = loaded[0].references
    if given is not None:
        return Cases(_case_lines(given, most=loaded[0].report.lines), why="", references=references)
    chosen = most_different(loaded, count=DEFAULT_CASES if count is None else count)
    return Cases(chosen, why="Where the runs' hypotheses have least in common.", references=references)


def _case_lines(given: str, *, most: int) -> list[int]:
    parts = [part.strip() for part in given.split(",")]
    if not all(part.isdecimal() and 1 <= int(part) <= most for part in parts):
        raise UserError(f"--case-lines {given}: must be lines from 1 to {most}, with commas, e.g. 3,17")
    return sorted({int(part) for part in parts})


def _write_report(
    compared: RunComparison,
    loaded: Sequence[RunResults],
    *,
    path: Path,
    cases: Cases,
    order_lines: int,
    first_lines: int | None,
    device: str | None,
) -> None:
    from anyorder.evaluation.case_studies import write_again
    from anyorder.evaluation.curves import beam_curves_if_any, training_curves
    from anyorder.evaluation.report import Content, report
    from anyorder.system.files import write_file

    order_lines = min(order_lines, compared.lines)
    with Watcher() as watcher:
        written = write_again(
            loaded,
            {*range(1, order_lines + 1), *cases.lines},
            listener=watcher,
            first_lines=first_lines,
            device=device,
        )
    content = Content(
        compared=compared,
        training=training_curves(loaded),
        beams=beam_curves_if_any(loaded),
        written=written,
        order_lines=order_lines,
        cases=cases,
    )
    write_file(path, report(content).encode())


def _show(compared: RunComparison, *, form: str) -> None:
    from anyorder.evaluation.tables import as_latex, as_markdown

    match form:
        case "text":
            _show_text(compared)
        case "markdown":
            typer.echo(as_markdown(compared), nl=False)
        case "latex":
            typer.echo(as_latex(compared), nl=False)
        case "json":
            print_json(asdict(compared))


def _show_text(compared: RunComparison) -> None:
    from anyorder.evaluation.tables import difference_table, explanation, score_table

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
        # Mark bold cells too, for terminals that show no bold; pad the others so that columns stay aligned.
        rest = " " if marked else ""
        drawn.add_row(
            *(Text(cell.text + ("*" if cell.bold else rest), style="bold" * cell.bold) for cell in row)
        )
    results.print(drawn)
