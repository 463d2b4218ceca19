"""search-orders: search the orders of a run's training pairs, without training."""

from __future__ import annotations

from pathlib import Path

import typer

from anyorder.cli.options import OVERRIDES, RUN, TRUST_CODE
from anyorder.cli.output import check_output_file, first_process, results
from anyorder.cli.progress import Watcher
from anyorder.system.interruption import INTERRUPTED


def search_orders(
    run: RUN,
    overrides: OVERRIDES = None,
    output: Path | None = typer.Option(
        None, "--output", help="File to write the orders to as well, as JSON, one line per training pair."
    ),
    trust_code: bool = TRUST_CODE,
) -> None:
    """Search the orders of a run's training pairs with its last checkpoint; `train --resume` uses them.

    Ctrl-C stops the search, and the same command goes on with it. The settings are the run's own [search].

    Example: `anyorder search-orders runs/sao --output orders.jsonl`

    On several processes: `torchrun --nproc-per-node 2 -m anyorder search-orders runs/sao`
    """
    from anyorder.inference.trust import check_code
    from anyorder.training.run_folder import recipe_of_run
    from anyorder.training.search_orders import refresh_orders

    check_output_file("--output", output)
    settings = recipe_of_run(run, overrides or ())
    check_code(settings, trust_code=trust_code)
    with Watcher() as watcher:
        folder = refresh_orders(settings, output=output, progress=watcher.preparing)
    if folder is None:
        raise typer.Exit(INTERRUPTED)
    if first_process():
        results.print(f"orders: {folder}", soft_wrap=True)
