"""Validation and files: which model of a run is the best, and when checkpoints are written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from anyorder import config
from anyorder.adaptive.store import prune_stored_orders
from anyorder.data.dataset import Prepared
from anyorder.errors import UserError
from anyorder.inference.model_folder import Trained, load_weights, save_trained, weights_of
from anyorder.models.registry import Model
from anyorder.training.checkpoint import (
    Checkpoint,
    TrainingProgress,
    checkpoints,
    mean_of_last,
    prune,
    save_checkpoint,
)
from anyorder.training.metrics_log import MetricsLog, TrainingListener
from anyorder.training.step import Optimiser
from anyorder.training.validation import Validation


def out_of_patience(settings: config.Train, progress: TrainingProgress) -> bool:
    """Whether too many validations have passed without a better score."""
    return 0 < settings.patience <= progress.since_best


def divergence(run: Path, problem: str) -> UserError:
    """The error of a training whose loss is not finite, with the checkpoint to go back to."""
    found = checkpoints(run)
    last = f"the last good checkpoint is {found[-1].folder}" if found else "there is no checkpoint yet"
    return UserError(f"{problem}; {last}; a lower train.lr or train.clip_norm may help")


class ModelSaver:
    """Validates the model, saves the best one and writes checkpoints; only the first process has one."""

    def __init__(
        self,
        recipe: config.Recipe,
        prepared: Prepared,
        *,
        model: Model,
        optimiser: Optimiser,
        device: torch.device,
        listener: TrainingListener,
    ) -> None:
        self.recipe, self.settings, self.run = recipe, recipe.train, recipe.run
        self.prepared, self.model, self.optimiser = prepared, model, optimiser
        self.device, self.listener = device, listener
        self.validation = Validation(recipe, prepared.dev, prepared.tokenizer)

    def validate(self, progress: TrainingProgress, log: MetricsLog) -> TrainingProgress:
        """Score the model, save it if it is the best so far, and write a checkpoint.

        Returns the progress with the outcome of this validation.
        """
        scores = self.validation.scores(self.model, device=self.device)
        if not math.isfinite(scores["dev_loss"]):
            # Checked before anything is saved: broken weights must not replace good ones.
            raise divergence(
                self.run,
                f"step {progress.step}: the dev loss is not finite "
                f"(words {scores['dev_word_loss']:.3g}, gaps {scores['dev_gap_loss']:.3g})",
            )
        rank = self._rank(scores)
        best = progress.best is None or rank > progress.best
        progress = replace(
            progress,
            best=rank if best else progress.best,
            since_best=0 if best else progress.since_best + 1,
        )
        log.write(progress.step, scores)
        self.listener.validated(progress.step, scores, best=best)
        if best:
            self._save_model({"step": progress.step, **scores})
        self.save(progress)
        if out_of_patience(self.settings, progress):
            self.listener.note(
                f"no better {self.settings.select} in {self.settings.patience} validations: done"
            )
        return progress

    def save(self, progress: TrainingProgress) -> None:
        """Write a checkpoint, and remove checkpoints and stored orders that are no longer needed."""
        save_checkpoint(
            self.run,
            step=progress.step,
            weights=weights_of(self.model),
            optimizer=self.optimiser.state(),
            progress=replace(progress, scale=self.optimiser.scale()).to_json(),
        )
        prune_stored_orders(self.run, before=progress.last_search.step)
        found = checkpoints(self.run)
        prune(self._regular(found)[-self.settings.keep :] or found[-1:], found)

    def stop(self, progress: TrainingProgress) -> None:
        """Save what an interrupted training needs to go on."""
        found = checkpoints(self.run)
        if not found or found[-1].step != progress.step:  # a validation may have just saved it
            self.save(progress)
        self.listener.note(f"stopped at step {progress.step}; `--resume` goes on from here")

    def save_average(self, progress: TrainingProgress) -> None:
        """Make the mean of the last checkpoints the model, unless it scores worse on dev than the best."""
        mean = mean_of_last(self.run, last=self.settings.average)
        load_weights(self.model, mean.weights, origin=self.run)
        scores = self.validation.scores(self.model, device=self.device)
        best = progress.best is None or self._rank(scores) >= progress.best
        self.listener.validated(progress.step, scores, best=best)
        named = f"the mean of the checkpoints at steps {', '.join(map(str, mean.steps))}"
        if best:
            self._save_model({"averaged_steps": mean.steps, **scores})
            self.listener.note(f"the model is {named}")
        else:
            # Common where the learning rate was still falling between these checkpoints.
            self.listener.note(f"the model is the best checkpoint: {named} is worse on dev")

    def _rank(self, scores: Mapping[str, Any]) -> tuple[float, float]:
        """What models are compared by: the score of `train.select`, then the loss; more is better."""
        loss, select = float(scores["dev_loss"]), self.settings.select
        return (-loss if select == "loss" else float(scores[f"dev_{select}"]), -loss)

    def _regular(self, found: list[Checkpoint]) -> list[Checkpoint]:
        """The newest checkpoint, and those that a run without interruptions has, too."""
        return [
            checkpoint
            for checkpoint in found
            if checkpoint.step % self.settings.validate_every == 0 or checkpoint == found[-1]
        ]

    def _save_model(self, scores: dict[str, Any]) -> None:
        trained = Trained(
            model=self.model,
            tokenizer=self.prepared.tokenizer,
            recipe=self.recipe,
            common_words=self.prepared.common_words,
            scores=scores,
        )
        save_trained(self.run, trained)
