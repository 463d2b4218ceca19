"""Commands around a run: prepare, train, search-orders, average, export, info."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from anyorder.cli.output import AS_JSON, check_folder, print_json, results, table
from anyorder.cli.progress import Watcher
from anyorder.config.data import Splits
from anyorder.config.recipe import Recipe, load_recipe
from anyorder.errors import UserError
from anyorder.system.interruption import INTERRUPTED

if TYPE_CHECKING:
    from anyorder.data.corpus import Corpus, Statistics

RECIPE = Annotated[
    Path, typer.Argument(help="A TOML recipe; `anyorder init` writes one.", show_default=False)
]
OVERRIDES = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Keys to change, e.g. train.steps=1000.")
]
RUN = Annotated[Path, typer.Argument(help="Folder of a trained model.", show_default=False)]


def prepare(recipe: RECIPE, overrides: OVERRIDES = None, as_json: bool = AS_JSON) -> None:
    """Make vocabulary, token arrays and orders, and show their sizes; `train` does it too if it was not done.

    Example: `anyorder prepare recipe.toml`
    """
    from anyorder.data.corpus import load_split, statistics
    from anyorder.data.dataset import prepare as prepare_data

    settings = load_recipe(recipe, overrides or ())
    with Watcher() as watcher:
        prepared = prepare_data(settings, progress=watcher.preparing)
    corpora: dict[Splits, Corpus] = {"train": prepared.train.corpus, "dev": prepared.dev.corpus}
    if settings.data.test is not None:
        corpora["test"] = load_split(settings, "test", prepared.tokenizer)
    counts = {split: statistics(corpus, prepared.tokenizer) for split, corpus in corpora.items()}
    if as_json:
        print_json(
            {split: asdict(row) | {"skipped_for": corpora[split].skipped} for split, row in counts.items()}
        )
        return
    results.print(_sizes(counts))
    for split, corpus in corpora.items():
        if corpus.skipped:
            reasons = (
                f"{count:,} {reason.removesuffix(' line')}" for reason, count in corpus.skipped.items()
            )
            results.print(f"skipped in {split}: {', '.join(reasons)}", soft_wrap=True)
    results.print(
        f"vocabulary: {prepared.tokenizer.size:,}, of which targets use {prepared.tokenizer.target_size:,}; "
        f"order: {settings.order.name}; lengths are means in tokens"
    )


def _sizes(counts: Mapping[Splits, Statistics]) -> Table:
    drawn = table("split", "pairs", "skipped", "source", "target", "longest", "<unk> source", "<unk> target")
    for split, row in counts.items():
        drawn.add_row(
            split,
            f"{row.pairs:,}",
            f"{row.skipped:,}",
            f"{row.mean_source:.2f}",
            f"{row.mean_target:.2f}",
            str(row.longest_target),
            f"{row.unknown_source:.2%}",
            f"{row.unknown_target:.2%}",
        )
    return drawn


def train(
    recipe: RECIPE,
    overrides: OVERRIDES = None,
    resume: bool = typer.Option(
        False, "--resume", help="Go on with a run that was stopped, if there is one."
    ),
    overwrite: bool = typer.Option(False, "--overwrite", help="Throw away a run of that name first."),
    dry_run: bool = typer.Option(
        False, "--dry-run", help="Take a few updates, tell what all would take, and write nothing."
    ),
    as_json: bool = typer.Option(False, "--json", help="With --dry-run: print JSON, one object."),
) -> None:
    """Train a model by a recipe; Ctrl-C stops it, `--resume` goes on.

    Example: `anyorder train recipe.toml order.name=blt run=runs/blt`

    Example: `anyorder train recipe.toml --dry-run`

    On several processes: `torchrun --nproc-per-node 2 -m anyorder train recipe.toml`
    """
    if resume and overwrite:
        raise UserError("--resume and --overwrite: give one of them, not both")
    if as_json and not dry_run:
        raise UserError("--json: is for --dry-run; a training writes its figures to RUN/metrics.jsonl")
    settings = load_recipe(recipe, overrides or ())
    if dry_run:
        _forecast(settings, resume=resume, overwrite=overwrite, as_json=as_json)
        return
    from anyorder.runs.train import train as train_model

    with Watcher() as watcher:
        finished = train_model(settings, listener=watcher, resume=resume, overwrite=overwrite)
    if not finished:
        raise typer.Exit(INTERRUPTED)
    if _first_process():
        results.print(f"model: {settings.run}", soft_wrap=True)


def _forecast(recipe: Recipe, *, resume: bool, overwrite: bool, as_json: bool) -> None:
    from anyorder.cli.forecast import forecast_json, show_forecast
    from anyorder.runs.dry_run import dry_run

    with Watcher() as watcher:
        forecast = dry_run(recipe, listener=watcher, resume=resume, overwrite=overwrite)
    if not _first_process():
        return
    if as_json:
        print_json(forecast_json(forecast))
    else:
        show_forecast(forecast)


def _first_process() -> bool:
    """torchrun starts a command several times, and one of them is enough to speak."""
    return os.environ.get("RANK", "0") == "0"


def search_orders(
    run: RUN,
    overrides: OVERRIDES = None,
    output: Path | None = typer.Option(
        None, "--output", help="Also write the orders to this file, as JSON, a line a training pair."
    ),
) -> None:
    """Search the orders of a run's training pairs with its last checkpoint; `train --resume` uses them.

    Ctrl-C stops it, and the same command goes on. How is said by the run's own [search].

    Example: `anyorder search-orders runs/sao --output orders.jsonl`

    On several processes: `torchrun --nproc-per-node 2 -m anyorder search-orders runs/sao`
    """
    from anyorder.runs.refresh import refresh_orders
    from anyorder.runs.run_folder import recipe_of_run

    check_folder("--output", output)
    settings = recipe_of_run(run, overrides or ())
    with Watcher() as watcher:
        folder = refresh_orders(settings, output=output, progress=watcher.preparing)
    if folder is None:
        raise typer.Exit(INTERRUPTED)
    if _first_process():
        results.print(f"orders: {folder}", soft_wrap=True)


def average(
    run: RUN,
    last: int = typer.Option(5, "--last", min=1, help="How many of the last checkpoints."),
    output: Path | None = typer.Option(None, "--output", help="Folder to write; default RUN-average."),
    as_json: bool = AS_JSON,
) -> None:
    """Make a model of the mean weights of a run's last checkpoints.

    Example: `anyorder average runs/l2r --last 5`
    """
    from anyorder.runs.average import save_average

    named = run if run.name not in ("", "..") else run.resolve()
    folder = output or named.with_name(f"{named.name}-average")
    steps = save_average(run, last=last, folder=folder).steps
    if as_json:
        print_json({"folder": str(folder), "steps": steps})
        return
    results.print(
        f"{folder}: the mean of the checkpoints at steps {', '.join(map(str, steps))}", soft_wrap=True
    )


def export(
    run: RUN,
    folder: Path = typer.Argument(..., help="Where to; must not be a model yet."),
    precision: Literal["fp32", "fp16", "int8"] = typer.Option(
        "fp16", "--precision", help="Of the weights on disk; fp16 is half the size of fp32, int8 a quarter."
    ),
    as_json: bool = AS_JSON,
) -> None:
    """Write a trained model to give away: without checkpoints, and without the paths of this machine.

    Example: `anyorder export runs/l2r my-model`
    """
    from anyorder.runs.export import export as exported

    size = exported(run, folder, precision=precision)
    if as_json:
        print_json({"folder": str(folder), "bytes": size})
        return
    results.print(f"{folder}: {size / 1e6:.1f} MB", soft_wrap=True)


def info(run: RUN, as_json: bool = AS_JSON) -> None:
    """Tell what a trained model is: size, order, data, scores.

    Example: `anyorder info runs/l2r`
    """
    import torch

    from anyorder.runs.checkpoint import checkpoints, load_trained

    trained = load_trained(run, device=torch.device("cpu"))
    recipe, shape = trained.recipe, trained.model.shape
    facts = {
        "run": str(run),
        "kind": recipe.model.kind,
        "order": recipe.order_told,
        "first": recipe.model.first,
        "parameters": sum(parameter.numel() for parameter in trained.model.parameters()),
        "vocabulary": shape.vocabulary,
        "target_vocabulary": shape.target_vocabulary,
        "features": shape.features,
        "model": recipe.model.model_dump(mode="json"),
        "data": recipe.data.model_dump(mode="json", exclude_none=True),
        "scores": trained.scores,
        "checkpoints": [checkpoint.step for checkpoint in checkpoints(run)],
    }
    if as_json:
        print_json(facts)
        return
    drawn = table("", "")
    drawn.columns[1].justify = "left"
    for name, value in facts.items():
        if isinstance(value, dict):
            shown = "  ".join(f"{key} {_short(inner)}" for key, inner in value.items())
        else:
            shown = f"{value:,}" if isinstance(value, int) else _short(value)
        drawn.add_row(name.replace("_", " "), shown)
    results.print(drawn)


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)
