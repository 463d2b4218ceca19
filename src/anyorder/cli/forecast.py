"""What a dry run has found out, for people or for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from anyorder.cli.output import print_line, results, table
from anyorder.runs.dry_run import SECONDS_AN_HOUR, BatchCost, Forecast, duration

BUSY = 0.8  # of a core: who has less shares it with others


def forecast_json(forecast: Forecast) -> dict[str, Any]:
    """All that is known, the sums included."""
    sums = {
        "epochs": forecast.epochs,
        "hours": forecast.hours,
        "megabytes": forecast.megabytes,
        "processor_share": forecast.processor_share,
    }
    work = [asdict(one) | {"hours": one.hours} for one in forecast.work]
    return asdict(forecast) | {"work": work} | sums


def show_forecast(forecast: Forecast) -> None:
    """Sizes, then times, then what has to fit somewhere."""
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
    print_line(f"The largest batch of the first epoch: {_told(forecast.largest)}.")
    print_line(
        f"Memory at the peak: {_size(forecast.megabytes)}. Disk: {_size(forecast.disk_megabytes)} at most."
    )
    if forecast.device == "cpu" and forecast.processor_share < BUSY:
        print_line(
            f"Other work slows this machine down: this process had {forecast.processor_share:.0%} of a core."
        )


def _told(cost: BatchCost) -> str:
    searched = f" after a search of {duration(cost.search_seconds)}" if cost.search_seconds else ""
    return (
        f"{cost.pairs:,} pairs of up to {cost.longest_source} + {cost.longest_target} tokens, "
        f"{duration(cost.seconds)}{searched}, {_size(cost.megabytes)}"
    )


def _size(megabytes: float) -> str:
    return f"{megabytes / 1000:.1f} GB" if megabytes >= 1000 else f"{megabytes:.3g} MB"
