"""The [decode] section: how hypotheses are searched for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from anyorder.config.section import WIDEST_BEAM, Section, expand_home


def _needs(capability: str) -> dict[str, Any]:
    """Mark a key as one for models with a capability, an attribute of `config.model.Kind`.

    For other kinds of models the key must keep its default.
    """
    return {"needs": capability}


class Decode(Section):
    """Decoding: beam search or sampling, its limits, and other models that help to choose."""

    search: Literal["two-step", "joint", "sample"] = Field(
        "two-step",
        description="beam search over words and then their gaps (the paper's), beam search over word × gap, "
        "or sampling",
        json_schema_extra=_needs("beam_search"),
    )
    # Before `beam`, which is widened to hold n_best hypotheses: messages then name the key that was given.
    n_best: int = Field(
        1,
        ge=1,
        le=WIDEST_BEAM,
        description="number of hypotheses to return",
        json_schema_extra=_needs("beam_search"),
    )
    beam: int = Field(
        1,
        ge=1,
        le=WIDEST_BEAM,
        description="beam width; 1 is greedy",
        json_schema_extra=_needs("beam_search"),
    )
    length_penalty: float = Field(1.0, ge=0, le=10, description="score = log p / steps ** length_penalty")
    max_length: int = Field(256, ge=1, le=100_000, description="maximum number of tokens")
    max_ratio: float = Field(
        3.0,
        ge=0,
        le=1000,
        description="maximum number of tokens relative to the source: max_ratio × source + max_extra; "
        "0: no such limit",
    )
    max_extra: int = Field(10, ge=0, le=100_000, description="tokens allowed on top of max_ratio × source")
    max_source: int = Field(
        2048, ge=1, le=100_000, description="maximum number of tokens or vectors of a source to read"
    )
    max_target: int = Field(
        2048, ge=1, le=100_000, description="maximum number of tokens of a target to score"
    )
    cut: bool = Field(
        False, description="cut longer sources and targets at these numbers, instead of refusing them"
    )
    unknown: bool = Field(
        True,
        description="whether `<unk>` may be written",
        json_schema_extra=_needs("beam_search"),
    )
    merge: bool = Field(
        False,
        description="add up the probabilities of finished hypotheses with the same text",
        json_schema_extra=_needs("beam_search"),
    )
    merge_partial: bool = Field(
        False,
        description="merge unfinished hypotheses too, which is an approximation",
        json_schema_extra=_needs("beam_search"),
    )
    temperature: float = Field(1.0, gt=0, description="sampling: below 1 sharper, above 1 flatter")
    top_k: int = Field(0, ge=0, description="sampling: only from the k most probable words; 0: from all")
    top_p: float = Field(
        1.0, gt=0, le=1, description="sampling: only from the most probable words that sum to p"
    )
    seed: int = Field(1, ge=0, le=2**31 - 1, description="sampling: random seed")
    partners: tuple[Path, ...] = Field(
        (),
        description="runs of the same task, in any order: each adds its hypotheses, and all are reranked by "
        "the mean score of these runs and this one; ignored by validation",
        json_schema_extra=_needs("beam_search"),
    )
    reverse: Path | None = Field(
        None,
        description="run that writes sources from targets: hypotheses are reranked by how well it predicts "
        "the source from them; ignored by validation",
        json_schema_extra=_needs("beam_search"),
    )
    reverse_weight: float = Field(
        0.5, ge=0, le=100, description="reranking score = score + reverse_weight × the reverse run's score"
    )
    parallel: bool = Field(
        False,
        description="Insertion Transformer: insert a word into every unfinished gap at once",
        json_schema_extra=_needs("parallel"),
    )
    confidence: Literal["probability", "margin", "entropy"] = Field(
        "probability",
        description="Insertion Transformer: which gap to write into next: the highest p(gap) times the "
        "probability of its best word, times its margin over the second best, or times e to the power of "
        "minus the entropy of its words",
        json_schema_extra=_needs("parallel"),
    )
    eos_penalty: float = Field(
        0.0,
        ge=0,
        description="Insertion Transformer: subtracted from log p of the end, for longer hypotheses",
        json_schema_extra=_needs("parallel"),
    )

    cautious: float = Field(
        0.0,
        ge=0,
        le=1,
        description="editor: make no edit with a lower probability than this; 0: make all",
        json_schema_extra=_needs("editing"),
    )
    max_deleted: float = Field(
        0.5,
        ge=0,
        le=1,
        description="editor: refuse a deletion that would leave the text shorter than the draft by more than "
        "this share",
        json_schema_extra=_needs("editing"),
    )

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        if self.search != "sample" and self.n_best > self.beam:
            raise ValueError(f"n_best ({self.n_best}) must not exceed beam ({self.beam})")
        if self.search == "sample" and self.merge_partial:
            raise ValueError('merge_partial is for beams: search = "sample" draws each hypothesis by itself')
        if self.confidence != "probability" and (self.parallel or self.search == "sample"):
            other = "parallel fills every gap" if self.parallel else 'search = "sample" draws a gap'
            raise ValueError(f'confidence = "{self.confidence}" is for one greedy insertion a step: {other}')
        if self.parallel and self.search == "sample":
            raise ValueError('parallel is greedy; search = "sample" draws one insertion a step')
        if self.others and self.search == "sample":
            raise ValueError(
                'partners and reverse are for beams: search = "sample" draws each hypothesis by itself'
            )
        return self

    @field_validator("partners")
    @classmethod
    def _expand_partners(cls, value: tuple[Path, ...]) -> tuple[Path, ...]:
        return tuple(expand_home(path) for path in value)

    @field_validator("reverse")
    @classmethod
    def _expand_reverse(cls, value: Path | None) -> Path | None:
        return None if value is None else expand_home(value)

    @classmethod
    def needs(cls) -> dict[str, str]:
        """Keys that only some kinds of models understand, and the capability that each needs."""
        extras = {key: field.json_schema_extra for key, field in cls.model_fields.items()}
        return {key: str(extra["needs"]) for key, extra in extras.items() if isinstance(extra, dict)}

    @classmethod
    def keys_that_need(cls, capability: str) -> list[str]:
        """Keys that only models with this capability understand."""
        return [key for key, needed in cls.needs().items() if needed == capability]

    @property
    def without_sampling(self) -> Decode:
        """These settings without what a model that only samples can be asked for: samples, and how many."""
        if self.search != "sample":
            return self
        defaults = Decode()
        return self.model_copy(update={key: getattr(defaults, key) for key in ("search", "n_best", "merge")})

    @property
    def nothing_to_choose(self) -> str | None:
        """Why a reverse run could not change the result, as an error message; None if it could."""
        if self.reverse is None or self.partners or self.beam > 1:
            return None
        given = f"decode.reverse = {str(self.reverse)!r}"
        return f"{given}: picks from what a beam finds; decode.beam must be 2 or more"

    @property
    def others(self) -> tuple[Path, ...]:
        """All other runs that take part in reranking."""
        return (*self.partners, *([] if self.reverse is None else [self.reverse]))

    @property
    def alone(self) -> Decode:
        """The settings that each run searches with before reranking: the whole beam is kept."""
        changed = {"n_best": self.beam, "partners": (), "reverse": None}
        return self.model_copy(update=changed) if self.others else self
