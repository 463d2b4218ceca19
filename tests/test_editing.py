"""Laws of edits: shortest scripts rebuild their targets, and relations never change."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anyorder.data.edits import stack_canvases
from anyorder.editing import (
    Edit,
    EditCanvas,
    EditKind,
    align,
    distances,
    hidden,
    live,
    perform,
    script_order,
)

sentences = st.lists(st.integers(3, 6), max_size=7)
orders = st.sampled_from(["l2r", "deletions", "random"])


def edited(
    draft: list[int], target: list[int], *, order: str = "l2r", seed: int = 0, **options: bool
) -> EditCanvas:
    canvas = EditCanvas(draft)
    alignment = align(draft, target, **options)
    generator = np.random.default_rng(seed)
    perform(canvas, alignment, target, script_order(alignment, order=order, generator=generator))
    return canvas


@given(draft=sentences, target=sentences, order=orders, seed=st.integers(0, 9), substitute=st.booleans())
def test_every_script_rebuilds_the_target(
    draft: list[int], target: list[int], order: str, seed: int, substitute: bool
) -> None:
    canvas = edited(draft, target, order=order, seed=seed, substitute=substitute)
    assert canvas.read() == target
    kinds = {edit.kind for edit in canvas.edits}
    assert substitute or EditKind.SUBSTITUTE not in kinds


@given(draft=sentences, target=sentences, substitute=st.booleans())
def test_no_script_is_shorter(draft: list[int], target: list[int], substitute: bool) -> None:
    @cache
    def fewest(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        ways = [fewest(i - 1, j) + 1, fewest(i, j - 1) + 1]
        if draft[i - 1] == target[j - 1]:
            ways.append(fewest(i - 1, j - 1))
        elif substitute:
            ways.append(fewest(i - 1, j - 1) + 1)
        return min(ways)

    edits = edited(draft, target, substitute=substitute).edits
    assert len(edits) == fewest(len(draft), len(target))


@pytest.mark.parametrize(
    ("draft", "target", "kinds", "runs"),
    [
        ([3, 4, 5], [3, 4, 5], "", 0),
        ([3, 4, 5], [3, 6, 5], "S", 1),
        ([3, 4, 5], [3, 5], "D", 1),
        ([3, 5], [3, 4, 5], "I", 1),
        ([3, 4, 3, 4], [3, 4], "DD", 1),  # not the first 3 and the last 4, which are two runs
        ([], [3, 4], "II", 1),
        ([3, 4], [], "DD", 1),
    ],
)
def test_of_the_shortest_scripts_the_one_with_fewest_runs_is_learned(
    draft: list[int], target: list[int], kinds: str, runs: int
) -> None:
    alignment = align(draft, target)
    assert "".join(pair.kind.name[0] for pair in alignment if not pair.same) == kinds
    same = [True, *(pair.same for pair in alignment)]
    assert sum(a and not b for a, b in itertools.pairwise(same)) == runs


@given(draft=sentences, target=sentences)
def test_deletions_come_first_if_asked_for(draft: list[int], target: list[int]) -> None:
    kinds = [edit.kind for edit in edited(draft, target, order="deletions").edits]
    deletions = kinds.count(EditKind.DELETE)
    assert all(kind is EditKind.DELETE for kind in kinds[:deletions])


@given(draft=sentences, target=sentences, order=orders, seed=st.integers(0, 9))
def test_relations_never_change(draft: list[int], target: list[int], order: str, seed: int) -> None:
    clip = 3
    whole = edited(draft, target, order=order, seed=seed)
    final = distances(stack_canvases([whole]), clip=clip)[0]
    canvas = EditCanvas(draft)
    for edit in whole.edits:
        canvas.apply(edit)
        newest = canvas.next_token - 1
        indices = canvas.indices()
        seen = {token: indices[newest] - index for token, index in indices.items()}
        ghosts = {token for token, number in canvas.gone.items() if number < len(canvas.edits)}
        for token, apart in seen.items():
            expected = clip + 1 if token in ghosts else max(-clip, min(clip, apart))
            assert int(final[newest, token]) == expected
        if edit.kind is not EditKind.INSERT:
            assert int(final[newest, edit.token]) == 0


def test_a_new_word_stands_left_of_the_ghosts_in_its_gap() -> None:
    canvas = EditCanvas([7, 8, 9])
    canvas.apply(Edit(EditKind.DELETE, 3))
    new = canvas.apply(Edit(EditKind.INSERT, 2, 5))
    assert canvas.read() == [7, 5, 9]
    indices = canvas.indices()
    assert indices[2] < indices[new] < indices[3] < indices[4]


def test_masks_of_a_batch() -> None:
    canvases = [EditCanvas([7, 8], room=3), EditCanvas([7, 8, 9], room=3)]
    canvases[0].apply(Edit(EditKind.SUBSTITUTE, 2, 5))
    canvases[0].apply(Edit(EditKind.DELETE, 3))
    batch = stack_canvases(canvases)
    assert batch.words.tolist() == [[1, 2, 7, 8, 0, 5, 0], [1, 2, 7, 8, 9, 0, 0]]
    assert live(batch).long().tolist() == [
        [[1, 1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 1, 0], [1, 1, 0, 0, 0, 1, 0]],
        [[1, 1, 1, 1, 1, 0, 0]] * 3,
    ]
    seen = ~hidden(batch)
    assert torch.equal(seen[0, 0].long(), torch.tensor([1, 1, 1, 1, 0, 0, 0]))  # padding is hidden
    assert torch.equal(seen[0, 5].long(), torch.tensor([1, 1, 1, 1, 0, 1, 0]))  # later edits are hidden
    assert torch.equal(seen[0, 6].long(), torch.tensor([1, 1, 1, 1, 0, 1, 1]))  # ghosts are not
