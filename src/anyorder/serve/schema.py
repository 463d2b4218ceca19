"""Requests of the server. Keys are those of the library and of `anyorder complete`'s JSON lines."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Optional, Self

from pydantic import Field, create_model, field_validator, model_validator
from pydantic_core import PydanticCustomError

from anyorder import config
from anyorder.errors import UserError
from anyorder.inference.canvas_text import BLANK, CanvasText
from anyorder.inference.watching import MOST_ALTERNATIVES
from anyorder.orders.fixed import ORDERS
from anyorder.serve.bounds import Bounds

# A request may never name a file of the server.
PATHS = ("partners", "reverse")
DECODE_KEYS = tuple(key for key in config.Decode.model_fields if key not in PATHS)
CANVAS_KEYS = tuple(CanvasText.model_fields)
# Orders that need nothing but the sentence and the model: never a file, a parser or a function by its name.
SCORE_NEEDS = ("nothing", "counts", "random", "search")
SCORE_ORDERS = ("own", "marginal", *(name for name, rule in ORDERS.items() if rule.needs in SCORE_NEEDS))


class GivenStep(config.Section):
    """A step that is taken before the model goes on."""

    token: str = Field(description="a word, or a piece as answers show it")
    gap: int = Field(ge=0, description="the number of tokens to its left on the canvas so far")


class Request(config.Section):
    """What all requests share."""

    model: str | None = Field(None, description="name of a model; default: the first one")
    deadline: float | None = Field(None, gt=0, description="seconds after which the request is given up")


class _Writing(Request):
    source: str | None = Field(None, description="what to translate, describe, ...")
    photo: str | None = Field(
        None, description="for models of images, in place of the source: a JPEG or PNG file in base64"
    )
    stream: bool = Field(False, description="send every step as a server-sent event, then the answer")
    alternatives: int = Field(
        0, ge=0, le=MOST_ALTERNATIVES, description="with stream: how many likely words to list at each step"
    )
    begin: tuple[GivenStep, ...] = Field(
        (), description="with stream: steps that are taken first; the model goes on from there"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for name in ("alternatives", "begin"):
            if getattr(self, name) and not self.stream:
                raise ValueError(f"{name}: is for stream = true")
        if self.source is not None and self.photo is not None:
            raise ValueError("source and photo given: give one")
        return self

    @property
    def options(self) -> dict[str, Any]:
        """The keys of [decode] that are given."""
        return {key: value for key in DECODE_KEYS if (value := getattr(self, key)) is not None}

    @property
    def photo_bytes(self) -> bytes | None:
        """The photo's file."""
        if self.photo is None:
            return None
        try:
            return base64.b64decode(self.photo, validate=True)
        except (binascii.Error, ValueError):
            raise UserError("photo: not base64") from None


def _decode_fields() -> dict[str, Any]:
    """The keys of [decode], all of them optional: what is left out is as the model's recipe says."""
    return {
        key: (Optional[field.annotation], Field(None, description=field.description))  # noqa: UP045
        for key, field in config.Decode.model_fields.items()
        if key in DECODE_KEYS
    }


def _canvas_fields() -> dict[str, Any]:
    return {
        key: (field.annotation, Field(field.default, description=field.description))
        for key, field in CanvasText.model_fields.items()
    }


class _Generating(_Writing):
    sources: tuple[str, ...] | None = Field(None, description="several sources, in place of one")

    @model_validator(mode="after")
    def _one_or_several(self) -> Self:
        if self.sources is not None:
            given = [name for name in ("source", "photo") if getattr(self, name) is not None]
            if given:
                raise ValueError(f"{given[0]} and sources given: give one")
            if self.stream:
                raise ValueError("sources: stream = true is for one source")
            if not self.sources:
                raise ValueError("sources: is empty; must be one or more")
        return self


GenerateRequest = create_model(
    "GenerateRequest",
    __base__=_Generating,
    __doc__="Write the answer to a source, or to several.",
    **_decode_fields(),
)
CompleteRequest = create_model(
    "CompleteRequest",
    __base__=_Writing,
    __doc__="Write around what is given of the target: blanks, required words, a prefix, a draft.",
    **_decode_fields(),
    **_canvas_fields(),
)


class ScoreRequest(Request):
    """log p of a target given its source."""

    source: str = Field("", description="what the target answers")
    target: str = Field(description="the text whose log p is asked for")
    order: str = Field(
        "own",
        description=f"the order in which it is written: {', '.join(SCORE_ORDERS)}",
        json_schema_extra={"enum": list(SCORE_ORDERS)},
    )
    beam: int | None = Field(
        None, ge=1, description="orders to find, for sao and marginal; default: 8, or as many as are allowed"
    )
    samples: int | None = Field(None, ge=2, description="for marginal: orders to sample")
    seed: int = Field(1, ge=0, le=2**31 - 1, description="for the order rnd and for samples")

    @field_validator("order")
    @classmethod
    def _order_is_known(cls, value: str) -> str:
        if value not in SCORE_ORDERS:
            raise PydanticCustomError(
                "unknown_order", f"{', '.join(SCORE_ORDERS[:-1])} or {SCORE_ORDERS[-1]}"
            )
        return value


class ErrorAnswer(config.Section):
    """What is wrong with a request, in one sentence that names the field."""

    error: str


def canvas_of(request: Any) -> dict[str, Any]:  # noqa: ANN401
    """The keys of the canvas that a request gives."""
    defaults = {key: field.default for key, field in CanvasText.model_fields.items()}
    given = {key: getattr(request, key) for key in CANVAS_KEYS}
    return {key: value for key, value in given.items() if value != defaults[key]}


# --- bounds ---


class TooMuch(Exception):
    """A request asks for more than the server allows."""


def check_bounds(request: Request, settings: config.Decode | None, bounds: Bounds) -> None:
    """Refuse a request that asks for too much, naming the field."""
    for name in ("source", "target", "template", "prefix", "suffix", "draft"):
        _check_text(name, getattr(request, name, None), bounds)
    for number, source in enumerate(getattr(request, "sources", None) or (), start=1):
        _check_text(f"sources: number {number}", source, bounds)
    _check("sources", len(getattr(request, "sources", None) or ()), bounds.max_sources)
    if request.deadline is not None:
        _check("deadline", request.deadline, bounds.max_deadline)
    _check_words(request, bounds)
    if isinstance(request, ScoreRequest):
        _check("beam", request.beam or 0, bounds.max_beam)
        _check("samples", request.samples or 0, bounds.max_samples)
    if settings is not None:
        sampling = settings.search == "sample"
        _check("n_best" if sampling else "beam", *_width(settings, bounds, sampling=sampling))
        given = getattr(request, "max_length", None)
        if given is not None:
            _check("max_length", given, bounds.max_length)
        _check("begin", len(getattr(request, "begin", ())), bounds.max_length)


def _width(settings: config.Decode, bounds: Bounds, *, sampling: bool) -> tuple[int, int]:
    return (settings.n_best, bounds.max_samples) if sampling else (settings.beam, bounds.max_beam)


def _check_words(request: Request, bounds: Bounds) -> None:
    template = getattr(request, "template", None) or ""
    _check("template", len(BLANK.findall(template)), bounds.max_blanks, of=" blanks")
    for match in BLANK.finditer(template):
        numbers = [int(number) for number in (match["bounds"] or "").split(",") if number.isdigit()]
        _check("template", max(numbers, default=0), bounds.max_tokens, of=" words in a blank")
    for name in ("must", "forbid"):
        words: Sequence[str] = getattr(request, name, ())
        _check(name, len(words), bounds.max_required, of=" words")
        for word in words:
            _check_text(name, word, bounds)
            _check(name, word.count("|") + 1, bounds.max_required, of=" alternatives")


def _check_text(name: str, text: str | None, bounds: Bounds) -> None:
    if text is None:
        return
    _check(name, len(text), bounds.max_characters, of=" characters")
    _check(name, len(text.split()), bounds.max_tokens, of=" words")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise UserError(f"{name}: holds half of a surrogate pair, which is no character")


def _check(name: str, given: float, most: float, *, of: str = "") -> None:
    if given > most:
        raise TooMuch(f"{name}: {given:g}{of} given, this server allows at most {most:g}")


@cache
def bounded_defaults(settings: config.Decode, bounds: Bounds) -> Mapping[str, Any]:
    """Keys of a model's own [decode] that this server lowers to what it allows."""
    changed: dict[str, Any] = {}
    if settings.max_length > bounds.max_length:
        changed["max_length"] = bounds.max_length
    if settings.beam > bounds.max_beam:
        changed["beam"] = bounds.max_beam
    return changed
