"""prepare: read the data of a recipe and show its sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.table import Table

from anyorder.cli.options import AS_JSON, OVERRIDES, RECIPE
from anyorder.cli.output import print_json, results, table
from anyorder.cli.progress import Watcher
from anyorder.config.data import Splits
from anyorder.config.recipe import load_recipe

if TYPE_CHECKING:
    from anyorder.data.corpus import Corpus, Statistics


def prepare(recipe: RECIPE, overrides: OVERRIDES = None, as_json: bool = AS_JSON) -> None:
    """Prepare the vocabulary, the token arrays and the orders of a recipe, and show their sizes.

    `train` prepares them too, if they are not prepared yet.

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
