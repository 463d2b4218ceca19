"""The Insertion Transformer: what it makes of a canvas, against loops and torch's own layers."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from canvases import WORDS, by_torch, tiny
from conftest import FIRST_WORD, random_sources
from torch import Tensor

from anyorder.models.attention import SelfAttention
from anyorder.text.tokenizer import BOS, EOS

# --- the distribution ---


@pytest.mark.parametrize("termination", ["gap", "classifier"])
def test_every_insertion_is_as_likely_as_by_torchs_own_layers(termination: str) -> None:
    """Also on a canvas that is padded in a batch, and all insertions into a canvas sum to one."""
    model = tiny(termination=termination)
    source, mask = random_sources(lengths=[4, 4, 4], words=WORDS)
    words, lengths = padded_canvases()
    with torch.no_grad():
        found = model.insertions(model.source_keys(model.encode(source, mask)), words, lengths)
    joint = (found.gap - found.normaliser)[..., None] + found.logits
    torch.testing.assert_close(joint.exp().sum(dim=(1, 2)), torch.ones(3).double())
    for row, canvas in enumerate(CANVASES):
        expected = by_torch(model, source[row : row + 1], canvas)
        torch.testing.assert_close(joint[row, : len(expected.joint)], expected.joint, check_dtype=False)
        if found.stop is not None:
            assert float(found.stop[row]) == pytest.approx(expected.stop)


CANVASES = ([], [FIRST_WORD + 2, FIRST_WORD], [FIRST_WORD + 1])


def padded_canvases() -> tuple[Tensor, Tensor]:
    """`CANVASES` as a batch, and their lengths; padding is not seen, whatever it is."""
    words = [[BOS, *canvas, EOS, *[FIRST_WORD] * (2 - len(canvas))] for canvas in CANVASES]
    return torch.tensor(words), torch.tensor([2 + len(canvas) for canvas in CANVASES])


def test_relative_positions_of_the_canvas_are_distances_and_nothing_else() -> None:
    """Each pair of tokens by its clipped distance, in plain loops; padded canvases as each one alone."""
    model = tiny(positions="relative", clip=1)
    source, mask = random_sources(lengths=[4, 4, 4], words=WORDS)
    words, lengths = padded_canvases()
    with torch.no_grad():
        found = model.read(model.source_keys(model.encode(source, mask)), words, lengths).gaps
        for row, length in enumerate(lengths.tolist()):
            sources = model.source_keys(model.encode(source[row : row + 1], mask[row : row + 1]))
            (states,) = model.scaled_embedding(words[row : row + 1, :length])
            for layer, of_source in zip(model.decoder, sources, strict=True):
                seen = layer.attention_norm(states)
                states = states + attention_by_hand(layer.attention, seen)
                crossed = layer.cross_norm(states)[None]
                states = states + layer.cross(
                    crossed, of_source.key, of_source.value, padding=of_source.padding
                ).squeeze(0)
                states = states + layer.feed_forward(layer.feed_forward_norm(states))
            states = model.decoder_norm(states)
            for gap, (left, right) in enumerate(pairwise(states)):
                torch.testing.assert_close(found[row, gap], model.join(torch.cat([left, right])))


def attention_by_hand(attention: SelfAttention, states: Tensor) -> Tensor:
    """Self-attention with distances clipped to one. states: (n, D)."""
    assert attention.relation_keys is not None
    heads, width = attention.heads, states.shape[1] // attention.heads
    projected = (states @ attention.project.weight.T).view(len(states), 3, heads, width)
    rows = []
    for token in range(len(states)):
        of_heads = []
        for head in range(heads):
            query = projected[token, 0, head] / math.sqrt(width)
            logits = [
                query @ (projected[other, 1, head] + attention.relation_keys[head, kind])
                for other in range(len(states))
                for kind in [1 + max(-1, min(1, token - other))]
            ]
            of_heads.append(torch.stack(logits).softmax(dim=0) @ projected[:, 2, head])
        rows.append(attention.output(torch.cat(of_heads)))
    return torch.stack(rows)
