"""Dropout and the log-probability of words, with less work for a CPU than torch does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from anyorder.data.batches import Part
from anyorder.models import kernels

_part: ContextVar[Part | None] = ContextVar("part", default=None)


@contextmanager
def learning(part: Part) -> Iterator[None]:
    """Draw all random numbers of a model for the whole batch that a part belongs to."""
    token = _part.set(None if part.is_whole else part)
    try:
        yield
    finally:
        _part.reset(token)


def learned_part() -> Part | None:
    """The part of a batch that is being learned; None if the batch is not split."""
    return _part.get()


class Dropout(nn.Dropout):
    """Dropout that draws one random byte for each element on a CPU.

    Torch draws a whole number for each, which took a third of a training step. With bytes the rate is a
    multiple of 1/256; elements are scaled by the actual rate. The plain twin is `nn.Dropout`.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Any shape."""
        if not self.training or self.p == 0:
            return input
        part = learned_part()
        if input.device.type != "cpu" or not kernels.enabled():
            if part is None:
                return super().forward(input)
            return input * part.taken(super().forward(input.new_ones(part.drawn_shape(input.shape))))
        dropped = min(255, max(1, round(256 * self.p)))
        shape = input.shape if part is None else part.drawn_shape(input.shape)
        numbers = torch.empty(shape.numel() // 8 + 1, dtype=torch.int64).random_(-(2**63), None)
        chance = numbers.view(torch.uint8)[: shape.numel()].view(shape)
        if part is not None:
            chance = part.taken(chance)
        return input * (chance >= dropped).to(input.dtype).mul_(256 / (256 - dropped))


BLOCK = 2**18  # logits, few enough for a cache


def word_scores(logits: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """log p of one word each, (M,), and the mean over all words, (M,). logits: (M, V); words: (M,)."""
    if not kernels.enabled():
        log_probs = logits.log_softmax(dim=-1)
        return log_probs.gather(1, words[:, None]).squeeze(1), log_probs.mean(dim=1)
    log_prob, mean = _WordScores.apply(logits, words)  # type: ignore[no-untyped-call]
    return log_prob, mean


class _WordScores(torch.autograd.Function):
    """Log-softmax whose gradient is computed in place, block by block.

    The matrix has as many elements as steps times words. Autograd would go over it a dozen times and keep
    three tensors of its size, which took a tenth of an update.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, logits: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = logits.log_softmax(dim=-1)
        ctx.save_for_backward(words)
        ctx.log_probs = log_probs  # type: ignore[attr-defined]
        return log_probs.gather(1, words[:, None]).squeeze(1), log_probs.mean(dim=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_word: Tensor, of_mean: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (words,) = ctx.saved_tensors
        gradient = ctx.log_probs
        if gradient is None:
            raise RuntimeError("the loss was differentiated twice, but its gradient is computed in place")
        ctx.log_probs = None
        rows = BLOCK // gradient.shape[1] + 1 if gradient.device.type == "cpu" else len(gradient)
        total, share = -(of_word + of_mean)[:, None], (of_mean / gradient.shape[1])[:, None]
        for block, its_total, its_share in zip(
            *(each.split(rows) for each in (gradient, total, share)), strict=True
        ):
            block.exp_().mul_(its_total).add_(its_share)
        return gradient.scatter_add_(1, words[:, None], of_word[:, None]), None
