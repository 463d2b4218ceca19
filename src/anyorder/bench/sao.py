"""What adaptive orders cost: training with them against training left to right, on the same batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import torch

from anyorder import config
from anyorder.adaptive.beam import Orders
from anyorder.adaptive.objective import learn_from
from anyorder.adaptive.search import search_batch, searching
from anyorder.bench.timing import Row, calibration, interleaved, shares_of_time, time_rows
from anyorder.config.model import Shape
from anyorder.data.batches import Batch, Example, collate
from anyorder.models.attention import DecoderLayer
from anyorder.models.indigo import Indigo
from anyorder.system.distributed import Processes
from anyorder.system.memory import peak_memory
from anyorder.text.tokenizer import UNK
from anyorder.training.step import Optimiser

BASELINE = "left to right"
MEAN_LENGTH = 13
BEAMS = (1, 8)


@dataclass(frozen=True)
class Setting:
    """What is trained."""

    model: config.Model
    vocabulary: int
    sentences: int
    refresh: int  # epochs that orders are kept for


def bench_sao(setting: Setting, *, repeats: int) -> list[Row]:
    """Steps, searches and epochs; what they hold in memory; where the time of a search goes."""
    trainer = Trainer(setting)
    steps: dict[str, Callable[[], object]] = {BASELINE: trainer.step}
    for beam in BEAMS:
        steps[f"search as in the paper, B = {beam}"] = partial(trainer.search, beam, look_ahead=False)
        steps[f"search that looks ahead, B = {beam}"] = partial(trainer.search, beam)
        steps[f"SAO as in the paper, B = {beam}"] = partial(trainer.paper_step, beam)
    plain = f"{setting.refresh} epochs {BASELINE}"
    epochs: dict[str, Callable[[], object]] = {plain: trainer.epochs}
    for beam in BEAMS:
        epochs[f"{setting.refresh} epochs of SAO, B = {beam}"] = partial(trainer.epochs, beam)
    seconds = interleaved(steps | epochs, repeats=repeats, warmup=1)
    tokens = int(trainer.batch.lengths.sum())
    return [
        *time_rows({name: seconds[name] for name in steps}, against=BASELINE, tokens=tokens),
        *time_rows({name: seconds[name] for name in epochs}, against=plain, tokens=setting.refresh * tokens),
        *_memory_rows(setting),
        *shares_of_time(partial(trainer.search, max(BEAMS)), trainer.parts(), of="the search"),
        calibration(),
    ]


class Trainer:
    """One batch, which is all there is to learn from: an epoch is an update."""

    def __init__(self, setting: Setting) -> None:
        torch.manual_seed(0)
        self.setting = setting
        here = Processes(rank=0, count=1, device=torch.device("cpu"))
        shape = Shape(vocabulary=setting.vocabulary, target_vocabulary=setting.vocabulary)
        self.model = Indigo(setting.model, shape)
        self.optimiser = Optimiser(self.model, config.Train(), here)
        self.batch = _batch(setting.sentences, setting.vocabulary)

    def step(self, batch: Batch | None = None) -> None:
        """An update; left to right unless the batch is another."""
        self.optimiser.update(1, [batch or self.batch])

    def search(self, beam: int, *, look_ahead: bool = True) -> Orders:
        """The orders of the batch."""
        search = config.Search(beam=beam, look_ahead=look_ahead)
        with searching(self.model, search):
            return search_batch(self.model, self.batch, search)

    def paper_step(self, beam: int) -> None:
        """Search, then learn from all orders found alike."""
        faithful = config.Search(beam=beam, learn_from="all", weights="uniform")
        self.step(learn_from(self.batch, self.search(beam, look_ahead=False), faithful))

    def epochs(self, beam: int = 0) -> None:
        """As many as orders are kept for: searched once, then one of them is drawn for each update."""
        orders = self.search(beam) if beam else None
        for _ in range(self.setting.refresh):
            self.step(learn_from(self.batch, orders, config.Search(beam=beam)) if orders else None)

    def parts(self) -> dict[str, list[tuple[object, str]]]:
        """The model's methods, by what they do."""
        layers = cast("Sequence[DecoderLayer]", self.model.decoder)
        return {
            "encoder": [(self.model, "encode")],
            "self-attention": [
                (layer.attention, method) for layer in layers for method in ("queries_keys_values", "attend")
            ],
            "attention to the source": [(layer.cross, "forward") for layer in layers],
            "feed-forward": [(layer.feed_forward, "forward") for layer in layers],
            "words": [(self.model, "first_log_probs")],
            "gaps": [(self.model, "log_probs_of_second")],
        }


def _memory_rows(setting: Setting) -> list[Row]:
    step = peak_memory(partial(_prepared_step, setting))
    search = peak_memory(partial(_prepared_search, setting))
    name = f"memory of a step {BASELINE}"
    return [
        Row(name=name, value=step, unit="MB", ratio=1.0, against=name),
        Row(
            name=f"memory of its search, B = {max(BEAMS)}",
            value=search,
            unit="MB",
            ratio=search / step,
            against=name,
        ),
    ]


def _prepared_step(setting: Setting) -> Callable[[], object]:
    return Trainer(setting).step


def _prepared_search(setting: Setting) -> Callable[[], object]:
    return partial(Trainer(setting).search, max(BEAMS))


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
