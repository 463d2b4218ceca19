"""An ordinary Transformer, to compare with: it writes left to right, with absolute positions."""

from __future__ import annotations

import torch
from torch import Tensor

from anyorder import config
from anyorder.config.model import Shape
from anyorder.models.encoder_decoder import sinusoids
from anyorder.models.heads import LastGap
from anyorder.models.indigo import Indigo


class LeftToRight(Indigo):
    """A Transformer with sinusoidal positions instead of relations, and without a pointer.

    Each word goes into the last gap. Everything else is InDIGO's, so that the two differ only in what is
    compared. The first two steps are the boundaries, as on every canvas.
    """

    def __init__(self, settings: config.Model, shape: Shape) -> None:
        super().__init__(settings, shape, relative=False, gap_head=LastGap())

    def _embed_words(self, words: Tensor, *, first_step: int, padding: Tensor | None = None) -> Tensor:
        """Embed words and the steps that write them. words: (R, m), from first_step on; returns (R, m, D).

        padding: (R,), how many of the steps before them were not taken; None for none.
        """
        embedded = self.scaled_embedding(words)
        steps = sinusoids(first_step + words.shape[1], self.settings.width).to(embedded)
        if padding is None:
            return self.dropout(embedded + steps[first_step:])
        taken = torch.arange(first_step, len(steps), device=words.device) - padding[:, None]  # (R, m)
        return self.dropout(embedded + steps[taken])
