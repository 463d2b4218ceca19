"""Training: from a recipe to a run folder; it can be stopped and resumed at any update."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from anyorder.adaptive.schedule import OrderSchedule
from anyorder.adaptive.store import SearchStopped
from anyorder.config.recipe import Recipe
from anyorder.data.dataset import Prepared, prepare
from anyorder.errors import UserError
from anyorder.inference.model_folder import load_trained, load_weights, weights_of
from anyorder.models.indigo import MARKS
from anyorder.models.registry import build_model
from anyorder.system.devices import check_precision
from anyorder.system.distributed import Processes, processes
from anyorder.system.interruption import interruption
from anyorder.training.checkpoint import Checkpoint, TrainingProgress, checkpoints
from anyorder.training.metrics_log import MetricsLog, TrainingListener, Window
from anyorder.training.run_folder import check_run_folder, claim_folder, note_sizes, with_search_steps
from anyorder.training.saving import ModelSaver, divergence, out_of_patience
from anyorder.training.step import AnyBatch, Optimiser, PlannedUpdate, Sums, UpdateBatches, learning_rate


def train(
    recipe: Recipe, *, listener: TrainingListener, resume: bool = False, overwrite: bool = False
) -> bool:
    """Train to the end, or until interrupted; the run's folder then holds the best model so far.

    Returns whether the end was reached.
    """
    recipe = with_search_steps(recipe, resume=resume)
    with processes(recipe.train.device) as these:
        check_precision(recipe.train.precision, these.device)
        if these.first:
            check_run_folder(recipe, resume=resume, overwrite=overwrite)
        prepared = prepare(recipe, progress=listener.preparing if these.first else None)
        training = Training(recipe, prepared, these, listener)
        if recipe.train.init is not None and (overwrite or not checkpoints(recipe.run)):
            load_initial_weights(training, recipe.train.init)
        if these.first:  # All checks have passed, so an earlier run may be removed now.
            claim_folder(recipe, overwrite=overwrite)
            note_sizes(recipe.run, prepared.statistics())
            _note_limits(training)
        these.wait()
        found = checkpoints(recipe.run)
        if not these.all_have(found[-1].step if found else 0):
            raise UserError(f"{recipe.run}: differs between the machines; they must share the run's folder")
        if found:
            _restore(training, found[-1])
        elif resume and these.first:
            listener.note(f"{recipe.run}: has no checkpoint yet, so the run starts at its first update")
        with interruption() as interrupted:
            return training.run(interrupted)


class Training:
    """One process's part in a training: the loop over updates."""

    def __init__(
        self, recipe: Recipe, prepared: Prepared, these: Processes, listener: TrainingListener
    ) -> None:
        self.recipe, self.settings = recipe, recipe.train
        self.prepared, self.processes, self.listener = prepared, these, listener
        torch.manual_seed(self.settings.seed)
        self.model = build_model(recipe, prepared.shape).to(these.device)
        self.optimiser = Optimiser(self.model, self.settings, these)
        self.progress = TrainingProgress(data=prepared.train.key)
        self.schedule = OrderSchedule(
            recipe, self.model, prepared.train, these, progress=listener.preparing if these.first else None
        )
        self.batches = UpdateBatches(recipe, prepared.train, self.schedule, these)
        self.saver: ModelSaver | None = None
        if these.first:
            self.saver = ModelSaver(
                recipe,
                prepared,
                model=self.model,
                optimiser=self.optimiser,
                device=these.device,
                listener=listener,
            )

    def run(self, interrupted: Callable[[], bool]) -> bool:
        """Update, log, validate and save until the end; returns False if interrupted before it."""
        log = MetricsLog(self.recipe.run, from_step=self.progress.step) if self.processes.first else None
        try:
            if not self._update_all(log, interrupted):
                if self.saver is not None:
                    self.saver.stop(self.progress)
                return False
            if self.progress.validated < self.progress.step:  # resumed only to end where it had stopped
                self._validate(log)
        finally:
            if log is not None:
                log.close()
        if self.saver is not None and self.settings.average:
            self.saver.save_average(self.progress)
        return True

    def learn(self, step: int, batches: Sequence[AnyBatch]) -> Sums:
        """Make one update from this process's batches."""
        sums = self.optimiser.update(step, batches)
        if not sums.finite:
            raise divergence(
                self.recipe.run,
                f"step {step}: the loss is not finite (words {sums.word:.3g}, gaps {sums.gap:.3g}, gradient "
                f"{sums.gradient_norm:.3g})",
            )
        return sums

    def _update_all(self, log: MetricsLog | None, interrupted: Callable[[], bool]) -> bool:
        """Make all updates that remain; returns False if interrupted."""
        for update in self._remaining():
            last_search = self.progress.last_search
            try:
                self._advance(update, interrupted)
            except SearchStopped:
                return False
            step = self.progress.step
            at_end = step == self.settings.steps
            if self.progress.last_search != last_search:
                self._log_search(log)
            if step % self.settings.log_every == 0 or at_end:
                self._log_updates(log)
            if (step % self.settings.validate_every == 0 or at_end) and self._validate(log):
                return True
            if not at_end and self.processes.any(interrupted()):
                return False
        return True

    def _remaining(self) -> Iterator[PlannedUpdate]:
        """The updates still to make."""
        if out_of_patience(self.settings, self.progress):
            return
        for update in self.batches.planned(epoch=self.progress.epoch, done=self.progress.batch):
            if self.progress.step >= self.settings.steps:
                return
            yield update

    def _advance(self, update: PlannedUpdate, interrupted: Callable[[], bool]) -> None:
        """Make one update, after a search for orders where one is due, and record it in the progress."""
        step = self.progress.step + 1
        began = time.perf_counter()
        last_search = self.schedule.refresh(
            self.progress.last_search,
            step=step,
            epoch=update.epoch,
            first_of_epoch=update.number == 0,
            interrupted=interrupted,
        )
        batches = self.batches.of_update(step=step, epoch=update.epoch, pairs=update.pairs)
        sums = self.learn(step, batches)
        seconds = time.perf_counter() - began
        tokens = int(self.batches.sizes[update.pairs].sum())
        self.progress = replace(
            self.progress,
            step=step,
            epoch=update.epoch,
            batch=update.number + 1,
            last_search=last_search,
            seconds=self.progress.seconds + seconds,
            window=self.progress.window.with_update(sums, tokens=tokens, seconds=seconds),
        )

    def _log_updates(self, log: MetricsLog | None) -> None:
        """Log the updates since the last line of the log."""
        step, window = self.progress.step, self.progress.window
        self.progress = replace(self.progress, window=Window())
        if log is not None:
            metrics = {
                "epoch": self.progress.epoch,
                "lr": learning_rate(self.settings, step),
                "seconds": self.progress.seconds,
                **window.metrics(),
            }
            log.write(step, metrics)
            self.listener.trained(step, self.settings.steps, metrics)

    def _log_search(self, log: MetricsLog | None) -> None:
        """Log what the orders are like that are learned from this update on."""
        step = self.progress.last_search.step
        if log is not None and (summary := self.schedule.summary(step=step)) is not None:
            log.write(step, summary.metrics())
            self.listener.note(f"step {step}: {summary.describe(bootstrap=self.recipe.search.bootstrap)}")

    def _validate(self, log: MetricsLog | None) -> bool:
        """Validate and save; returns whether to stop early, which the first process decides for all."""
        self.progress = replace(self.progress, validated=self.progress.step)
        stop = False
        if self.saver is not None and log is not None:
            self.progress = self.saver.validate(self.progress, log)
            stop = out_of_patience(self.settings, self.progress)
        return self.processes.agree(stop)


# --- where a training begins ---


def load_initial_weights(training: Training, run: Path) -> None:
    """Begin with the weights of another run, which must have the same vocabulary and shape."""
    try:
        other = load_trained(run, device=training.processes.device)
        if other.tokenizer.to_json() != training.prepared.tokenizer.to_json():
            raise UserError(
                "has another vocabulary; its data.train and text sections must be those of this recipe"
            )
        own = weights_of(training.model)
        # A model that was trained without partial targets has no marks for them: these keep their zeros.
        marks = {name: own[name] for name in MARKS if name in own}
        load_weights(training.model, {**marks, **weights_of(other.model)}, origin=run)
    except UserError as error:
        raise UserError(f"train.init = {str(run)!r}: {error}") from None
    if training.processes.first:
        training.listener.note(f"starting from the weights of {run}")


def _restore(training: Training, checkpoint: Checkpoint) -> None:
    """Continue from a checkpoint."""
    progress = TrainingProgress.of_checkpoint(checkpoint)
    if progress.data != training.progress.data:
        raise UserError(
            f"{training.recipe.run}: the training data, their orders or a program that splits them into "
            "words have changed since this run began; --overwrite starts over"
        )
    training.progress = progress
    load_weights(training.model, checkpoint.weights(), origin=checkpoint.folder)
    training.optimiser.restore(checkpoint.optimizer(), progress.scale)
    if training.processes.first:
        training.listener.note(f"going on from step {progress.step} ({checkpoint.folder})")


def _note_limits(training: Training) -> None:
    """Tell which lines are left out of training and which targets are not searched."""
    recipe, data, listener = training.recipe, training.prepared.train, training.listener
    if data.corpus.skipped:
        reasons = ", ".join(f"{count} × {reason}" for reason, count in data.corpus.skipped.items())
        listener.note(f"training lines left out: {reasons}")
    if recipe.adaptive and not recipe.searches(recipe.train.steps):
        listener.note(
            f"no orders will be searched: search.bootstrap_steps = {recipe.bootstrap_steps} is not less than "
            f"train.steps = {recipe.train.steps}"
        )
    if recipe.adaptive and (too_long := training.schedule.too_long()):
        listener.note(
            f"{too_long} of {len(data)} targets have more than search.max_length = "
            f"{recipe.search.max_length} tokens and keep the order {recipe.search.bootstrap}"
        )
