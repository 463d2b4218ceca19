"""A commented recipe for someone's own files, and the reference of all keys.

Comments and meanings are the descriptions that `config` checks by, so the two never part.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from inspect import getdoc
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

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
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
TYPES: dict[object, str] = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    Path: "path",
}
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


def reference() -> str:
    """Markdown of every key by section: default, what is allowed and what it means."""
    names: dict[type[config.Section], list[str]] = {}
    for name, kind in _sections(config.Recipe):
        names.setdefault(kind, []).append(name)
    parts = [
        "# Every key of a recipe",
        "",
        "A recipe is a TOML file. Any key can be changed on the command line by its dotted name, "
        "e.g. `train.steps=1000`. Only `data.train` and `data.dev` must be given.",
        "",
        "This page is made from `src/anyorder/config.py`; CONTRIBUTING.md says how to make it anew.",
    ]
    for kind, sections in names.items():
        heading = ", ".join(f"`[{name}]`" for name in sections if name) or "The top of the file"
        parts += ["", f"## {heading}", "", getdoc(kind) or "", ""]
        parts += ["| key | default | allowed | meaning |", "|---|---|---|---|"]
        parts += [_row(key, field) for key, field in kind.model_fields.items() if _section_of(field) is None]
    return "\n".join(parts) + "\n"


def _sections(kind: type[config.Section], name: str = "") -> Iterator[tuple[str, type[config.Section]]]:
    """A section and all sections in it, by dotted name; the recipe's own is empty."""
    yield name, kind
    for key, field in kind.model_fields.items():
        inner = _section_of(field)
        if inner is not None:
            yield from _sections(inner, f"{name}.{key}".lstrip("."))


def _section_of(field: FieldInfo) -> type[config.Section] | None:
    """The section that a key stands for, if it isn't a value."""
    kind = _without_none(field.annotation)
    return kind if isinstance(kind, type) and issubclass(kind, config.Section) else None


def _without_none(annotation: object) -> object:
    """X for X | None: that a key may be left out is said by its default."""
    if get_origin(annotation) is not UnionType:
        return annotation
    return next(kind for kind in get_args(annotation) if kind is not type(None))


def _row(key: str, field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    shown = "" if field.is_required() or default in (None, {}) else f"`{_toml(default)}`"
    meaning = (field.description or "").replace("<", "&lt;")  # `<unk>` is no HTML
    return f"| `{key}` | {shown} | {_allowed(field)} | {meaning} |"


def _allowed(field: FieldInfo) -> str:
    kind = _without_none(field.annotation)
    if get_origin(kind) is Literal:
        return ", ".join(f"`{_toml(value)}`" for value in get_args(kind))
    if get_origin(kind) is dict:
        return "a path for each of " + ", ".join(f"`{split}`" for split in config.SPLITS)
    bounds = [
        f"{sign} {limit}"
        for constraint in field.metadata
        for name, sign in BOUNDS.items()
        if (limit := getattr(constraint, name, None)) is not None
    ]
    return " ".join([TYPES[kind], " and ".join(bounds)]).strip()


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
        value = str(value)
    # Strings, numbers and booleans are written alike in both, but for JSON's escapes of rare characters.
    return json.dumps(value, ensure_ascii=False)
