"""Searching the best orders of a batch of targets, with the settings of a recipe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from anyorder import config
from anyorder.adaptive.beam import search_guided, search_thoroughly, search_unguided
from anyorder.adaptive.candidates import Orders
from anyorder.data.batches import Batch
from anyorder.insertion import NEG_INF
from anyorder.models.indigo import Indigo
from anyorder.system.devices import in_precision

# S pairs of a batch, B orders of each, T tokens of the longest target


@torch.no_grad()
def search_batch(model: Indigo, batch: Batch, settings: config.Search, *, thoroughly: bool = False) -> Orders:
    """Search the best orders of a batch's targets; targets too long to search keep the order they have.

    With `look_ahead`, the orders of the batch guide the search and are replaced only by better ones.
    Dropout is on if the model is in training mode.
    thoroughly: search as well as possible, whatever the settings, for pairs whose best orders are unknown.
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
            search = search_guided if settings.look_ahead else search_unguided
            found = search(model, memory, pairs, width=settings.beam, noise=settings.gumbel)
        # A short target has fewer than B orders: its best one fills the rest, with a weight of zero.
        orders.positions[short] = found.positions.where(
            found.log_probs[..., None] > NEG_INF, found.positions[:, :1]
        )
        orders.log_probs[short] = found.log_probs.to(orders.log_probs)
    return orders


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
