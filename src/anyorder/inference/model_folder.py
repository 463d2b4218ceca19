"""The folder of a trained model: `config.json`, `model.safetensors`, `tokenizer.json`, `README.md`.

Each file is written under another name and then renamed, so that a crash or a full disk leaves the old file
as it was. Nothing is ever pickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor, nn

from anyorder.config.model import Shape
from anyorder.config.recipe import Recipe
from anyorder.config.section import Section, checked
from anyorder.errors import UserError
from anyorder.models.kernels.packed import LARGEST, row_scales
from anyorder.models.registry import Model, build_model
from anyorder.pretrained import located, shipped_models
from anyorder.system.files import check_regular, make_folder, read_versioned, reading, write_file
from anyorder.system.locks import locked
from anyorder.text.tokenizer import FILE_NAME as TOKENIZER_FILE
from anyorder.text.tokenizer import Tokenizer
from anyorder.version import __version__

Precision = Literal["fp32", "fp16", "int8"]
Weights = dict[str, Tensor]
Key = TypeVar("Key")
FORMAT = 1  # version of config.json and progress.json
CONFIG_FILE, MODEL_FILE, CARD_FILE = "config.json", "model.safetensors", "README.md"
HEADER_LENGTH_BYTES = 8  # at the beginning of a .safetensors file
MODEL_FOLDER = (CONFIG_FILE, MODEL_FILE, TOKENIZER_FILE, CARD_FILE)  # all that a model needs
SCALES = ":scales"  # suffix of the name of a matrix's scales; names of parameters have no colon
UNITS = {"bpe": "byte-pair pieces", "words": "whole words"}


@dataclass(frozen=True)
class Trained:
    """A trained model with its tokenizer and its recipe: all that its folder holds."""

    model: Model
    tokenizer: Tokenizer
    recipe: Recipe
    common_words: frozenset[str]  # frequent words of the training targets, for the orders cf and rf
    scores: dict[str, Any]  # scores on dev when the model was saved
    version: str = __version__  # version of the package that saved the model
    folder: Path = Path()  # where it was loaded from
    trust_code: bool = False  # whether its recipe may name code to import and other models to read

    @property
    def parameters(self) -> int:
        """How many parameters the model has."""
        return sum(parameter.numel() for parameter in self.model.parameters())


# --- save and load ---


class _Configuration(Section):
    """What `config.json` holds."""

    format: int
    anyorder: str  # version of the package that wrote it
    shape: Shape
    scores: dict[str, Any]
    common_words: list[str]
    recipe: Recipe


def save_trained(folder: Path, trained: Trained, *, weights: Mapping[str, Tensor] | None = None) -> None:
    """Write the folder of a model; weights: save these in place of the model's own."""
    configuration = _Configuration(
        format=FORMAT,
        anyorder=__version__,
        shape=trained.model.shape,
        scores=trained.scores,
        common_words=sorted(trained.common_words),
        recipe=trained.recipe,
    )
    make_folder(folder)
    # The configuration comes last: a folder without it is no model. So a first save that is stopped leaves
    # no half-written model, and the scores never belong to weights that are not there yet.
    write_file(folder / MODEL_FILE, tensors_to_bytes(dict(weights or weights_of(trained.model))))
    write_file(folder / TOKENIZER_FILE, trained.tokenizer.to_json().encode())
    write_file(folder / CARD_FILE, _short_card(folder.name, trained).encode())
    content = json.dumps(configuration.model_dump(mode="json"), indent=2, ensure_ascii=False)
    write_file(folder / CONFIG_FILE, content.encode())


def load_trained(folder: Path, *, device: torch.device, trust_code: bool = False) -> Trained:
    """Load a model from its folder, or a shipped model by its name, ready for inference.

    The folder may be a stranger's: no memory is taken before its files are known to fit together.
    """
    folder = located(folder)
    configuration = _load_configuration(folder)
    recipe, shape = configuration.recipe, configuration.shape
    weights_file = folder / MODEL_FILE
    shapes = tensor_shapes(weights_file)
    layers = recipe.model.encoder_layers + recipe.model.decoder_layers
    if layers > len(shapes):
        raise UserError(f"{weights_file}: has {len(shapes)} tensors, too few for {layers:,} layers")
    tokenizer = Tokenizer.load(folder, recipe.text, shape.target_vocabulary)
    if tokenizer.size != shape.vocabulary:
        raise UserError(
            f"{folder / TOKENIZER_FILE}: has {tokenizer.size} ids, but {CONFIG_FILE} says {shape.vocabulary}"
        )
    with reading(folder / CONFIG_FILE), torch.device("meta"):  # shapes without memory
        model = build_model(recipe, shape)
    check_shapes(model, shapes, origin=weights_file)
    model.to_empty(device="cpu")
    load_weights(model, dequantise(read_tensors(weights_file)), origin=weights_file)
    return Trained(
        model=model.to(device).eval(),
        tokenizer=tokenizer,
        recipe=recipe,
        common_words=frozenset(configuration.common_words),
        scores=configuration.scores,
        version=configuration.anyorder,
        folder=folder,
        trust_code=trust_code,
    )


def _load_configuration(folder: Path) -> _Configuration:
    path = folder / CONFIG_FILE
    try:
        values = read_versioned(path, newest=FORMAT, what="a model's configuration")
    except FileNotFoundError:
        if folder.exists():
            raise UserError(f"{folder}: no {CONFIG_FILE} in it, so it is no trained model") from None
        ours = f"; by name there is {', '.join(shipped_models())}" if shipped_models() else ""
        raise UserError(f"{folder}: no such folder{ours}") from None
    except NotADirectoryError:
        raise UserError(f"{folder}: not a folder; give the folder of a trained model") from None
    return checked(_Configuration, values, origin=str(path))


# --- the card ---


def card_title(name: str, *, version: str) -> str:
    """The first lines of a model card; version: of the package that saved the model."""
    return f"# {name}\n\nTrained with [anyorder](https://pypi.org/project/anyorder) {version}."


def describe_model(trained: Trained) -> list[str]:
    """Kind, order, size and vocabulary of a model, as lines of a Markdown list."""
    model, shape = trained.recipe.model, trained.model.shape
    return [
        f"- {model.abilities.name}, {model.abilities.description}; order: `{trained.recipe.order_label}`",
        f"- {trained.parameters:,} parameters: {model.encoder_layers} + {model.decoder_layers} layers that "
        f"read and write, width {model.width}, {model.hidden} inside, {model.heads} heads",
        f"- {shape.vocabulary:,} {UNITS[trained.recipe.text.unit]}, of which targets use "
        f"{shape.target_vocabulary:,}",
    ]


def usage_example(name: str, trained: Trained) -> list[str]:
    """Lines of Markdown that show how to load the model and use it."""
    source = "an array of shape (vectors, width)" if trained.model.shape.features else "a line of text"
    use = [f"best = model.generate(source)[0]  # source: {source}", "print(best.text)"]
    if trained.recipe.editing:
        given = "draft" if trained.recipe.sourceless else "draft, source"
        use = [f"edited = model.edit({given})  # lines of text", "print(edited.text, edited.edits)"]
    return [
        "```python",
        "import anyorder",
        "",
        f'model = anyorder.load("{name}")',
        *use,
        "```",
    ]


def _short_card(name: str, trained: Trained) -> str:
    """The card that each save writes; `anyorder card` makes a longer one from the files of the run."""
    files = trained.recipe.data.train
    return "\n".join(
        [
            card_title(name, version=__version__),
            "",
            *describe_model(trained),
            f"- data: `{files.target or files.captions or files.jsonl}` under `{trained.recipe.data.root}`",
            "",
            _score_table(trained.scores),
            *usage_example(name, trained),
            "",
        ]
    )


def _score_table(scores: Mapping[str, Any]) -> str:
    numbers = {key: value for key, value in scores.items() if isinstance(value, int | float)}
    if not numbers:
        return "These weights were not validated.\n"
    rows = "".join(f"| {key} | {value:.4g} |\n" for key, value in numbers.items())
    return f"| dev | |\n|---|---|\n{rows}"


# --- export ---


def export(run: Path, folder: Path, *, precision: Precision) -> int:
    """Copy the model of a run to a new folder, to give away; returns the size of that folder in bytes.

    The copy does not tell the paths of this machine. precision: of the stored weights; fp16 takes half the
    space of fp32, int8 a quarter. All are read as single precision again.
    """
    with locked(folder):
        if (folder / CONFIG_FILE).exists():
            raise UserError(f"{folder}: is a model already; give another folder")
        return _export(run, folder, precision=precision)


def _export(run: Path, folder: Path, *, precision: Precision) -> int:
    trained = load_trained(run, device=torch.device("cpu"))
    weights = quantise(weights_of(trained.model), precision)
    too_large = next((name for name, weight in weights.items() if not torch.isfinite(weight).all()), None)
    if precision != "fp32" and too_large is not None:
        name = too_large.removesuffix(SCALES)
        raise UserError(f"--precision {precision}: {name} has weights too large for it; use fp32")
    save_trained(folder, replace(trained, recipe=_without_paths(trained.recipe, folder)), weights=weights)
    return sum((folder / name).stat().st_size for name in MODEL_FOLDER)


def _without_paths(recipe: Recipe, folder: Path) -> Recipe:
    """A recipe without the paths of this machine; files keep their names, for another `data.root`."""
    splits = {
        name: files if files is None else files.model_copy(update=_file_names(dict(files)))
        for name, files in (
            ("train", recipe.data.train),
            ("dev", recipe.data.dev),
            ("test", recipe.data.test),
        )
    }
    order_files = {**recipe.order.files, **_file_names(recipe.order.files)}
    return recipe.model_copy(
        update={
            "run": Path(folder.name),
            "data": recipe.data.model_copy(update={"root": Path(), "cache": None, **splits}),
            "order": recipe.order.model_copy(update={"files": order_files}),
            "train": recipe.train.model_copy(update={"init": None}),
            "decode": recipe.decode.model_copy(update={"partners": (), "reverse": None}),
        }
    )


def _file_names(paths: Mapping[Key, object]) -> dict[Key, Path]:
    """Absolute paths, reduced to the names of their files."""
    return {
        key: Path(path.name) for key, path in paths.items() if isinstance(path, Path) and path.is_absolute()
    }


# --- tensors ---


def quantise(weights: Mapping[str, Tensor], precision: Precision) -> dict[str, Tensor]:
    """Weights as they are stored: int8 matrices have a scale a row, other tensors half precision."""
    if precision == "fp32":
        return dict(weights)
    small: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if precision == "int8" and weight.dim() > 1:
            scales = row_scales(weight)
            small[name] = (weight / scales).round().clamp(-LARGEST, LARGEST).to(torch.int8)
            small[name + SCALES] = scales
        else:
            small[name] = weight.half()
    return small


def dequantise(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Undo `quantise`, for any precision; loading into a model widens half precision."""
    return {
        name: tensor * tensors[name + SCALES] if name + SCALES in tensors else tensor
        for name, tensor in tensors.items()
        if not name.endswith(SCALES)
    }


def weights_of(model: nn.Module) -> Weights:
    """All parameters of a model by name, on the CPU; a shared one has only its first name."""
    return {name: parameter.detach().cpu().contiguous() for name, parameter in model.named_parameters()}


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], *, origin: Path) -> None:
    """Copy weights into a model; names and shapes must be exactly the model's."""
    check_shapes(model, {name: list(weight.shape) for name, weight in weights.items()}, origin=origin)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def check_shapes(model: nn.Module, shapes: Mapping[str, list[int]], *, origin: Path) -> None:
    """Refuse tensors whose names and shapes are not exactly the model's; scales belong to their tensors."""
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        if name not in shapes:
            raise UserError(f"{origin}: no weights for {name}, which this model has")
        if shapes[name] != list(parameter.shape):
            given, wanted = shapes[name], list(parameter.shape)
            raise UserError(f"{origin}: {name} is of shape {given}, but this model's is {wanted}")
    for name in shapes:
        if name.removesuffix(SCALES) not in parameters:
            raise UserError(f"{origin}: has weights for {name}, which this model has not")


def tensor_shapes(path: Path) -> dict[str, list[int]]:
    """Read the names and shapes in a .safetensors file, whose header must fit the file."""
    _check_header_length(path)
    try:
        with safe_open(path, framework="pt") as file:
            return {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:
        raise UserError(f"{path}: broken: {error}") from None


def read_tensors(path: Path) -> Weights:
    """Read the tensors of a .safetensors file."""
    _check_header_length(path)
    try:
        return tensors_from_bytes(path.read_bytes())
    except SafetensorError as error:
        raise UserError(f"{path}: broken: {error}") from None


def _check_header_length(path: Path) -> None:
    """Refuse what is no regular file, and a header that is longer than the file."""
    try:
        check_regular(path)
        with reading(path), path.open("rb") as file:
            length = int.from_bytes(file.read(HEADER_LENGTH_BYTES), "little")
            size = path.stat().st_size
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    if length > size - HEADER_LENGTH_BYTES:
        raise UserError(f"{path}: broken: a header of {length:,} bytes in a file of {size:,}")
