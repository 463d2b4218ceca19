"""How a model learns from several orders of a target: the objective of searched adaptive orders."""

from __future__ import annotations

import torch
from torch import Tensor

from anyorder import config
from anyorder.adaptive.candidates import Orders
from anyorder.data.batches import Batch
from anyorder.insertion import NEG_INF


def order_weights(log_probs: Tensor, settings: config.Search) -> Tensor:
    """How much each order of a target counts; they sum to one. log_probs: (S, B), best first."""
    if settings.weights == "best":
        return torch.zeros_like(log_probs).index_fill(1, torch.tensor([0], device=log_probs.device), 1.0)
    if settings.weights == "uniform":
        log_probs = log_probs.where(log_probs == NEG_INF, 0.0)
    return (log_probs / settings.temperature).softmax(dim=1)


def annealed(settings: config.Search, *, step: int) -> config.Search:
    """The settings as they are at an update: with its temperature, by which Gumbel noise is scaled too."""
    gone = max(0, step - settings.bootstrap_steps)
    if gone >= settings.anneal_steps:
        return settings
    factor = (settings.temperature / settings.start_temperature) ** (gone / settings.anneal_steps)
    temperature = settings.start_temperature * factor
    gumbel = settings.gumbel * temperature / settings.temperature
    return settings.model_copy(update={"temperature": temperature, "gumbel": gumbel})


def learn_from(
    batch: Batch, orders: Orders, settings: config.Search, *, generator: torch.Generator | None = None
) -> Batch:
    """The batch as it is learned: each target in all its orders by weight, or in one drawn by weight.

    Both have the same gradient in expectation; one costs a B-th.
    """
    weights = order_weights(orders.log_probs, settings)
    if settings.learn_from == "all":
        return batch.reordered(orders.positions, weights)
    chances = weights.cpu().nan_to_num(1.0)  # a model that has diverged weighs nothing; its loss tells so
    drawn = torch.multinomial(chances, 1, generator=generator).to(weights.device)  # (S, 1)
    positions = orders.positions.gather(1, drawn[..., None].expand(-1, -1, orders.positions.shape[2]))
    return batch.reordered(positions, torch.ones_like(drawn, dtype=weights.dtype))
