"""Speed of editing: a draft in which a part of the tokens changes, against writing the whole target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from anyorder import config
from anyorder.bench.decode import (
    DecodingWorkload,
    decode_to_source_length,
    never_ending_model,
    random_source,
)
from anyorder.bench.timing import Measurement, TimedCall, calibration, interleaved, time_rows
from anyorder.config.model import Shape
from anyorder.decoding.editing import DraftToEdit, edit_all
from anyorder.models.editor import Editor
from anyorder.models.transformer import LeftToRight

NO_SOURCE = np.zeros(0, dtype=np.int32)


def bench_editing(
    model: config.Model,
    *,
    vocabulary: int,
    sentences: int,
    lengths: Sequence[int],
    shares: Sequence[float],
    repeats: int,
) -> list[Measurement]:
    """Measure the milliseconds per sentence at each length, and for each share of tokens that change.

    The baseline is a left-to-right model that reads the draft and writes the target. The editor has as many
    layers in all, and no encoder: it reads the draft in its decoder.
    """
    layers = model.encoder_layers + model.decoder_layers
    rows: list[Measurement] = []
    for length in lengths:
        workload = DecodingWorkload(model=model, vocabulary=vocabulary, length=length)
        source = random_source(workload, sentences)
        editor = never_ending_editor(
            model.model_copy(update={"kind": "editor", "encoder_layers": 0, "decoder_layers": layers}),
            vocabulary=vocabulary,
        )
        drafts = [DraftToEdit(NO_SOURCE, row.astype(np.int32)) for row in source.numpy()]
        baseline = f"{length} tokens: left to right"
        written = never_ending_model(LeftToRight, workload)
        variants: dict[str, TimedCall] = {baseline: partial(decode_to_source_length, written, source, 1)}
        for share in shares:
            edits = max(1, round(share * length))
            name = f"{length} tokens: editor, {edits} changed"
            variants[name] = partial(_edit, editor, drafts, edits)
        timed = time_rows(interleaved(variants, repeats=repeats, warmup=1), against=baseline)
        rows += [replace(row, value=row.value / sentences, unit="ms a sentence") for row in timed]
    return [*rows, calibration()]


def never_ending_editor(model: config.Model, *, vocabulary: int) -> Editor:
    """Build an editor with random weights that always inserts and never ends."""
    torch.manual_seed(0)
    editor = Editor(model, config.Edit(), Shape(vocabulary=vocabulary, target_vocabulary=vocabulary)).eval()
    with torch.no_grad():  # all keys are equal, and a gap has two of them
        editor.places.project.weight.zero_()
    return editor


def _edit(editor: Editor, drafts: Sequence[DraftToEdit], edits: int) -> object:
    settings = config.Decode(max_ratio=0, max_length=edits)
    found = edit_all(editor, drafts, settings=settings, device=torch.device("cpu"))
    assert all(len(one.edits) == edits for one in found), "no draft may be finished early"
    return found
