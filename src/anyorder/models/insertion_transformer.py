"""The Insertion Transformer (Stern et al., 2019), which reads its whole canvas again at each step.

It scores every word in every gap. With the loss and the stop classifier of the insertion language model
(Patel et al., 2025), `models.canvas_loss`, it learns to write what it is sure of first.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anyorder import config
from anyorder.config.model import Shape
from anyorder.insertion import NEG_INF
from anyorder.models.attention import Relations
from anyorder.models.decoder_state import SourceKeys
from anyorder.models.encoder_decoder import EncoderDecoder, initialise, sinusoids
from anyorder.models.heads import at_least_float, first_word
from anyorder.text.tokenizer import EOD

# B sources, a canvas each, n tokens of the longest canvas with its boundaries, G = n - 1 gaps, D width,
# V words, `<eod>` first

FIRST_WORD = EOD  # words of `Insertions` count from it
FULL = 0  # the first word, `<eod>`: nothing more goes into this gap


@dataclass(frozen=True)
class Insertions:
    """Probabilities of all insertions into a canvas: p(word, gap) = p(gap) p(word | gap)."""

    logits: Tensor  # (B, G, V); where a classifier predicts the end, `<eod>` has NEG_INF
    normaliser: Tensor  # (B, G), log of the sum over the words of each gap
    gap: Tensor  # (B, G), log p; NEG_INF where a shorter canvas has no gap
    stop: Tensor | None  # (B,), log-odds that the canvas is finished, by the classifier


@dataclass(frozen=True)
class CanvasStates:
    """What the decoder makes of some canvases."""

    gaps: Tensor  # (B, G, D); the product with `word_vectors` gives the logits of each gap's words
    stop: Tensor | None  # (B,), log-odds that the canvas is finished; None without a classifier


class InsertionTransformer(EncoderDecoder):
    """The Insertion Transformer with a joint distribution over words and gaps."""

    def __init__(self, settings: config.Model, insertion: config.Insertion, shape: Shape) -> None:
        distances = 2 * settings.clip + 1 if insertion.positions == "relative" else 0
        super().__init__(settings, shape, kinds=distances)
        self.insertion = insertion
        self.join = nn.Linear(2 * settings.width, settings.width)
        self.stop = nn.Linear(settings.width, 1) if insertion.ends_by == "classifier" else None
        self.first = first_word(position_first=self.stop is not None)
        self.apply(initialise)

    def insertions(self, sources: list[SourceKeys], words: Tensor, lengths: Tensor) -> Insertions:
        """Score all insertions. sources: `source_keys`; words: (B, n), with boundaries; lengths: (B,)."""
        states = self.read(sources, words, lengths)
        logits = at_least_float(states.gaps @ self.output_embedding[FIRST_WORD:].mT)
        if self.stop is not None:
            logits[..., FULL] = NEG_INF
        normaliser = logits.logsumexp(dim=-1)
        gap = gap_scores(normaliser, gaps_of(words, lengths))
        return Insertions(logits=logits, normaliser=normaliser, gap=gap, stop=states.stop)

    def read(self, sources: list[SourceKeys], words: Tensor, lengths: Tensor) -> CanvasStates:
        """Read whole canvases. sources: `source_keys`; words: (B, n); lengths: (B,)."""
        length = words.shape[1]
        indices = torch.arange(length, device=words.device)
        blocked = (indices >= lengths[:, None])[:, None, None, :]  # (B, 1, 1, n)
        states, distances = self.scaled_embedding(words), None
        if self.insertion.positions == "relative":
            distances = Relations.distances(
                length, clip=self.settings.clip, device=words.device, dtype=states.dtype
            )
        else:
            states = states + sinusoids(length, self.settings.width).to(states)
        states = self.dropout(states)
        for layer, source in zip(self.decoder, sources, strict=True):
            states = layer(states, relations=distances, blocked=blocked, source=source)
        states = self.decoder_norm(states)
        gaps = self.join(torch.cat([states[:, :-1], states[:, 1:]], dim=-1))
        # Every token has seen the whole canvas; `<s>` is there on each.
        stop = None if self.stop is None else at_least_float(self.stop(states[:, 0]).squeeze(-1))
        return CanvasStates(gaps=gaps, stop=stop)

    @property
    def word_vectors(self) -> Tensor:
        """Embedding of what can be predicted for a gap, (V, D), or without `<eod>` beside a classifier."""
        return self.output_embedding[self.first :]


def gaps_of(words: Tensor, lengths: Tensor) -> Tensor:
    """Mark the gaps of each canvas, (B, G), bool. words: (B, n), lengths: (B,), with boundaries."""
    return torch.arange(words.shape[1] - 1, device=words.device) < lengths[:, None] - 1


def gap_scores(normaliser: Tensor, gaps: Tensor) -> Tensor:
    """log p of each gap: one softmax over all words of all gaps. normaliser, gaps, returns: (B, G)."""
    return normaliser.masked_fill(~gaps, NEG_INF).log_softmax(dim=-1)
