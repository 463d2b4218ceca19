"""What decoding saves, against a decoder that saves nothing, on a thousand sentences of a trained model."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from conftest import indices_after, pointer_by_hand
from corpora import learned

from anyorder.data.batches import collate_sources
from anyorder.inference.generator import Generator
from anyorder.models.registry import ordered
from anyorder.text.tokenizer import BOS, EOD, EOS

SENTENCES = 1000


@torch.no_grad()
def written_simply(generator: Generator, source: str, *, most: int) -> tuple[list[str], list[int]]:
    """Greedily, by the formulas: no cache, no batch, all words scored. Returns tokens and their positions."""
    model = ordered(generator.trained.model, purpose="this test")
    ids = np.array(generator.tokenizer.encode(source, "source").ids, dtype=np.int32)
    memory = model.encode(*collate_sources([ids]))
    tokens: list[int] = []
    gaps: list[int] = []
    while len(tokens) < most:
        indices = indices_after(gaps)
        words = torch.tensor([[BOS, EOS, *tokens]])
        states = model.states(memory, words, torch.tensor([indices]))[0]  # (n, D)
        word_query = model.word_head.project.weight @ states[-1]
        word = EOD + int((model.output_embedding[EOD:] @ word_query).argmax())
        if word == EOD:
            break
        vector = model.embed_target.weight[word] * model.settings.width**0.5
        query = model.gap_head.project.weight @ states[-1] + vector
        gaps.append(int(pointer_by_hand(model, states, query, indices).argmax()))
        tokens.append(word)
    return [generator.tokenizer.piece(token) for token in tokens], indices_after(gaps)[2:]


def made_up(count: int) -> Iterator[str]:
    chance = random.Random(1)
    for _ in range(count):
        yield " ".join(chance.choices("abcdefgh", k=chance.randint(1, 9)))


def differing(generator: Generator, sources: Sequence[str]) -> list[str]:
    """Sources that are answered otherwise than simply."""
    answers = itertools.chain.from_iterable(generator.generate(sources, beam=1))
    return [
        source
        for source, fast in zip(sources, answers, strict=True)
        if (list(fast.tokens), list(fast.positions))
        != written_simply(generator, source, most=len(fast.tokens) + fast.finished)
    ]


def test_a_thousand_sentences_are_written_alike() -> None:
    assert differing(Generator.load(learned().run), list(made_up(SENTENCES))) == []
