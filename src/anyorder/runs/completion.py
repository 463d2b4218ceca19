"""Targets written around what is given of them: hypotheses that keep to a person's canvases."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from anyorder import config
from anyorder.decoding.batching import Around, decode_all
from anyorder.decoding.beam import Hypothesis
from anyorder.decoding.canvas import Canvas
from anyorder.errors import UserError
from anyorder.runs.canvas_text import CompiledCanvas
from anyorder.runs.checkpoint import Trained

NOTHING_GIVEN = Canvas()


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
    found: list[list[Hypothesis]] = [[] for _ in sources]
    # Where nothing is given it is decoded as ever: its answers are the same to the last bit.
    free = [line for line, canvas in enumerate(canvases) if canvas.canvas == NOTHING_GIVEN]
    bound = [line for line, canvas in enumerate(canvases) if canvas.canvas != NOTHING_GIVEN]
    ends_word = torch.from_numpy(trained.tokenizer.ends_word)
    around = Around(canvases=[canvases[line].canvas for line in bound], ends_word=ends_word)
    for chosen, given in ((free, None), (bound, around)):
        answers = decode_all(
            trained.model,
            [sources[line] for line in chosen],
            settings=settings,
            device=device,
            lines=[lines[line] for line in chosen],
            around=given,
        )
        for line, answer in zip(chosen, answers, strict=True):
            found[line] = answer
    for canvas, hypotheses in zip(canvases, found, strict=True):
        if not hypotheses:
            raise canvas.refusal("no sentence can be written that keeps to it: too much is forbidden")
    return found
