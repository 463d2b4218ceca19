"""Tiny models and sentences that the tests share, and a model's next step worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import hypothesis
import numpy as np
import torch
from torch import Tensor

from anyorder import config
from anyorder.config.model import Shape
from anyorder.data.batches import Example, collate_sources
from anyorder.models.encoder_decoder import Memory
from anyorder.models.indigo import Indigo
from anyorder.text.tokenizer import BOS, EOD, EOS, UNK

# The first call of a torch function is slow, which says nothing about the law under test.
hypothesis.settings.register_profile("anyorder", deadline=None, max_examples=40)
hypothesis.settings.load_profile("anyorder")
torch.set_num_threads(1)  # faster than two for tensors of this size

Steps = tuple[tuple[int, int], ...]  # the word and the gap of each step

FIRST_WORD = UNK  # the lowest id that a sentence may hold


def tiny_model(
    *,
    words: int = 3,
    seed: int = 0,
    features: int = 0,
    dtype: torch.dtype = torch.float64,
    marks_given: bool = False,
    reads_required: bool = False,
    **settings: object,
) -> Indigo:
    """A random model of few words, in which no weight is zero or one as it may be when learning starts."""
    small = {"width": 8, "hidden": 12, "heads": 2, "encoder_layers": 1, "decoder_layers": 2, "clip": 2}
    ids = FIRST_WORD + words
    torch.manual_seed(seed)
    model = Indigo(
        config.Model.model_validate(small | settings),
        Shape(vocabulary=ids, target_vocabulary=ids, features=features),
        marks_given=marks_given,
        reads_required=reads_required,
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.4)
        # Neither ending nor any word or gap is next to impossible, so no law holds for want of cases.
        model.word_head.project.weight.mul_(0.4)
        model.gap_head.project.weight.mul_(0.4)
    return model.to(dtype).eval()


def random_examples(*, lengths: Sequence[int], words: int = 3, seed: int = 0) -> list[Example]:
    """Pairs with targets of these lengths, in random orders."""
    chance = np.random.default_rng(seed)

    def sentence(length: int) -> np.ndarray:
        return chance.integers(FIRST_WORD, FIRST_WORD + words, size=length).astype(np.int32)

    return [
        Example(
            source=sentence(int(chance.integers(1, 6))),
            target=sentence(length),
            order=(chance.permutation(length) + 1).astype(np.int32),
        )
        for length in lengths
    ]


def random_sources(*, lengths: Sequence[int], words: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Token ids and their mask, as `Indigo.encode` takes them."""
    examples = random_examples(lengths=lengths, words=words, seed=seed)
    return collate_sources([example.target for example in examples])


def indices_after(gaps: Sequence[int]) -> list[int]:
    """Where each token stands, boundaries first, once a plain list has grown through these gaps."""
    canvas = [0, 1]
    for token, gap in enumerate(gaps, start=2):
        canvas.insert(gap + 1, token)
    return [canvas.index(token) for token in range(len(canvas))]


@dataclass(frozen=True)
class NextStep:
    """log p of everything that may come next; words are counted from FIRST_WORD."""

    end: float
    word: Tensor  # (words, gaps), given the gap where that comes first
    gap: Tensor  # (words, gaps), given the word where that comes first


@torch.no_grad()
def next_step(model: Indigo, memory: Memory, steps: Steps) -> NextStep:
    """From the formulas, without a cache. memory: of one source."""
    indices = indices_after([gap for _, gap in steps])
    words = torch.tensor([[BOS, EOS, *(word for word, _ in steps)]])
    states = model.states(memory, words, torch.tensor([indices]))[0]  # (n, D)
    queried = model.gap_head.project.weight @ states[-1]
    embedding = model.embed_target.weight * math.sqrt(model.settings.width)
    output = model.embed_output.weight
    word_query = model.word_head.project.weight @ states[-1]
    if not model.position_first:
        word = (output[EOD:] @ word_query).log_softmax(dim=0)
        gap = torch.stack(
            [pointer_by_hand(model, states, queried + vector, indices) for vector in embedding[FIRST_WORD:]]
        )
        return NextStep(end=float(word[0]), word=word[1:, None].expand_as(gap), gap=gap)

    assert model.gap_to_word is not None
    gap_or_finish = pointer_by_hand(model, states, queried, indices)
    left_keys, right_keys = _keys_by_hand(model, states)
    columns = []
    for left_place in range(len(indices) - 1):
        left, right = indices.index(left_place), indices.index(left_place + 1)
        hint = model.gap_to_word.weight @ (right_keys[left] + left_keys[right])
        columns.append((output[FIRST_WORD:] @ (word_query + hint)).log_softmax(dim=0))
    word = torch.stack(columns, dim=1)
    return NextStep(end=float(gap_or_finish[-1]), word=word, gap=gap_or_finish[:-1].expand_as(word))


def pointer_by_hand(model: Indigo, states: Tensor, query: Tensor, indices: Sequence[int]) -> Tensor:
    """Eq. 9 over the flat keys 0..2t+1, two of them for each gap; `finish` comes last where there is one.

    states: (t + 1, D); query: (D,); returns log p, (gaps,) or (gaps + 1,).
    """
    latest = len(states) - 1  # t
    logits = torch.cat(_keys_by_hand(model, states)) @ query / math.sqrt(len(query))
    logits[0] = logits[latest + 2] = float("-inf")
    if model.gap_head.finish is not None:
        finish = (model.gap_head.finish @ query / math.sqrt(len(query))).reshape(1)
        logits = torch.cat([logits, finish])
    by_key = logits.softmax(dim=0)
    by_gap = []
    for left_place in range(latest):
        left, right = indices.index(left_place), indices.index(left_place + 1)
        by_gap.append(by_key[latest + 1 + left] + by_key[right])
    ending = [by_key[-1]] if model.gap_head.finish is not None else []
    return torch.stack(by_gap + ending).log()


def _keys_by_hand(model: Indigo, states: Tensor) -> tuple[Tensor, Tensor]:
    left, right = model.gap_head.keys.weight.chunk(2)  # C and D
    return states @ left.T, states @ right.T
