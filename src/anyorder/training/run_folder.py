"""The folder that a training writes to: whose it is, and whether it may be gone on with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anyorder.adaptive.store import forget_kept
from anyorder.config.data import SPLITS, Splits
from anyorder.config.recipe import Recipe, recipe_with
from anyorder.data.corpus import Statistics
from anyorder.errors import UserError
from anyorder.inference.model_folder import CARD_FILE, CONFIG_FILE, MODEL_FILE
from anyorder.system.files import make_folder, write_file
from anyorder.text.tokenizer import FILE_NAME as TOKENIZER_FILE
from anyorder.training.checkpoint import checkpoints, prune

RECIPE_FILE = "recipe.json"  # marks a folder as a run
SIZES_FILE = "data.json"  # how much there was to learn from


# All that a run's folder has of a run; a person may keep the data and the recipe there, too.
OWN_FILES = (RECIPE_FILE, SIZES_FILE, MODEL_FILE, CONFIG_FILE, TOKENIZER_FILE, CARD_FILE, "metrics.jsonl")
OWN_FOLDERS = ("last", "orders", "results", "tensorboard")


# Keys that may differ when a run goes on: they change how long and how it is watched, not what is learned.
MAY_CHANGE = frozenset(
    {"run", "data.root", "data.cache", "data.test", "train.patience", "train.log_every", "train.keep"}
    | {"train.average", "train.device", "data.name", "data.licence"}
)


def may_change(recipe: Recipe) -> frozenset[str]:
    """Keys that may differ when this run goes on."""
    # A cosine falls towards the last step, so another number of steps is another schedule.
    ends_freely = frozenset({"train.steps"} if recipe.train.schedule != "cosine" else ())
    # What is decoded for validation matters only to a run that is selected by it.
    decodes_freely = frozenset({"decode", "train.validate_lines"} if recipe.train.select == "loss" else ())
    return MAY_CHANGE | ends_freely | decodes_freely


def check_run_folder(recipe: Recipe, *, resume: bool, overwrite: bool) -> None:
    """Refuse what would spoil an earlier run, before anything is done."""
    run, init = recipe.run, recipe.train.init
    if init is not None and init.resolve() == run.resolve():
        raise UserError(f"train.init = {str(init)!r}: is the run's own folder; give it another with run=...")
    if overwrite:
        return
    if not (run / RECIPE_FILE).exists():
        if checkpoints(run):
            raise UserError(
                f"{run}: has checkpoints but no {RECIPE_FILE}, so nobody knows what they were trained by; "
                "--overwrite starts anew"
            )
        return
    if not resume:
        raise UserError(f"{run}: is a run already; --resume goes on with it, --overwrite starts anew")
    if checkpoints(run):
        # Checked anew, so that keys that were not there yet have the value that they stood for.
        before = recipe_of_run(run).model_dump(mode="json")
        _check_same(before, recipe.model_dump(mode="json"), run=run, free=may_change(recipe))


def _recipe_before(run: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((run / RECIPE_FILE).read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise UserError(
            f"{run / RECIPE_FILE}: broken; `anyorder train RECIPE --overwrite` starts anew"
        ) from None


def recipe_of_run(run: Path, overrides: Iterable[str] = ()) -> Recipe:
    """What a run is trained by, some keys changed by `key=value`."""
    if not run.is_dir():
        raise UserError(f"{run}: no such folder; give the folder of a run")
    if not (run / RECIPE_FILE).exists():
        raise UserError(f"{run}: no {RECIPE_FILE} in it, so it is no run of `anyorder train`")
    return recipe_with({**_recipe_before(run), "run": str(run)}, overrides, origin=str(run / RECIPE_FILE))


def claim_folder(recipe: Recipe, *, overwrite: bool) -> None:
    """Make the run's folder ready: new, or with the checkpoints to go on from."""
    note = recipe.run / RECIPE_FILE
    if overwrite:
        prune([], checkpoints(recipe.run))  # first: what a Ctrl-C leaves must not be gone on with
        if left := checkpoints(recipe.run):
            raise UserError(f"{left[-1].folder}: can't be removed, so that nothing starts anew")
        if note.exists():  # a folder that is no run may hold anything
            _empty(recipe.run)
    make_folder(recipe.run)
    if not checkpoints(recipe.run):
        forget_kept(recipe.run)
    write_file(note, json.dumps(recipe.model_dump(mode="json"), indent=2).encode())


def _empty(run: Path) -> None:
    """Remove a run, and nothing else that lies beside it."""
    for name in OWN_FOLDERS:
        shutil.rmtree(run / name, ignore_errors=True)
    for name in OWN_FILES:
        (run / name).unlink(missing_ok=True)


def note_sizes(run: Path, sizes: Mapping[Splits, Statistics]) -> None:
    """Write down how large the data is, which a model's folder must tell without it."""
    content = {split: asdict(statistics) for split, statistics in sizes.items()}
    write_file(run / SIZES_FILE, json.dumps(content, indent=2).encode())


def sizes_of_run(run: Path) -> dict[Splits, Statistics]:
    """How large the data was; empty for what nobody has written down."""
    try:
        content = json.loads((run / SIZES_FILE).read_text(encoding="utf-8"))
        return {split: Statistics(**content[split]) for split in SPLITS if split in content}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError):
        raise UserError(f"{run / SIZES_FILE}: broken; without the file a card has no sizes") from None


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
