"""A tiny Insertion Transformer, and what may happen to a canvas by torch's own layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from conftest import FIRST_WORD
from references import decode_by_torch, encode_by_torch
from torch import Tensor

from anyorder import config
from anyorder.config.model import Shape
from anyorder.models.insertion_transformer import InsertionTransformer
from anyorder.text.tokenizer import BOS, EOD, EOS

WORDS = 4
SETTINGS = {
    "kind": "insertion",
    "width": 8,
    "hidden": 12,
    "heads": 2,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_positions": "sinusoidal",
}


def tiny(*, seed: int = 0, clip: int = 16, **insertion: object) -> InsertionTransformer:
    """A random model in which no weight is zero or one."""
    torch.manual_seed(seed)
    shape = Shape(vocabulary=FIRST_WORD + WORDS, target_vocabulary=FIRST_WORD + WORDS)
    settings = config.Model.model_validate(SETTINGS | {"clip": clip})
    model = InsertionTransformer(settings, config.Insertion.model_validate(insertion), shape)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.4)
    return model.double().eval()


@dataclass(frozen=True)
class ByHand:
    """What may happen to a canvas, by torch's own layers: log p."""

    joint: Tensor  # (gaps, V), every word in every gap, `<eod>` first; it has NEG_INF beside a classifier
    stop: float | None  # the classifier's log-odds


@torch.no_grad()
def by_torch(model: InsertionTransformer, source: Tensor, words: Sequence[int]) -> ByHand:
    """source: (1, S)."""
    canvas = torch.tensor([[BOS, *words, EOS]])
    (states,) = decode_by_torch(model, encode_by_torch(model, source), canvas, causal=False)
    gaps = [model.join(torch.cat([left, right])) for left, right in pairwise(states)]
    logits = torch.stack(gaps) @ model.embed_output.weight[EOD:].T
    if model.stop is not None:
        logits[:, 0] = float("-inf")
    joint = logits.flatten().log_softmax(dim=0).view_as(logits)
    return ByHand(joint, None if model.stop is None else float(model.stop(states[0])))


def joint_by_torch(model: InsertionTransformer, source: Tensor, words: Sequence[int]) -> Tensor:
    """log p of every word in every gap, (gaps, V)."""
    return by_torch(model, source, words).joint
