"""How the time of a token grows with the length of what is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from anyorder.bench.engines import Setting, endless, random_source, write
from anyorder.bench.measure import Row, calibration, interleaved, time_rows
from anyorder.models.indigo import Indigo
from anyorder.models.transformer import LeftToRight

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
