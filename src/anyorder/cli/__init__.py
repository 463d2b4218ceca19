"""The command line, one module per command.

Commands import torch and the library when they run, so that `--help` is fast.
"""

from __future__ import annotations

import typer

from anyorder.cli import (
    average,
    bench,
    bench_edit,
    bench_serve,
    card,
    check,
    compare,
    complete,
    demo,
    edit,
    evaluate,
    export,
    features,
    generate,
    info,
    init,
    order,
    order_history,
    orders,
    prepare,
    score,
    search_orders,
    serve,
    task,
    train,
)

app = typer.Typer(
    name="anyorder",
    help="Train, run and study sequence models that write their words in any order, by insertion.",
    no_args_is_help=True,
    epilog="To complete commands and flags with the tab key, run `anyorder --install-completion` once.",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("init")(init.init)
app.command("prepare")(prepare.prepare)
app.command("train")(train.train)
app.command("search-orders")(search_orders.search_orders)
app.command("average")(average.average)
app.command("export")(export.export)
app.command("info")(info.info)
app.command("card")(card.card)
app.command("features")(features.features)
app.command("generate")(generate.generate)
app.command("complete")(complete.complete)
app.command("edit")(edit.edit)
app.command("score")(score.score)
app.command("serve")(serve.serve)
app.command("evaluate")(evaluate.evaluate)
app.command("compare")(compare.compare)
app.command("order")(order.order)
app.command("orders", epilog=orders.DEFINITIONS)(orders.orders)
app.command("order-history")(order_history.order_history)
app.command("task")(task.task)
app.command("check")(check.check)
app.command("demo")(demo.demo)
bench.app.command("serve")(bench_serve.serve)
bench.app.command("edit")(bench_edit.edit)
app.add_typer(bench.app, name="bench")


def _show_version(wanted: bool) -> None:
    if wanted:
        from anyorder.version import __version__

        typer.echo(f"anyorder {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", help="Show the version and exit.", is_eager=True, callback=_show_version
    ),
) -> None:
    pass
