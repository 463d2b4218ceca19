"""How fast models learn: InDIGO, an ordinary Transformer, and Transformers' Marian in a plain loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import torch

from anyorder import config
from anyorder.bench.decode import Setting, endless, random_source, write
from anyorder.bench.peers import marian, marian_trainer
from anyorder.bench.timing import Row, calibration, interleaved, time_rows
from anyorder.data.batches import Batch, Example, collate
from anyorder.models.indigo import Indigo
from anyorder.models.transformer import LeftToRight
from anyorder.system.devices import multiplies_in_bf16
from anyorder.system.distributed import Processes
from anyorder.system.memory import peak_memory
from anyorder.training.step import Optimiser

BASELINE = "our left to right"
FEW_SENTENCES = 32  # that the memory of decoding is measured for


def bench_training(setting: Setting, *, sentences: int, peers: bool, repeats: int) -> list[Row]:
    """Milliseconds of an update on the same batch, and the memory that it takes; a token is a target's."""
    steps = {
        BASELINE: _step(LeftToRight, setting, sentences),
        "InDIGO, left to right": _step(Indigo, setting, sentences),
        "InDIGO, in a random order": _step(Indigo, setting, sentences, shuffled=True),
    }
    if multiplies_in_bf16():
        steps["InDIGO, left to right, bf16"] = _step(Indigo, setting, sentences, precision="bf16")
    if peers:
        source, target = random_source(setting, sentences), random_source(setting, sentences)
        steps["Transformers' Marian"] = marian_trainer(
            marian(setting.model, vocabulary=setting.vocabulary), source, target
        )
    timed = time_rows(interleaved(steps, repeats=repeats, warmup=1), against=BASELINE)
    tokens = sentences * (setting.length + 1)
    rows = [replace(row, value=row.value / tokens, unit="ms a token") for row in timed]
    return [*rows, *_memory(setting, sentences), calibration()]


def _step(
    kind: type[Indigo] | type[LeftToRight],
    setting: Setting,
    sentences: int,
    *,
    shuffled: bool = False,
    precision: Literal["fp32", "bf16"] = "fp32",
) -> Callable[[], object]:
    here = Processes(rank=0, count=1, device=torch.device("cpu"))
    optimiser = Optimiser(endless(kind, setting), config.Train(precision=precision), here)
    batch = _batch(setting, sentences, shuffled=shuffled)
    return partial(optimiser.update, 1, [batch])


def _batch(setting: Setting, sentences: int, *, shuffled: bool) -> Batch:
    chance = np.random.default_rng(0)
    positions = np.arange(1, setting.length + 1, dtype=np.int32)
    words = random_source(setting, sentences).numpy().astype(np.int32)
    return collate(
        [
            Example(
                source=line,
                target=line[::-1].copy(),
                order=chance.permutation(positions) if shuffled else positions,
            )
            for line in words
        ]
    )


def _memory(setting: Setting, sentences: int) -> list[Row]:
    step = peak_memory(partial(_step, Indigo, setting, sentences))
    decoding = peak_memory(partial(_decoding, setting))
    return [
        Row("memory of an update", step, "MB", ratio=None, against=None),
        Row(f"memory of decoding {FEW_SENTENCES} greedily", decoding, "MB", ratio=None, against=None),
    ]


def _decoding(setting: Setting) -> Callable[[], object]:
    return partial(write, endless(Indigo, setting), random_source(setting, FEW_SENTENCES), 1)
