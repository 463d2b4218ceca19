"""The command line. Commands import what they need when they run: `--help` must not wait for torch."""

from __future__ import annotations

import typer

from anyorder.cli import (
    benchmarks,
    cards,
    comparing,
    completing,
    demo,
    evaluating,
    images,
    learning,
    model_orders,
    orders,
    recipes,
    writing,
)

app = typer.Typer(
    name="anyorder",
    help="Train, run and study sequence models that write their words in any order, by insertion.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("init")(recipes.init)
app.command("prepare")(learning.prepare)
app.command("train")(learning.train)
app.command("search-orders")(learning.search_orders)
app.command("average")(learning.average)
app.command("export")(learning.export)
app.command("info")(learning.info)
app.command("card")(cards.card)
app.command("features")(images.features)
app.command("generate")(writing.generate)
app.command("complete")(completing.complete)
app.command("score")(writing.score)
app.command("evaluate")(evaluating.evaluate)
app.command("compare")(comparing.compare)
app.command("order")(orders.order)
app.command("orders", epilog=model_orders.DEFINITIONS)(model_orders.orders)
app.command("demo")(demo.demo)
app.add_typer(benchmarks.app, name="bench")


def _show_version(wanted: bool) -> None:
    if wanted:
        from anyorder.version import __version__

        typer.echo(f"anyorder {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", help="Show the version and leave.", is_eager=True, callback=_show_version
    ),
) -> None:
    pass
