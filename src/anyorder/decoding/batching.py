"""Decoding of many sources: those of similar length together, as many as fit into memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from anyorder import config
from anyorder.data.batches import collate_sources
from anyorder.decoding.canvas import Canvas
from anyorder.decoding.constraints import Constraints
from anyorder.decoding.decode import decode
from anyorder.decoding.hypothesis import TokenHypothesis
from anyorder.decoding.insertion_transformer import decode_insertions
from anyorder.decoding.sampling import SAMPLED_AT_ONCE
from anyorder.models.insertion_transformer import InsertionTransformer
from anyorder.models.registry import Model, ordered

DECODED_AT_ONCE = 128  # sources
DECODING_MEMORY = 2**30  # bytes, without the weights; limits how many sources are decoded at once
FLOAT_BYTES = 4


@dataclass(frozen=True)
class CanvasBatch:
    """What each target must keep to."""

    canvases: Sequence[Canvas]
    ends_word: Tensor  # (ids,), bool: the token ends a word

    def ends(self, ids: int) -> Tensor:
        """`ends_word` for this number of ids; unknown words of a source are whole words."""
        return functional.pad(self.ends_word, (0, max(0, ids - len(self.ends_word))), value=True)[:ids]


def decode_all(
    model: Model,
    sources: Sequence[NDArray[np.generic]],
    *,
    settings: config.Decode,
    device: torch.device,
    lines: Sequence[int] | None = None,
    around: CanvasBatch | None = None,
) -> list[list[TokenHypothesis]]:
    """Decode sources of any length; the answers come in the order of the sources.

    lines: the number of each source, which sampling depends on; around: constraints of each target.
    """
    found: list[list[TokenHypothesis]] = [[] for _ in sources]
    limits = _limits(sources, settings)
    if around is not None:
        limits = _limits_around(around.canvases, limits, settings)
    for chosen in _by_length(model, sources, limits, settings):
        source, mask = collate_sources([sources[index] for index in chosen])
        constraints = None
        if around is not None:
            canvases = [around.canvases[index] for index in chosen]
            ids = ordered(model, purpose="complete").writable_ids(source)
            constraints = Constraints.of(
                canvases, ends_word=around.ends(ids).to(device), limits=limits[chosen]
            )
        answers = decode_batch(
            model,
            source.to(device),
            mask.to(device),
            settings=settings,
            limits=limits[chosen],
            lines=[index if lines is None else lines[index] for index in chosen],
            constraints=constraints,
        )
        for index, answer in zip(chosen, answers, strict=True):
            found[index] = answer
    return found


def decode_batch(
    model: Model,
    source: Tensor,
    mask: Tensor,
    *,
    settings: config.Decode,
    limits: Tensor,
    lines: Sequence[int] | None = None,
    constraints: Constraints | None = None,
) -> list[list[TokenHypothesis]]:
    """The best hypotheses of each source, best first, by the loop that this family of models decodes with."""
    if isinstance(model, InsertionTransformer):
        assert constraints is None, "an Insertion Transformer can't keep to a canvas"
        return decode_insertions(model, source, mask, settings=settings, limits=limits)
    return decode(model, source, mask, settings=settings, limits=limits, lines=lines, constraints=constraints)


def _limits_around(canvases: Sequence[Canvas], limits: Tensor, settings: config.Decode) -> Tensor:
    """Raise the limits so that required tokens and some words more always fit."""
    least = torch.tensor([canvas.least_tokens for canvas in canvases])
    needed = torch.where(least > 0, least + settings.max_extra, 0)
    return torch.maximum(limits, needed).clamp(max=settings.max_length)


def _by_length(
    model: Model, sources: Sequence[NDArray[np.generic]], limits: Tensor, settings: config.Decode
) -> Iterator[list[int]]:
    """Group sources that are decoded together: as many as fit, the shortest first."""
    together: list[int] = []
    longest = 0
    for index in sorted(range(len(sources)), key=lambda index: len(sources[index])):
        # All are padded to the longest target, which required words may ask for anywhere.
        longest = max(longest, int(limits[index]))
        need = decoding_memory(model, settings, source=len(sources[index]), target=longest)
        if len(together) == DECODED_AT_ONCE or (together and (len(together) + 1) * need > DECODING_MEMORY):
            yield together
            together, longest = [], int(limits[index])
        together.append(index)
    if together:
        yield together


def decoding_memory(model: Model, settings: config.Decode, *, source: int, target: int) -> int:
    """Estimate the bytes that decoding one sentence takes: keys and values, and logits of the next words.

    source, target: lengths.
    """
    sizes = model.settings
    hypotheses = min(settings.n_best, SAMPLED_AT_ONCE) if settings.search == "sample" else settings.beam
    vectors = 2 * sizes.width * (sizes.decoder_layers + 1)  # of a token, with its gap keys
    logits = 2 * model.shape.target_vocabulary
    if isinstance(model, InsertionTransformer):  # words of all gaps at once
        logits *= target + 1
    return FLOAT_BYTES * (source * vectors + hypotheses * (target * vectors + logits))


def _limits(sources: Sequence[NDArray[np.generic]], settings: config.Decode) -> Tensor:
    """Most tokens to write for each source; a ratio to the source means nothing for images."""
    relative = settings.max_ratio > 0 and all(source.ndim == 1 for source in sources)
    longest = [
        min(settings.max_length, int(settings.max_ratio * len(source)) + settings.max_extra)
        if relative and len(source)  # models of targets alone have empty sources
        else settings.max_length
        for source in sources
    ]
    return torch.tensor(longest, dtype=torch.long)
