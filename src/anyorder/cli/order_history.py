"""order-history: show how the orders of a run formed over its training."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path

import typer

from anyorder.cli.options import AS_JSON, DEVICE, RUN
from anyorder.cli.output import check_output_file, print_json, results, table
from anyorder.config.data import Splits

SHOWN_POSITIONS = 20  # columns of the table


def order_history(
    run: RUN,
    split: Splits = typer.Option("dev", "--split", help="Split of the run's recipe."),
    lines: int = typer.Option(200, "--lines", min=1, help="Number of lines to decode."),
    around: str | None = typer.Option(
        None,
        "--around",
        help="Count positions from the source word that begins with this, for tasks whose sources and "
        "targets match word by word.",
    ),
    svg: Path | None = typer.Option(None, "--svg", help="File for a chart: .svg, .png or .pdf."),
    as_json: bool = AS_JSON,
    device: str | None = DEVICE,
) -> None:
    """Show when each position is written by every checkpoint of a run: 0 is first, 1 is last.

    A run keeps as many checkpoints as train.keep says.

    Example: `anyorder order-history runs/pivot --around '*' --svg forming.svg`
    """
    from anyorder.cli.progress import Watcher
    from anyorder.evaluation.order_history import order_history as find_history
    from anyorder.system.devices import pick_device
    from anyorder.viz.charts import check_chart, save_chart
    from anyorder.viz.orders import history_chart

    check_output_file("--svg", svg)
    check_chart("--svg", svg)
    with Watcher() as watcher:
        history = find_history(
            run,
            split=split,
            lines=lines,
            around=around,
            device=pick_device(device or "auto"),
            progress=partial(watcher.preparing, "decoding with checkpoints"),
        )
    if svg is not None:
        rows = [(one.step, one.mean_step) for one in history]
        save_chart(history_chart(rows, title=f"{run}: when is it written?", around=around is not None), svg)
    if as_json:
        for one in history:
            print_json(asdict(one))
        return
    positions = sorted({position for one in history for position in one.mean_step})[:SHOWN_POSITIONS]
    shown = table("updates", *(str(position) for position in positions))
    for one in history:
        means = (one.mean_step.get(position) for position in positions)
        shown.add_row(f"{one.step:,}", *("" if mean is None else f"{mean:.2f}" for mean in means))
    results.print(shown)
