"""Targets written around what is given of them: hypotheses that keep to a person's canvases."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from anyorder import config
from anyorder.beam import Hypothesis
from anyorder.canvas_text import CompiledCanvas
from anyorder.checkpoint import Trained
from anyorder.errors import UserError
from anyorder.families import Around, decode_all


def check_completes(trained: Trained, settings: config.Decode) -> None:
    """Refuse models and searches that can't keep to a canvas."""
    kind = trained.recipe.model.kind
    if kind != "indigo":
        raise UserError(
            f'complete: model.kind = "{kind}" can\'t write around what is given; must be "indigo"'
        )
    if settings.merge_partial:
        raise UserError("decode.merge_partial = true: must be false where something is given of the target")


def complete_all(
    trained: Trained,
    sources: Sequence[NDArray[np.generic]],
    canvases: Sequence[CompiledCanvas],
    *,
    settings: config.Decode,
    device: torch.device,
    lines: Sequence[int],
) -> list[list[Hypothesis]]:
    """The best ways to write around each canvas, best first; lines: the number of each, from 0."""
    for canvas in canvases:
        least = canvas.canvas.least_tokens
        if least > settings.max_length:
            raise canvas.refusal(
                f"what is given takes {least} tokens or more, but decode.max_length = {settings.max_length}"
            )
    around = Around(
        canvases=[canvas.canvas for canvas in canvases],
        ends_word=torch.from_numpy(trained.tokenizer.ends_word),
    )
    found = decode_all(trained.model, sources, settings=settings, device=device, lines=lines, around=around)
    for canvas, hypotheses in zip(canvases, found, strict=True):
        if not hypotheses:
            raise canvas.refusal("no sentence can be written that keeps to it: too much is forbidden")
    return found
