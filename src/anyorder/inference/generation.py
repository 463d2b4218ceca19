"""From sources to hypotheses: encode text, photos or feature vectors, decode, and make text of token ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
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


class RefusedInput(UserError):
    """A source or a target that can't be read; whoever has read it from a file says where it stands."""

    def __init__(self, side: str, index: int, reason: str) -> None:
        super().__init__(f"{side} {index + 1}: {reason}")
        self.side, self.index, self.reason = side, index, reason


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

    def encode_pairs(
        self, sources: Sequence[Source], targets: Sequence[str], *, bounds: config.Decode | None = None
    ) -> list[EncodedPair]:
        """Sources with their targets; a word that the target may copy has the same id in both.

        bounds: holds the maximum lengths; None for no limit.
        """
        encoded: Sequence[EncodedSource] = self.encode_sources(sources)
        if bounds is not None:
            encoded = within_bounds(encoded, bounds)
        tokens = self._encoder.targets(targets, [source.tokens for source in encoded])
        if bounds is not None:
            tokens = [_bounded_target(number, one, bounds) for number, one in enumerate(tokens)]
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


def within_bounds(sources: Sequence[EncodedSource], bounds: config.Decode) -> list[EncodedSource]:
    """Sources of at most decode.max_source tokens; longer ones are cut or refused."""
    return [_bounded_source(number, source, bounds) for number, source in enumerate(sources)]


def _bounded_source(number: int, source: EncodedSource, bounds: config.Decode) -> EncodedSource:
    length, most = len(source.array), bounds.max_source
    if length <= most:
        return source
    if not bounds.cut:
        raise RefusedInput("source", number, _too_long(length, "max_source", most))
    tokens = None if source.tokens is None else replace(source.tokens, ids=source.tokens.ids[:most])
    return EncodedSource(source.array[:most], tokens)


def _bounded_target(number: int, target: Tokens, bounds: config.Decode) -> Tokens:
    length, most = len(target.ids), bounds.max_target
    if length <= most:
        return target
    if not bounds.cut:
        raise RefusedInput("target", number, _too_long(length, "max_target", most))
    ends = list(accumulate(target.pieces))
    words = sum(end <= most for end in ends)
    pieces = target.pieces[:words]
    return replace(target, ids=target.ids[: sum(pieces)], words=target.words[:words], pieces=pieces)


def _too_long(length: int, key: str, most: int) -> str:
    return (
        f"{length:,} tokens, but decode.{key} = {most:,}; a larger --{key.replace('_', '-')} takes more "
        "memory, --cut cuts"
    )


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
