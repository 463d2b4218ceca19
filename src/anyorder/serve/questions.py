"""From a request's values to questions for a worker, and from what it finds to the answer."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from anyorder import config
from anyorder.errors import UserError
from anyorder.inference.answers import Completed, Generated, Written, json_line
from anyorder.inference.canvas_text import canvas_text
from anyorder.inference.completion import CompletionRequest, check_completes
from anyorder.inference.generator import Generator
from anyorder.inference.loaded_model import LoadedModel
from anyorder.inference.session import Question, Watch
from anyorder.models.indigo import Indigo
from anyorder.serve.bounds import Bounds
from anyorder.serve.schema import (
    CompleteRequest,
    GenerateRequest,
    Request,
    ScoreRequest,
    bounded_defaults,
    canvas_of,
    check_bounds,
)

ORIGIN = "request"  # begins messages that name no field of their own
ORDERS_FOUND = 8  # by a search for orders, if a request does not say how many


@dataclass(frozen=True)
class Asked:
    """What a request asks of the worker of its model."""

    works: Sequence[Question | Callable[[LoadedModel], Any]]
    as_json: Callable[[Sequence[Any]], str]  # of what the worker finds; raises UserError
    sources: int
    stream: bool = False
    deadline: float | None = None


def parse(body: bytes) -> dict[str, Any]:
    """The values of a JSON body."""
    try:
        values = json.loads(body, parse_constant=_no_constant)
    except RecursionError:
        raise UserError("body: brackets are nested too deeply") from None
    except ValueError as error:
        raise UserError(f"body: not valid JSON ({error})") from None
    if not isinstance(values, dict):
        raise UserError("body: must be a JSON object")
    return values


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


AnyRequest = TypeVar("AnyRequest", bound=Request)


def _checked(kind: type[AnyRequest], values: Mapping[str, Any]) -> AnyRequest:
    try:
        return config.checked(kind, values, origin=ORIGIN)
    except UserError as error:
        # Fields name themselves.
        raise UserError(str(error).removeprefix(f"{ORIGIN}: ")) from None


def _settings(generator: Generator, options: dict[str, Any], bounds: Bounds) -> config.Decode:
    """Checked settings of [decode]; messages name the field of the request."""
    lowered = bounded_defaults(generator.trained.recipe.decode, bounds)
    try:
        return generator.settings(**{**lowered, **options})
    except UserError as error:
        raise UserError(str(error).removeprefix("decode: ").replace("decode.", "")) from None


def ask_generate(values: Mapping[str, Any], generator: Generator, bounds: Bounds) -> Asked:
    """What `/v1/generate` asks."""
    request: Any = _checked(GenerateRequest, values)
    check_bounds(request, None, bounds)
    settings = _settings(generator, request.options, bounds)
    check_bounds(request, settings, bounds)
    if request.sources is None:
        asked = _asked_to_write(request, generator, settings, None)

        def one(found: Sequence[Any]) -> str:
            return Generated(source=request.source, hypotheses=_written(found[0])).as_json()

        return Asked(asked, one, sources=1, stream=request.stream, deadline=request.deadline)
    questions = [Question(source, settings, line=line) for line, source in enumerate(request.sources)]

    def several(found: Sequence[Any]) -> str:
        answers = [
            Generated(source=source, hypotheses=_written(answer)).as_json()
            for source, answer in zip(request.sources, found, strict=True)
        ]
        return f'{{"answers": [{", ".join(answers)}]}}'

    return Asked(questions, several, sources=len(questions), deadline=request.deadline)


def ask_complete(values: Mapping[str, Any], generator: Generator, bounds: Bounds) -> Asked:
    """What `/v1/complete` asks."""
    request: Any = _checked(CompleteRequest, values)
    check_bounds(request, None, bounds)
    settings = _settings(generator, request.options, bounds)
    check_bounds(request, settings, bounds)
    check_completes(generator.trained, settings)
    name = "canvas"
    try:
        text = canvas_text(canvas_of(request), where=name)
    except UserError as error:
        raise UserError(str(error).removeprefix(f"{name}: ")) from None
    wanted = CompletionRequest(0, name, request.source or "", text)
    works = _asked_to_write(request, generator, settings, wanted)

    def as_json(found: Sequence[Any]) -> str:
        try:
            hypotheses = _written(found[0])
        except UserError as error:
            raise UserError(str(error).removeprefix(f"{name}: ")) from None
        return Completed(source=request.source, hypotheses=hypotheses).as_json()

    return Asked(works, as_json, sources=1, stream=request.stream, deadline=request.deadline)


def _asked_to_write(
    request: Any,  # noqa: ANN401
    generator: Generator,
    settings: config.Decode,
    wanted: CompletionRequest | None,
) -> list[Question | Callable[[LoadedModel], Any]]:
    watch = None
    if request.stream:
        begin = tuple((step.token, step.gap) for step in request.begin)
        watch = Watch(alternatives=request.alternatives, begin=begin)
    photo = request.photo_bytes
    if photo is None:
        _check_source_kind(generator)
        source = request.source or ""
        return [Question(source, settings, request=wanted, watch=watch)]
    return [partial(_of_photo, photo=photo, settings=settings, wanted=wanted)]


def _check_source_kind(generator: Generator) -> None:
    if generator.trained.model.shape.features:
        raise UserError("source: this model reads photos: give photo, a JPEG or PNG file in base64")


def _of_photo(
    model: LoadedModel, *, photo: bytes, settings: config.Decode, wanted: CompletionRequest | None
) -> Any:  # noqa: ANN401
    """The answer to a photo, in one go."""
    with tempfile.NamedTemporaryFile(suffix=".photo") as file:
        file.write(photo)
        file.flush()
        path = Path(file.name)
        try:
            if wanted is None:
                return model.generate([path], settings=settings)[0]
            request = CompletionRequest(0, wanted.name, path, wanted.text)
            return model.complete([request], settings=settings)[0]
        except UserError as error:
            raise UserError(str(error).replace(file.name, "photo")) from None


def ask_score(values: Mapping[str, Any], generator: Generator, bounds: Bounds) -> Asked:
    """What `/v1/score` asks."""
    request = _checked(ScoreRequest, values)
    check_bounds(request, None, bounds)

    def score(model: LoadedModel) -> Any:  # noqa: ANN401
        return model.score(
            [request.source],
            [request.target],
            order=request.order,
            beam=request.beam or min(ORDERS_FOUND, bounds.max_beam),
            samples=request.samples,
            seed=request.seed,
        )[0]

    def as_json(found: Sequence[Any]) -> str:
        if isinstance(found[0], UserError):
            raise found[0]
        return json_line(asdict(found[0]))

    return Asked([score], as_json, sources=1, deadline=request.deadline)


def _written(answer: Any) -> Any:  # noqa: ANN401
    if isinstance(answer, UserError):
        raise answer
    return answer


def model_card(name: str, generator: Generator, bounds: Bounds) -> dict[str, Any]:
    """What a client may want to know of a model."""
    trained = generator.trained
    recipe, shape = trained.recipe, trained.model.shape
    stepwise = isinstance(trained.model, Indigo)
    can = ["generate"]
    if recipe.model.abilities.any_order:
        can.append("complete")
    if stepwise:
        can.append("score")
    lowered = bounded_defaults(recipe.decode, bounds)
    decode = recipe.decode.model_copy(update=dict(lowered)).model_dump(mode="json")
    return {
        "name": name,
        "kind": recipe.model.kind,
        "order": recipe.order_label,
        "first": recipe.model.first,
        "parameters": generator.loaded.parameters,
        "data": recipe.data.name,
        "reads": "photos" if shape.features else "nothing" if recipe.sourceless else "text",
        "can": can,
        "streams": stepwise,
        "decode": {key: decode[key] for key in ("search", "beam", "n_best", "max_length")},
        "bounds": asdict(bounds),
    }


__all__ = ["Asked", "Written", "ask_complete", "ask_generate", "ask_score", "model_card", "parse"]
