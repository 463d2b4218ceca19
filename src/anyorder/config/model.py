"""Size and shape of the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, model_validator

from anyorder.config.section import Section


class Model(Section):
    """Size and shape of the network; the defaults are the paper's."""

    kind: Literal["indigo", "transformer", "insertion"] = Field(
        "indigo",
        description="indigo: in any order; transformer: an ordinary one, left to right; insertion: the "
        "Insertion Transformer",
    )
    width: int = Field(512, ge=2, description="of the states and embeddings")
    hidden: int = Field(2048, ge=1, description="width inside the feed-forward parts")
    heads: int = Field(8, ge=1, description="of attention; they share the width")
    encoder_layers: int = Field(6, ge=0, description="that read the source")
    decoder_layers: int = Field(6, ge=1, description="that write the target")
    dropout: float = Field(0.1, ge=0, lt=1, description="more for small data: 0.2 to 0.3")
    encoder_positions: Literal["relative", "sinusoidal", "none"] = Field(
        "relative", description="none is for bags of words"
    )
    clip: int = Field(
        16, ge=1, le=4096, description="distances beyond it look alike in the encoder; 1: left, itself, right"
    )
    steps_back: int = Field(
        1,
        ge=1,
        le=4096,
        description="the decoder tells how many steps ago a word was written, up to so many; 1: it does not, "
        "as in the paper",
    )
    first: Literal["word", "position"] = Field("word", description="which of word and gap is chosen first")
    share: Literal["all", "target", "none"] = Field(
        "all", description="one embedding for source, target and output; for target and output; or three"
    )
    copying: bool = Field(
        False, description="words may be taken over from the source, also those that the vocabulary lacks"
    )

    @model_validator(mode="after")
    def _width_splits_into_heads(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width ({self.width}) must be a multiple of heads ({self.heads})")
        if (self.encoder_positions == "sinusoidal" or self.kind != "indigo") and self.width % 2:
            raise ValueError(f"width ({self.width}) must be even for sinusoidal positions")
        return self

    @model_validator(mode="after")
    def _kind_can_do_it(self) -> Self:
        if self.first != "word" and self.kind != "indigo":
            raise ValueError(f'first = "{self.first}" is for kind = "indigo", not "{self.kind}"')
        if self.steps_back != 1 and self.kind != "indigo":
            raise ValueError(f'steps_back = {self.steps_back} is for kind = "indigo", not "{self.kind}"')
        if self.copying and self.kind == "insertion":
            raise ValueError('copying = true is for kind = "indigo" or "transformer", not "insertion"')
        return self


class Insertion(Section):
    """The Insertion Transformer (model.kind = "insertion"): what it learns, and how it knows the end."""

    loss: Literal["uniform", "binary"] = Field(
        "binary", description="of the words that a gap still misses: all alike, or the middle ones first"
    )
    temperature: float = Field(
        1.0, gt=0, description="of the binary loss: below 1 nearer to the middle, above 1 flatter"
    )
    termination: Literal["gap", "sequence"] = Field(
        "gap", description="each gap says when it is full, or only the whole sentence does"
    )


@dataclass(frozen=True)
class Shape:
    """What the data decides about a model: its size, and what it reads."""

    vocabulary: int  # ids of source and target
    target_vocabulary: int  # the first of them, which targets use
    features: int = 0  # width of the source's feature vectors; 0: sources are tokens
    extractor: str | None = None  # what made them of photos, if that is known: so photos can be read too
