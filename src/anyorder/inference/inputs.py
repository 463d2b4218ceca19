"""Text, photos and feature vectors as the arrays that a trained model reads.

Symbols: S source tokens or feature vectors, W width of a feature vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from anyorder.errors import UserError
from anyorder.inference.image_encoder import EXTRACTOR, Extractor
from anyorder.inference.model_folder import Trained
from anyorder.text.pairs import PairEncoder, SourceTokens
from anyorder.text.tokenizer import Tokens

# A line of text, a photo, or feature vectors of shape (S, W).
Source = str | Path | NDArray[np.generic]


@dataclass(frozen=True)
class EncodedSource:
    """A source as the model reads it."""

    array: NDArray[np.generic]  # token ids (S,), or feature vectors (S, W)
    tokens: SourceTokens | None = None  # None for feature vectors

    @property
    def own_words(self) -> tuple[str, ...]:
        """Words of the source that the vocabulary lacks, which the model may copy."""
        return () if self.tokens is None else self.tokens.own

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to read."""
        return len(self.array) == 0


class EncodedPair(NamedTuple):
    """A source and its target as the model reads them."""

    source: EncodedSource
    target: Tokens


class InputEncoder:
    """Encodes sources and targets for one trained model.

    device: where the network that reads photos runs.
    """

    def __init__(self, trained: Trained, *, device: torch.device) -> None:
        self._shape = trained.model.shape
        self._sourceless = trained.recipe.sourceless
        self._encoder = PairEncoder(trained.tokenizer, copying=trained.recipe.model.copying)
        self._device = device

    def encode_sources(self, sources: Sequence[Source]) -> list[EncodedSource]:
        """Token ids or feature vectors, whichever the model reads; other kinds of sources are refused."""
        if not self._shape.features:
            return self._encode_text([as_text(source) for source in sources])
        photos = [source for source in sources if isinstance(source, Path)]
        extracted = self._extractor.extract(photos) if photos else iter(())
        return [
            EncodedSource(next(extracted).vectors if isinstance(source, Path) else self._checked(source))
            for source in sources
        ]

    def encode_pairs(self, sources: Sequence[Source], targets: Sequence[str]) -> list[EncodedPair]:
        """Sources with their targets; a word that the target may copy has the same id in both."""
        encoded = self.encode_sources(sources)
        tokens = self._encoder.targets(targets, [source.tokens for source in encoded])
        return [EncodedPair(source, target) for source, target in zip(encoded, tokens, strict=True)]

    def _encode_text(self, texts: Sequence[str]) -> list[EncodedSource]:
        if self._sourceless and any(text.strip() for text in texts):
            raise UserError("this model was trained on targets alone and reads no source: leave it empty")
        return [
            EncodedSource(np.array(tokens.ids, dtype=np.int32), tokens)
            for tokens in self._encoder.sources(texts)
        ]

    def _checked(self, source: str | NDArray[np.generic]) -> NDArray[np.generic]:
        """Feature vectors of the right width; everything else is refused."""
        width = self._shape.features
        if isinstance(source, str):
            photos = "photos (pathlib.Path) or " if self._shape.extractor else ""
            raise UserError(f"this model reads {photos}feature vectors of width {width}, not text")
        if source.ndim != 2 or source.shape[1] != width:
            raise UserError(f"feature vectors of shape {source.shape} given, must be (vectors, {width})")
        return source

    @cached_property
    def _extractor(self) -> Extractor:
        """The network that made the features of the training images."""
        if self._shape.extractor != EXTRACTOR:
            raise UserError(
                "this model can't read photos: it isn't known which network made its features; "
                f"give .npy feature vectors of width {self._shape.features}, made like its training features"
            )
        return Extractor.load(device=self._device)


def as_text(source: Source) -> str:
    """A source that must be text."""
    if isinstance(source, str):
        return source
    given = f"photos such as {source}" if isinstance(source, Path) else "feature vectors"
    raise UserError(f"this model reads text, not {given}")
