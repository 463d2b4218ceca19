"""The folder of a run: whether a training may write to it or go on with it, and what it was trained with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anyorder.adaptive.store import remove_stored_orders
from anyorder.config.data import SPLITS, Splits
from anyorder.config.recipe import Recipe, recipe_with
from anyorder.data.corpus import Statistics
from anyorder.errors import UserError
from anyorder.inference.model_folder import CARD_FILE, CONFIG_FILE, MODEL_FILE
from anyorder.system.files import make_folder, read_json, reading, remove_unfinished, write_file
from anyorder.text.tokenizer import FILE_NAME as TOKENIZER_FILE
from anyorder.training.checkpoint import CHECKPOINT_FOLDER, checkpoints, prune
from anyorder.training.metrics_log import METRICS_FILE

RECIPE_FILE = "recipe.json"  # marks a folder as a run
SIZES_FILE = "data.json"  # sizes of the splits

# What a run writes; the user may have other files in the same folder, such as data and recipe.
OWN_FILES = (RECIPE_FILE, SIZES_FILE, MODEL_FILE, CONFIG_FILE, TOKENIZER_FILE, CARD_FILE, METRICS_FILE)
OWN_FOLDERS = (CHECKPOINT_FOLDER, "orders", "results", "tensorboard")

# Keys that may differ when a run is resumed, since they do not change what an update learns.
MAY_CHANGE = frozenset(
    {"run", "data.root", "data.cache", "data.test", "train.patience", "train.log_every", "train.keep"}
    | {"train.average", "train.device", "data.name", "data.licence"}
)


def may_change(recipe: Recipe) -> frozenset[str]:
    """Keys that may differ when this run is resumed."""
    # A cosine depends on the last step, so another number of steps is another schedule.
    steps = frozenset({"train.steps"} if recipe.train.schedule != "cosine" else ())
    # What is decoded for validation does not matter to a run that selects its model by the loss.
    decoding = frozenset({"decode", "train.validate_lines"} if recipe.train.select == "loss" else ())
    search = frozenset(() if recipe.adaptive else {"search"})  # a fixed order is not searched
    return MAY_CHANGE | steps | decoding | search


def with_search_steps(recipe: Recipe, *, resume: bool) -> Recipe:
    """The recipe with search.bootstrap_steps and anneal_steps as numbers, which the run keeps from now on.

    If the recipe does not say, a resumed run keeps the numbers that it began with, even if train.steps has
    changed. A new run whose search would never begin is refused.
    """
    began = recipe_of_run(recipe.run) if resume and (recipe.run / RECIPE_FILE).exists() else recipe
    given, steps = recipe.search, {}
    if given.bootstrap_steps is None:
        steps["bootstrap_steps"] = began.bootstrap_steps
    if given.anneal_steps is None:
        steps["anneal_steps"] = began.anneal_steps
    recipe = recipe.model_copy(update={"search": given.model_copy(update=steps)})
    if recipe.adaptive and not recipe.searches(recipe.train.steps) and not resume:
        raise UserError(
            f"search.bootstrap_steps = {recipe.bootstrap_steps}: must be less than train.steps = "
            f'{recipe.train.steps}, or order.name = "sao" never searches an order'
        )
    return recipe


def check_run_folder(recipe: Recipe, *, resume: bool, overwrite: bool) -> None:
    """Refuse to spoil an earlier run or to resume what can't be resumed, before anything is done."""
    run, init = recipe.run, recipe.train.init
    if init is not None and init.resolve() == run.resolve():
        raise UserError(f"train.init = {str(init)!r}: is the run's own folder; give it another with run=...")
    if overwrite:
        return
    if not (run / RECIPE_FILE).exists():
        if checkpoints(run):
            raise UserError(
                f"{run}: has checkpoints but no {RECIPE_FILE}, so it is unknown what they were trained by; "
                "--overwrite starts over"
            )
        if resume:
            raise UserError(f"{run}: there is no run to resume; to start one, leave out --resume")
        return
    if not resume:
        raise UserError(f"{run}: is a run already; --resume goes on with it, --overwrite starts over")
    if checkpoints(run) or _lost_checkpoints(run, recipe):
        # Read as a recipe, so that keys that did not exist when the run began get their defaults.
        before = recipe_of_run(run).model_dump(mode="json")
        _check_same(before, recipe.model_dump(mode="json"), run=run, free=may_change(recipe))


def _lost_checkpoints(run: Path, recipe: Recipe) -> bool:
    """Whether a run has a model but no checkpoint to go on from; refused if it has had one.

    False where nothing was saved. A run that was killed between its first model and its first checkpoint
    has lost nothing: it begins again, and comes to the same model.
    """
    if not (run / CONFIG_FILE).exists():
        return False
    scores = read_json(run / CONFIG_FILE).get("scores")
    step = scores.get("step") if isinstance(scores, dict) else None
    first = min(recipe.train.validate_every, recipe.train.steps)
    if (run / CHECKPOINT_FOLDER).is_dir() and isinstance(step, int) and step <= first:
        return True
    raise UserError(
        f"{run}: has a model but no checkpoint in {run / CHECKPOINT_FOLDER} to go on from; put that "
        f"folder back, begin another run with train.init = {json.dumps(str(run))}, or start over with "
        "--overwrite"
    )


def _saved_recipe(run: Path) -> dict[str, Any]:
    path, remedy = run / RECIPE_FILE, "`anyorder train RECIPE --overwrite` starts over"
    values = read_json(path, remedy=remedy)
    if not isinstance(values, dict):
        raise UserError(f"{path}: broken: no JSON object; {remedy}")
    return values


def recipe_of_run(run: Path, overrides: Iterable[str] = ()) -> Recipe:
    """The recipe that a run is trained with, with overrides of the form `key=value`."""
    if not run.is_dir():
        raise UserError(f"{run}: no such folder; give the folder of a run")
    if not (run / RECIPE_FILE).exists():
        raise UserError(f"{run}: no {RECIPE_FILE} in it, so it is no run of `anyorder train`")
    return recipe_with({**_saved_recipe(run), "run": str(run)}, overrides, origin=str(run / RECIPE_FILE))


def claim_folder(recipe: Recipe, *, overwrite: bool) -> None:
    """Prepare the run's folder: empty for a new run, with its checkpoints for one that goes on."""
    saved_recipe = recipe.run / RECIPE_FILE
    if overwrite:
        prune([], checkpoints(recipe.run))  # first, so that a Ctrl-C leaves nothing that could be resumed
        if left := checkpoints(recipe.run):
            raise UserError(f"{left[-1].folder}: can't be removed, so a new run can't start")
        if saved_recipe.exists():  # other folders may hold anything: nothing is removed from them
            _remove_run(recipe.run)
    make_folder(recipe.run / CHECKPOINT_FOLDER)
    remove_unfinished(recipe.run / CHECKPOINT_FOLDER)
    if not checkpoints(recipe.run):
        remove_stored_orders(recipe.run)
    write_file(saved_recipe, json.dumps(recipe.model_dump(mode="json"), indent=2).encode())


def abandon_folder(run: Path) -> None:
    """Remove what a run has begun with if it has saved neither a model nor a checkpoint."""
    if not (run / RECIPE_FILE).exists() or checkpoints(run) or (run / CONFIG_FILE).exists():
        return
    for name in ("orders", "tensorboard"):
        shutil.rmtree(run / name, ignore_errors=True)
    for name in (METRICS_FILE, SIZES_FILE, RECIPE_FILE):
        (run / name).unlink(missing_ok=True)
    with suppress(OSError):  # it holds something that is not the run's
        (run / CHECKPOINT_FOLDER).rmdir()


def _remove_run(run: Path) -> None:
    """Remove the files of a run, and nothing else from its folder."""
    for name in OWN_FOLDERS:
        shutil.rmtree(run / name, ignore_errors=True)
    for name in OWN_FILES:
        (run / name).unlink(missing_ok=True)


def note_sizes(run: Path, sizes: Mapping[Splits, Statistics]) -> None:
    """Write the sizes of the data, which the model card shows even where the data is missing."""
    content = {split: asdict(statistics) for split, statistics in sizes.items()}
    write_file(run / SIZES_FILE, json.dumps(content, indent=2).encode())


def sizes_of_run(run: Path) -> dict[Splits, Statistics]:
    """The sizes of the data that a run was trained on; empty for runs that did not record them."""
    path, remedy = run / SIZES_FILE, "without the file a card has no sizes"
    try:
        content = read_json(path, remedy=remedy)
    except FileNotFoundError:
        return {}
    with reading(path, remedy=remedy):
        return {split: Statistics(**content[split]) for split in SPLITS if split in content}


def _check_same(
    before: dict[str, Any], now: dict[str, Any], *, run: Path, free: frozenset[str], prefix: str = ""
) -> None:
    for key in sorted(before.keys() | now.keys()):
        name, old, new = prefix + key, before.get(key), now.get(key)
        if name in free or old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            _check_same(old, new, run=run, free=free, prefix=f"{name}.")
        else:
            raise UserError(
                f"{run}: was trained with {name} = {json.dumps(old)}, now it is {json.dumps(new)}; "
                "a run goes on with the recipe that it began with (or --overwrite)"
            )
