"""The cache of vocabularies and tokenised splits.

An entry is a folder whose name is a digest of everything that its content depends on, including the contents
of the files. A change of data, text rules or vocabulary makes a new entry, so none can be stale.
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

FORMAT = 3  # version of all entries; older ones are ignored
KEY = "data.cache"  # the recipe key of the cache's folder, for messages

# Packages that may split words differently in another version.
_SPLITTING_PACKAGES = {"moses": ["sacremoses"], "mecab": ["mecab-python3", "ipadic"], "spaces": []}


def entry(
    recipe: Recipe,
    kind: Literal["tokenizers", "corpora"],
    *,
    files: Files,
    settings: dict[str, object] | None = None,
) -> Path:
    """Folder of what is made from these files with the recipe's text rules and further settings.

    If the folder exists, it is complete.
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
    """How text becomes words and tokens, including the versions of the packages that split it."""
    packages = {name for side in (text.source, text.target) for name in _SPLITTING_PACKAGES[side.split]}
    return {"text": text.model_dump(), **{name: _version(name) for name in packages}}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""  # reported when the first line is split
