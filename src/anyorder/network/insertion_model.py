"""The Insertion Transformer (Stern et al., 2019), to compare with.

It reads the whole canvas anew at each step, without a causal mask: a token's place changes with every
insertion, so nothing of the decoder can be kept. Each gap is seen through its two neighbours, and one softmax
goes over all words of all gaps at once. `<eod>` is a gap's word for being full.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anyorder import config
from anyorder.config.model import Shape
from anyorder.network.encoder_decoder import EncoderDecoder, initialise, sinusoids
from anyorder.network.heads import NEVER, at_least_float
from anyorder.network.layers import SourceKeys
from anyorder.text.tokenizer import EOD

# B sentences, n tokens of the longest canvas with its boundaries, G = n - 1 gaps, D width, V words

FIRST_WORD = EOD  # the lowest id that is predicted: words are counted from it
FULL = 0  # the first word, `<eod>`


@dataclass(frozen=True)
class Insertions:
    """How likely every insertion into a canvas is: p(word, gap) = p(gap) p(word | gap)."""

    logits: Tensor  # (B, G, V)
    normaliser: Tensor  # (B, G), of each gap's words
    gap: Tensor  # (B, G), log p, NEVER where a shorter canvas has no gap


class InsertionTransformer(EncoderDecoder):
    """The joint distribution over words and gaps, without the paper's optional extras."""

    def __init__(self, settings: config.Model, insertion: config.Insertion, shape: Shape) -> None:
        super().__init__(settings, shape, kinds=0)
        self.insertion = insertion
        self.join = nn.Linear(2 * settings.width, settings.width)
        self.apply(initialise)

    def insertions(self, sources: list[SourceKeys], words: Tensor, lengths: Tensor) -> Insertions:
        """sources: of `source_keys`; words: (B, n), as they are read, boundaries included; lengths: (B,)."""
        logits = at_least_float(self.gap_states(sources, words, lengths) @ self.word_vectors.mT)
        normaliser = logits.logsumexp(dim=-1)
        gap = gap_scores(normaliser, gaps_of(words, lengths))
        return Insertions(logits=logits, normaliser=normaliser, gap=gap)

    def gap_states(self, sources: list[SourceKeys], words: Tensor, lengths: Tensor) -> Tensor:
        """What each gap is seen as, (B, G, D); its product with `word_vectors` is the logits of its words."""
        places = torch.arange(words.shape[1], device=words.device)
        blocked = (places >= lengths[:, None])[:, None, None, :]  # (B, 1, 1, n)
        embedded = self.scaled_embedding(words)
        states = self.dropout(embedded + sinusoids(words.shape[1], self.settings.width).to(embedded))
        for layer, source in zip(self.decoder, sources, strict=True):
            states = layer(states, relations=None, blocked=blocked, source=source)
        states = self.decoder_norm(states)
        return self.join(torch.cat([states[:, :-1], states[:, 1:]], dim=-1))

    @property
    def word_vectors(self) -> Tensor:
        """(V, D)."""
        return self.output_embedding[FIRST_WORD:]


def gaps_of(words: Tensor, lengths: Tensor) -> Tensor:
    """Which gaps there are, (B, G), bool. words: (B, n), lengths: (B,), boundaries included."""
    return torch.arange(words.shape[1] - 1, device=words.device) < lengths[:, None] - 1


def gap_scores(normaliser: Tensor, gaps: Tensor) -> Tensor:
    """log p of each gap: one softmax goes over all words of all gaps. normaliser, gaps, returns: (B, G)."""
    return normaliser.masked_fill(~gaps, NEVER).log_softmax(dim=-1)
