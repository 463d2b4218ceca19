"""Where data made from a recipe's files is kept.

An entry is a folder named by everything that its content depends on, contents of the files included: a change
of data, text rules or vocabulary makes a new entry, never a stale one.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
from pathlib import Path
from typing import Literal

from anyorder.config.data import Text
from anyorder.config.recipe import Recipe
from anyorder.data.readers import Files, content_digest

FORMAT = 3  # of all entries; a change of it leaves older ones alone
KEY = "data.cache"  # what a recipe calls the place

# Packages whose next version may split words otherwise.
_SPLITTING_PACKAGES = {"moses": ["sacremoses"], "mecab": ["mecab-python3", "ipadic"], "spaces": []}


def entry(
    recipe: Recipe,
    kind: Literal["tokenizers", "corpora"],
    *,
    files: Files,
    settings: dict[str, object] | None = None,
) -> Path:
    """The folder for what is made of these files by the recipe's text rules and some more settings.

    It exists only if it was made before, and is complete then.
    """
    contents = {name: [file.packing, content_digest(file)] for name, file in files.items()}
    parts = [FORMAT, contents, _text_settings(recipe.text), settings or {}]
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return _root(recipe) / kind / key


def _root(recipe: Recipe) -> Path:
    if recipe.data.cache is not None:
        return recipe.path(recipe.data.cache)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "anyorder"


def _text_settings(text: Text) -> dict[str, object]:
    """How text becomes words and tokens, the versions of the packages that split it included."""
    packages = {name for side in (text.source, text.target) for name in _SPLITTING_PACKAGES[side.split]}
    return {"text": text.model_dump(), **{name: _version(name) for name in packages}}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""  # its absence is answered when the first line is split
