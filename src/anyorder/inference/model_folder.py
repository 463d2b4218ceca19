"""The folder of a trained model: `config.json`, `model.safetensors`, `tokenizer.json`, `README.md`.

Files are written whole under another name and then renamed, so a crash or a full disk leaves what was
there before. Nothing is ever pickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
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
from anyorder.system.files import make_folder, read_versioned, write_file
from anyorder.text.tokenizer import FILE_NAME as TOKENIZER_FILE
from anyorder.text.tokenizer import Tokenizer
from anyorder.version import __version__

Precision = Literal["fp32", "fp16", "int8"]
SCALES = ":scales"  # after a matrix's name; names of parameters have no colon


def packed(weights: Mapping[str, Tensor], precision: Precision) -> dict[str, Tensor]:
    """As they are to be kept on disk."""
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


def unpacked(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What was packed, in whichever precision; half precision is widened when a model takes it."""
    return {
        name: tensor * tensors[name + SCALES] if name + SCALES in tensors else tensor
        for name, tensor in tensors.items()
        if not name.endswith(SCALES)
    }


FORMAT = 1  # of config.json and progress.json
CONFIG_FILE, MODEL_FILE, CARD_FILE = "config.json", "model.safetensors", "README.md"
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Trained:
    """A model with all that it takes to use it."""

    model: Model
    tokenizer: Tokenizer
    recipe: Recipe
    common_words: frozenset[str]  # of the training targets: what the orders cf and rf go by
    scores: dict[str, Any]  # on dev, when it was saved
    version: str = __version__  # of the package that saved it


# --- the model to use ---


class _Configuration(Section):
    """What `config.json` holds."""

    format: int
    anyorder: str  # the version that wrote it
    shape: Shape
    scores: dict[str, Any]
    common_words: list[str]
    recipe: Recipe


def save_trained(folder: Path, trained: Trained, *, weights: Mapping[str, Tensor] | None = None) -> None:
    """Write a model's folder; weights: others than the model holds now."""
    configuration = _Configuration(
        format=FORMAT,
        anyorder=__version__,
        shape=trained.model.shape,
        scores=trained.scores,
        common_words=sorted(trained.common_words),
        recipe=trained.recipe,
    )
    make_folder(folder)
    # The configuration comes last: without it a folder is no model, so a first save that is stopped leaves
    # none, and scores are never told of weights that are not there yet.
    write_file(folder / MODEL_FILE, tensors_to_bytes(dict(weights or weights_of(trained.model))))
    write_file(folder / TOKENIZER_FILE, trained.tokenizer.to_json().encode())
    write_file(folder / CARD_FILE, _card(folder.name, trained).encode())
    content = json.dumps(configuration.model_dump(mode="json"), indent=2, ensure_ascii=False)
    write_file(folder / CONFIG_FILE, content.encode())


def load_trained(folder: Path, *, device: torch.device) -> Trained:
    """Read a model's folder, or one of the package's by its name, ready to write."""
    folder = located(folder)
    configuration = _load_configuration(folder)
    recipe, shape = configuration.recipe, configuration.shape
    tokenizer = Tokenizer.load(folder, recipe.text, shape.target_vocabulary)
    model = build_model(recipe, shape)
    load_weights(model, unpacked(read_tensors(folder / MODEL_FILE)), origin=folder / MODEL_FILE)
    return Trained(
        model=model.to(device).eval(),
        tokenizer=tokenizer,
        recipe=recipe,
        common_words=frozenset(configuration.common_words),
        scores=configuration.scores,
        version=configuration.anyorder,
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


def _card(name: str, trained: Trained) -> str:
    recipe, files = trained.recipe, trained.recipe.data.train
    parameters = sum(parameter.numel() for parameter in trained.model.parameters())
    return f"""# {name}

A model that writes by insertion, trained with [anyorder](https://pypi.org/project/anyorder) {__version__}.

- kind: `{recipe.model.kind}`
- order: `{recipe.order_label}`
- data: `{files.target or files.captions or files.jsonl}` under `{recipe.data.root}`
- size: {parameters / 1e6:.1f} M parameters, width {recipe.model.width}, {recipe.model.encoder_layers} + \
{recipe.model.decoder_layers} layers

{_score_table(trained.scores)}
```python
import anyorder
model = anyorder.load("{name}")
```
"""


def _score_table(scores: Mapping[str, Any]) -> str:
    numbers = {key: value for key, value in scores.items() if isinstance(value, int | float)}
    if not numbers:
        return "These weights were not validated.\n"
    rows = "".join(f"| {key} | {value:.4g} |\n" for key, value in numbers.items())
    return f"| dev | |\n|---|---|\n{rows}"


# --- tensors ---


def weights_of(model: nn.Module) -> Weights:
    """Each parameter once, on the CPU: shared ones have one name."""
    return {name: parameter.detach().cpu().contiguous() for name, parameter in model.named_parameters()}


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], *, origin: Path) -> None:
    """Put weights into a model that must have exactly these."""
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        if name not in weights:
            raise UserError(f"{origin}: no weights for {name}, which this model has")
        if weights[name].shape != parameter.shape:
            given, wanted = list(weights[name].shape), list(parameter.shape)
            raise UserError(f"{origin}: {name} is of shape {given}, but this model's is {wanted}")
    for name in weights:
        if name not in parameters:
            raise UserError(f"{origin}: has weights for {name}, which this model has not")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])


def read_tensors(path: Path) -> Weights:
    """Of a .safetensors file."""
    try:
        return tensors_from_bytes(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except SafetensorError as error:
        raise UserError(f"{path}: broken: {error}") from None
