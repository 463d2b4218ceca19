"""The [model] section: which kind of network, and its size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from anyorder.config.section import Section


@dataclass(frozen=True)
class Kind:
    """What a kind of model is called and what it can do; recipes are checked against this."""

    name: str  # for readers of cards and tables
    description: str  # completes "which ..."
    any_order: bool = False  # learns any order, and can write around given words
    beam_search: bool = False  # writes token by token: it has beams, samples and scores in an order
    sampling: bool = False  # can draw sentences at random
    parallel: bool = False  # reads its whole canvas again at each step; may insert into several gaps at once
    copying: bool = False  # can copy words from the source
    editing: bool = False  # changes a draft instead of writing from nothing


# The one list of kinds; `models/registry.py` builds and trains the model of each.
KINDS: dict[str, Kind] = {
    "indigo": Kind(
        name="Transformer-InDIGO",
        description="which writes by insertion, in any order",
        any_order=True,
        beam_search=True,
        sampling=True,
        copying=True,
    ),
    "transformer": Kind(
        name="Transformer",
        description="which writes from left to right",
        beam_search=True,
        sampling=True,
        copying=True,
    ),
    "insertion": Kind(
        name="Insertion Transformer",
        description="which reads its whole canvas again at each step and may fill several gaps at once",
        sampling=True,
        parallel=True,
    ),
    "editor": Kind(
        name="Editor",
        description="which changes a draft: it inserts, substitutes and deletes words",
        copying=True,
        editing=True,
    ),
}


def kinds_with(capability: str) -> str:
    """List the kinds that have a capability, an attribute of `Kind`, for messages."""
    return " or ".join(f'"{name}"' for name, kind in KINDS.items() if getattr(kind, capability))


class Model(Section):
    """Kind and size of the network; the defaults are the paper's."""

    kind: str = Field(
        "indigo",
        description="; ".join(f"{key}: the {kind.name}, {kind.description}" for key, kind in KINDS.items()),
        json_schema_extra={"allowed": list(KINDS)},
    )
    width: int = Field(512, ge=2, description="width of states and embeddings")
    hidden: int = Field(2048, ge=1, description="width inside the feed-forward layers")
    heads: int = Field(8, ge=1, description="attention heads; width must be a multiple of it")
    encoder_layers: int = Field(6, ge=0, description="layers of the encoder, which reads the source")
    decoder_layers: int = Field(6, ge=1, description="layers of the decoder, which writes the target")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout rate; 0.2 to 0.3 for small data")
    encoder_positions: Literal["relative", "sinusoidal", "none"] = Field(
        "relative", description="position encoding of the source; none is for bags of words"
    )
    clip: int = Field(
        16,
        ge=1,
        le=4096,
        description="relative positions, of the source or of a canvas, are clipped at this distance; "
        "1: left, itself, right",
    )
    steps_back: int = Field(
        1,
        ge=1,
        le=4096,
        description="the decoder knows how many steps ago each token was written, clipped at this number; "
        "1: it does not, as in the paper",
    )
    first: Literal["word", "position"] = Field(
        "word", description="whether the word or its gap is predicted first"
    )
    share: Literal["all", "target", "none"] = Field(
        "all",
        description="one embedding for source, target and output; one for target and output; or three",
    )
    copying: bool = Field(
        False,
        description="the model may copy words from the source, also words outside the vocabulary; an editor "
        "copies from the draft",
    )

    @property
    def abilities(self) -> Kind:
        """What this kind of model can do."""
        return KINDS[self.kind]

    @field_validator("kind")
    @classmethod
    def _kind_is_known(cls, value: str) -> str:
        if value not in KINDS:
            *others, last = (f"'{name}'" for name in KINDS)
            raise PydanticCustomError("unknown_kind", f"{', '.join(others)} or {last}")
        return value

    @model_validator(mode="after")
    def _width_splits_into_heads(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width ({self.width}) must be a multiple of heads ({self.heads})")
        if (self.encoder_positions == "sinusoidal" or not self.abilities.any_order) and self.width % 2:
            raise ValueError(f"width ({self.width}) must be even for sinusoidal positions")
        return self

    @model_validator(mode="after")
    def _kind_can_do_it(self) -> Self:
        needs = {
            f'first = "{self.first}"': "any_order" if self.first != "word" else None,
            f"steps_back = {self.steps_back}": "any_order" if self.steps_back != 1 else None,
            "copying = true": "copying" if self.copying else None,
        }
        for given, capability in needs.items():
            if capability is not None and not getattr(self.abilities, capability):
                raise ValueError(f'{given} is for kind = {kinds_with(capability)}, not "{self.kind}"')
        return self


class Insertion(Section):
    """The Insertion Transformer (model.kind = "insertion"): its loss, and how it knows when to stop."""

    loss: Literal["uniform", "binary", "ilm"] = Field(
        "binary",
        description="weights of the words that are missing. By gap: uniform: all words of a gap the same; "
        "binary: more for its middle ones. ilm: all words of all gaps the same, as in the insertion language "
        "model",
    )
    temperature: float = Field(
        1.0, gt=0, description="temperature of the binary loss: lower favours the middle, higher is flatter"
    )
    termination: Literal["gap", "sequence", "classifier"] | None = Field(
        None,
        description="what predicts the end: each gap its own, all gaps together that of the sequence, or a "
        "classifier that reads the whole canvas; default: classifier for the ilm loss, gap for the others",
    )
    canvases: int = Field(
        1, ge=1, le=64, description="canvases to learn from for each target and update, of different sizes"
    )
    positions: Literal["sinusoidal", "relative"] = Field(
        "sinusoidal", description="position encoding of the canvas; relative: distances, up to model.clip"
    )

    @property
    def ends_by(self) -> Literal["gap", "sequence", "classifier"]:
        """What predicts the end, where the recipe does not say."""
        return self.termination or ("classifier" if self.loss == "ilm" else "gap")

    @model_validator(mode="after")
    def _gaps_can_end(self) -> Self:
        if self.loss == "ilm" and self.termination == "gap":
            raise ValueError(
                'termination = "gap" is for the losses "uniform" and "binary", which count gap by gap; '
                'with loss = "ilm" it must be "classifier" or "sequence"'
            )
        return self


class Edit(Section):
    """An editor (model.kind = "editor"): the edits that it learns from."""

    order: Literal["l2r", "deletions", "random"] = Field(
        "l2r",
        description="order of a script's edits: left to right, deletions first, or drawn again each epoch",
    )
    substitute: bool = Field(
        True, description="whether a word is replaced by one edit; false: it is deleted and another inserted"
    )


@dataclass(frozen=True)
class Shape:
    """What the data determines about a model: the sizes of its vocabulary and features."""

    vocabulary: int  # number of token ids of source and target
    target_vocabulary: int  # number of ids that targets use; they come first
    features: int = 0  # width of the source's feature vectors; 0 for text sources
    extractor: str | None = None  # network that makes the features from photos, if known
