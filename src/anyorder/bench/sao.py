"""What adaptive orders cost: training steps with them, against one left to right on the same batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from anyorder import config
from anyorder.batch import Batch, Example, collate
from anyorder.bench.measure import Row, calibration, interleaved, time_rows
from anyorder.model import Indigo, Shape
from anyorder.optimise import Optimiser
from anyorder.processes import Processes
from anyorder.searched import learn_from, search_batch, searching
from anyorder.tokens import UNK

BASELINE = "left to right"
MEAN_LENGTH = 13


def bench_sao(
    *, settings: config.Model, vocabulary: int, sentences: int, refresh: int, repeats: int
) -> list[Row]:
    """Training steps on one batch: left to right, as the paper does it, and as the default does it."""
    torch.manual_seed(0)
    here = Processes(rank=0, count=1, device=torch.device("cpu"))
    model = Indigo(settings, Shape(vocabulary=vocabulary, target_vocabulary=vocabulary))
    optimiser = Optimiser(model, config.Train(), here)
    batch = _batch(sentences, vocabulary)
    steps = int((batch.lengths + 1).sum())

    def learn(part: Batch) -> None:
        optimiser.update(1, [part], steps_in_all=steps)

    variants: dict[str, Callable[[], object]] = {BASELINE: lambda: learn(batch)}
    for beam in (1, 8):
        search = partial(
            _searched, model, batch, config.Search(beam=beam, learn_from="all", weights="uniform")
        )
        variants[_search_name(beam)] = search
        variants[f"SAO as in the paper, B = {beam}"] = lambda search=search: learn(search())  # type: ignore[misc]
    rows = time_rows(interleaved(variants, repeats=repeats, warmup=1), against=BASELINE)
    return [*rows, *(_kept(rows, beam, refresh) for beam in (1, 8)), calibration()]


def _search_name(beam: int) -> str:
    return f"search alone, B = {beam}"


def _searched(model: Indigo, batch: Batch, search: config.Search) -> Batch:
    with searching(model, search):
        return learn_from(batch, search_batch(model, batch, search), search)


def _kept(rows: list[Row], beam: int, refresh: int) -> Row:
    """Searched once, then one order at a time is learned from for some epochs, as fast as a fixed one."""
    plain, search = rows[0], next(row for row in rows if row.name == _search_name(beam))
    assert search.ratio is not None
    assert search.low is not None
    assert search.high is not None
    return replace(
        plain,
        name=f"SAO kept for {refresh} epochs, B = {beam}",
        value=plain.value + search.value / refresh,
        ratio=1 + search.ratio / refresh,
        low=1 + search.low / refresh,
        high=1 + search.high / refresh,
    )


def _batch(sentences: int, vocabulary: int) -> Batch:
    """Sentences of about one length, as a batch of training has them."""
    chance = np.random.default_rng(0)

    def words() -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        length = chance.integers(MEAN_LENGTH - 1, MEAN_LENGTH + 2)
        return chance.integers(UNK, vocabulary, size=length).astype(np.int32)

    pairs = [(words(), words()) for _ in range(sentences)]
    return collate(
        [
            Example(source=source, target=target, order=np.arange(1, len(target) + 1, dtype=np.int32))
            for source, target in pairs
        ]
    )
