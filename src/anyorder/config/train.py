"""How a model is trained: updates, validation, and partial targets to learn completion from."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from anyorder.config.section import Section, expand_home


class Canvas(Section):
    """Partial targets as training examples, so that a model learns to complete a canvas."""

    share: float = Field(
        0.0, ge=0, le=1, description="share of the examples that give some words of their target; 0: none"
    )
    required: float = Field(
        0.5,
        ge=0,
        le=1,
        description="share of these whose words are required instead of given: the encoder reads which words "
        "must appear, and the model decides when and where to write them",
    )


class Train(Section):
    """Updates, validation and checkpoints; the defaults are the paper's where it gives them."""

    steps: int = Field(100_000, ge=1, description="number of updates")
    batch_tokens: int = Field(
        16_000,
        ge=1,
        description="source and target tokens per update: tokens of its longest pair times number of pairs",
    )
    accumulate: int = Field(
        1, ge=1, description="parts to split each batch into, so that it fits into memory"
    )
    lr: float = Field(5e-4, gt=0, description="largest learning rate")
    schedule: Literal["inverse-sqrt", "cosine", "constant"] = Field(
        "inverse-sqrt", description="course of the learning rate after the warm-up"
    )
    warmup: int = Field(4000, ge=0, description="updates in which the learning rate rises to lr")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay of AdamW")
    clip_norm: float = Field(1.0, ge=0, description="largest gradient norm; 0: no clipping")
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="label smoothing of the word loss; the gap loss has none"
    )
    hide_words: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the rare words on both sides of a pair to treat as unknown, to practise "
        "copying (needs model.copying and text.unit = words)",
    )
    bpe_dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the BPE merges to skip at random in training pairs, drawn again each epoch "
        "(needs text.unit = bpe); batch_tokens counts pieces without dropout",
    )
    seed: int = Field(
        1, ge=0, le=2**31 - 1, description="seed of weights, batches, dropout and random orders"
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        "fp32", description="precision of matrix products; fp16 needs a GPU"
    )
    device: str = Field("auto", description="auto (a GPU if there is one), cpu, cuda, cuda:1, mps ...")
    init: Path | None = Field(None, description="folder of a trained model to take the initial weights from")
    log_every: int = Field(50, ge=1, description="updates between two lines of metrics.jsonl")
    validate_every: int = Field(
        1000, ge=1, description="updates between two validations, each with a checkpoint"
    )
    validate_lines: int = Field(
        500, ge=0, description="number of dev sources to decode for BLEU; 0: loss only"
    )
    select: Literal["loss", "bleu", "exact"] = Field(
        "loss", description="dev score that selects the best checkpoint"
    )
    patience: int = Field(
        0, ge=0, description="stop after this many validations without a better score; 0: never"
    )
    keep: int = Field(5, ge=1, description="number of checkpoints to keep")
    average: int = Field(
        0,
        ge=0,
        description="number of last checkpoints whose mean becomes the model, unless the best one scores "
        "better on dev; 0: no mean",
    )

    @model_validator(mode="after")
    def _check_selection_and_average(self) -> Self:
        if self.select != "loss" and not self.validate_lines:
            raise ValueError(f"select = {self.select!r} needs validate_lines > 0")
        if self.average > self.keep:
            raise ValueError(f"average ({self.average}) must not exceed keep ({self.keep})")
        return self

    @field_validator("init")
    @classmethod
    def _init_from_home(cls, value: Path | None) -> Path | None:
        return None if value is None else expand_home(value)
