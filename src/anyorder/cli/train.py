"""train: train a model from a recipe, or estimate time and memory of the training."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from anyorder.cli.options import OVERRIDES, RECIPE
from anyorder.cli.output import first_process, print_json, print_line, results, table
from anyorder.cli.progress import Watcher
from anyorder.config.recipe import Recipe, load_recipe
from anyorder.errors import UserError
from anyorder.system.interruption import INTERRUPTED

if TYPE_CHECKING:
    from anyorder.training.estimate import BatchCost, Forecast

BUSY = 0.8  # share of a core: with less, other processes slow this one down


def train(
    recipe: RECIPE,
    overrides: OVERRIDES = None,
    resume: bool = typer.Option(False, "--resume", help="Go on with a run that was stopped."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Delete an earlier run of this name first."),
    dry_run: bool = typer.Option(
        False, "--dry-run", help="Make a few updates, estimate the time and memory of all, and write nothing."
    ),
    as_json: bool = typer.Option(False, "--json", help="With --dry-run: print one JSON object."),
) -> None:
    """Train a model from a recipe; Ctrl-C stops it, `--resume` goes on.

    Example: `anyorder train recipe.toml order.name=blt run=runs/blt`

    Example: `anyorder train recipe.toml --dry-run`

    On several processes: `torchrun --nproc-per-node 2 -m anyorder train recipe.toml`
    """
    if resume and overwrite:
        raise UserError("--resume and --overwrite: give one of them, not both")
    if as_json and not dry_run:
        raise UserError("--json: is for --dry-run; training writes its figures to RUN/metrics.jsonl")
    settings = load_recipe(recipe, overrides or ())
    if dry_run:
        _forecast(settings, resume=resume, overwrite=overwrite, as_json=as_json)
        return
    from anyorder.training.trainer import train as train_model

    with Watcher() as watcher:
        finished = train_model(settings, listener=watcher, resume=resume, overwrite=overwrite)
    if not finished:
        raise typer.Exit(INTERRUPTED)
    if first_process():
        results.print(f"model: {settings.run}", soft_wrap=True)


def _forecast(recipe: Recipe, *, resume: bool, overwrite: bool, as_json: bool) -> None:
    from anyorder.training.estimate import dry_run

    with Watcher() as watcher:
        forecast = dry_run(recipe, listener=watcher, resume=resume, overwrite=overwrite)
    if not first_process():
        return
    if as_json:
        print_json(forecast_json(forecast))
    else:
        show_forecast(forecast)


def forecast_json(forecast: Forecast) -> dict[str, Any]:
    """Turn a forecast into JSON, including the sums."""
    sums = {
        "epochs": forecast.epochs,
        "hours": forecast.hours,
        "megabytes": forecast.megabytes,
        "processor_share": forecast.processor_share,
    }
    work = [asdict(one) | {"hours": one.hours} for one in forecast.work]
    return asdict(forecast) | {"work": work} | sums


def show_forecast(forecast: Forecast) -> None:
    """Print the sizes, then the times, then memory and disk."""
    from anyorder.training.estimate import SECONDS_AN_HOUR, duration

    left_out = f" ({forecast.skipped:,} left out)" if forecast.skipped else ""
    print_line(
        f"{forecast.pairs:,} pairs{left_out}, {forecast.tokens:,} tokens, a vocabulary of "
        f"{forecast.vocabulary:,}; {forecast.parameters:,} parameters"
    )
    print_line(
        f"{forecast.updates:,} updates, {forecast.updates_an_epoch:,} an epoch: {forecast.epochs:.1f} epochs"
    )
    print_line("")
    drawn = table(f"on {forecast.device}", "times", "each", "together")
    for work in forecast.work:
        drawn.add_row(
            work.name, f"{work.times:,}", duration(work.seconds), duration(SECONDS_AN_HOUR * work.hours)
        )
    drawn.add_row("in all", "", "", duration(SECONDS_AN_HOUR * forecast.hours), style="bold")
    results.print(drawn)
    print_line("")
    print_line(f"The very first update took {duration(forecast.warm_up_seconds)} and is not counted.")
    print_line(f"The largest batch of the first epoch: {_describe(forecast.largest)}.")
    print_line(
        f"Memory at the peak: {_size(forecast.megabytes)}. Disk: {_size(forecast.disk_megabytes)} at most."
    )
    if forecast.device == "cpu" and forecast.processor_share < BUSY:
        print_line(
            f"Other work slows this machine down: this process had {forecast.processor_share:.0%} of a core."
        )


def _describe(cost: BatchCost) -> str:
    from anyorder.training.estimate import duration

    searched = f" after a search of {duration(cost.search_seconds)}" if cost.search_seconds else ""
    return (
        f"{cost.pairs:,} pairs of up to {cost.longest_source} + {cost.longest_target} tokens, "
        f"{duration(cost.seconds)}{searched}, {_size(cost.megabytes)}"
    )


def _size(megabytes: float) -> str:
    return f"{megabytes / 1000:.1f} GB" if megabytes >= 1000 else f"{megabytes:.3g} MB"
