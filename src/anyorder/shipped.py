"""Models that come with the package, by name."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "models"


def shipped_models() -> list[str]:
    """Their names."""
    return sorted(folder.name for folder in FOLDER.iterdir() if folder.is_dir()) if FOLDER.is_dir() else []


def located(model: Path) -> Path:
    """The folder of a model; a name alone may mean one of ours, unless there is such a folder here."""
    ours = FOLDER / model.name
    return ours if model.parts == (model.name,) and not model.exists() and ours.is_dir() else model
