"""The models that come with the package, found by their names."""

from __future__ import annotations

import os
from pathlib import Path

from anyorder.errors import UserError

FOLDER = Path(__file__).parent


def shipped_models() -> list[str]:
    """The names of the shipped models."""
    return sorted(folder.name for folder in FOLDER.iterdir() if (folder / "config.json").is_file())


def located(model: Path) -> Path:
    """The folder of a model; a bare name is a shipped model unless a folder of that name exists here."""
    shipped = FOLDER / model.name
    return shipped if model.parts == (model.name,) and not model.exists() and shipped.is_dir() else model


def is_shipped(model: Path) -> bool:
    """Whether a model comes with the package, given its name or its folder."""
    return Path(os.path.realpath(located(model))).parent == Path(os.path.realpath(FOLDER))


def refuse_results(model: Path) -> None:
    """Refuse to write results for a shipped model.

    Results belong into the model's folder, but the package's folders stay as they were installed. A new
    folder of that name in the working directory would hide the shipped model.
    """
    if is_shipped(model):
        raise UserError(
            f"{model}: comes with the package, which keeps no results; "
            f"evaluate a copy, which `anyorder export {model} FOLDER` makes"
        )
