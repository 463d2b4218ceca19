"""An ordinary Transformer, to compare with: it writes left to right, and its tokens know their step."""

from __future__ import annotations

from torch import Tensor

from anyorder import config
from anyorder.config.model import Shape
from anyorder.models.encoder_decoder import sinusoids
from anyorder.models.heads import LastGap
from anyorder.models.indigo import Indigo


class LeftToRight(Indigo):
    """Sinusoids of the step instead of relations, and no pointer: each word goes into the last gap.

    Everything else is InDIGO's, so that the two differ in what is compared and in nothing else. Its first
    two steps are the boundaries, as on every canvas.
    """

    def __init__(self, settings: config.Model, shape: Shape) -> None:
        super().__init__(settings, shape, related=False, gap_head=LastGap())

    def _embed_words(self, words: Tensor, *, first_step: int) -> Tensor:
        """words: (R, m), written at first_step and the steps after it; returns (R, m, D)."""
        embedded = self.scaled_embedding(words)
        steps = sinusoids(first_step + words.shape[1], self.settings.width)[first_step:]
        return self.dropout(embedded + steps.to(embedded))
