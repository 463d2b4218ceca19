"""Recipes as text: a commented recipe for a user's own files, and the reference of all keys.

Comments and meanings are the descriptions of the fields in `config`, so they are always up to date.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from inspect import getdoc
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from anyorder import config

Size = Literal["tiny", "small", "base"]


# Keys that differ from the defaults, by size of machine and data.
SIZES: dict[Size, dict[str, dict[str, Any]]] = {
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
DECODING = {"beam": 4}


# The keys that `anyorder init` shows; those without a value are left out.
SHOWN = {
    "data": "root train dev test bad_lines max_length",
    "text": "source target unit vocabulary",
    "order": "name parser files",
    "search": "method",
    "model": "kind width hidden heads encoder_layers decoder_layers dropout encoder_positions first share",
    "train": "steps batch_tokens lr warmup label_smoothing seed precision validate_every select patience "
    "average",
    "decode": "search beam length_penalty max_ratio",
}
HEADER = """\
# A recipe for anyorder: `anyorder train` reads it, and every key can be changed on the command
# line, e.g. train.steps=1000. `docs/reference/recipe.md` lists all keys and their defaults.
"""
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
TYPES: dict[object, str] = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    Path: "path",
    tuple[Path, ...]: "list of paths",
}
AS_IT_IS = "code"  # instead of a language: words are separated by spaces
JAPANESE = "ja"  # split by MeCab instead of Moses


@dataclass(frozen=True)
class Wishes:
    """What a user asks `anyorder init` for."""

    splits: Mapping[config.Splits, config.SplitFiles]
    source_language: str
    target_language: str
    order: config.Order
    size: Size


def recipe_text(wishes: Wishes) -> str:
    """Write a recipe in TOML, with a comment for each key that one may want to change."""
    by_size = SIZES[wishes.size]
    words = AS_IT_IS in (wishes.source_language, wishes.target_language)
    values: dict[str, dict[str, Any]] = {
        "data": {split: _given(files) for split, files in wishes.splits.items()},
        "text": {
            **by_size["text"],
            "unit": "words" if words else "bpe",
            "source": _side(wishes.source_language),
            "target": _side(wishes.target_language),
        },
        "order": _given(wishes.order),
        "search": {},
        "model": by_size["model"],
        "train": {**by_size["train"], **LEARNING},
        "decode": DECODING,
    }
    if wishes.order.name != "sao":
        del values["search"]
    return "\n".join([HEADER, *(_section(name, given) for name, given in values.items())])


def recipe_toml(recipe: config.Recipe, *, without: Collection[str] = ()) -> str:
    """Write the keys of a recipe that differ from the defaults. without: dotted keys to leave out."""
    sections = []
    for name, given in _given(recipe).items():
        if isinstance(given, dict):
            lines = [
                f"{key} = {_toml(value)}" for key, value in given.items() if f"{name}.{key}" not in without
            ]
            sections += ["\n".join([f"[{name}]", *lines])] if lines else []
        elif name not in without:
            sections.insert(0, f"{name} = {_toml(given)}")
    return "\n\n".join(sections) + "\n"


def reference() -> str:
    """Write the recipe reference in Markdown: default, allowed values and meaning of each key, by section."""
    names: dict[type[config.Section], list[str]] = {}
    for name, kind in _sections(config.Recipe):
        names.setdefault(kind, []).append(name)
    parts = [
        "# Every key of a recipe",
        "",
        "A recipe is a TOML file. Any key can be changed on the command line by its dotted name, "
        "e.g. `train.steps=1000`. Only `data.train` and `data.dev` must be given.",
        "",
        "This page is made from `src/anyorder/config`; `make docs` writes it again.",
    ]
    for kind, sections in names.items():
        heading = ", ".join(f"`[{name}]`" for name in sections if name) or "The top of the file"
        parts += ["", f"## {heading}", "", getdoc(kind) or "", ""]
        parts += ["| key | default | allowed | meaning |", "|---|---|---|---|"]
        parts += [_row(key, field) for key, field in kind.model_fields.items() if _section_of(field) is None]
    return "\n".join(parts) + "\n"


def _sections(kind: type[config.Section], name: str = "") -> Iterator[tuple[str, type[config.Section]]]:
    """Yield a section and all sections inside it, by dotted name; the recipe's own name is empty."""
    yield name, kind
    for key, field in kind.model_fields.items():
        inner = _section_of(field)
        if inner is not None:
            yield from _sections(inner, f"{name}.{key}".lstrip("."))


def _section_of(field: FieldInfo) -> type[config.Section] | None:
    """The class of a key that is a section; None for a value."""
    kind = _without_none(field.annotation)
    return kind if isinstance(kind, type) and issubclass(kind, config.Section) else None


def _without_none(annotation: object) -> object:
    """Turn X | None into X."""
    if get_origin(annotation) not in (UnionType, Union):  # Literal[...] | None is of the second kind
        return annotation
    return next(kind for kind in get_args(annotation) if kind is not type(None))


def _row(key: str, field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    shown = "" if field.is_required() or default in (None, {}) else f"`{_toml(default)}`"
    meaning = field.description or ""
    return f"| `{key}` | {shown} | {_allowed(field)} | {meaning} |"


def _allowed(field: FieldInfo) -> str:
    kind = _without_none(field.annotation)
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    names = get_args(kind) if get_origin(kind) is Literal else extra.get("allowed")
    if isinstance(names, tuple | list):
        return ", ".join(f"`{_toml(name)}`" for name in names)
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
    if language == AS_IT_IS:
        return {"split": "spaces"}
    return {"split": "mecab"} if language == JAPANESE else {"split": "moses", "language": language}


def _given(section: config.Section) -> dict[str, Any]:
    """Values that differ from the defaults, as plain data."""
    given = section.model_dump(mode="json", exclude_defaults=True)
    if isinstance(section, config.Recipe):
        search = section.search.given()
        given = {name: value for name, value in given.items() if name != "search"}
        given |= {"search": search} if search else {}
    return given


def _section(name: str, values: Mapping[str, Any]) -> str:
    kind = _section_of(config.Recipe.model_fields[name])
    assert kind is not None, f"{name} is a section of recipes"
    lines = [f"[{name}]"]
    for key in SHOWN[name].split():
        field = kind.model_fields[key]
        value = values.get(key, field.get_default(call_default_factory=True))
        if value in (None, {}):
            continue
        line = f"{key} = {_toml(value)}"
        lines.append(f"{line:<40}  # {field.description}" if field.description else line)
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, Path):
        value = str(value)
    # JSON and TOML write strings, numbers and booleans alike, except for JSON's escapes of rare characters.
    return json.dumps(value, ensure_ascii=False)
