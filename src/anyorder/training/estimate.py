"""What a training would take: time, memory and disk, estimated from a few of its updates.

The updates are those of `train`, but nothing is written except the cache of the data.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from statistics import fmean

import torch

from anyorder.config.model import Model, Shape
from anyorder.config.recipe import Recipe
from anyorder.data.dataset import Prepared, prepare
from anyorder.errors import UserError
from anyorder.system.devices import check_precision
from anyorder.system.distributed import Processes, processes
from anyorder.system.memory import forget_peak, peak
from anyorder.training.metrics_log import TrainingListener
from anyorder.training.run_folder import check_run_folder, with_search_steps
from anyorder.training.step import Pairs
from anyorder.training.trainer import Training, load_initial_weights
from anyorder.training.validation import Validation

SECONDS_AN_HOUR = 3600
_UNITS = {"days": 24 * SECONDS_AN_HOUR, "hours": SECONDS_AN_HOUR, "min": 60}  # in seconds


def duration(seconds: float) -> str:
    """A duration in days, hours, minutes or seconds, whichever gives a handy number."""
    for unit, length in _UNITS.items():
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.3g} s"


VALIDATION_SAMPLE = 32  # dev pairs to time a validation with
MEGABYTE = 1e6
WEIGHT, MOMENTS, POSITION, LOG_PROB = 4, 8, 2, 4  # bytes on disk of each


@dataclass(frozen=True)
class Work:
    """A kind of work that a training repeats."""

    name: str
    times: int
    seconds: float  # each time

    @property
    def hours(self) -> float:
        """Time for all repetitions."""
        return self.times * self.seconds / SECONDS_AN_HOUR


@dataclass(frozen=True)
class BatchCost:
    """What one update took."""

    pairs: int
    longest_source: int  # in tokens, or in feature vectors
    longest_target: int  # in tokens
    seconds: float  # without the search for its orders
    search_seconds: float  # 0 if no orders were searched
    processor_seconds: float  # CPU time of this process for both, on all cores
    megabytes: float  # peak memory of the GPU, or else of this process


@dataclass(frozen=True)
class Forecast:
    """What a training would take."""

    device: str
    pairs: int
    skipped: int  # lines left out
    tokens: int  # source and target tokens of all pairs
    vocabulary: int
    parameters: int
    updates: int
    updates_an_epoch: int
    warm_up_seconds: float  # time of the very first update, which is not counted
    work: list[Work]
    usual: list[BatchCost]  # batches of medium size
    largest: BatchCost  # the largest batch of the first epoch
    disk_megabytes: float  # largest size of the run's folder

    @property
    def epochs(self) -> float:
        """How often each pair is learned from."""
        return self.updates / self.updates_an_epoch

    @property
    def hours(self) -> float:
        """Time for all work."""
        return sum(work.hours for work in self.work)

    @property
    def megabytes(self) -> float:
        """Peak memory."""
        return max(cost.megabytes for cost in (*self.usual, self.largest))

    @property
    def processor_share(self) -> float:
        """Mean number of cores that this process had; less than one if other programs slowed it down."""
        costs = (*self.usual, self.largest)
        had = sum(cost.processor_seconds for cost in costs)
        return had / sum(cost.seconds + cost.search_seconds for cost in costs)


def dry_run(
    recipe: Recipe, *, listener: TrainingListener, resume: bool = False, overwrite: bool = False
) -> Forecast:
    """Make a few updates and estimate what the whole training would take.

    resume, overwrite: refused where `train` refuses them; the forecast is always of a whole training.
    """
    recipe = with_search_steps(recipe, resume=resume)
    with processes(recipe.train.device) as these:
        check_precision(recipe.train.precision, these.device)
        if these.first:
            check_run_folder(recipe, resume=resume, overwrite=overwrite)
        prepared = prepare(recipe, progress=listener.preparing if these.first else None)
        training = Training(recipe, prepared, these, listener)
        if recipe.train.init is not None:
            load_initial_weights(training, recipe.train.init)
        if these.first:
            listener.note("making a few updates, and validating on a part of dev")
        return _forecast(training, these)


def _forecast(training: Training, these: Processes) -> Forecast:
    recipe, train = training.recipe, training.prepared.train
    plan = _by_size(training)
    medium = [plan[len(plan) // 3], plan[2 * len(plan) // 3]]
    step = _costliest_step(recipe)
    warm_up = _cost(training, plan[len(plan) // 2], step=1)
    usual = [_cost(training, pairs, step=step) for pairs in medium]
    in_bootstrap = usual if step == 1 else [_cost(training, pairs, step=1) for pairs in medium]
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
        tokens=int(training.batches.sizes.sum()),
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
    """The batches of the first epoch, sorted by the memory that they take, largest last."""
    corpus, shape = training.prepared.train.corpus, training.prepared.shape
    sources, targets = corpus.source.lengths(), corpus.target.lengths()

    def memory(pairs: Pairs) -> int:
        longest = int(sources[pairs].max()), int(targets[pairs].max())
        return len(pairs) * _activations(training.recipe.model, shape, *longest)

    return sorted(training.batches.plan(0), key=memory)


def _activations(model: Model, shape: Shape, source: int, target: int) -> int:
    """Roughly how many numbers an update holds in memory for a pair, by its lengths.

    Attention grows with the square of the lengths and word scores with the vocabulary, so batches with equal
    numbers of tokens need different amounts of memory.
    """
    encoder = model.heads * source**2 + model.hidden * source
    decoder = model.heads * target * (target + source) + model.hidden * target
    layers = model.encoder_layers * encoder + model.decoder_layers * decoder
    return layers + shape.target_vocabulary * target


def _cost(training: Training, pairs: Pairs, *, step: int) -> BatchCost:
    """Make one update as at this step, and measure it."""
    device = training.processes.device
    corpus = training.prepared.train.corpus
    source, target = (int(side.lengths()[pairs].max()) for side in (corpus.source, corpus.target))
    with _refusing_what_does_not_fit(len(pairs), source, target, device=device):
        _forget_peak(device)
        processor_began, began = time.process_time(), time.perf_counter()
        parts = training.batches.of_update(step=step, epoch=0, pairs=pairs)
        searched = _now(device)
        training.learn(step, parts)
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
def _refusing_what_does_not_fit(
    pairs: int, source: int, target: int, *, device: torch.device
) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        # On a GPU this error has a class of its own; on a CPU only its text identifies it.
        if not isinstance(error, torch.cuda.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        raise UserError(
            f"a batch of {pairs} pairs with up to {source} + {target} tokens does not fit into the memory of "
            f"{device}; a smaller train.batch_tokens or a larger train.accumulate may help"
        ) from None


def _now(device: torch.device) -> float:
    """The time after a device has finished all its work."""
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


# --- the whole training ---


def _costliest_step(recipe: Recipe) -> int:
    """A step that searches orders if the training has one, or else the first."""
    first = recipe.bootstrap_steps + 1
    return first if recipe.searches(recipe.train.steps) else 1


def _learning(
    recipe: Recipe, *, usual: list[BatchCost], in_bootstrap: list[BatchCost], updates_an_epoch: int
) -> list[Work]:
    """The updates and searches of a training, by kind."""
    seconds = fmean(cost.seconds for cost in usual)
    steps, search = recipe.train.steps, recipe.search
    if not recipe.searches(steps):
        return [Work("updates", steps, seconds)]
    searched = steps - recipe.bootstrap_steps
    times = searched
    if search.refresh:
        times = ceil(searched / updates_an_epoch / search.refresh) * updates_an_epoch
    found = [
        Work("updates in orders that were found", searched, seconds),
        Work("searches for the orders of a batch", times, fmean(cost.search_seconds for cost in usual)),
    ]
    if not recipe.bootstrap_steps:
        return found
    first = fmean(cost.seconds for cost in in_bootstrap)
    return [Work(f"updates in the order {search.bootstrap}", recipe.bootstrap_steps, first), *found]


def _validation_seconds(training: Training) -> float:
    """The time of a validation on the whole dev set, estimated from its beginning.

    A model that has hardly learned does not know when to end, so hypotheses get the mean length of targets.
    """
    recipe, dev = training.recipe, training.prepared.dev
    sample = dev.first(VALIDATION_SAMPLE)
    mean_length = ceil(dev.corpus.target.lengths().mean())
    decode = recipe.decode.model_copy(update={"max_length": mean_length, "max_ratio": 0.0})

    def seconds(validation: Validation) -> float:
        began = time.perf_counter()
        validation.scores(training.model, device=training.processes.device)
        return time.perf_counter() - began

    def on_sample(*, lines: int) -> Validation:
        settings = recipe.train.model_copy(update={"validate_lines": lines})
        changed = recipe.model_copy(update={"train": settings, "decode": decode})
        return Validation(changed, sample, training.prepared.tokenizer)

    loss_seconds = seconds(on_sample(lines=0))
    whole = loss_seconds * len(dev) / len(sample)
    assert training.saver is not None, "the first process validates"
    decoded = len(training.saver.validation.decoded_pairs)
    if decoded:
        with_text = on_sample(lines=VALIDATION_SAMPLE)
        text_seconds = max(0.0, seconds(with_text) - loss_seconds)
        whole += text_seconds * decoded / len(with_text.decoded_pairs)
    return whole


def _disk(recipe: Recipe, prepared: Prepared, *, parameters: int, validations: int) -> float:
    """The largest size in megabytes: that is while a new checkpoint is about to replace an older one."""
    old = min(recipe.train.keep, validations)
    models = 1 + old + 1  # the best model, the old checkpoints and the new one
    last_and_new = 2
    size = parameters * (models * WEIGHT + last_and_new * MOMENTS)
    if recipe.adaptive and recipe.search.refresh:
        target = prepared.train.corpus.target
        orders = len(target.values) * POSITION + len(target) * LOG_PROB
        size += last_and_new * recipe.search.beam * orders
    return size / MEGABYTE
