"""Which files a recipe reads, and how their text becomes tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self, get_args

from pydantic import Field, model_validator

from anyorder.config.section import Section

Splits = Literal["train", "dev", "test"]
SPLITS: tuple[Splits, ...] = get_args(Splits)


class SplitFiles(Section):
    """Where one split lies: a source and a target file with as many lines, a target alone, or one JSONL file.

    Images come as feature vectors, with a target each, or with captions that name their image.
    """

    source: Path | None = Field(None, description="text, one source a line; plain, .gz or .xz")
    features: Path | None = Field(
        None,
        description=".npy of shape (lines, vectors, width), or .npz of names and grid; instead of a source",
    )
    target: Path | None = Field(None, description="text, one target a line; plain, .gz or .xz")
    captions: Path | None = Field(
        None, description="image, tab, caption a line instead of a target; an image may have several"
    )
    jsonl: Path | None = Field(
        None, description='one {"source": ..., "target": ...} a line instead of two files'
    )

    @model_validator(mode="after")
    def _one_way_to_give_a_pair(self) -> Self:
        if self.jsonl is not None:
            if self.source or self.features or self.target or self.captions:
                raise ValueError("give either jsonl or a source and a target, not both")
        elif self.captions is not None:
            if self.source or self.target or self.features is None:
                raise ValueError("captions go with features and nothing else")
        elif self.target is None or (self.source is not None and self.features is not None):
            raise ValueError("give target and one of source or features, target alone, or jsonl")
        return self

    @property
    def read(self) -> str:
        """What a model reads of it."""
        if self.features is not None:
            return "features"
        return "nothing" if self.source is None and self.jsonl is None else "text"


class Data(Section):
    """Files, and what to do about bad lines in them."""

    root: Path = Field(Path(), description="folder that the paths below start from")
    train: SplitFiles
    dev: SplitFiles
    test: SplitFiles | None = None
    cache: Path | None = Field(None, description="folder for tokenised data; default ~/.cache/anyorder")
    bad_lines: Literal["refuse", "skip"] = Field(
        "refuse",
        description="empty, over-long or unreadable training lines: stop, or skip and count them",
    )
    max_length: int = Field(256, ge=1, description="tokens; a longer training source or target is a bad line")
    train_lines: int = Field(
        0, ge=0, description="training lines to read, the first so many, bad ones included; 0: all"
    )
    name: str | None = Field(None, description="what the data is called, for the model's card")
    licence: str | None = Field(None, description="what the data may be used for, for the model's card")


class Side(Section):
    """How one side's text becomes words."""

    split: Literal["moses", "spaces", "mecab"] = Field(
        "moses", description="moses: normalise and tokenise; spaces: as it is; mecab: Japanese"
    )
    language: str = Field("en", min_length=2, description="Moses rules to use, e.g. en, de, fr")
    lowercase: bool = Field(False, description="write and compare in lower case")


class Text(Section):
    """Words and sub-words: one vocabulary for both sides."""

    source: Side = Side()
    target: Side = Side()
    unit: Literal["bpe", "words"] = Field("bpe", description="joint byte-pair pieces, or whole words")
    vocabulary: int = Field(32000, ge=16, description="largest number of entries")
    min_count: int = Field(1, ge=1, description="rarer words (unit = words) become `<unk>`")
    bag: bool = Field(False, description="a source is a bag of words: their order is thrown away at once")
