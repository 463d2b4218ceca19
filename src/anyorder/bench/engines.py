"""How fast InDIGO decodes beside left-to-right engines of its size, and beside what the machine allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from anyorder import config
from anyorder.bench.measure import Row, bandwidth, calibration, interleaved, time_rows
from anyorder.bench.peers import ctranslate2_decoder, marian, marian_decoder
from anyorder.decode import decode
from anyorder.encoder_decoder import Shape
from anyorder.left_to_right import LeftToRight
from anyorder.model import Indigo
from anyorder.packed import PRECISIONS, pack
from anyorder.tokens import EOD, UNK

BASELINE = "InDIGO"
FLOAT_BYTES = 4
REST = 0.3  # seconds; an engine's threads go on waiting busily for a while after its work
Decoder = Callable[[Tensor, int], object]  # sources, (sentences, length), and a beam


@dataclass(frozen=True)
class Setting:
    """What is decoded."""

    model: config.Model
    vocabulary: int
    length: int  # of sources and targets


def bench_engines(
    setting: Setting, *, batches: Sequence[int], beams: Sequence[int], peers: bool, repeats: int
) -> list[Row]:
    """Milliseconds a sentence with random weights, all targets as long as their sources."""
    rows: list[Row] = []
    with ExitStack() as folders:
        engines = own_engines(setting)
        if peers:
            engines |= _peers(setting, folders)
        for beam in beams:
            for batch in batches:
                source = random_source(setting, batch)
                calls = {name: partial(engine, source, beam) for name, engine in engines.items()}
                timed = time_rows(interleaved(calls, repeats=repeats, warmup=1, rest=REST), against=BASELINE)
                rows += [_labelled(row, batch=batch, beam=beam) for row in timed]
    return [*rows, *_limits(setting, batches)]


def own_engines(setting: Setting) -> dict[str, Decoder]:
    """InDIGO and an ordinary Transformer, in both precisions."""
    engines: dict[str, Decoder] = {}
    for name, kind in ((BASELINE, Indigo), ("our left to right", LeftToRight)):
        for precision in PRECISIONS:
            model = endless(kind, setting)
            pack(model, precision=precision)
            label = name if precision == "fp32" else f"{name} {precision}"
            engines[label] = partial(write, model)
    return engines


def endless(kind: type[Indigo] | type[LeftToRight], setting: Setting) -> Indigo:
    """A model with random weights that never ends a sentence before its time."""
    torch.manual_seed(0)
    shape = Shape(vocabulary=setting.vocabulary, target_vocabulary=setting.vocabulary)
    model = kind(setting.model, shape).eval()
    with torch.no_grad():  # among so many random words, one that scores 0 is never the best
        model.embed_output.weight[EOD] = 0.0
    return model


def write(model: Indigo, source: Tensor, beam: int) -> object:
    """Targets that are as long as their sources."""
    sentences, length = source.shape
    found = decode(
        model,
        source,
        torch.ones_like(source, dtype=torch.bool),
        settings=config.Decode(beam=beam),
        limits=torch.full((sentences,), length),
    )
    assert all(len(best.tokens) == length for (best,) in found), "none may end before its time"
    return found


def random_source(setting: Setting, sentences: int) -> Tensor:
    """Any words but the last one, which Marian keeps for padding."""
    chance = torch.Generator().manual_seed(sentences)
    return torch.randint(UNK, setting.vocabulary - 1, (sentences, setting.length), generator=chance)


def _peers(setting: Setting, folders: ExitStack) -> dict[str, Decoder]:
    model = marian(setting.model, vocabulary=setting.vocabulary)
    engines: dict[str, Decoder] = {"Transformers' Marian": marian_decoder(model)}
    for precision in ("fp32", "int8"):
        folder = Path(folders.enter_context(TemporaryDirectory()))
        engines[f"CTranslate2 {precision}"] = ctranslate2_decoder(model, folder, precision=precision)
    return engines


def _labelled(row: Row, *, batch: int, beam: int) -> Row:
    search = "greedy" if beam == 1 else f"beam {beam}"
    return replace(
        row,
        name=f"{search}, batch {batch}: {row.name}",
        value=row.value / batch,
        unit="ms a sentence",
        curve=f"{row.name}, {search}",
        at=batch,
    )


def _limits(setting: Setting, batches: Sequence[int]) -> list[Row]:
    """What products alone would take at the machine's speed, and reading the weights at each step."""
    model = endless(Indigo, setting)
    encoder = sum(weight.numel() for weight in model.encoder.parameters())
    words = setting.vocabulary * setting.model.width
    decoder = sum(weight.numel() for weight in model.decoder.parameters()) + words
    products, memory = calibration(), bandwidth()
    seconds = 2 * setting.length * (encoder + decoder) / (products.value * 1e9)
    rows = [
        Row("limit of a sentence: products", 1000 * seconds, "ms a sentence", ratio=None, against=None),
        products,
        memory,
    ]
    read = FLOAT_BYTES * (encoder + setting.length * decoder) / (memory.value * 1e9)
    return [
        *(
            Row(
                f"limit of batch {batch}: reading weights",
                1000 * read / batch,
                "ms a sentence",
                ratio=None,
                against=None,
            )
            for batch in batches
        ),
        *rows,
    ]
