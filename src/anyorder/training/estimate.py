"""What a training would take, found out by a few of its updates: time, memory and disk.

Everything is done as `train` does it, but nothing is written, except what `prepare` keeps of the data.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from statistics import fmean

import numpy as np
import torch
from numpy.typing import NDArray

from anyorder.config.model import Model, Shape
from anyorder.config.recipe import Recipe
from anyorder.data.batches import plan_epoch
from anyorder.data.dataset import Prepared, prepare
from anyorder.errors import UserError
from anyorder.system.devices import check_precision
from anyorder.system.distributed import Processes, processes
from anyorder.system.memory import forget_peak, peak
from anyorder.training.run_folder import check_run_folder
from anyorder.training.trainer import Listener, Training
from anyorder.training.validation import Validation

SECONDS_AN_HOUR = 3600
_UNITS = {"days": 24 * SECONDS_AN_HOUR, "hours": SECONDS_AN_HOUR, "min": 60}  # in seconds


def duration(seconds: float) -> str:
    """In the unit that leaves a number that people can picture."""
    for unit, length in _UNITS.items():
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.3g} s"


VALIDATED = 32  # dev pairs that stand for all
MEGABYTE = 1e6
WEIGHT, MOMENTS, POSITION, LOG_PROB = 4, 8, 2, 4  # bytes on disk
Pairs = NDArray[np.int64]  # of a batch


@dataclass(frozen=True)
class Work:
    """Something that a training does again and again."""

    name: str
    times: int
    seconds: float  # each time

    @property
    def hours(self) -> float:
        """All of it."""
        return self.times * self.seconds / SECONDS_AN_HOUR


@dataclass(frozen=True)
class BatchCost:
    """One update, as it went."""

    pairs: int
    longest_source: int  # tokens, or vectors
    longest_target: int
    seconds: float  # without the search
    search_seconds: float  # for its orders; 0: none were searched
    processor_seconds: float  # that this process had for both, on all cores
    megabytes: float  # at the peak, of the GPU's memory or else of this process's


@dataclass(frozen=True)
class Forecast:
    """What a training would take."""

    device: str
    pairs: int
    skipped: int  # lines left out
    tokens: int  # of all pairs, source and target
    vocabulary: int
    parameters: int
    updates: int
    updates_an_epoch: int
    warm_up_seconds: float  # of the very first update
    work: list[Work]
    usual: list[BatchCost]  # batches of middling size
    largest: BatchCost  # of the first epoch
    disk_megabytes: float  # that the run's folder takes at most

    @property
    def epochs(self) -> float:
        """How often each pair is seen."""
        return self.updates / self.updates_an_epoch

    @property
    def hours(self) -> float:
        """All work."""
        return sum(work.hours for work in self.work)

    @property
    def megabytes(self) -> float:
        """Of memory, at the peak."""
        return max(cost.megabytes for cost in (*self.usual, self.largest))

    @property
    def processor_share(self) -> float:
        """How many cores this process had: less than one where other work on the machine slowed it down."""
        costs = (*self.usual, self.largest)
        had = sum(cost.processor_seconds for cost in costs)
        return had / sum(cost.seconds + cost.search_seconds for cost in costs)


def dry_run(recipe: Recipe, *, listener: Listener, resume: bool = False, overwrite: bool = False) -> Forecast:
    """Take a few updates, and tell what all of them would take.

    resume, overwrite: what is refused is what `train` refuses. The forecast is always of a whole training.
    """
    with processes(recipe.train.device) as these:
        check_precision(recipe.train.precision, these.device)
        if these.first:
            check_run_folder(recipe, resume=resume, overwrite=overwrite)
        prepared = prepare(recipe, progress=listener.preparing if these.first else None)
        training = Training(recipe, prepared, these, listener)
        if recipe.train.init is not None:
            training.bootstrap(recipe.train.init)
        if these.first:
            listener.note("taking a few updates, and validating on a part of dev")
        return _forecast(training, these)


def _forecast(training: Training, these: Processes) -> Forecast:
    recipe, train = training.recipe, training.prepared.train
    plan = _by_size(training)
    middling = [plan[len(plan) // 3], plan[2 * len(plan) // 3]]
    step = _costliest_step(recipe)
    warm_up = _cost(training, plan[len(plan) // 2], step=1)
    usual = [_cost(training, pairs, step=step) for pairs in middling]
    in_bootstrap = usual if step == 1 else [_cost(training, pairs, step=1) for pairs in middling]
    largest = _cost(training, plan[-1], step=step)
    parameters = sum(parameter.numel() for parameter in training.model.parameters())
    validations = ceil(recipe.train.steps / recipe.train.validate_every) + bool(recipe.train.average)
    work = [
        *_learning(recipe, usual=usual, in_bootstrap=in_bootstrap, updates_an_epoch=len(plan)),
        Work("validations", validations, _validation_seconds(training) if these.first else 0.0),
    ]
    return Forecast(
        device=str(these.device),
        pairs=len(train),
        skipped=sum(train.corpus.skipped.values()),
        tokens=int(training.sizes.sum()),
        vocabulary=training.prepared.tokenizer.size,
        parameters=parameters,
        updates=recipe.train.steps,
        updates_an_epoch=len(plan),
        warm_up_seconds=warm_up.seconds,
        work=work,
        usual=usual,
        largest=largest,
        disk_megabytes=_disk(recipe, training.prepared, parameters=parameters, validations=validations),
    )


# --- batches ---


def _by_size(training: Training) -> list[Pairs]:
    """The batches of the first epoch, those that take the most memory last."""
    settings = training.settings
    plan = plan_epoch(training.sizes, batch_tokens=settings.batch_tokens, seed=settings.seed, epoch=0)
    corpus, shape = training.prepared.train.corpus, training.prepared.shape
    sources, targets = corpus.source.lengths(), corpus.target.lengths()

    def numbers_held(pairs: Pairs) -> int:
        longest = int(sources[pairs].max()), int(targets[pairs].max())
        return len(pairs) * _numbers_a_pair(training.recipe.model, shape, *longest)

    return sorted(plan, key=numbers_held)


def _numbers_a_pair(model: Model, shape: Shape, source: int, target: int) -> int:
    """Roughly what an update remembers of a pair, by its lengths.

    Attention grows with their squares, scores of words with the vocabulary, so equal budgets of tokens are
    not equal budgets of memory.
    """
    encoder = model.heads * source**2 + model.hidden * source
    decoder = model.heads * target * (target + source) + model.hidden * target
    layers = model.encoder_layers * encoder + model.decoder_layers * decoder
    return layers + shape.target_vocabulary * target


def _cost(training: Training, pairs: Pairs, *, step: int) -> BatchCost:
    """Make one update, as it would be at this step, and measure it."""
    device = training.processes.device
    corpus = training.prepared.train.corpus
    source, target = (int(side.lengths()[pairs].max()) for side in (corpus.source, corpus.target))
    with _told_if_it_does_not_fit(len(pairs), source, target, device=device):
        _forget_peak(device)
        processor_began, began = time.process_time(), time.perf_counter()
        batches = training.batches(step, 0, pairs)
        searched = _now(device)
        training.learn(step, batches)
        ended = _now(device)
    searching = training.recipe.searches(step)
    return BatchCost(
        pairs=len(pairs),
        longest_source=source,
        longest_target=target,
        seconds=ended - (searched if searching else began),
        search_seconds=searched - began if searching else 0.0,
        processor_seconds=time.process_time() - processor_began,
        megabytes=_peak(device),
    )


@contextmanager
def _told_if_it_does_not_fit(pairs: int, source: int, target: int, *, device: torch.device) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        # A GPU's has a name of its own; a CPU's is known by its words alone.
        if not isinstance(error, torch.cuda.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        raise UserError(
            f"a batch of {pairs} pairs with up to {source} + {target} tokens does not fit into the memory of "
            f"{device}; a smaller train.batch_tokens or a larger train.accumulate may help"
        ) from None


def _now(device: torch.device) -> float:
    """The time when all that was asked of a device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _forget_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        forget_peak()


def _peak(device: torch.device) -> float:
    return torch.cuda.max_memory_allocated(device) / MEGABYTE if device.type == "cuda" else peak()


# --- all of a training ---


def _costliest_step(recipe: Recipe) -> int:
    """One that searches its orders, if the training gets there."""
    first = recipe.search.bootstrap_steps + 1
    return first if recipe.adaptive and first <= recipe.train.steps else 1


def _learning(
    recipe: Recipe, *, usual: list[BatchCost], in_bootstrap: list[BatchCost], updates_an_epoch: int
) -> list[Work]:
    """Updates and searches, each kind apart."""
    seconds = fmean(cost.seconds for cost in usual)
    steps, search = recipe.train.steps, recipe.search
    if not recipe.searches(steps):
        return [Work("updates", steps, seconds)]
    free = steps - search.bootstrap_steps
    times = free
    if search.refresh:
        times = ceil(free / updates_an_epoch / search.refresh) * updates_an_epoch
    found = [
        Work("updates in orders that were found", free, seconds),
        Work("searches for the orders of a batch", times, fmean(cost.search_seconds for cost in usual)),
    ]
    if not search.bootstrap_steps:
        return found
    first = fmean(cost.seconds for cost in in_bootstrap)
    return [Work(f"updates in the order {search.bootstrap}", search.bootstrap_steps, first), *found]


def _validation_seconds(training: Training) -> float:
    """Of the whole dev set, judging by its beginning.

    A model that has hardly learned does not know where to end, so outputs are as long as targets are.
    """
    recipe, dev = training.recipe, training.prepared.dev
    sample = dev.first(VALIDATED)
    as_long = ceil(dev.corpus.target.lengths().mean())
    decode = recipe.decode.model_copy(update={"max_length": as_long, "max_ratio": 0.0})

    def seconds(validation: Validation) -> float:
        began = time.perf_counter()
        validation.scores(training.model, device=training.processes.device)
        return time.perf_counter() - began

    def on_sample(*, lines: int) -> Validation:
        settings = recipe.train.model_copy(update={"validate_lines": lines})
        changed = recipe.model_copy(update={"train": settings, "decode": decode})
        return Validation(changed, sample, training.prepared.tokenizer)

    of_loss = seconds(on_sample(lines=0))
    whole = of_loss * len(dev) / len(sample)
    assert training.validation is not None, "the first process validates"
    decoded = len(training.validation.decoded_pairs)
    if decoded:
        with_text = on_sample(lines=VALIDATED)
        of_text = max(0.0, seconds(with_text) - of_loss)
        whole += of_text * decoded / len(with_text.decoded_pairs)
    return whole


def _disk(recipe: Recipe, prepared: Prepared, *, parameters: int, validations: int) -> float:
    """At most: while a checkpoint is written that will take the place of an older one."""
    kept = min(recipe.train.keep, validations)
    models = 1 + kept + 1  # the best one, those kept, and the new one
    last_and_new = 2
    size = parameters * (models * WEIGHT + last_and_new * MOMENTS)
    if recipe.adaptive and recipe.search.refresh:
        target = prepared.train.corpus.target
        orders = len(target.values) * POSITION + len(target) * LOG_PROB
        size += last_and_new * recipe.search.beam * orders
    return size / MEGABYTE
