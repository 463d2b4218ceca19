"""The [data] and [text] sections: which files are read, and how their text becomes tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self, get_args

from pydantic import Field, model_validator

from anyorder.config.section import Section

Splits = Literal["train", "dev", "test"]
SPLITS: tuple[Splits, ...] = get_args(Splits)


class SplitFiles(Section):
    """Files of one split: source and target with equally many lines, a target alone, or one JSONL file.

    An editor's split has drafts too, and needs no source.
    Images come as feature vectors, with one target each or with captions that name their image.
    """

    source: Path | None = Field(None, description="text file, one source per line; plain, .gz or .xz")
    features: Path | None = Field(
        None,
        description="instead of a source: .npy of shape (lines, vectors, width), or .npz of names and grid",
    )
    target: Path | None = Field(None, description="text file, one target per line; plain, .gz or .xz")
    draft: Path | None = Field(
        None, description="for an editor: text file of what it is to change, one draft per line"
    )
    captions: Path | None = Field(
        None, description="instead of a target: lines of image, tab and caption; an image may have several"
    )
    jsonl: Path | None = Field(
        None,
        description='instead of two files: one {"source": ..., "target": ...} per line, for an editor with '
        '"draft"',
    )

    @model_validator(mode="after")
    def _one_way_to_give_a_pair(self) -> Self:
        if self.jsonl is not None:
            if self.source or self.features or self.target or self.captions or self.draft:
                raise ValueError("give either jsonl or a source and a target, not both")
        elif self.captions is not None:
            if self.source or self.target or self.draft or self.features is None:
                raise ValueError("captions go with features and nothing else")
        elif self.target is None or (self.source is not None and self.features is not None):
            raise ValueError("give target and one of source or features, target alone, or jsonl")
        if self.draft is not None and self.features is not None:
            raise ValueError("a draft goes with a source of text, or with none; not with features")
        return self

    @property
    def read(self) -> str:
        """What kind of source a model reads: text, features or nothing."""
        if self.features is not None:
            return "features"
        return "nothing" if self.source is None and self.jsonl is None else "text"


class Data(Section):
    """Files, and what to do about bad lines."""

    root: Path = Field(Path(), description="folder that the paths below are relative to")
    train: SplitFiles
    dev: SplitFiles
    test: SplitFiles | None = None
    cache: Path | None = Field(None, description="folder for tokenised data; default ~/.cache/anyorder")
    bad_lines: Literal["refuse", "skip"] = Field(
        "refuse",
        description="what to do about empty, over-long or unreadable lines: stop, or skip and count them",
    )
    max_length: int = Field(
        256, ge=1, description="maximum number of tokens; a longer source or target is a bad line"
    )
    train_lines: int = Field(
        0, ge=0, description="read only this many training lines, bad ones included; 0: all"
    )
    name: str | None = Field(None, description="name of the data, for the model's card")
    licence: str | None = Field(None, description="licence of the data, for the model's card")


class Side(Section):
    """How the text of one side is split into words."""

    split: Literal["moses", "spaces", "mecab"] = Field(
        "moses", description="moses: normalise and tokenise; spaces: at spaces only; mecab: Japanese"
    )
    language: str = Field("en", min_length=2, description="language of the Moses rules, e.g. en, de, fr")
    lowercase: bool = Field(False, description="convert to lower case")


class Text(Section):
    """Words and their pieces, in one vocabulary for both sides."""

    source: Side = Side()
    target: Side = Side()
    unit: Literal["bpe", "words"] = Field("bpe", description="byte-pair pieces of both sides, or whole words")
    vocabulary: int = Field(32000, ge=16, description="maximum size of the vocabulary")
    min_count: int = Field(1, ge=1, description="rarer words (unit = words) become `<unk>`")
    bag: bool = Field(False, description="sources are bags of words: the order of their words is ignored")
