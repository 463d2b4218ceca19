"""Training speed: InDIGO, an ordinary Transformer, and Transformers' Marian in a plain training loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import torch

from anyorder import config
from anyorder.bench.decode import DecodingWorkload, decode_to_source_length, never_ending_model, random_source
from anyorder.bench.peers import marian, marian_trainer
from anyorder.bench.timing import Measurement, calibration, interleaved, time_rows
from anyorder.data.batches import Batch, Example, Part, collate
from anyorder.models.indigo import Indigo
from anyorder.models.transformer import LeftToRight
from anyorder.system.devices import multiplies_in_bf16
from anyorder.system.distributed import Processes
from anyorder.system.memory import peak_memory
from anyorder.training.step import Optimiser

BASELINE = "our left to right"
DECODED_SENTENCES = 32  # batch size for which the memory of decoding is measured


def bench_training(
    workload: DecodingWorkload, *, sentences: int, peers: bool, repeats: int
) -> list[Measurement]:
    """Measure the milliseconds per target token of an update on one batch, and the memory that it takes."""
    steps = {
        BASELINE: _step(LeftToRight, workload, sentences),
        "InDIGO, left to right": _step(Indigo, workload, sentences),
        "InDIGO, in a random order": _step(Indigo, workload, sentences, shuffled=True),
    }
    if multiplies_in_bf16():
        steps["InDIGO, left to right, bf16"] = _step(Indigo, workload, sentences, precision="bf16")
    if peers:
        source, target = random_source(workload, sentences), random_source(workload, sentences)
        steps["Transformers' Marian"] = marian_trainer(
            marian(workload.model, vocabulary=workload.vocabulary), source, target
        )
    timed = time_rows(interleaved(steps, repeats=repeats, warmup=1), against=BASELINE)
    tokens = sentences * (workload.length + 1)
    rows = [replace(row, value=row.value / tokens, unit="ms a token") for row in timed]
    return [*rows, *_memory(workload, sentences), calibration()]


def _step(
    kind: type[Indigo] | type[LeftToRight],
    workload: DecodingWorkload,
    sentences: int,
    *,
    shuffled: bool = False,
    precision: Literal["fp32", "bf16"] = "fp32",
) -> Callable[[], object]:
    """Prepare an update. shuffled: train on random orders instead of left to right."""
    single_process = Processes(rank=0, count=1, device=torch.device("cpu"))
    model = never_ending_model(kind, workload)
    optimiser = Optimiser(model, config.Train(precision=precision), single_process)
    batch = _batch(workload, sentences, shuffled=shuffled)
    return partial(optimiser.update, 1, [Part.all_of(batch)])


def _batch(workload: DecodingWorkload, sentences: int, *, shuffled: bool) -> Batch:
    random = np.random.default_rng(0)
    positions = np.arange(1, workload.length + 1, dtype=np.int32)
    words = random_source(workload, sentences).numpy().astype(np.int32)
    return collate(
        [
            Example(
                source=line,
                target=line[::-1].copy(),
                order=random.permutation(positions) if shuffled else positions,
            )
            for line in words
        ]
    )


def _memory(workload: DecodingWorkload, sentences: int) -> list[Measurement]:
    step = peak_memory(partial(_step, Indigo, workload, sentences))
    decoding = peak_memory(partial(_decoding, workload))
    return [
        Measurement("memory of an update", step, "MB", ratio=None, against=None),
        Measurement(
            f"memory of decoding {DECODED_SENTENCES} greedily", decoding, "MB", ratio=None, against=None
        ),
    ]


def _decoding(workload: DecodingWorkload) -> Callable[[], object]:
    model = never_ending_model(Indigo, workload)
    return partial(decode_to_source_length, model, random_source(workload, DECODED_SENTENCES), 1)
