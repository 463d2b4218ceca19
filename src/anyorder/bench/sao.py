"""The cost of searched adaptive orders (SAO): training with them against training left to right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import torch

from anyorder import config
from anyorder.adaptive.candidates import Orders
from anyorder.adaptive.objective import learn_from, search_batch, searching
from anyorder.bench.timing import Measurement, calibration, interleaved, shares_of_time, time_rows
from anyorder.config.model import Shape
from anyorder.config.order import Method
from anyorder.data.batches import Batch, Example, Part, collate
from anyorder.models.attention import DecoderLayer
from anyorder.models.choices import StepChoices
from anyorder.models.indigo import Indigo
from anyorder.system.distributed import Processes
from anyorder.system.memory import peak_memory
from anyorder.text.tokenizer import UNK
from anyorder.training.step import Optimiser

BASELINE = "left to right"
MEAN_LENGTH = 13  # tokens of a sentence
BEAMS = (1, 8)


@dataclass(frozen=True)
class SaoWorkload:
    """The size of the model and of the batch that it is trained on."""

    model: config.Model
    vocabulary: int
    sentences: int
    refresh: int  # number of epochs until orders are searched again


def bench_sao(workload: SaoWorkload, *, repeats: int) -> list[Measurement]:
    """Measure updates, searches and whole epochs, their memory, and where a search spends its time."""
    trainer = SingleBatchTrainer(workload)
    steps: dict[str, Callable[[], object]] = {BASELINE: trainer.step}
    for beam in BEAMS:
        steps[f"search as in the paper, B = {beam}"] = partial(trainer.search, beam, method="paper")
        steps[f"guided search, B = {beam}"] = partial(trainer.search, beam)
        steps[f"SAO as in the paper, B = {beam}"] = partial(trainer.paper_step, beam)
    plain = f"{workload.refresh} epochs {BASELINE}"
    steps["SAO with drawn orders"] = trainer.drawn_step
    epochs: dict[str, Callable[[], object]] = {plain: trainer.epochs}
    for beam in BEAMS:
        epochs[f"{workload.refresh} epochs of SAO, B = {beam}"] = partial(trainer.epochs, beam)
    seconds = interleaved(steps | epochs, repeats=repeats, warmup=1)
    tokens = int(trainer.batch.lengths.sum())
    return [
        *time_rows({name: seconds[name] for name in steps}, against=BASELINE, tokens=tokens),
        *time_rows({name: seconds[name] for name in epochs}, against=plain, tokens=workload.refresh * tokens),
        *_memory_rows(workload),
        *shares_of_time(partial(trainer.search, max(BEAMS)), trainer.parts(), of="the search"),
        calibration(),
    ]


class SingleBatchTrainer:
    """Trains a model on one batch, so that an epoch is one update."""

    def __init__(self, workload: SaoWorkload) -> None:
        torch.manual_seed(0)
        self.workload = workload
        single_process = Processes(rank=0, count=1, device=torch.device("cpu"))
        shape = Shape(vocabulary=workload.vocabulary, target_vocabulary=workload.vocabulary)
        self.model = Indigo(workload.model, shape)
        self.optimiser = Optimiser(self.model, config.Train(), single_process)
        self.batch = _batch(workload.sentences, workload.vocabulary)

    def step(self, batch: Batch | None = None) -> None:
        """Make an update. batch: None for the batch of this trainer, left to right."""
        self.optimiser.update(1, [Part.all_of(batch or self.batch)])

    def search(self, beam: int, *, method: Method = "guided") -> Orders:
        """Find orders of the batch."""
        search = config.Search(beam=beam, method=method)
        with searching(self.model, search):
            return search_batch(self.model, self.batch, search)

    def drawn_step(self) -> None:
        """Make an update in one drawn order of each target."""
        settings = config.Search(method="drawn")
        self.step(learn_from(self.batch, self.search(settings.beam, method="drawn"), settings))

    def paper_step(self, beam: int) -> None:
        """Make an update as in the paper: search, then learn from all orders found with equal weights."""
        faithful = config.Search(beam=beam, method="paper")
        self.step(learn_from(self.batch, self.search(beam, method="paper"), faithful))

    def epochs(self, beam: int = 0) -> None:
        """Train until orders are searched again. beam: 0 for left to right.

        Orders are searched once. Each update then draws one of them.
        """
        orders = self.search(beam) if beam else None
        for _ in range(self.workload.refresh):
            self.step(
                learn_from(self.batch, orders, config.Search(beam=beam, method="guided")) if orders else None
            )

    def parts(self) -> dict[str, list[tuple[object, str]]]:
        """Return the methods of the model, grouped by what they compute."""
        layers = cast("Sequence[DecoderLayer]", self.model.decoder)
        return {
            "encoder": [(self.model, "encode")],
            "self-attention": [
                (layer.attention, method) for layer in layers for method in ("queries_keys_values", "attend")
            ],
            "attention to the source": [(layer.cross, "forward") for layer in layers],
            "feed-forward": [(layer.feed_forward, "forward") for layer in layers],
            "words": [(StepChoices, "first_log_probs")],
            "gaps": [(StepChoices, "second_log_prob_of")],
        }


def _memory_rows(workload: SaoWorkload) -> list[Measurement]:
    step = peak_memory(partial(_prepared_step, workload))
    search = peak_memory(partial(_prepared_search, workload))
    name = f"memory of a step {BASELINE}"
    return [
        Measurement(name=name, value=step, unit="MB", ratio=1.0, against=name),
        Measurement(
            name=f"memory of its search, B = {max(BEAMS)}",
            value=search,
            unit="MB",
            ratio=search / step,
            against=name,
        ),
    ]


def _prepared_step(workload: SaoWorkload) -> Callable[[], object]:
    return SingleBatchTrainer(workload).step


def _prepared_search(workload: SaoWorkload) -> Callable[[], object]:
    return partial(SingleBatchTrainer(workload).search, max(BEAMS))


def _batch(sentences: int, vocabulary: int) -> Batch:
    """Draw a batch of sentences of similar lengths, as in training."""
    random = np.random.default_rng(0)

    def words() -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        length = random.integers(MEAN_LENGTH - 1, MEAN_LENGTH + 2)
        return random.integers(UNK, vocabulary, size=length).astype(np.int32)

    pairs = [(words(), words()) for _ in range(sentences)]
    return collate(
        [
            Example(source=source, target=target, order=np.arange(1, len(target) + 1, dtype=np.int32))
            for source, target in pairs
        ]
    )
