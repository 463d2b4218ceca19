"""A recipe: all settings of one experiment, read from TOML and checked key by key."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from anyorder.config.data import Data, Text
from anyorder.config.decode import Decode
from anyorder.config.model import Edit, Insertion, Model, kinds_with
from anyorder.config.order import ANNEALED_PART, LARGEST_BOOTSTRAP_PART, PAPER_BOOTSTRAP_STEPS, Order, Search
from anyorder.config.section import Section, checked, expand_home
from anyorder.config.train import Canvas, Train
from anyorder.errors import UserError


class Recipe(Section):
    """All settings of one experiment."""

    run: Path = Field(description="folder for the trained model; default runs/NAME-OF-THE-RECIPE")
    data: Data
    text: Text = Text()
    order: Order = Order()
    search: Search = Search()
    model: Model = Model()
    insertion: Insertion = Insertion()
    edit: Edit = Edit()
    canvas: Canvas = Canvas()
    train: Train = Train()
    decode: Decode = Decode()

    @model_validator(mode="after")
    def _bootstrap_is_fixed(self) -> Self:
        if self.search.bootstrap == "sao":
            raise ValueError("search.bootstrap must be a fixed order, not sao")
        return self

    @model_validator(mode="after")
    def _bag_has_no_positions(self) -> Self:
        if self.text.bag and self.model.encoder_positions != "none":
            raise ValueError(
                f'model.encoder_positions = "{self.model.encoder_positions}": must be "none" for '
                "text.bag = true, where positions mean nothing"
            )
        return self

    @model_validator(mode="after")
    def _model_fits(self) -> Self:
        any_order = self.model.abilities.any_order
        if not any_order and self.order.name != "l2r":
            raise ValueError(
                f'order.name = {json.dumps(self.order.name)}: must be "l2r" for model.kind = '
                f'"{self.model.kind}"; only {kinds_with("any_order")} learns other orders'
            )
        copies_source = self.model.copying and not self.editing
        if copies_source and (self.sourceless or self.data.train.features is not None):
            raise ValueError("model.copying = true: the source must be text; only words can be copied")
        if self.train.hide_words and not (self.model.copying and self.text.unit == "words"):
            raise ValueError(
                f"train.hide_words = {self.train.hide_words}: needs model.copying = true and "
                'text.unit = "words", because hidden words can only be copied'
            )
        if self.train.bpe_dropout and (self.text.unit != "bpe" or self.adaptive):
            given = f'text.unit = "{self.text.unit}"' if self.text.unit != "bpe" else 'order.name = "sao"'
            why = "words have no pieces" if self.text.unit != "bpe" else "its orders are of the usual pieces"
            raise ValueError(f"train.bpe_dropout = {self.train.bpe_dropout}: must be 0 for {given}: {why}")
        if not any_order and self.canvas.share:
            raise ValueError(
                f'canvas.share = {self.canvas.share}: must be 0 for model.kind = "{self.model.kind}"; '
                f"only {kinds_with('any_order')} writes around given words"
            )
        misfit = self.misfit(self.decode)
        if misfit is not None:
            raise ValueError(misfit)
        return self

    @field_validator("run", mode="before")
    @classmethod
    def _run_is_a_path(cls, value: object) -> object:
        if value == "":
            raise ValueError("must not be empty")
        return value

    @field_validator("run")
    @classmethod
    def _expand_run(cls, value: Path) -> Path:
        return expand_home(value)

    @property
    def adaptive(self) -> bool:
        """Whether the model searches for its own orders."""
        return self.order.name == "sao"

    def searches(self, step: int) -> bool:
        """Whether an update learns from searched orders. step: counted from 1."""
        return self.adaptive and step > self.bootstrap_steps

    @property
    def bootstrap_steps(self) -> int:
        """Updates in the bootstrap order before orders are searched."""
        if self.search.bootstrap_steps is not None:
            return self.search.bootstrap_steps
        return min(PAPER_BOOTSTRAP_STEPS, self.train.steps // LARGEST_BOOTSTRAP_PART)

    @property
    def anneal_steps(self) -> int:
        """Updates after the bootstrap in which the temperature of the search falls."""
        if self.search.anneal_steps is not None:
            return self.search.anneal_steps
        searched = max(0, self.train.steps - self.bootstrap_steps)
        return round(searched * ANNEALED_PART) if self.search.method == "drawn" else 0

    @property
    def sourceless(self) -> bool:
        """Whether the data has targets only, which are written without any source."""
        return self.data.train.read == "nothing"

    @property
    def editing(self) -> bool:
        """Whether the model changes drafts."""
        return self.model.abilities.editing

    @model_validator(mode="after")
    def _drafts_fit(self) -> Self:
        for name, given in {"train": self.data.train, "dev": self.data.dev, "test": self.data.test}.items():
            if given is None or given.jsonl is not None:
                continue
            if self.editing and given.draft is None:
                raise ValueError(
                    f'data.{name}.draft: missing; model.kind = "{self.model.kind}" changes drafts'
                )
            if not self.editing and given.draft is not None:
                raise ValueError(
                    f"data.{name}.draft: is for model.kind = {kinds_with('editing')}, not for "
                    f'"{self.model.kind}"'
                )
        for key, value in {
            "train.hide_words": self.train.hide_words,
            "train.bpe_dropout": self.train.bpe_dropout,
            "text.bag": self.text.bag,
        }.items():
            if self.editing and value:
                raise ValueError(
                    f"{key} = {json.dumps(value)}: must be {json.dumps(type(value)())} for model.kind = "
                    f'"{self.model.kind}"'
                )
        return self

    @model_validator(mode="after")
    def _splits_are_alike(self) -> Self:
        splits = {"dev": self.data.dev, "test": self.data.test}
        for name, given in splits.items():
            if given is not None and given.read != self.data.train.read:
                raise ValueError(
                    f"data.{name} has {given.read} to read from, but data.train {self.data.train.read}; they "
                    "must be alike"
                )
        return self

    @property
    def fixed_order(self) -> Order:
        """The fixed order of the targets; for adaptive orders, the bootstrap order."""
        return self.order.model_copy(update={"name": self.search.bootstrap}) if self.adaptive else self.order

    @property
    def order_label(self) -> str:
        """The order's name in tables; "none" for an Insertion Transformer, which learns from all orders.

        An editor has the order of its edits.
        A model that was to search its orders but ended within its bootstrap has a label that says so.
        """
        if self.adaptive and not self.searches(self.train.steps):
            return f"{self.order.name} (no search: bootstrap only)"
        if self.adaptive and self.search.method != "guided":
            return f"{self.order.name} ({self.search.method})"
        if self.editing:
            return f"edits {self.edit.order}"
        return self.order.name if self.model.abilities.beam_search else "none"

    def misfit(self, decode: Decode) -> str | None:
        """Why this recipe's model can't decode with these settings, as an error message; None if it can."""
        defaults, abilities = Decode(), self.model.abilities
        rest = decode.without_sampling if abilities.sampling else decode
        for key, capability in Decode.needs().items():
            given, must_be = getattr(rest, key), getattr(defaults, key)
            if given != must_be and not getattr(abilities, capability):
                allowed = json.dumps(must_be)
                if key == "search" and abilities.sampling:
                    allowed += ' or "sample"'
                return (
                    f"decode.{key} = {json.dumps(given, default=str)}: must be {allowed} "
                    f'for model.kind = "{self.model.kind}", which has no use for it'
                )
        if decode.reverse is not None and (self.sourceless or self.data.train.features is not None):
            return f"decode.reverse = {str(decode.reverse)!r}: is for models that read text"
        if decode.parallel and self.insertion.ends_by != "gap":
            return (
                'decode.parallel = true: needs insertion.termination = "gap": each gap must predict its own '
                "end"
            )
        if decode.search == "sample" and abilities.parallel and self.insertion.ends_by == "gap":
            return (
                'decode.search = "sample": needs insertion.termination = "classifier" or "sequence": where '
                "each gap predicts its own end, the sentence has no probability of ending"
            )
        return None

    def path(self, path: Path) -> Path:
        """Resolve a path of the recipe, which is relative to data.root."""
        try:
            return expand_home(self.data.root) / expand_home(path)
        except ValueError as error:
            raise UserError(str(error)) from None


def load_recipe(path: Path, overrides: Iterable[str] = ()) -> Recipe:
    """Read a TOML recipe and apply overrides: `key=value` with dotted keys."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise UserError(f"{path}: not valid TOML: nested too deeply") from None
    except FileNotFoundError:
        raise UserError(f"{path}: no such recipe; `anyorder init` writes one") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder; give the recipe, a .toml file") from None
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: not valid TOML: {error}") from None
    except UnicodeDecodeError as error:
        wrong, line = error.object[error.start], error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}: not valid UTF-8 (byte 0x{wrong:02x} in line {line})") from None
    values.setdefault("run", str(Path("runs") / path.stem))
    return recipe_with(values, overrides, origin=str(path))


def recipe_with(values: dict[str, Any], overrides: Iterable[str], *, origin: str) -> Recipe:
    """Build a recipe from nested values and `key=value` overrides. origin: for error messages."""
    given_by = dict.fromkeys((_override(values, text) for text in overrides), "command line")
    return checked(Recipe, values, origin=origin, given_by=given_by)


def _override(values: dict[str, Any], text: str) -> str:
    """Put one `a.b=value` into nested values and return its key; the value is TOML or a bare string."""
    key, equals, given = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise UserError(f"{text!r}: an override is written key=value, e.g. train.steps=1000")
    try:
        value = tomllib.loads(f"value = {given}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        value = given.strip()
    *sections, name = key.split(".")
    for section in sections:
        if values.get(section) is None:  # absent, or an optional section that a saved recipe lists as null
            values[section] = {}
        inner = values[section]
        if not isinstance(inner, dict):
            raise UserError(f"{text!r}: {section} is a value, not a section")
        values = inner
    values[name] = value
    return key
