"""The best words, against log p of all words."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anyorder.models.kernels.vocabulary import BLOCK, GROUP, Vocabulary


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 20),
    words=st.sampled_from([1, 2, GROUP - 1, GROUP, GROUP + 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3]),
    count=st.integers(1, 9),
    seed=st.integers(0, 2**31),
)
def test_the_best_words_are_those_of_the_whole_softmax(rows: int, words: int, count: int, seed: int) -> None:
    chance = torch.Generator().manual_seed(seed)
    embedding = torch.randn(words, 6, generator=chance)
    query = 5 * torch.randn(rows, 6, generator=chance)
    every = (query.double() @ embedding.double().mT).log_softmax(dim=-1)
    expected = every.sort(dim=-1, descending=True).values[:, :count]

    best = Vocabulary(embedding).best(query, count=count)

    torch.testing.assert_close(best.log_probs.double(), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(every.gather(1, best.choices), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(best.end.double(), every[:, 0], atol=1e-4, rtol=1e-4)


@settings(max_examples=40, deadline=None)
@given(words=st.sampled_from([1, BLOCK, BLOCK + 1, 2 * BLOCK + 3]), seed=st.integers(0, 2**31))
def test_words_that_are_asked_for_are_found_in_every_block(words: int, seed: int) -> None:
    chance = torch.Generator().manual_seed(seed)
    embedding = torch.randn(words, 6, generator=chance)
    query = torch.randn(32, 6, generator=chance)
    asked = torch.randint(words, (32, 9), generator=chance)
    every = (query.double() @ embedding.double().mT).log_softmax(dim=-1)

    no_end = torch.rand(32, generator=chance) < 0.5

    best, found = Vocabulary(embedding).best_and(query, asked, without_end=no_end, count=2)

    torch.testing.assert_close(found.double(), every.gather(1, asked), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(best.end.double(), every[:, 0], atol=1e-4, rtol=1e-4)
    every[no_end, 0] = float("-inf")
    expected = every.sort(dim=-1, descending=True).values[:, :2]
    torch.testing.assert_close(best.log_probs.double(), expected, atol=1e-4, rtol=1e-4)


def test_logits_may_be_large() -> None:
    """The normaliser of each block is taken relative to its own best word."""
    embedding = torch.zeros(2 * BLOCK, 1)
    embedding[3], embedding[BLOCK + 5] = 1000.0, 999.0
    best = Vocabulary(embedding).best(torch.ones(32, 1), count=2)
    assert best.choices[0].tolist() == [3, BLOCK + 5]
    assert best.log_probs[0].tolist() == pytest.approx([-0.31326, -1.31326], abs=1e-4)
