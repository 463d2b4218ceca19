"""The orders of a training batch: searched, weighted and learned from.

This is the objective of searched adaptive orders (SAO, Eq. 12): a target is learned in several orders, each
with a weight, or in one of them that is drawn by weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from anyorder import config
from anyorder.adaptive.beam import search_guided, search_thoroughly, search_unguided
from anyorder.adaptive.candidates import Orders
from anyorder.adaptive.sampling import draw_for_batch
from anyorder.data.batches import Batch
from anyorder.insertion import NEG_INF
from anyorder.models.encoder_decoder import Memory
from anyorder.models.indigo import Indigo
from anyorder.system.devices import in_precision

# S pairs of a batch, B orders of each, T tokens of the longest target


@torch.no_grad()
def search_batch(
    model: Indigo,
    batch: Batch,
    settings: config.Search,
    *,
    thoroughly: bool = False,
    uniform: Tensor | None = None,
) -> Orders:
    """Find orders of a batch's targets; targets too long to search keep the order they have.

    A guided search starts from the orders of the batch and replaces them only by better ones. Dropout is on
    if the model is in training mode.
    thoroughly: search as well as possible, whatever the settings, for pairs whose best orders are unknown.
    uniform: random numbers for orders that are drawn, (searched pairs, B, T or more); None for new ones.
    """
    orders = Orders(
        positions=batch.order[:, None].repeat(1, settings.beam, 1),
        log_probs=torch.full((len(batch.lengths), settings.beam), NEG_INF, device=batch.order.device),
    )
    orders.log_probs[:, 0] = 0.0
    short = (batch.lengths <= settings.max_length).nonzero().squeeze(1)
    if len(short):
        pairs = batch.pairs(short)
        memory = model.encode(pairs.source, pairs.source_mask)
        if thoroughly:
            found = search_thoroughly(model, memory, pairs, width=settings.beam)
        else:
            found = _find(model, memory, pairs, settings, uniform=uniform)
        # A short target has fewer than B orders: its best one fills the rest, with a weight of zero.
        orders.positions[short] = found.positions.where(
            found.log_probs[..., None] > NEG_INF, found.positions[:, :1]
        )
        orders.log_probs[short] = found.log_probs.to(orders.log_probs)
    return orders


def _find(
    model: Indigo, memory: Memory, batch: Batch, settings: config.Search, *, uniform: Tensor | None
) -> Orders:
    if settings.method == "drawn":
        return draw_for_batch(
            model, memory, batch, count=settings.beam, temperature=settings.temperature, uniform=uniform
        )
    search = search_guided if settings.method == "guided" else search_unguided
    return search(model, memory, batch, width=settings.beam, noise=settings.gumbel)


@contextmanager
def searching(model: Indigo, settings: config.Search, *, precision: str = "fp32") -> Iterator[None]:
    """Give the model the dropout of the search instead of its own, and the precision of the training."""
    usual = model.settings.dropout
    was_training = model.training
    _set_dropout(model, settings.dropout)
    model.train(settings.dropout > 0)
    try:
        with in_precision(precision, model.embed_target.weight.device):
            yield
    finally:
        _set_dropout(model, usual)
        model.train(was_training)


def _set_dropout(model: Indigo, probability: float) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = probability


def order_weights(log_probs: Tensor, settings: config.Search) -> Tensor:
    """The weight of each order of a target in the loss; those of a target sum to one.

    log_probs: (S, B), best first, NEG_INF where there is no order; returns (S, B).
    """
    if settings.weights == "best":
        return torch.zeros_like(log_probs).index_fill(1, torch.tensor([0], device=log_probs.device), 1.0)
    if settings.weights == "uniform":
        log_probs = log_probs.where(log_probs == NEG_INF, 0.0)
    return (log_probs / settings.temperature).softmax(dim=1)


def annealed_search(recipe: config.Recipe, *, step: int) -> config.Search:
    """The settings with the temperature of an update, which also scales the Gumbel noise."""
    settings, anneal_steps = recipe.search, recipe.anneal_steps
    searched_steps = max(0, step - recipe.bootstrap_steps)
    if searched_steps >= anneal_steps:
        return settings
    factor = (settings.temperature / settings.start_temperature) ** (searched_steps / anneal_steps)
    temperature = settings.start_temperature * factor
    gumbel = settings.gumbel * temperature / settings.temperature
    return settings.model_copy(update={"temperature": temperature, "gumbel": gumbel})


def learn_from(
    batch: Batch, orders: Orders, settings: config.Search, *, generator: torch.Generator | None = None
) -> Batch:
    """The batch with each target in all its orders, weighted, or in one order that is drawn by weight.

    Both have the same gradient in expectation; drawing one costs a B-th of learning from all.
    """
    weights = order_weights(orders.log_probs, settings)  # (S, B)
    if settings.learn_from == "all":
        return batch.reordered(orders.positions, weights)
    # The weights of a model that has diverged are not numbers; its loss will report that.
    drawn = torch.multinomial(weights.cpu().nan_to_num(1.0), 1, generator=generator)
    drawn = drawn.to(weights.device)  # (S, 1)
    positions = orders.positions.gather(1, drawn[..., None].expand(-1, -1, orders.positions.shape[2]))
    return batch.reordered(positions, torch.ones_like(drawn, dtype=weights.dtype))
