"""Our layers as torch's own, with the same weights: an implementation that shares nothing with ours."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from anyorder.models.attention import FeedForward
from anyorder.models.encoder_decoder import EncoderDecoder


def sinusoids_by_hand(length: int, width: int) -> Tensor:
    """One number at a time, (length, width)."""
    rows = []
    for index in range(length):
        pairs = [index / 10_000 ** (even / width) for even in range(0, width, 2)]
        rows.append([wave(angle) for angle in pairs for wave in (math.sin, math.cos)])
    return torch.tensor(rows, dtype=torch.float64)


def encode_by_torch(model: EncoderDecoder, source: Tensor) -> Tensor:
    """With sinusoidal positions. source: (1, S); returns (1, S, D)."""
    states = _embedded(model, source)
    for ours in model.encoder:
        layer = nn.TransformerEncoderLayer(**_sizes(model))
        _copy_attention(layer.self_attn, ours.attention.project.weight, ours.attention.output)
        _copy_rest(layer, ours.feed_forward, ours.attention_norm, ours.feed_forward_norm)
        states = layer(states)
    return model.encoder_norm(states)


def decode_by_torch(model: EncoderDecoder, memory: Tensor, words: Tensor, *, causal: bool) -> Tensor:
    """With sinusoidal positions. memory: (1, S, D); words: (1, n); returns (1, n, D)."""
    states = _embedded(model, words)
    later = torch.ones(words.shape[1], words.shape[1], dtype=torch.bool).triu(diagonal=1) if causal else None
    for ours in model.decoder:
        layer = nn.TransformerDecoderLayer(**_sizes(model))
        _copy_attention(layer.self_attn, ours.attention.project.weight, ours.attention.output)
        cross = torch.cat([ours.cross.query.weight, ours.cross.project.weight])
        _copy_attention(layer.multihead_attn, cross, ours.cross.output)
        _copy_rest(layer, ours.feed_forward, ours.attention_norm, ours.cross_norm, ours.feed_forward_norm)
        states = layer(states, memory, tgt_mask=later)
    return model.decoder_norm(states)


def _embedded(model: EncoderDecoder, words: Tensor) -> Tensor:
    width = model.settings.width
    embedded = model.embed_target.weight[words] * math.sqrt(width)
    return embedded + sinusoids_by_hand(words.shape[1], width)


def _sizes(model: EncoderDecoder) -> dict[str, Any]:
    settings = model.settings
    return {
        "d_model": settings.width,
        "nhead": settings.heads,
        "dim_feedforward": settings.hidden,
        "dropout": 0.0,
        "norm_first": True,
        "batch_first": True,
        "dtype": torch.float64,
    }


def _copy_attention(theirs: nn.MultiheadAttention, project: Tensor, output: nn.Linear) -> None:
    theirs.in_proj_weight.copy_(project)
    theirs.in_proj_bias.zero_()
    theirs.out_proj.load_state_dict(output.state_dict())


def _copy_rest(layer: nn.Module, feed_forward: FeedForward, *norms: nn.LayerNorm) -> None:
    inner, _, _, outer = feed_forward
    layer.linear1.load_state_dict(inner.state_dict())
    layer.linear2.load_state_dict(outer.state_dict())
    for number, norm in enumerate(norms, start=1):
        getattr(layer, f"norm{number}").load_state_dict(norm.state_dict())
