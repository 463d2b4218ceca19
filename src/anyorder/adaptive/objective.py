"""How a model learns from several orders of a target: the objective of searched adaptive orders (SAO)."""

from __future__ import annotations

import torch
from torch import Tensor

from anyorder import config
from anyorder.adaptive.candidates import Orders
from anyorder.data.batches import Batch
from anyorder.insertion import NEG_INF

# S pairs of a batch, B orders of each


def order_weights(log_probs: Tensor, settings: config.Search) -> Tensor:
    """The weight of each order of a target in the loss; those of a target sum to one.

    log_probs: (S, B), best first, NEG_INF where there is no order; returns (S, B).
    """
    if settings.weights == "best":
        return torch.zeros_like(log_probs).index_fill(1, torch.tensor([0], device=log_probs.device), 1.0)
    if settings.weights == "uniform":
        log_probs = log_probs.where(log_probs == NEG_INF, 0.0)
    return (log_probs / settings.temperature).softmax(dim=1)


def annealed(settings: config.Search, *, step: int, bootstrap_steps: int) -> config.Search:
    """The settings with the temperature of an update, which also scales the Gumbel noise."""
    searched_steps = max(0, step - bootstrap_steps)
    if searched_steps >= settings.anneal_steps:
        return settings
    factor = (settings.temperature / settings.start_temperature) ** (searched_steps / settings.anneal_steps)
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
