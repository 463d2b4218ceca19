"""How a model is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from anyorder.config.section import Section, expand_home


class Canvas(Section):
    """Partial targets to start from, so that a model learns to write around what is given."""

    share: float = Field(
        0.0, ge=0, le=1, description="of the examples, those that give some of their words first; 0: none"
    )
    required: float = Field(
        0.5,
        ge=0,
        le=1,
        description="of these, the share whose words are not on the canvas: the encoder is told that they "
        "must appear, and they are written when their turn comes",
    )


class Train(Section):
    """Learning; the defaults are the paper's where it gives them."""

    steps: int = Field(100_000, ge=1, description="updates")
    batch_tokens: int = Field(
        16_000,
        ge=1,
        description="source + target tokens an update: those of its longest pair, times its pairs",
    )
    accumulate: int = Field(
        1, ge=1, description="parts that an update's batch is cut into, to fit the memory"
    )
    lr: float = Field(5e-4, gt=0, description="largest learning rate")
    schedule: Literal["inverse-sqrt", "cosine", "constant"] = Field(
        "inverse-sqrt", description="how the learning rate goes on after the warm-up"
    )
    warmup: int = Field(4000, ge=0, description="updates until lr is reached")
    weight_decay: float = Field(0.0, ge=0, description="of Adam, apart from the gradient")
    clip_norm: float = Field(1.0, ge=0, description="largest gradient norm; 0: no clipping")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="on words only")
    hide_words: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the rare words on both sides of a pair that the vocabulary is made to lack, as "
        "practice in copying them (model.copying, unit = words)",
    )
    bpe_dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the merges that are left out when words of training pairs are cut into pieces, "
        "other ones each epoch (unit = bpe); batch_tokens counts the usual pieces",
    )
    seed: int = Field(1, ge=0, le=2**31 - 1, description="of weights, batches, dropout and random orders")
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        "fp32", description="of matrix products; fp16 needs a GPU"
    )
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, mps ...")
    init: Path | None = Field(None, description="run whose weights to start from")
    log_every: int = Field(50, ge=1, description="updates between lines of metrics.jsonl")
    validate_every: int = Field(1000, ge=1, description="updates between validations and checkpoints")
    validate_lines: int = Field(500, ge=0, description="dev sources to decode for BLEU; 0: loss only")
    select: Literal["loss", "bleu", "exact"] = Field(
        "loss", description="dev score that picks the best checkpoint"
    )
    patience: int = Field(0, ge=0, description="validations without a better score before stopping; 0: never")
    keep: int = Field(5, ge=1, description="last checkpoints to keep")
    average: int = Field(
        0,
        ge=0,
        description="the finished model is the mean of the last N checkpoints, unless the best is better; "
        "0: the best",
    )

    @model_validator(mode="after")
    def _selection_and_averages_can_be_had(self) -> Self:
        if self.select != "loss" and not self.validate_lines:
            raise ValueError(f"select = {self.select!r} needs validate_lines > 0")
        if self.average > self.keep:
            raise ValueError(f"average ({self.average}) must not exceed keep ({self.keep})")
        return self

    @field_validator("init")
    @classmethod
    def _init_may_be_at_home(cls, value: Path | None) -> Path | None:
        return None if value is None else expand_home(value)
