"""The algebra of insertion, against insertions into plain lists."""

from __future__ import annotations

import itertools

import pytest
import torch
from conftest import indices_after
from hypothesis import given
from hypothesis import strategies as st

from anyorder.insertion import (
    LEFT,
    RIGHT,
    canvas_indices,
    extend,
    gap_beside,
    gap_neighbours,
    insert,
    legal_keys,
    reading_order,
    relation_row,
    relations,
    supervise,
)


@st.composite
def gap_sequences(draw: st.DrawFn, most: int = 7) -> list[int]:
    """A gap for each token: before the first there is one gap, then one more each time."""
    length = draw(st.integers(0, most))
    return [draw(st.integers(0, written)) for written in range(length)]


def permutations(least: int = 0, most: int = 7) -> st.SearchStrategy[list[int]]:
    """Orders: the position that each step fills, counted from 1."""
    return st.integers(least, most).flatmap(lambda length: st.permutations(range(1, length + 1)))


def one(*numbers: int) -> torch.Tensor:
    """A batch of one."""
    return torch.tensor([list(numbers)])


# --- relations and indices ---


@given(gap_sequences())
def test_indices_and_relations_invert_each_other(gaps: list[int]) -> None:
    indices = one(*indices_after(gaps))
    related = relations(indices)
    assert torch.equal(canvas_indices(related), indices)
    assert torch.equal(relations(canvas_indices(related)), related)


@given(gap_sequences())
def test_relations_are_antisymmetric(gaps: list[int]) -> None:
    related = relations(one(*indices_after(gaps)))
    assert torch.equal(related, -related.mT)
    assert set(related.unique().tolist()) == {-1, 0, 1}


def test_row_i_holds_the_relations_of_token_i() -> None:
    """The paper's canvas `<s> I dream </s>`, written `<s>`, `</s>`, dream, I."""
    indices = torch.tensor([0, 3, 2, 1])
    assert relations(indices).tolist() == [
        [0, -1, -1, -1],  # <s> stands left of all
        [1, 0, 1, 1],  # </s> stands right of all
        [1, -1, 0, 1],  # dream: right of <s>, left of </s>, itself, right of I
        [1, -1, -1, 0],
    ]
    assert reading_order(indices).tolist() == [0, 3, 2, 1]


# --- one more token ---


@given(gap_sequences())
def test_extending_relations_equals_building_them(gaps: list[int]) -> None:
    """For every gap, and from either of its neighbours."""
    indices = one(*indices_after(gaps))
    left, right = gap_neighbours(indices)
    for gap in range(len(gaps) + 1):
        rebuilt = relations(one(*indices_after([*gaps, gap])))
        for neighbour, side in ((left[:, gap], RIGHT), (right[:, gap], LEFT)):
            row = relation_row(relations(indices), neighbour=neighbour, side=torch.tensor([side]))
            assert torch.equal(extend(relations(indices), row), rebuilt)


@given(gap_sequences())
def test_insert_shifts_the_tokens_to_the_right(gaps: list[int]) -> None:
    for gap in range(len(gaps) + 1):
        grown = insert(one(*indices_after(gaps)), torch.tensor([gap]))
        assert grown.tolist() == [indices_after([*gaps, gap])]


def test_rows_of_a_batch_do_not_mix() -> None:
    indices = torch.tensor([[0, 2, 1], [0, 2, 1]])  # <s> token </s>, twice
    beside = {"neighbour": torch.tensor([2, 2]), "side": torch.tensor([LEFT, RIGHT])}
    assert gap_beside(indices, **beside).tolist() == [0, 1]
    assert insert(indices, torch.tensor([0, 1])).tolist() == [[0, 3, 2, 1], [0, 3, 1, 2]]
    assert relation_row(relations(indices), **beside).tolist() == [[1, -1, -1], [1, -1, 1]]


def test_putting_a_token_beside_another_leaves_the_relations_alone() -> None:
    related = relations(one(0, 1))
    before = related.clone()
    relation_row(related, neighbour=torch.tensor([0]), side=torch.tensor([RIGHT]))
    assert torch.equal(related, before)


# --- gaps and their keys ---


@given(gap_sequences())
def test_reading_order_inverts_indices(gaps: list[int]) -> None:
    indices = torch.tensor(indices_after(gaps))
    everything = torch.arange(len(indices))
    assert torch.equal(indices[reading_order(indices)], everything)
    assert torch.equal(reading_order(indices)[indices], everything)


@given(gap_sequences())
def test_every_gap_has_exactly_two_legal_keys(gaps: list[int]) -> None:
    indices = one(*indices_after(gaps))
    tokens = indices.shape[1]
    legal = legal_keys(tokens)
    keys: dict[int, list[tuple[int, int]]] = {}
    for (row, side), neighbour in itertools.product(enumerate((LEFT, RIGHT)), range(tokens)):
        if legal[row, neighbour]:
            gap = gap_beside(indices, neighbour=torch.tensor([neighbour]), side=torch.tensor([side])).item()
            keys.setdefault(int(gap), []).append((side, neighbour))
    left, right = (side[0].tolist() for side in gap_neighbours(indices))
    assert keys == {gap: [(LEFT, right[gap]), (RIGHT, left[gap])] for gap in range(tokens - 1)}


@pytest.mark.parametrize("tokens", [2, 3, 6])
def test_only_the_outer_sides_of_the_boundaries_are_illegal(tokens: int) -> None:
    flat = legal_keys(tokens).flatten()
    latest = tokens - 1
    assert (~flat).nonzero().flatten().tolist() == [0, latest + 2]


# --- supervision ---


@given(permutations())
def test_every_order_rebuilds_its_sentence(order: list[int]) -> None:
    supervision = supervise(torch.tensor([order], dtype=torch.long), torch.tensor([len(order)]))
    assert indices_after(supervision.gap[0].tolist()) == [0, len(order) + 1, *order]
    assert supervision.positions[0].tolist() == [0, len(order) + 1, *order]
    assert supervision.mask.all()


@given(permutations(least=1))
def test_neighbours_name_the_gap_at_its_step(order: list[int]) -> None:
    supervision = supervise(torch.tensor([order]), torch.tensor([len(order)]))
    gaps = supervision.gap[0].tolist()
    for step in range(len(order)):
        left, right = gap_neighbours(one(*indices_after(gaps[:step])))
        assert supervision.left[0, step] == left[0, gaps[step]]
        assert supervision.right[0, step] == right[0, gaps[step]]


@given(permutations(), permutations(), st.integers(0, 3), st.integers(-5, 20))
def test_padding_changes_nothing(short: list[int], long: list[int], more: int, garbage: int) -> None:
    longest = max(len(short), len(long)) + more
    rows = [order + [garbage] * (longest - len(order)) for order in (short, long)]
    lengths = torch.tensor([len(short), len(long)])
    together = supervise(torch.tensor(rows, dtype=torch.long).reshape(2, longest), lengths)
    for row, order in enumerate((short, long)):
        alone = supervise(torch.tensor([order], dtype=torch.long), lengths[row : row + 1])
        real = len(order)
        assert torch.equal(together.positions[row, : real + 2], alone.positions[0])
        assert together.mask[row].tolist() == [True] * real + [False] * (longest - real)
        for name in ("gap", "left", "right"):
            assert torch.equal(getattr(together, name)[row, :real], getattr(alone, name)[0])
        # Padding gets the one gap of an empty canvas, and nothing real relates to it as to a neighbour.
        assert (together.left[row, real:] == 0).all()
        assert (together.right[row, real:] == 1).all()
        assert (together.positions[row, real + 2 :] > real + 1).all()
        assert len(together.positions[row].unique()) == longest + 2


def test_i_have_a_dream() -> None:
    """Written dream, I, a, have: tokens 2, 3, 4 and 5."""
    supervision = supervise(torch.tensor([[4, 1, 3, 2]]), torch.tensor([4]))
    assert supervision.positions.tolist() == [[0, 5, 4, 1, 3, 2]]
    assert supervision.gap.tolist() == [[0, 0, 1, 1]]
    assert supervision.left.tolist() == [[0, 0, 3, 3]]  # <s>, <s>, I, I
    assert supervision.right.tolist() == [[1, 2, 2, 4]]  # </s>, dream, dream, a


def test_left_to_right_always_goes_left_of_the_end() -> None:
    supervision = supervise(torch.tensor([[1, 2, 3]]), torch.tensor([3]))
    assert supervision.right.tolist() == [[1, 1, 1]]
    assert supervision.left.tolist() == [[0, 2, 3]]
    assert supervision.gap.tolist() == [[0, 1, 2]]
