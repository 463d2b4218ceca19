"""The model families by name: how each is built and trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from anyorder import config
from anyorder.config.model import Shape
from anyorder.errors import UserError
from anyorder.models.canvas_loss import insertion_loss
from anyorder.models.editor import Editor, editing_loss
from anyorder.models.indigo import Indigo
from anyorder.models.insertion_transformer import InsertionTransformer
from anyorder.models.loss import Loss, batch_loss
from anyorder.models.transformer import LeftToRight

Model = Indigo | InsertionTransformer | Editor
AnyModel = TypeVar("AnyModel")
AnyModelIn = TypeVar("AnyModelIn", contravariant=True)
AnyBatchIn = TypeVar("AnyBatchIn", contravariant=True)


class BatchLoss(Protocol[AnyModelIn, AnyBatchIn]):
    """The loss of a batch."""

    def __call__(self, model: AnyModelIn, batch: AnyBatchIn, *, label_smoothing: float = ...) -> Loss:
        """Sum the loss over the batch."""


@dataclass(frozen=True)
class Family(Generic[AnyModel]):
    """How models of one kind are built and trained."""

    build: Callable[[config.Recipe, Shape], AnyModel]
    loss: BatchLoss[AnyModel, Any]


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
    "editor": Family(
        build=lambda recipe, shape: Editor(recipe.model, recipe.edit, shape),
        loss=editing_loss,
    ),
}


def build_model(recipe: config.Recipe, shape: Shape) -> Model:
    """Build a new model as a recipe describes it."""
    model: Model = FAMILIES[recipe.model.kind].build(recipe, shape)
    return model


def family_of(model: Model) -> Family[Any]:
    """The family of a model."""
    return FAMILIES[model.settings.kind]


def ordered(model: Model, *, purpose: str) -> Indigo:
    """Return the model if it can score a target in a given order, or refuse. purpose: for the message."""
    if isinstance(model, Indigo):
        return model
    raise UserError(
        f'{purpose}: model.kind = "{model.settings.kind}" has no log p of a target in an order; '
        'must be "indigo" or "transformer"'
    )
