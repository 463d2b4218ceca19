"""Training: from a recipe to a run's folder, to be stopped and gone on with at any time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from anyorder.adaptive.schedule import OrderSchedule, Searched
from anyorder.adaptive.store import SearchStopped, prune_kept
from anyorder.config.recipe import Recipe
from anyorder.data.batches import Batch, collate, plan_epoch, shares
from anyorder.data.dataset import Prepared, prepare
from anyorder.data.partial_targets import PartialTarget, draw_partial_target, with_partial_targets
from anyorder.errors import UserError
from anyorder.inference.model_folder import Trained, load_trained, load_weights, save_trained, weights_of
from anyorder.models.indigo import MARKS
from anyorder.models.registry import build_model
from anyorder.system.devices import check_precision
from anyorder.system.distributed import Processes, processes
from anyorder.system.interruption import interruption
from anyorder.training.checkpoint import Checkpoint, checkpoints, mean_of_last, prune, save_checkpoint
from anyorder.training.metrics_log import MetricsLog, Window
from anyorder.training.run_folder import check_run_folder, claim_folder, note_sizes
from anyorder.training.step import Optimiser, Sums, learning_rate
from anyorder.training.validation import Validation

_PARTIAL_TARGETS = 2  # sets what is drawn for starts apart from what is drawn for random orders


class Listener(Protocol):
    """Someone who watches a training."""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def preparing(self, what: str, done: int, total: int) -> None:
        """Lines of the data."""

    def trained(self, step: int, steps: int, metrics: dict[str, float]) -> None:
        """Some updates were made."""

    def validated(self, step: int, scores: dict[str, Any], *, best: bool) -> None:
        """The dev set was gone through."""


@dataclass(frozen=True)
class TrainingProgress:
    """Where a training stands, beside the weights."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # of the epoch, done
    validated: int = 0  # the last step that was
    best: tuple[float, float] | None = None  # dev score and, where that is equal, minus the loss
    since_best: int = 0  # validations
    seconds: float = 0.0
    data: str = ""  # the key of the training data and their orders
    searched: Searched = field(default_factory=Searched)
    window: Window = field(default_factory=Window)
    scale: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of_checkpoint(cls, checkpoint: Checkpoint) -> TrainingProgress:
        """As a checkpoint has it."""
        saved = checkpoint.progress()
        best = saved["best"] and tuple(saved["best"])
        window, searched = Window(**saved["window"]), Searched(**saved["searched"])
        validated = saved.get("validated", saved["step"])  # runs of before have no such note
        known = {"best": best, "window": window, "searched": searched, "validated": validated}
        return cls(**saved | known)


def train(recipe: Recipe, *, listener: Listener, resume: bool = False, overwrite: bool = False) -> bool:
    """Train to the end, or until interrupted; the run's folder then holds the best model so far.

    Returns whether the end was reached.
    """
    with processes(recipe.train.device) as these:
        check_precision(recipe.train.precision, these.device)
        if these.first:
            check_run_folder(recipe, resume=resume, overwrite=overwrite)
        prepared = prepare(recipe, progress=listener.preparing if these.first else None)
        training = Training(recipe, prepared, these, listener)
        if recipe.train.init is not None and (overwrite or not checkpoints(recipe.run)):
            training.bootstrap(recipe.train.init)
        if these.first:  # nothing is refused any more, so that an earlier run may go
            claim_folder(recipe, overwrite=overwrite)
            note_sizes(recipe.run, prepared.statistics())
        these.wait()
        if these.first and (skipped := prepared.train.corpus.skipped):
            reasons = ", ".join(f"{count} × {reason}" for reason, count in skipped.items())
            listener.note(f"training lines left out: {reasons}")
        if these.first and recipe.adaptive and (too_long := training.schedule.too_long()):
            listener.note(
                f"{too_long} of {len(prepared.train)} targets have more than search.max_length = "
                f"{recipe.search.max_length} tokens and keep the order {recipe.search.bootstrap}"
            )
        found = checkpoints(recipe.run)
        if not these.all_have(found[-1].step if found else 0):
            raise UserError(f"{recipe.run}: differs between the machines; they must share the run's folder")
        if found:
            training.restore(found[-1])
        with interruption() as interrupted:
            return training.run(interrupted)


class Training:
    """One process's part in a training."""

    def __init__(self, recipe: Recipe, prepared: Prepared, these: Processes, listener: Listener) -> None:
        self.recipe, self.settings = recipe, recipe.train
        self.prepared, self.processes, self.listener = prepared, these, listener
        torch.manual_seed(self.settings.seed)
        self.model = build_model(recipe, prepared.shape).to(these.device)
        self.optimiser = Optimiser(self.model, self.settings, these)
        self.progress = TrainingProgress(data=prepared.train.key)
        self.sizes = prepared.train.sizes()
        told = listener.preparing if these.first else None
        self.schedule = OrderSchedule(recipe, self.model, prepared.train, these, progress=told)
        self.validation = Validation(recipe, prepared.dev, prepared.tokenizer) if these.first else None

    # --- where to begin ---

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint."""
        progress = TrainingProgress.of_checkpoint(checkpoint)
        if progress.data != self.progress.data:
            raise UserError(
                f"{self.recipe.run}: the training data, their orders or a program that splits them into "
                "words have changed since this run began; --overwrite starts anew"
            )
        self.progress = progress
        load_weights(self.model, checkpoint.weights(), origin=checkpoint.folder)
        self.optimiser.restore(checkpoint.optimizer(), self.progress.scale)
        if self.processes.first:
            self.listener.note(f"going on from step {self.progress.step} ({checkpoint.folder})")

    def bootstrap(self, run: Path) -> None:
        """Begin with the weights of another run, which must have the same vocabulary and shape."""
        try:
            self._take_weights(run)
        except UserError as error:
            raise UserError(f"train.init = {str(run)!r}: {error}") from None
        if self.processes.first:
            self.listener.note(f"starting from the weights of {run}")

    def _take_weights(self, run: Path) -> None:
        other = load_trained(run, device=self.processes.device)
        if other.tokenizer.to_json() != self.prepared.tokenizer.to_json():
            raise UserError(
                "has another vocabulary; its data.train and text sections must be those of this recipe"
            )
        own, weights = weights_of(self.model), weights_of(other.model)
        # If the other has met no canvas, its marks begin at zero.
        marks = {name: own[name] for name in MARKS if name in own}
        load_weights(self.model, {**marks, **weights}, origin=run)

    # --- the loop ---

    def run(self, interrupted: Callable[[], bool]) -> bool:
        """Update, log, validate and save until the end; False if interrupted before it."""
        log = MetricsLog(self.recipe.run, from_step=self.progress.step) if self.processes.first else None
        try:
            for epoch, number, pairs in self._plan():
                last_search = self.progress.searched
                try:
                    self._advance(epoch, number, pairs, interrupted)
                except SearchStopped:
                    self._stop_here(self.progress.step)
                    return False
                step = self.progress.step
                at_end = step == self.settings.steps
                if self.progress.searched != last_search:
                    self._log_search(log)
                if step % self.settings.log_every == 0 or at_end:
                    self._log(log)
                if (step % self.settings.validate_every == 0 or at_end) and self._validate_and_save(log):
                    break
                if not at_end and self.processes.any(interrupted()):
                    self._stop_here(step)
                    return False
            if self.progress.validated < self.progress.step:  # stopped there, and now it is to be the end
                self._validate_and_save(log)
        finally:
            if log is not None:
                log.close()
        if self.processes.first and self.settings.average:
            self._save_average()
        return True

    def _advance(
        self, epoch: int, number: int, pairs: NDArray[np.int64], interrupted: Callable[[], bool]
    ) -> None:
        """One update, and everything that is known of it."""
        step = self.progress.step + 1
        began = time.perf_counter()
        searched = self.schedule.refreshed(
            self.progress.searched, step=step, epoch=epoch, begins=number == 0, interrupted=interrupted
        )
        sums = self.learn(step, self.batches(step, epoch, pairs))
        seconds = time.perf_counter() - began
        self.progress = replace(
            self.progress,
            step=step,
            epoch=epoch,
            batch=number + 1,
            searched=searched,
            seconds=self.progress.seconds + seconds,
            window=self.progress.window.with_update(
                sums, tokens=int(self.sizes[pairs].sum()), seconds=seconds
            ),
        )

    def _log(self, log: MetricsLog | None) -> None:
        """A line for the updates since the last one."""
        step, window = self.progress.step, self.progress.window
        self.progress = replace(self.progress, window=Window())
        if log is not None:
            rate = learning_rate(self.settings, step)
            metrics = {
                "epoch": self.progress.epoch,
                "lr": rate,
                "seconds": self.progress.seconds,  # of all updates so far, their searches included
                **window.metrics(),
            }
            log.write(step, metrics)
            self.listener.trained(step, self.settings.steps, metrics)

    def _log_search(self, log: MetricsLog | None) -> None:
        """What the orders are like that are learned from this update on."""
        step = self.progress.searched.step
        if log is not None and (summary := self.schedule.summary(step=step)) is not None:
            log.write(step, summary.logged())
            self.listener.note(f"step {step}: {summary.told(self.recipe.search.bootstrap)}")

    def _plan(self) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
        """Epoch, number in the epoch and pairs of each update still to make."""
        if self._out_of_patience():
            return
        epoch, done = self.progress.epoch, self.progress.batch
        while self.progress.step < self.settings.steps:
            plan = plan_epoch(
                self.sizes, batch_tokens=self.settings.batch_tokens, seed=self.settings.seed, epoch=epoch
            )
            for number in range(done, len(plan)):
                if self.progress.step >= self.settings.steps:
                    return
                yield epoch, number, plan[number]
            epoch, done = epoch + 1, 0

    def batches(self, step: int, epoch: int, pairs: NDArray[np.int64]) -> list[Batch]:
        """This process's parts of an update, in the orders that they are learned in."""
        parts = shares(pairs, self.settings.accumulate * self.processes.count)
        mine = parts[self.processes.rank :: self.processes.count]
        batches = [self._collated(step, epoch, part) for part in mine if len(part)]
        # Without a pair: others have some and wait for this process's gradients, which are zero.
        return batches or [self._collated(step, epoch, pairs[:1], weight=0.0)]

    def learn(self, step: int, batches: Sequence[Batch]) -> Sums:
        """One update from this process's batches."""
        sums = self.optimiser.update(step, batches)
        if not sums.finite:
            raise self._diverged(
                f"step {step}: the loss is not finite (words {sums.word:.3g}, gaps {sums.gap:.3g}, gradient "
                f"{sums.gradient_norm:.3g})"
            )
        return sums

    def _diverged(self, what: str) -> UserError:
        last = checkpoints(self.recipe.run)
        kept = f"the last good checkpoint is {last[-1].folder}" if last else "there is no checkpoint yet"
        return UserError(f"{what}; {kept}; a lower train.lr or train.clip_norm may help")

    def _collated(
        self,
        step: int,
        epoch: int,
        pairs: NDArray[np.int64],
        *,
        weight: float = 1.0,
    ) -> Batch:
        seed, data = self.settings.seed, self.prepared.train
        examples = [data.example(int(pair), seed=seed, epoch=epoch) for pair in pairs]
        batch = collate([replace(example, weight=weight) for example in examples])
        batch = self.schedule.reordered(batch.to(self.processes.device), pairs, step=step)
        if not self.recipe.canvas.share:
            return batch
        return with_partial_targets(batch, [self._start(epoch, pair) for pair in pairs.tolist()])

    def _start(self, epoch: int, pair: int) -> PartialTarget:
        """What is given of a target."""
        seed = self.settings.seed
        return draw_partial_target(
            self.prepared.train.pieces(pair, seed=seed, epoch=epoch),
            self.recipe.canvas,
            generator=np.random.default_rng([seed, epoch, pair, _PARTIAL_TARGETS]),
        )

    # --- validation and files, the first process's business ---

    def _validate_and_save(self, log: MetricsLog | None) -> bool:
        """Returns whether it is time to stop early; all processes learn of it."""
        stop = False
        self.progress = replace(self.progress, validated=self.progress.step)
        if self.validation is not None and log is not None:
            scores = self.validation.scores(self.model, device=self.processes.device)
            if not math.isfinite(scores["dev_loss"]):
                # Before anything is saved: such weights must not take the place of good ones.
                raise self._diverged(
                    f"step {self.progress.step}: the dev loss is not finite "
                    f"(words {scores['dev_word_loss']:.3g}, gaps {scores['dev_gap_loss']:.3g})"
                )
            score = self._rank(scores)
            best = self.progress.best is None or score > self.progress.best
            self.progress = replace(
                self.progress,
                best=score if best else self.progress.best,
                since_best=0 if best else self.progress.since_best + 1,
            )
            log.write(self.progress.step, scores)
            self.listener.validated(self.progress.step, scores, best=best)
            if best:
                save_trained(self.recipe.run, self._trained({"step": self.progress.step, **scores}))
            self._save()
            stop = self._out_of_patience()
            if stop:
                self.listener.note(
                    f"no better {self.settings.select} in {self.settings.patience} validations: done"
                )
        return self.processes.agree(stop)

    def _rank(self, scores: Mapping[str, Any]) -> tuple[float, float]:
        """What models are chosen by: more is better, and the loss decides between equals."""
        loss = float(scores["dev_loss"])
        return (
            -loss if self.settings.select == "loss" else float(scores[f"dev_{self.settings.select}"]),
            -loss,
        )

    def _out_of_patience(self) -> bool:
        return 0 < self.settings.patience <= self.progress.since_best

    def _save(self) -> None:
        progress = asdict(replace(self.progress, scale=self.optimiser.scale()))
        save_checkpoint(
            self.recipe.run,
            step=self.progress.step,
            weights=weights_of(self.model),
            optimizer=self.optimiser.state(),
            progress=progress,
        )
        prune_kept(self.recipe.run, step=self.progress.searched.step)
        found = checkpoints(self.recipe.run)
        prune(self._regular(found)[-self.settings.keep :] or found[-1:], found)

    def _regular(self, found: list[Checkpoint]) -> list[Checkpoint]:
        """Those that a run without interruption has too, and the newest."""
        return [
            checkpoint
            for checkpoint in found
            if checkpoint.step % self.settings.validate_every == 0 or checkpoint == found[-1]
        ]

    def _stop_here(self, step: int) -> None:
        if self.processes.first:
            found = checkpoints(self.recipe.run)
            if not found or found[-1].step != step:  # a validation may have just saved
                self._save()
            self.listener.note(f"stopped at step {step}; `--resume` goes on from here")

    def _save_average(self) -> None:
        """Take the mean for the model, unless dev finds it worse than the best checkpoint."""
        mean = mean_of_last(self.recipe.run, last=self.settings.average)
        load_weights(self.model, mean.weights, origin=self.recipe.run)
        assert self.validation is not None
        scores = self.validation.scores(self.model, device=self.processes.device)
        best = self.progress.best is None or self._rank(scores) >= self.progress.best
        self.listener.validated(self.progress.step, scores, best=best)
        named = f"the mean of the checkpoints at steps {', '.join(map(str, mean.steps))}"
        if best:
            save_trained(self.recipe.run, self._trained({"averaged_steps": mean.steps, **scores}))
            self.listener.note(f"the model is {named}")
        else:
            # Where the rate still fell between them, the earlier ones hold the mean back.
            self.listener.note(f"the model is the best checkpoint: {named} is worse on dev")

    def _trained(self, scores: dict[str, Any]) -> Trained:
        return Trained(
            model=self.model,
            tokenizer=self.prepared.tokenizer,
            recipe=self.recipe,
            common_words=self.prepared.common_words,
            scores=scores,
        )
