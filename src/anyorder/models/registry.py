"""The model families by name: how each is built and trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from anyorder import config
from anyorder.config.model import Shape
from anyorder.data.batches import Batch
from anyorder.errors import UserError
from anyorder.models.indigo import Indigo
from anyorder.models.insertion_transformer import InsertionTransformer, insertion_loss
from anyorder.models.loss import Loss, batch_loss
from anyorder.models.transformer import LeftToRight

Model = Indigo | InsertionTransformer
AnyModel = TypeVar("AnyModel")
Learner = TypeVar("Learner", contravariant=True)


class BatchLoss(Protocol[Learner]):
    """What a model learns from a batch."""

    def __call__(self, model: Learner, batch: Batch, *, label_smoothing: float = ...) -> Loss:
        """Summed over the batch."""


@dataclass(frozen=True)
class Family(Generic[AnyModel]):
    """How models of one kind are built and trained."""

    build: Callable[[config.Recipe, Shape], AnyModel]
    loss: BatchLoss[AnyModel]


FAMILIES: dict[str, Family[Any]] = {
    "indigo": Family(
        build=lambda recipe, shape: Indigo(
            recipe.model,
            shape,
            marks_given=recipe.canvas.share > 0,
            reads_required=recipe.canvas.share * recipe.canvas.required > 0,
        ),
        loss=batch_loss,
    ),
    "transformer": Family(build=lambda recipe, shape: LeftToRight(recipe.model, shape), loss=batch_loss),
    "insertion": Family(
        build=lambda recipe, shape: InsertionTransformer(recipe.model, recipe.insertion, shape),
        loss=insertion_loss,
    ),
}


def build_model(recipe: config.Recipe, shape: Shape) -> Model:
    """A new model of the kind that a recipe asks for."""
    model: Model = FAMILIES[recipe.model.kind].build(recipe, shape)
    return model


def family_of(model: Model) -> Family[Any]:
    """How a model is built and trained."""
    return FAMILIES[model.settings.kind]


def ordered(model: Model, *, purpose: str) -> Indigo:
    """The same model, if p of a target in an order can be told; purpose: what for, in messages."""
    if isinstance(model, Indigo):
        return model
    raise UserError(
        f'{purpose}: model.kind = "{model.settings.kind}" has no log p of a target in an order; '
        'must be "indigo" or "transformer"'
    )
