"""From sources to hypotheses: encode text, photos or feature vectors, decode, and make text of token ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray

from anyorder import config
from anyorder.decoding.beam import TokenHypothesis
from anyorder.decoding.decode import decode_all
from anyorder.errors import UserError
from anyorder.inference.hypothesis import Hypothesis
from anyorder.inference.image_encoder import EXTRACTOR, Extractor
from anyorder.inference.model_folder import Trained
from anyorder.text.pairs import PairEncoder, SourceTokens
from anyorder.text.tokenizer import Tokenizer, Tokens

# A line of text, a photo, or feature vectors of shape (S, W).
Source = str | Path | NDArray[np.generic]


def is_one_source(sources: object) -> TypeGuard[Source]:
    """Whether this is one source and not several; an array of shape (N, S, W) holds several."""
    return isinstance(sources, str | Path) or (isinstance(sources, np.ndarray) and sources.ndim == 2)


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
        recipe = trained.recipe
        self._encoder = PairEncoder(trained.tokenizer, copying=recipe.model.copying, editing=recipe.editing)
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


# The answer to a blank source: nothing to read, nothing to write.
EMPTY = TokenHypothesis(
    tokens=(),
    positions=(),
    word_scores=(),
    gap_scores=(),
    finished=True,
    merged_log_prob=0.0,
    score=0.0,
    iterations=0,
)


# Takes the line numbers of some sources, from 0, and returns the hypotheses of each.
DecodeLines = Callable[[list[int]], list[list[TokenHypothesis]]]


def generate_batch(
    trained: Trained,
    sources: Sequence[EncodedSource],
    *,
    settings: config.Decode,
    device: torch.device,
    first_line: int,
) -> list[list[Hypothesis]]:
    """The best hypotheses for each source, best first.

    first_line: how many sources came before these; what is sampled for a source depends on its line.
    """

    def decode(lines: list[int]) -> list[list[TokenHypothesis]]:
        return decode_all(
            trained.model,
            [sources[line].array for line in lines],
            settings=settings,
            device=device,
            lines=[first_line + line for line in lines],
        )

    found = decode_readable(sources, decode, sourceless=trained.recipe.sourceless)
    return [
        [with_text(hypothesis, trained.tokenizer, own_words=source.own_words) for hypothesis in hypotheses]
        for source, hypotheses in zip(sources, found, strict=True)
    ]


def decode_readable(
    sources: Sequence[EncodedSource], decode: DecodeLines, *, sourceless: bool
) -> list[list[TokenHypothesis]]:
    """Decode all sources but blank ones, whose answer is empty.

    sourceless: the model reads no source at all, so that blank ones are decoded too.
    """
    lines = [line for line, source in enumerate(sources) if sourceless or not source.is_blank]
    found = [[EMPTY] for _ in sources]
    for line, hypotheses in zip(lines, decode(lines), strict=True):
        found[line] = hypotheses
    return found


def with_text(
    hypothesis: TokenHypothesis, tokenizer: Tokenizer, *, own_words: Sequence[str], text: str | None = None
) -> Hypothesis:
    """A hypothesis with strings in place of token ids.

    own_words: what ids beyond the vocabulary stand for; text: the whole text, where it is known already.
    """
    return Hypothesis(
        text=tokenizer.decode(hypothesis.sentence, own=own_words) if text is None else text,
        score=hypothesis.score,
        log_prob=float(hypothesis.log_prob),
        finished=hypothesis.finished,
        tokens=tuple(tokenizer.piece(token, own=own_words) for token in hypothesis.tokens),
        positions=hypothesis.positions,
        word_scores=hypothesis.word_scores,
        gap_scores=hypothesis.gap_scores,
        iterations=hypothesis.iterations,
    )
