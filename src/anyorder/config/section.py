"""The base class of a recipe's sections, and one-line reports of wrong keys and values."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from anyorder.errors import UserError

WIDEST_BEAM = 9999  # a wider beam would use up all memory before it could fail with a message


def expand_home(path: Path) -> Path:
    """Replace a leading `~` by the home folder; a ValueError says that there is none."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise ValueError(f"{path}: no such user, or one without a home") from None


class Section(BaseModel):
    """A section of a recipe. It refuses unknown keys, and its values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


AnySection = TypeVar("AnySection", bound=Section)


def checked(
    kind: type[AnySection],
    values: Mapping[str, Any],
    *,
    origin: str,
    given_by: Mapping[str, str] | None = None,
) -> AnySection:
    """Build a section, or report the first wrong key in one line.

    origin: where the values come from, e.g. the recipe's path; given_by: origin of single keys.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"] if part != "[key]")
        # Also match keys around or inside the wrong one: `trian.steps=1` makes an unknown section.
        related = (by for given, by in (given_by or {}).items() if _within(given, key) or _within(key, given))
        where = next(related, origin)
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise UserError(f"{where}: {_complaint(kind, key, first)}{more}") from None


def _within(key: str, section: str) -> bool:
    return f"{key}.".startswith(f"{section}.")


def _complaint(kind: type[Section], key: str, error: ErrorDetails) -> str:
    given = json.dumps(error["input"], default=str)
    given = given if len(given) <= 60 else given[:57] + "..."
    match error["type"]:
        case "extra_forbidden":
            allowed = sorted(_keys_beside(kind, key))
            near = difflib.get_close_matches(key.rpartition(".")[2], allowed, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            return f"{key} = {given}: no such key; {hint}allowed: {', '.join(allowed)}"
        case "missing":
            keys = sorted(_keys_beside(kind, f"{key}."))
            return f"{key}: missing" + (f"; its keys are {', '.join(keys)}" if keys else "")
        case "value_error":
            return f"{key}: {error['ctx']['error']!s}" if key else str(error["ctx"]["error"])
        case "path_type":
            return f"{key} = {given}: must be a path, in quotes"
        case "tuple_type":
            return f"{key} = {given}: must be a list, in brackets"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"{key} = {given}: must be a section, with keys of its own"
        case _:
            message = error["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
            return f"{key} = {given}: must be {message}"


def _keys_beside(kind: type[BaseModel], key: str) -> Iterable[str]:
    *sections, _ = key.split(".")
    for section in sections:
        annotation = kind.model_fields[section].annotation if section in kind.model_fields else None
        inner = [part for part in (annotation, *get_args(annotation)) if isinstance(part, type)]
        found = next((part for part in inner if issubclass(part, BaseModel)), None)
        if found is None:
            return []
        kind = found
    return kind.model_fields
