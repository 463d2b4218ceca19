"""The kinds of models: how each is built, learned and decoded.

Whoever trains or uses a model goes through here and need not know of which kind it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from anyorder import config
from anyorder.config.model import Shape
from anyorder.data.batches import Batch, collate_sources
from anyorder.errors import UserError
from anyorder.network.insertion_loss import insertion_loss
from anyorder.network.insertion_model import InsertionTransformer
from anyorder.network.left_to_right import LeftToRight
from anyorder.network.loss import Loss, batch_loss
from anyorder.network.model import Indigo
from anyorder.search.beam import Hypothesis
from anyorder.search.canvas import Canvas
from anyorder.search.constraints import Rules
from anyorder.search.decode import SAMPLED_AT_ONCE, decode
from anyorder.search.insertion_decode import decode_insertions

DECODED_AT_ONCE = 128  # sources
DECODING_MEMORY = 2**30  # bytes, beside the weights; fewer sources are decoded at once to keep to it
FLOAT_BYTES = 4

Model = Indigo | InsertionTransformer
AnyModel = TypeVar("AnyModel")
Learner = TypeVar("Learner", contravariant=True)


class BatchLoss(Protocol[Learner]):
    """What a model learns from a batch."""

    def __call__(self, model: Learner, batch: Batch, *, label_smoothing: float = ...) -> Loss:
        """Summed over the batch."""


class Decoder(Protocol[Learner]):
    """From sources to hypotheses."""

    def __call__(
        self,
        model: Learner,
        source: Tensor,
        mask: Tensor,
        *,
        settings: config.Decode,
        limits: Tensor,
        lines: Sequence[int] | None = ...,
    ) -> list[list[Hypothesis]]:
        """The best of each source, best first."""


@dataclass(frozen=True)
class Family(Generic[AnyModel]):
    """All that the kinds of models differ in, seen from outside."""

    build: Callable[[config.Recipe, Shape], AnyModel]
    loss: BatchLoss[AnyModel]
    decode: Decoder[AnyModel]


FAMILIES: dict[str, Family[Any]] = {
    "indigo": Family(
        build=lambda recipe, shape: Indigo(
            recipe.model,
            shape,
            marks_given=recipe.canvas.share > 0,
            reads_required=recipe.canvas.share * recipe.canvas.required > 0,
        ),
        loss=batch_loss,
        decode=decode,
    ),
    "transformer": Family(
        build=lambda recipe, shape: LeftToRight(recipe.model, shape), loss=batch_loss, decode=decode
    ),
    "insertion": Family(
        build=lambda recipe, shape: InsertionTransformer(recipe.model, recipe.insertion, shape),
        loss=insertion_loss,
        decode=decode_insertions,
    ),
}


@dataclass(frozen=True)
class Around:
    """What is given of targets, to write around it."""

    canvases: Sequence[Canvas]
    ends_word: Tensor  # (ids,), bool, by id: no piece that goes on with the next one

    def ends(self, ids: int) -> Tensor:
        """Of so many ids: those that targets have, or also a source's own words, which are whole."""
        return functional.pad(self.ends_word, (0, max(0, ids - len(self.ends_word))), value=True)[:ids]


def build_model(recipe: config.Recipe, shape: Shape) -> Model:
    """A new model of the kind that a recipe asks for."""
    model: Model = FAMILIES[recipe.model.kind].build(recipe, shape)
    return model


def family_of(model: Model) -> Family[Any]:
    """How a model is learned and decoded."""
    return FAMILIES[model.settings.kind]


def ordered(model: Model, *, purpose: str) -> Indigo:
    """The same model, if p of a target in an order can be told; purpose: what for, in messages."""
    if isinstance(model, Indigo):
        return model
    raise UserError(
        f'{purpose}: model.kind = "{model.settings.kind}" has no log p of a target in an order; '
        'must be "indigo" or "transformer"'
    )


def decode_all(
    model: Model,
    sources: Sequence[NDArray[np.generic]],
    *,
    settings: config.Decode,
    device: torch.device,
    lines: Sequence[int] | None = None,
    around: Around | None = None,
) -> list[list[Hypothesis]]:
    """Decode sources of any length: like with like, answers in the order given.

    lines: the number of each, which sampling depends on; around: what is given of each target.
    """
    found: list[list[Hypothesis]] = [[] for _ in sources]
    limits = _limits(sources, settings)
    if around is not None:
        limits = _limits_around(around.canvases, limits, settings)
    for chosen in _like_with_like(model, sources, limits, settings):
        source, mask = collate_sources([sources[index] for index in chosen])
        constrained = {}
        if around is not None:
            canvases = [around.canvases[index] for index in chosen]
            ids = ordered(model, purpose="complete").writable_ids(source)
            constrained["rules"] = Rules.of(
                canvases, ends_word=around.ends(ids).to(device), limits=limits[chosen]
            )
        answers = family_of(model).decode(
            model,
            source.to(device),
            mask.to(device),
            settings=settings,
            limits=limits[chosen],
            lines=[index if lines is None else lines[index] for index in chosen],
            **constrained,
        )
        for index, answer in zip(chosen, answers, strict=True):
            found[index] = answer
    return found


def _limits_around(canvases: Sequence[Canvas], limits: Tensor, settings: config.Decode) -> Tensor:
    """Whatever the source is like, there is room for what is given and some words more."""
    least = torch.tensor([canvas.least_tokens for canvas in canvases])
    needed = torch.where(least > 0, least + settings.max_extra, 0)
    return torch.maximum(limits, needed).clamp(max=settings.max_length)


def _like_with_like(
    model: Model, sources: Sequence[NDArray[np.generic]], limits: Tensor, settings: config.Decode
) -> Iterator[list[int]]:
    """Which sources are decoded together: as many as fit, the shortest first."""
    together: list[int] = []
    longest = 0
    for index in sorted(range(len(sources)), key=lambda index: len(sources[index])):
        # All are padded to the longest: of the sources it comes last, but given words ask for room anywhere.
        longest = max(longest, int(limits[index]))
        need = decoding_memory(model, settings, source=len(sources[index]), target=longest)
        if len(together) == DECODED_AT_ONCE or (together and (len(together) + 1) * need > DECODING_MEMORY):
            yield together
            together, longest = [], int(limits[index])
        together.append(index)
    if together:
        yield together


def decoding_memory(model: Model, settings: config.Decode, *, source: int, target: int) -> int:
    """Bytes that a sentence takes at most, about: its keys and values, and the logits of its next words.

    source, target: lengths.
    """
    sizes = model.settings
    hypotheses = min(settings.n_best, SAMPLED_AT_ONCE) if settings.search == "sample" else settings.beam
    vectors = 2 * sizes.width * (sizes.decoder_layers + 1)  # a token's, with the keys of its gaps
    logits = 2 * model.shape.target_vocabulary
    if isinstance(model, InsertionTransformer):  # of the words of all gaps at once
        logits *= target + 1
    return FLOAT_BYTES * (source * vectors + hypotheses * (target * vectors + logits))


def _limits(sources: Sequence[NDArray[np.generic]], settings: config.Decode) -> Tensor:
    """Most tokens to write for each; the ratio is of tokens, so it says nothing about pictures."""
    relative = settings.max_ratio > 0 and all(source.ndim == 1 for source in sources)
    longest = [
        min(settings.max_length, int(settings.max_ratio * len(source)) + settings.max_extra)
        if relative and len(source)  # where there are only targets, sources are empty
        else settings.max_length
        for source in sources
    ]
    return torch.tensor(longest, dtype=torch.long)
