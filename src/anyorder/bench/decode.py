"""Decoding speed beside other engines, and how the time of a token grows with length."""

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
from anyorder.bench.peers import ctranslate2_decoder, marian, marian_decoder
from anyorder.bench.timing import (
    Prepare,
    Row,
    Work,
    Worker,
    bandwidth,
    calibration,
    in_turns,
    interleaved,
    time_rows,
)
from anyorder.config.model import Shape
from anyorder.decoding.loop import decode
from anyorder.models.indigo import Indigo
from anyorder.models.kernels.packed import PRECISIONS, pack
from anyorder.models.transformer import LeftToRight
from anyorder.text.tokenizer import EOD, UNK

BASELINE = "InDIGO"
FLOAT_BYTES = 4
REST = 0.3  # seconds; an engine's threads go on waiting busily for a while after its work
Decoder = Callable[[Tensor, int], object]  # sources, (sentences, length), and a beam
Build = Callable[[], Prepare]  # for turns of a batch and a beam


@dataclass(frozen=True)
class Setting:
    """What is decoded."""

    model: config.Model
    vocabulary: int
    length: int  # of sources and targets


def bench_engines(
    setting: Setting,
    *,
    batches: Sequence[int],
    beams: Sequence[int],
    peers: bool,
    repeats: int,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> list[Row]:
    """Milliseconds a sentence with random weights, all targets as long as their sources.

    progress: told what is measured, and how many repetitions of how many are done.
    """
    rows: list[Row] = []
    with TemporaryDirectory() as folder, ExitStack() as running:
        builds = _own_engines(setting) | (_peers(setting, Path(folder)) if peers else {})
        workers = [running.enter_context(Worker(name, build)) for name, build in builds.items()]
        for beam in beams:
            for batch in batches:
                seconds = in_turns(
                    {worker.name: partial(worker.seconds, batch, beam) for worker in workers},
                    repeats=repeats,
                    warmup=1,
                    rest=REST,
                    progress=partial(progress, f"{_search(beam)}, batch {batch}"),
                )
                rows += [
                    _labelled(row, batch=batch, beam=beam) for row in time_rows(seconds, against=BASELINE)
                ]
    return [*rows, *_limits(setting, batches)]


def _own_engines(setting: Setting) -> dict[str, Build]:
    """InDIGO and an ordinary Transformer, in both precisions."""
    return {
        name if precision == "fp32" else f"{name} {precision}": partial(_own_engine, kind, setting, precision)
        for name, kind in ((BASELINE, Indigo), ("our left to right", LeftToRight))
        for precision in PRECISIONS
    }


def _own_engine(kind: type[Indigo] | type[LeftToRight], setting: Setting, precision: str) -> Prepare:
    model = endless(kind, setting)
    pack(model, precision=precision)
    return partial(_prepared, partial(write, model), setting)


def _peers(setting: Setting, folder: Path) -> dict[str, Build]:
    """folder: for files of theirs; it outlives their processes, which are ended without being asked."""
    return {
        "Transformers' Marian": partial(_marian, setting),
        **{
            f"CTranslate2 {precision}": partial(_ctranslate2, setting, folder / precision, precision)
            for precision in ("fp32", "int8")
        },
    }


def _marian(setting: Setting) -> Prepare:
    model = marian(setting.model, vocabulary=setting.vocabulary)
    return partial(_prepared, marian_decoder(model), setting)


def _ctranslate2(setting: Setting, folder: Path, precision: str) -> Prepare:
    model = marian(setting.model, vocabulary=setting.vocabulary)
    return partial(_prepared, ctranslate2_decoder(model, folder, precision=precision), setting)


def _prepared(decoder: Decoder, setting: Setting, batch: int, beam: int) -> Work:
    return partial(decoder, random_source(setting, batch), beam)


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


def _labelled(row: Row, *, batch: int, beam: int) -> Row:
    search = _search(beam)
    return replace(
        row,
        name=f"{search}, batch {batch}: {row.name}",
        value=row.value / batch,
        unit="ms a sentence",
        curve=f"{row.name}, {search}",
        at=batch,
    )


def _search(beam: int) -> str:
    return "greedy" if beam == 1 else f"beam {beam}"


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


MODELS = {"InDIGO": Indigo, "our left to right": LeftToRight}


def bench_scaling(setting: Setting, *, lengths: Sequence[int], batch: int, repeats: int) -> list[Row]:
    """Milliseconds a token at each length, greedily, against the first length's."""
    rows: list[Row] = []
    lengths = list(dict.fromkeys(lengths))
    for name, kind in MODELS.items():
        model = endless(kind, setting)
        calls = {
            f"{name}, {length} tokens": partial(
                write, model, random_source(replace(setting, length=length), batch), 1
            )
            for length in lengths
        }
        seconds = interleaved(calls, repeats=repeats, warmup=1)
        a_token = {
            call: [time / (batch * length) for time in seconds[call]]
            for call, length in zip(calls, lengths, strict=True)
        }
        timed = time_rows(a_token, against=next(iter(calls)))
        rows += [
            replace(row, unit="ms a token", curve=name, at=length)
            for row, length in zip(timed, lengths, strict=True)
        ]
    return [*rows, calibration()]
