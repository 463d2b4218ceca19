"""Decoding speed: against other engines, by sentence length, and with and without cached steps.

Every model has random weights and never ends a sentence early, so that all of them write equally many tokens.
"""

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
    Measurement,
    Prepare,
    TimedCall,
    Worker,
    bandwidth,
    calibration,
    in_turns,
    interleaved,
    time_rows,
)
from anyorder.config.model import Shape
from anyorder.decoding.decode import decode_batch
from anyorder.models.indigo import Indigo
from anyorder.models.insertion_transformer import InsertionTransformer
from anyorder.models.kernels.packed import PRECISIONS, pack
from anyorder.models.registry import Model
from anyorder.models.transformer import LeftToRight
from anyorder.text.tokenizer import EOD, UNK

BASELINE = "InDIGO"
MODELS = {BASELINE: Indigo, "our left to right": LeftToRight}
REST_SECONDS = 0.3  # the threads of an engine keep spinning for a while after its turn
NEVER_ENDS = 1e9  # as decode.eos_penalty
Decoder = Callable[[Tensor, int], object]  # takes sources, (sentences, length), and a beam size
Build = Callable[[], Prepare]  # turns take a batch size and a beam size


@dataclass(frozen=True)
class DecodingWorkload:
    """The size of the model and of the sentences that are decoded."""

    model: config.Model
    vocabulary: int
    length: int  # number of tokens of each source and each target


# --- against other engines ---


def bench_engines(
    workload: DecodingWorkload,
    *,
    batches: Sequence[int],
    beams: Sequence[int],
    peers: bool,
    repeats: int,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> list[Measurement]:
    """Measure the milliseconds per sentence of each engine, at each batch size and beam size.

    progress: called with what is measured, the number of repetitions done, and their total.
    """
    rows: list[Measurement] = []
    with TemporaryDirectory() as folder, ExitStack() as running:
        builds = _own_engines(workload) | (_peers(workload, Path(folder)) if peers else {})
        workers = [running.enter_context(Worker(name, build)) for name, build in builds.items()]
        for beam in beams:
            for batch in batches:
                seconds = in_turns(
                    {worker.name: partial(worker.seconds, batch, beam) for worker in workers},
                    repeats=repeats,
                    warmup=1,
                    rest=REST_SECONDS,
                    progress=partial(progress, f"{_search(beam)}, batch {batch}"),
                )
                rows += [
                    _per_sentence(row, batch=batch, beam=beam) for row in time_rows(seconds, against=BASELINE)
                ]
    return [*rows, *_hardware_limits(workload, batches)]


def _own_engines(workload: DecodingWorkload) -> dict[str, Build]:
    """Return InDIGO and an ordinary Transformer, each in every precision."""
    return {
        name if precision == "fp32" else f"{name} {precision}": partial(
            _own_engine, kind, workload, precision
        )
        for name, kind in MODELS.items()
        for precision in PRECISIONS
    }


def _own_engine(
    kind: type[Indigo] | type[LeftToRight], workload: DecodingWorkload, precision: str
) -> Prepare:
    model = never_ending_model(kind, workload)
    pack(model, precision=precision)
    return partial(_prepared, partial(decode_to_source_length, model), workload)


def _peers(workload: DecodingWorkload, folder: Path) -> dict[str, Build]:
    """Return the engines of others. folder: for their files; it must outlive their processes."""
    return {
        "Transformers' Marian": partial(_marian, workload),
        **{
            f"CTranslate2 {precision}": partial(_ctranslate2, workload, folder / precision, precision)
            for precision in ("fp32", "int8")
        },
    }


def _marian(workload: DecodingWorkload) -> Prepare:
    model = marian(workload.model, vocabulary=workload.vocabulary)
    return partial(_prepared, marian_decoder(model), workload)


def _ctranslate2(workload: DecodingWorkload, folder: Path, precision: str) -> Prepare:
    model = marian(workload.model, vocabulary=workload.vocabulary)
    return partial(_prepared, ctranslate2_decoder(model, folder, precision=precision), workload)


def _prepared(decoder: Decoder, workload: DecodingWorkload, batch: int, beam: int) -> TimedCall:
    return partial(decoder, random_source(workload, batch), beam)


def _per_sentence(row: Measurement, *, batch: int, beam: int) -> Measurement:
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


def _hardware_limits(workload: DecodingWorkload, batches: Sequence[int]) -> list[Measurement]:
    """Estimate the time of the matrix products alone, and of reading all weights once a step."""
    model = never_ending_model(Indigo, workload)
    encoder = sum(weight.numel() for weight in model.encoder.parameters())
    words = workload.vocabulary * workload.model.width
    decoder = sum(weight.numel() for weight in model.decoder.parameters()) + words
    products, memory = calibration(), bandwidth()
    product_seconds = 2 * workload.length * (encoder + decoder) / (products.value * 1e9)
    read_seconds = torch.float32.itemsize * (encoder + workload.length * decoder) / (memory.value * 1e9)
    limits = {f"limit of batch {batch}: reading weights": read_seconds / batch for batch in batches}
    limits["limit of a sentence: products"] = product_seconds
    return [
        *(
            Measurement(name, 1000 * seconds, "ms a sentence", ratio=None, against=None)
            for name, seconds in limits.items()
        ),
        products,
        memory,
    ]


# --- by length ---


def bench_scaling(
    workload: DecodingWorkload, *, lengths: Sequence[int], batch: int, repeats: int
) -> list[Measurement]:
    """Measure the milliseconds per token of greedy decoding at each length, against the first length."""
    rows: list[Measurement] = []
    lengths = list(dict.fromkeys(lengths))
    for name, kind in MODELS.items():
        model = never_ending_model(kind, workload)
        calls = {
            f"{name}, {length} tokens": partial(
                decode_to_source_length, model, random_source(replace(workload, length=length), batch), 1
            )
            for length in lengths
        }
        seconds = interleaved(calls, repeats=repeats, warmup=1)
        per_token = {
            call: [time / (batch * length) for time in seconds[call]]
            for call, length in zip(calls, lengths, strict=True)
        }
        timed = time_rows(per_token, against=next(iter(calls)))
        rows += [
            replace(row, unit="ms a token", curve=name, at=length)
            for row, length in zip(timed, lengths, strict=True)
        ]
    return [*rows, calibration()]


# --- with and without cached steps ---


def bench_cached_steps(
    model: config.Model, *, vocabulary: int, sentences: int, lengths: Sequence[int], repeats: int
) -> list[Measurement]:
    """Measure the milliseconds per sentence of InDIGO, which caches its steps, at each target length.

    It is the baseline of an Insertion Transformer of the same size, which reads the whole canvas again after
    every step. sentences: number of sentences in a batch.
    """
    shape = Shape(vocabulary=vocabulary, target_vocabulary=vocabulary)
    insertion_settings = model.model_copy(update={"kind": "insertion"})
    insertion = InsertionTransformer(insertion_settings, config.Insertion(), shape).eval()
    endless = config.Decode(eos_penalty=NEVER_ENDS)
    rows = []
    for length in lengths:
        workload = DecodingWorkload(model=model, vocabulary=vocabulary, length=length)
        source = random_source(workload, sentences)
        baseline = f"{length} tokens: InDIGO, cached"
        variants: dict[str, TimedCall] = {
            baseline: partial(decode_to_source_length, never_ending_model(Indigo, workload), source, 1),
            f"{length} tokens: Insertion, greedy": partial(_decode, insertion, source, endless),
            f"{length} tokens: Insertion, parallel": partial(
                _decode, insertion, source, endless.model_copy(update={"parallel": True})
            ),
        }
        timed = time_rows(interleaved(variants, repeats=repeats, warmup=1), against=baseline)
        rows += [replace(row, value=row.value / sentences, unit="ms a sentence") for row in timed]
    return [*rows, calibration()]


# --- models and sources ---


def never_ending_model(kind: type[Indigo] | type[LeftToRight], workload: DecodingWorkload) -> Indigo:
    """Build a model with random weights that never chooses <eod>."""
    torch.manual_seed(0)
    shape = Shape(vocabulary=workload.vocabulary, target_vocabulary=workload.vocabulary)
    model = kind(workload.model, shape).eval()
    with torch.no_grad():  # with a logit of 0, <eod> is never the best of many random words
        model.embed_output.weight[EOD] = 0.0
    return model


def decode_to_source_length(model: Indigo, source: Tensor, beam: int) -> object:
    """Decode targets that are exactly as long as their sources. source: (sentences, length)."""
    return _decode(model, source, config.Decode(beam=beam))


def _decode(model: Model, source: Tensor, settings: config.Decode) -> object:
    sentences, length = source.shape
    found = decode_batch(
        model,
        source,
        torch.ones_like(source, dtype=torch.bool),
        settings=settings,
        limits=torch.full((sentences,), length),
    )
    assert all(len(best.tokens) == length for (best,) in found), "no sentence may end early"
    return found


def random_source(workload: DecodingWorkload, sentences: int) -> Tensor:
    """Draw sources, (sentences, length), without the last word, which Marian reserves for padding."""
    random = torch.Generator().manual_seed(sentences)
    return torch.randint(UNK, workload.vocabulary - 1, (sentences, workload.length), generator=random)
