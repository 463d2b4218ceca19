"""How a model decodes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from anyorder.config.section import WIDEST_BEAM, Section, _from_home


class Decode(Section):
    """How a sentence is searched for."""

    search: Literal["two-step", "joint", "sample"] = Field(
        "two-step",
        description="words first and then their gaps (the paper's); word × gap at once; or by chance",
    )
    beam: int = Field(1, ge=1, le=WIDEST_BEAM, description="hypotheses kept; 1 is greedy")
    n_best: int = Field(1, ge=1, le=WIDEST_BEAM, description="hypotheses returned")
    length_penalty: float = Field(1.0, ge=0, le=10, description="score = log p / steps ** length_penalty")
    max_length: int = Field(256, ge=1, le=100_000, description="most tokens to write")
    max_ratio: float = Field(
        3.0,
        ge=0,
        le=1000,
        description="most tokens relative to the source: max_ratio × source + max_extra; 0: no such limit",
    )
    max_extra: int = Field(10, ge=0, le=100_000, description="tokens on top of max_ratio × source")
    unknown: bool = Field(True, description="`<unk>` may be written; false: only words that mean something")
    merge: bool = Field(False, description="add the probabilities of finished hypotheses with the same text")
    merge_partial: bool = Field(False, description="merge unfinished ones too: an approximation")
    temperature: float = Field(1.0, gt=0, description="sampling: below 1 sharper, above 1 flatter")
    top_k: int = Field(0, ge=0, description="sampling: only the k best words; 0 is all")
    top_p: float = Field(1.0, gt=0, le=1, description="sampling: only the best words that make up p")
    seed: int = Field(1, ge=0, le=2**31 - 1, description="sampling")
    partners: tuple[Path, ...] = Field(
        (),
        description="runs of the same task, in any order: they look for answers too, and all scores are "
        "means of theirs and this run's; not used by validations",
    )
    reverse: Path | None = Field(
        None,
        description="run that writes sources from targets: an answer is better if it would write the source "
        "from it; not used by validations",
    )
    reverse_weight: float = Field(
        0.5, ge=0, le=100, description="score + reverse_weight × that run's score of the source"
    )
    parallel: bool = Field(
        False, description="Insertion Transformer: a word into every gap that is not full, all at once"
    )
    eos_penalty: float = Field(
        0.0, ge=0, description="Insertion Transformer: taken off log p of the end, so that it stops later"
    )

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        if self.search != "sample" and self.n_best > self.beam:
            raise ValueError(f"n_best ({self.n_best}) must not exceed beam ({self.beam})")
        if self.search == "sample" and self.merge_partial:
            raise ValueError('merge_partial is for beams: search = "sample" draws each output by itself')
        if self.others and self.search == "sample":
            raise ValueError(
                'partners and reverse are for beams: search = "sample" draws each output by itself'
            )
        return self

    @field_validator("partners")
    @classmethod
    def _partners_may_be_at_home(cls, value: tuple[Path, ...]) -> tuple[Path, ...]:
        return tuple(_from_home(path) for path in value)

    @field_validator("reverse")
    @classmethod
    def _reverse_may_be_at_home(cls, value: Path | None) -> Path | None:
        return None if value is None else _from_home(value)

    @property
    def nothing_to_choose(self) -> str | None:
        """Why a reverse run would change nothing, in a line; None: it may."""
        if self.reverse is None or self.partners or self.beam > 1:
            return None
        given = f"decode.reverse = {str(self.reverse)!r}"
        return f"{given}: picks from what a beam finds; decode.beam must be 2 or more"

    @property
    def others(self) -> tuple[Path, ...]:
        """All runs that have a say beside the one that is asked."""
        return (*self.partners, *([] if self.reverse is None else [self.reverse]))

    @property
    def alone(self) -> Decode:
        """What each run searches for by itself: all that there is to choose from, if others have a say."""
        changed = {"n_best": self.beam, "partners": (), "reverse": None}
        return self.model_copy(update=changed) if self.others else self


# Keys of [decode] by the kind of model that they are for; the other kinds must leave them as they are.
BY_INSERTION_TRANSFORMERS = ("parallel", "eos_penalty")
BY_BEAMS_AND_SAMPLES = (
    "search",
    "n_best",
    "beam",
    "unknown",
    "merge",
    "merge_partial",
    "partners",
    "reverse",
)
