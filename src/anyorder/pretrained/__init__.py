"""Models that come with the package, by name."""

from __future__ import annotations

from pathlib import Path

from anyorder.errors import UserError

FOLDER = Path(__file__).parent


def shipped_models() -> list[str]:
    """Their names."""
    return sorted(folder.name for folder in FOLDER.iterdir() if (folder / "config.json").is_file())


def located(model: Path) -> Path:
    """The folder of a model; a name alone may mean one of ours, unless there is such a folder here."""
    ours = FOLDER / model.name
    return ours if model.parts == (model.name,) and not model.exists() and ours.is_dir() else model


def is_shipped(model: Path) -> bool:
    """Whether it comes with the package, by its name or by its folder."""
    return located(model).resolve().parent == FOLDER.resolve()


def refuse_results(model: Path) -> None:
    """Results lie in a model's own folder, but the package's stay as they came.

    A new folder of the model's name would even hide it.
    """
    if is_shipped(model):
        raise UserError(
            f"{model}: comes with the package, which keeps no results; "
            f"evaluate a copy, which `anyorder export {model} FOLDER` makes"
        )
