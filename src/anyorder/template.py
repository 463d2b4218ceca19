"""A commented recipe for someone's own files.

The comments are the descriptions that `config` checks by, so the two never part.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyorder import config

# What differs from the defaults, which are the paper's, by size of machine and data.
SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "tiny": {
        "model": {
            "width": 128,
            "hidden": 256,
            "heads": 4,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "dropout": 0.2,
        },
        "train": {"steps": 4000, "batch_tokens": 3000, "lr": 2e-3, "warmup": 400, "validate_every": 500},
        "text": {"vocabulary": 4000},
    },
    "small": {
        "model": {
            "width": 256,
            "hidden": 1024,
            "heads": 4,
            "encoder_layers": 3,
            "decoder_layers": 3,
            "dropout": 0.2,
        },
        "train": {"steps": 20_000, "batch_tokens": 6000, "lr": 1e-3, "warmup": 1000, "validate_every": 1000},
        "text": {"vocabulary": 8000},
    },
    "base": {"model": {}, "train": {}, "text": {}},
}
LEARNING = {"label_smoothing": 0.1, "select": "bleu", "patience": 8}
AS_IT_IS = "code"  # instead of a language: words are what blanks separate


@dataclass(frozen=True)
class Files:
    """A user's pairs."""

    train_source: Path
    train_target: Path
    dev_source: Path
    dev_target: Path


def recipe_text(files: Files, *, source_language: str, target_language: str, order: str, size: str) -> str:
    """TOML with every key that one may want to change, each explained."""
    changed = SIZES[size]
    words = AS_IT_IS in (source_language, target_language)
    text: dict[str, Any] = {
        **changed["text"],
        "unit": "words" if words else "bpe",
        "source": _side(source_language),
        "target": _side(target_language),
    }
    data = {
        "train": {"source": str(files.train_source), "target": str(files.train_target)},
        "dev": {"source": str(files.dev_source), "target": str(files.dev_target)},
    }
    parts = [
        "# A recipe for anyorder: `anyorder train` reads it, and every key can be changed on the command",
        "# line, e.g. train.steps=1000. Keys that are not here have the defaults of the paper.",
        "",
        _section("data", config.Data, data, show=("root", "train", "dev", "bad_lines", "max_length")),
        _section("text", config.Text, text, show=("source", "target", "unit", "vocabulary")),
        _section("order", config.Order, {"name": order}, show=("name",)),
        _section(
            "model",
            config.Model,
            changed["model"],
            show=(
                "width",
                "hidden",
                "heads",
                "encoder_layers",
                "decoder_layers",
                "dropout",
                "encoder_positions",
                "first",
                "share",
            ),
        ),
        _section(
            "train",
            config.Train,
            {**changed["train"], **LEARNING},
            show=(
                "steps",
                "batch_tokens",
                "lr",
                "warmup",
                "label_smoothing",
                "seed",
                "precision",
                "validate_every",
                "select",
                "patience",
                "average",
            ),
        ),
        _section(
            "decode", config.Decode, {"beam": 4}, show=("search", "beam", "length_penalty", "max_ratio")
        ),
    ]
    return "\n".join(parts)


def _side(language: str) -> dict[str, str]:
    return {"split": "spaces"} if language == AS_IT_IS else {"split": "moses", "language": language}


def _section(
    name: str, kind: type[config.Section], values: Mapping[str, Any], *, show: tuple[str, ...]
) -> str:
    lines = [f"[{name}]"]
    for key in show:
        field = kind.model_fields[key]
        value = values.get(key, field.default)
        line = f"{key} = {_toml(value)}"
        lines.append(f"{line:<40}  # {field.description}" if field.description else line)
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, Path):
        return json.dumps(str(value))
    return json.dumps(value)  # strings, numbers and booleans are written alike in both
