"""What reading the canvas anew costs: InDIGO's cached steps against an Insertion Transformer's, by length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from anyorder import config
from anyorder.bench.timing import Row, calibration, interleaved, time_rows
from anyorder.config.model import Shape
from anyorder.decoding.batching import decode_batch
from anyorder.decoding.beam import TokenHypothesis
from anyorder.models.indigo import Indigo
from anyorder.models.insertion_transformer import InsertionTransformer
from anyorder.models.registry import Model
from anyorder.text.tokenizer import EOD, UNK

NEVER_ENDS = 1e9  # as a penalty of the end


@dataclass(frozen=True)
class Setting:
    """What is decoded."""

    model: config.Model
    vocabulary: int
    sentences: int  # at once; the sources are as long as what is written


def bench_decoding(setting: Setting, *, lengths: Sequence[int], repeats: int) -> list[Row]:
    """Milliseconds a sentence at each target length, greedily and in parallel, with random weights."""
    torch.manual_seed(0)
    shape = Shape(vocabulary=setting.vocabulary, target_vocabulary=setting.vocabulary)
    indigo = Indigo(setting.model, shape).eval()
    with torch.no_grad():  # among so many random words, one that scores 0 is never the best
        indigo.embed_output.weight[EOD] = 0.0
    other = setting.model.model_copy(update={"kind": "insertion"})
    insertion = InsertionTransformer(other, config.Insertion(), shape).eval()
    greedy = config.Decode()
    endless = config.Decode(eos_penalty=NEVER_ENDS)
    rows = []
    for length in lengths:
        baseline = f"{length} tokens: InDIGO, cached"
        decode = partial(_decode, sentences=setting.sentences, length=length)
        variants: dict[str, Callable[[], object]] = {
            baseline: partial(decode, indigo, greedy),
            f"{length} tokens: Insertion, greedy": partial(decode, insertion, endless),
            f"{length} tokens: Insertion, parallel": partial(
                decode, insertion, endless.model_copy(update={"parallel": True})
            ),
        }
        timed = time_rows(interleaved(variants, repeats=repeats, warmup=1), against=baseline)
        rows += [replace(row, value=row.value / setting.sentences, unit="ms a sentence") for row in timed]
    return [*rows, calibration()]


def _decode(
    model: Model, settings: config.Decode, *, sentences: int, length: int
) -> list[list[TokenHypothesis]]:
    """Some random sources, to targets of exactly this length."""
    chance = torch.Generator().manual_seed(length)
    source = torch.randint(UNK, model.shape.vocabulary, (sentences, length), generator=chance)
    found = decode_batch(
        model,
        source,
        torch.ones_like(source, dtype=torch.bool),
        settings=settings,
        limits=torch.full((sentences,), length),
    )
    assert all(len(best.tokens) == length for (best,) in found), "none may end before its time"
    return found
