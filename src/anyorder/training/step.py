"""One update: which pairs it learns from, in which orders, and what it does to the weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from anyorder import config
from anyorder.adaptive.schedule import OrderSchedule
from anyorder.config.recipe import Recipe
from anyorder.data.batches import Batch, LearnedBatch, Part, mixed_seed, plan_epoch, shares
from anyorder.data.dataset import Dataset
from anyorder.data.edits import EditBatch
from anyorder.data.partial_targets import PartialTarget, draw_partial_target, with_partial_targets
from anyorder.inference.model_folder import Weights
from anyorder.models.indigo import MARKS
from anyorder.models.kernels.training import learning
from anyorder.models.loss import Loss
from anyorder.models.registry import Model, family_of
from anyorder.system.devices import in_precision
from anyorder.system.distributed import Processes

BETAS = (0.9, 0.98)


@dataclass(frozen=True)
class Sums:
    """Losses of an update, summed over all its parts and processes."""

    word: float  # -log p of all words
    gap: float  # -log p of all gaps
    words: float  # number of words
    gaps: float  # number of gaps
    gradient_norm: float  # before clipping

    @property
    def finite(self) -> bool:
        """Whether the losses and the gradient are finite."""
        return math.isfinite(self.word) and math.isfinite(self.gap) and math.isfinite(self.gradient_norm)


def learning_rate(settings: config.Train, step: int) -> float:
    """The learning rate of an update: it rises over the warm-up, then follows the schedule.

    step: counted from 1.
    """
    if step <= settings.warmup:
        return settings.lr * step / settings.warmup
    if settings.schedule == "inverse-sqrt":
        return settings.lr * math.sqrt(max(1, settings.warmup) / step)
    if settings.schedule == "cosine":
        share = (step - settings.warmup) / max(1, settings.steps - settings.warmup)
        return settings.lr * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
    return settings.lr


class Optimiser:
    """Updates the weights of a model with Adam.

    Each update seeds its own dropout, so a checkpoint needs no random state. Each part draws it for the whole
    batch and takes its own, so the number of processes and of parts changes nothing.
    """

    def __init__(self, model: Model, settings: config.Train, processes: Processes) -> None:
        self.settings = settings
        self.processes = processes
        self.model = model
        self._losses = processes.wrap(_BatchLoss(model, settings.label_smoothing))
        self._names = {parameter: name for name, parameter in model.named_parameters()}
        self._adam = torch.optim.AdamW(
            model.parameters(),
            lr=settings.lr,
            betas=BETAS,
            eps=1e-9,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        # fp16 has a narrow range: gradients are scaled up by a factor that adapts itself.
        self._scaler = torch.amp.GradScaler(processes.device.type, enabled=settings.precision == "fp16")

    def update(self, step: int, parts: Sequence[Part]) -> Sums:
        """Make one update from this process's parts of a batch."""
        self.model.train()
        self._adam.zero_grad(set_to_none=True)
        # Only sums over several processes must be on a device; not every device has double precision.
        device = self.processes.device if self.processes.count > 1 else None
        steps = self.processes.total(
            torch.tensor(sum(part.batch.steps for part in parts), device=device)
        ).item()
        # Weights of orders sum to one except for rounding, and are not finite if the model has diverged.
        steps_in_all = round(steps) if math.isfinite(steps) else steps
        sums = torch.zeros(4, dtype=torch.float64, device=device)
        for number, part in enumerate(parts, start=1):
            torch.manual_seed(mixed_seed(self.settings.seed, step, 0))
            with self._exchange(last=number == len(parts)), self._precision(), learning(part):
                loss: Loss = self._losses(part.batch)
                # Gradients are averaged over processes, so the mean is turned back into a sum.
                objective = loss.objective * (self.processes.count / steps_in_all)
            self._scaler.scale(objective).backward()
            sums += sums.new_tensor([float(loss.word), float(loss.gap), loss.words, loss.gaps])
        norm = self._step(step)
        word, gap, words, gaps = self.processes.total(sums).tolist()
        return Sums(word=word, gap=gap, words=words, gaps=gaps, gradient_norm=norm)

    def _step(self, step: int) -> float:
        for group in self._adam.param_groups:
            group["lr"] = learning_rate(self.settings, step)
        self._scaler.unscale_(self._adam)
        largest = self.settings.clip_norm or math.inf
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), largest))
        # An infinite gradient must not spoil the weights; the scaler of fp16 skips such a step by itself.
        if math.isfinite(norm) or self._scaler.is_enabled():
            self._scaler.step(self._adam)
            self._scaler.update()
            norm = norm if math.isfinite(norm) else 0.0
        return norm

    def _exchange(self, *, last: bool) -> AbstractContextManager[Any]:
        """Exchange gradients between processes once per update, with its last part."""
        if last or not isinstance(self._losses, DistributedDataParallel):
            return nullcontext()
        return self._losses.no_sync()

    def _precision(self) -> AbstractContextManager[Any]:
        return in_precision(self.settings.precision, self.processes.device)

    def state(self) -> Weights:
        """Adam's moments by parameter, for a checkpoint."""
        return {
            f"{name}/{moment}": value.detach().cpu().contiguous()
            for parameter, name in self._names.items()
            for moment, value in self._adam.state[parameter].items()
        }

    def scale(self) -> dict[str, Any]:
        """The state of the gradient scaler, for a checkpoint; empty unless the precision is fp16."""
        return self._scaler.state_dict()

    def restore(self, state: Weights, scale: dict[str, Any]) -> None:
        """Continue from the state in a checkpoint."""
        for parameter, name in self._names.items():
            prefix = f"{name}/"
            moments = {
                key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)
            }
            # Fused Adam needs even its count of steps on the device of the parameter.
            self._adam.state[parameter] = {key: value.to(parameter.device) for key, value in moments.items()}
        if scale:
            self._scaler.load_state_dict(scale)


class _BatchLoss(nn.Module):
    """The loss as a module, as DistributedDataParallel needs it."""

    def __init__(self, model: Model, label_smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.family = family_of(model)
        self.label_smoothing = label_smoothing
        self.marks = [weight for name, weight in model.named_parameters() if name in MARKS]

    def forward(self, batch: LearnedBatch) -> Loss:
        loss = self.family.loss(self.model, batch, label_smoothing=self.label_smoothing)
        # A part without partial targets does not use the marks, but other processes wait for their gradients.
        unmarked = sum(0.0 * mark.sum() for mark in self.marks)
        return replace(loss, objective=loss.objective + unmarked)


Pairs = NDArray[np.int64]  # indices of training pairs
_PARTIAL_TARGETS = 2  # separates the seeds of partial targets from those of random orders


@dataclass(frozen=True)
class PlannedUpdate:
    """The pairs of one update, and where the update stands in its epoch."""

    epoch: int
    number: int  # within the epoch, counted from 0
    pairs: Pairs


class UpdateBatches:
    """Plans the updates of a training and builds this process's batches for each."""

    def __init__(self, recipe: Recipe, data: Dataset, schedule: OrderSchedule, processes: Processes) -> None:
        self.recipe, self.settings = recipe, recipe.train
        self.data, self.schedule, self.processes = data, schedule, processes
        self.sizes = data.sizes()  # source and target tokens of each pair

    def plan(self, epoch: int) -> list[Pairs]:
        """The pairs of each update of an epoch."""
        settings = self.settings
        return plan_epoch(self.sizes, batch_tokens=settings.batch_tokens, seed=settings.seed, epoch=epoch)

    def planned(self, *, epoch: int, done: int) -> Iterator[PlannedUpdate]:
        """All updates from an epoch on, without end. done: updates of that epoch to leave out."""
        while True:
            plan = self.plan(epoch)
            for number in range(done, len(plan)):
                yield PlannedUpdate(epoch=epoch, number=number, pairs=plan[number])
            epoch, done = epoch + 1, 0

    def of_update(self, *, step: int, epoch: int, pairs: Pairs) -> list[Part]:
        """This process's parts of an update, in the orders that are learned at this step."""
        whole = self._batch(step, epoch, pairs)
        count = self.settings.accumulate * self.processes.count
        if count == 1:
            return [Part.all_of(whole)]
        parts = shares(np.arange(len(pairs)), count)
        mine = [part for part in parts[self.processes.rank :: self.processes.count] if len(part)]
        if mine:
            return [Part.of(whole, torch.from_numpy(part).to(whole.lengths.device)) for part in mine]
        # The other processes wait for this one's gradients, so without a pair it sends zeros.
        first = Part.of(whole, torch.zeros(1, dtype=torch.long, device=whole.lengths.device))
        return [replace(first, batch=first.batch.without_loss())]

    def _batch(self, step: int, epoch: int, pairs: Pairs) -> Batch | EditBatch:
        batch = self.data.batch(pairs, seed=self.settings.seed, epoch=epoch)
        if isinstance(batch, EditBatch):
            return batch.to(self.processes.device)
        batch = self.schedule.reordered(batch.to(self.processes.device), pairs, step=step)
        if not self.recipe.canvas.share:
            return batch
        return with_partial_targets(batch, [self._partial_target(epoch, pair) for pair in pairs.tolist()])

    def _partial_target(self, epoch: int, pair: int) -> PartialTarget:
        seed = self.settings.seed
        return draw_partial_target(
            self.data.pieces(pair, seed=seed, epoch=epoch),
            self.recipe.canvas,
            generator=np.random.default_rng([seed, epoch, pair, _PARTIAL_TARGETS]),
        )
