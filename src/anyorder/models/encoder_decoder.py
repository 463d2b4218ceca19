"""What all models share: embeddings, an encoder, and a stack of decoder layers.

Each model defines how its decoder sees the written tokens, and what it predicts from them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from anyorder import config
from anyorder.config.model import Shape
from anyorder.models.attention import DecoderLayer, EncoderLayer, Relations
from anyorder.models.decoder_state import SourceKeys
from anyorder.models.kernels.training import Dropout, learned_part
from anyorder.text.tokenizer import OWN_KINDS, PAD

# B sources, S source vectors, H required tokens, D width

ENCODED_AT_ONCE = 32  # sources, in decoding
ENCODED_PAIRS = 2**21  # of tokens that attend to each other, at most: a very long source is encoded alone


@dataclass(frozen=True)
class Memory:
    """An encoded source."""

    states: Tensor  # (B, S, D)
    mask: Tensor  # (B, S), bool: True for real vectors, False for padding
    words: Tensor | None = None  # (B, S), token ids; None for feature vectors

    def followed_by(self, states: Tensor, words: Tensor) -> Memory:
        """Append required tokens. states: (B, H, D); words: (B, H), padded with PAD."""
        return Memory(
            states=torch.cat([self.states, states], dim=1),
            mask=torch.cat([self.mask, words != PAD], dim=1),
            words=None if self.words is None else torch.cat([self.words, words], dim=1),
        )

    @classmethod
    def of_all(cls, parts: Sequence[Memory]) -> Memory:
        """Join encoded batches into one, padded to the longest source."""
        if len(parts) == 1:
            return parts[0]
        longest = max(part.mask.shape[1] for part in parts)
        missing = [longest - part.mask.shape[1] for part in parts]
        words = [part.words for part in parts if part.words is not None]
        return cls(
            states=torch.cat(
                [pad(part.states, (0, 0, 0, more)) for part, more in zip(parts, missing, strict=True)]
            ),
            mask=torch.cat([pad(part.mask, (0, more)) for part, more in zip(parts, missing, strict=True)]),
            words=torch.cat(
                [pad(each, (0, more), value=PAD) for each, more in zip(words, missing, strict=True)]
            )
            if words
            else None,
        )

    def closed_up(self, longest: int) -> Memory:
        """Move all padding to the end: required words that follow a source leave some in between."""
        front = (~self.mask).long().argsort(dim=1, stable=True)[:, :longest]
        return Memory(
            states=self.states.gather(1, front[..., None].expand(-1, -1, self.states.shape[2])),
            mask=self.mask.gather(1, front),
            words=None if self.words is None else self.words.gather(1, front),
        )


class EncoderDecoder(nn.Module):
    """A Transformer without output heads; a model that adds its heads ends with `self.apply(initialise)`.

    kinds: number of relations that the decoder's self-attention distinguishes; 0 for none. reads_required:
    the encoder reads the words that must appear in the target.
    """

    def __init__(
        self, settings: config.Model, shape: Shape, *, kinds: int, reads_required: bool = False
    ) -> None:
        super().__init__()
        self.settings = settings
        self.shape = shape
        width = settings.width
        # A target that copies may contain any word of its source, and ids for its unknown words.
        readable = shape.vocabulary + OWN_KINDS if settings.copying else shape.vocabulary
        target_reads_all = settings.copying or (settings.share == "all" and not shape.features)
        self.embed_target = _embedding(readable if target_reads_all else shape.target_vocabulary, width)
        self.embed_source: nn.Module
        if shape.features:
            self.embed_source = nn.Linear(shape.features, width)
        elif settings.share == "all":
            self.embed_source = self.embed_target
        else:
            self.embed_source = _embedding(readable, width)
        self.embed_output = (
            _embedding(shape.target_vocabulary, width) if settings.share == "none" else self.embed_target
        )
        self.required_mark = nn.Parameter(torch.zeros(width)) if reads_required else None
        distances = 2 * settings.clip + 1 if settings.encoder_positions == "relative" else 0
        sizes = {"width": width, "hidden": settings.hidden, "heads": settings.heads}
        self.encoder = nn.ModuleList(
            EncoderLayer(**sizes, kinds=distances, dropout=settings.dropout)
            for _ in range(settings.encoder_layers)
        )
        self.encoder_norm = nn.LayerNorm(width)
        self.decoder = nn.ModuleList(
            DecoderLayer(**sizes, kinds=kinds, dropout=settings.dropout)
            for _ in range(settings.decoder_layers)
        )
        self.decoder_norm = nn.LayerNorm(width)
        self.dropout = Dropout(settings.dropout)

    # --- source ---

    def encode(self, source: Tensor, mask: Tensor, required: Tensor | None = None) -> Memory:
        """Encode sources.

        source: (B, S), token ids, or (B, S, features); mask: (B, S), bool, False for padding; required:
        (B, H), tokens that the target must contain, padded with PAD; they are read after the source.
        """
        if self.shape.features:
            states = self.embed_source(source)
        else:
            states = self._embedded(self.embed_source, source) * math.sqrt(self.settings.width)
        memory = Memory(self._with_positions(states), mask, None if self.shape.features else source)
        extra = 0
        if self.required_mark is not None and required is not None and required.shape[1]:
            extra = required.shape[1]
            memory = memory.followed_by(self._embed_required(required), required)
        distances = None
        if self.settings.encoder_positions == "relative":
            distances = Relations.distances(
                source.shape[1], extra, clip=self.settings.clip, device=source.device, dtype=states.dtype
            )
        elif extra:
            memory = memory.closed_up(_longest(memory.mask))
        states = self.dropout(memory.states)
        blocked = ~memory.mask[:, None, None, :]
        for layer in self.encoder:
            states = layer(states, relations=distances, blocked=blocked)
        return replace(memory, states=self.encoder_norm(states))

    def encode_sorted(self, source: Tensor, mask: Tensor, required: Tensor | None = None) -> Memory:
        """Encode sources sorted by length, a few at a time, so that little is padded; for decoding."""
        if source.device.type != "cpu":  # on other devices, padding costs less than calls
            return self.encode(source, mask, required)
        parts = []
        lengths = mask.sum(dim=1).tolist()
        first = 0
        while first < len(source):
            rows = slice(first, first + _encoded_at_once(lengths[first : first + ENCODED_AT_ONCE]))
            first, longest = rows.stop, max(lengths[rows])
            of_rows = None if required is None else required[rows]
            parts.append(self.encode(source[rows, :longest], mask[rows, :longest], of_rows))
        return Memory.of_all(parts)

    def _embed_required(self, required: Tensor) -> Tensor:
        """Embed required tokens, with a mark that sets them apart from the source. (B, H) to (B, H, D)."""
        assert self.required_mark is not None
        return self._with_positions(self.scaled_embedding(required) + self.required_mark)

    def _with_positions(self, states: Tensor) -> Tensor:
        """Add sinusoidal positions if the recipe asks for them. states: (B, S, D)."""
        if self.settings.encoder_positions != "sinusoidal":
            return states
        return states + sinusoids(states.shape[1], self.settings.width).to(states)

    def source_keys(self, memory: Memory) -> list[SourceKeys]:
        """Keys and values of the source for each decoder layer, computed once a source."""
        real = memory.mask[:, None, None, :]
        padding = torch.zeros_like(real, dtype=memory.states.dtype).masked_fill(~real, float("-inf"))
        layers = cast("Sequence[DecoderLayer]", self.decoder)
        pairs = (layer.cross.keys_values(memory.states) for layer in layers)
        return [SourceKeys(key, value, padding) for key, value in pairs]

    # --- words in and out ---

    @property
    def output_embedding(self) -> Tensor:
        """Embedding of the target vocabulary; a shared embedding also holds words of the source."""
        return self.embed_output.weight[: self.shape.target_vocabulary]

    def scaled_embedding(self, words: Tensor) -> Tensor:
        """Embed target words for the decoder. words: (...); returns (..., D)."""
        return self._embedded(self.embed_target, words) * math.sqrt(self.settings.width)

    def _embedded(self, embed: nn.Module, words: Tensor) -> Tensor:
        """Embed ids; unknown words of a source share a few embeddings, the last one for all others."""
        last = self.shape.vocabulary + OWN_KINDS - 1
        embedded: Tensor = embed(words.clamp(max=last) if self.settings.copying else words)
        return embedded


def _longest(mask: Tensor) -> int:
    """The longest source with its required words, of the whole batch if a part is learned. mask: (B, S)."""
    part = learned_part()
    real = mask.sum(dim=1) if part is None else part.whole.read
    return int(real.max())


def _encoded_at_once(lengths: Sequence[int]) -> int:
    """Number of these sources to encode together, at least one. lengths: the shortest first."""
    together = [
        number
        for number in range(1, len(lengths) + 1)
        if number * max(lengths[:number]) ** 2 <= ENCODED_PAIRS
    ]
    return together[-1] if together else 1


def sinusoids(length: int, width: int) -> Tensor:
    """Absolute positions as sines and cosines of falling frequency, (length, width)."""
    position = torch.arange(length, dtype=torch.float32)[:, None]
    frequency = torch.exp(torch.arange(0, width, 2, dtype=torch.float32) * (-math.log(10_000.0) / width))
    return torch.stack([(position * frequency).sin(), (position * frequency).cos()], dim=2).flatten(1)


def _embedding(size: int, width: int) -> nn.Embedding:
    return nn.Embedding(size, width, padding_idx=PAD)


def initialise(module: nn.Module) -> None:
    """Initialise the weights of a module."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        with torch.no_grad():
            module.weight[PAD].zero_()
