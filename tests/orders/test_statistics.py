"""What orders are like: every figure against another way to work it out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyorder.inference.hypothesis import steps
from anyorder.orders.statistics import (
    QUARTERS,
    TENTHS,
    OrderStatistics,
    compare_orders,
    expected_by_chance,
    frequency_quarters,
    kendall,
    moves,
    order_statistics,
    spearman,
)

orders = st.integers(2, 12).flatmap(lambda length: st.permutations(range(1, length + 1)))
LETTERS = "abcdefghijkl"


def statistics(*positions: Sequence[int], labels: Sequence[str] = ()) -> OrderStatistics:
    """Of sentences that read a b c …, with a label for each token of each."""
    found = order_statistics(
        positions, [LETTERS[: len(one)] for one in positions], labels={"kind": labels} if labels else None
    )
    assert found is not None
    return found


# Laws


@given(positions=orders)
def test_tau_counts_pairs_that_are_written_in_the_order_they_are_read(positions: list[int]) -> None:
    in_order = [earlier < later for earlier, later in combinations(positions, 2)]
    assert kendall(positions) == pytest.approx((2 * sum(in_order) - len(in_order)) / len(in_order))


@given(positions=orders)
def test_rho_is_the_correlation_of_step_and_position(positions: list[int]) -> None:
    assert spearman(positions) == pytest.approx(np.corrcoef(range(len(positions)), positions)[0, 1])


@given(positions=orders)
def test_moves_are_measured_on_the_canvas_that_holds_both_tokens(positions: list[int]) -> None:
    history = steps([str(position) for position in positions], positions)
    for number, move in enumerate(moves(positions)):
        last, new = history[number].token, history[number + 1].token
        canvas = history[number + 1].canvas
        assert move.indices == canvas.index(new) - canvas.index(last)
        assert move.positions == int(new) - int(last)


@given(positions=orders)
def test_a_mirrored_order_has_the_opposite_tau(positions: list[int]) -> None:
    mirrored = [len(positions) + 1 - position for position in positions]
    here, there = statistics(positions).figures, statistics(mirrored).figures
    assert there.kendall == pytest.approx(-here.kendall)
    assert there.spearman == pytest.approx(-here.spearman)
    assert (there.left_to_right, there.right_to_left) == (here.right_to_left, here.left_to_right)
    assert (there.jump, there.canvas_jump) == (here.jump, here.canvas_jump)
    assert there.first_position == pytest.approx(1 - here.first_position)


@pytest.mark.parametrize("sentences", [["ab"], ["abc"], ["aab", "cd"], ["abab", "ca", "ccc"], ["abcda"]])
def test_chance_is_what_all_orders_together_come_to(sentences: list[str]) -> None:
    most = math.factorial(max(map(len, sentences)))
    every_order, tokens = [], []
    for sentence in sentences:
        found = list(permutations(range(1, len(sentence) + 1)))
        every_order += found * (most // len(found))  # each sentence weighs alike
        tokens += [sentence] * most
    kinds = [[letter.upper() for letter in sentence] for sentence in tokens]
    listed = order_statistics(every_order, tokens, labels={"kind": kinds})
    expected = expected_by_chance(tokens, labels={"kind": kinds})
    assert listed is not None
    assert expected is not None
    assert asdict(listed.figures) == pytest.approx(asdict(expected.figures))
    assert listed.first_tokens == pytest.approx(expected.first_tokens)
    assert {kind: group.step for kind, group in listed.groups["kind"].items()} == pytest.approx(
        {kind: group.step for kind, group in expected.groups["kind"].items()}
    )
    np.testing.assert_allclose(listed.heat, expected.heat)


@given(positions=orders, others=orders)
def test_the_heat_map_spreads_tokens_evenly(positions: list[int], others: list[int]) -> None:
    expected = np.zeros((TENTHS, TENTHS))
    for order in (positions, others):
        # Points so fine that each lies in one token and in one tenth.
        points = np.arange(len(order) * TENTHS)
        covers = np.zeros((len(order), TENTHS))
        np.add.at(covers, (points // TENTHS, points // len(order)), 1 / TENTHS)
        expected += covers.T @ covers[np.array(order) - 1]
    heat = np.array(statistics(positions, others).heat)
    np.testing.assert_allclose(heat, expected * TENTHS / (len(positions) + len(others)))
    np.testing.assert_allclose(heat.sum(axis=0), 1)
    np.testing.assert_allclose(heat.sum(axis=1), 1)


@given(positions=orders)
def test_sentences_of_less_than_two_tokens_count_nowhere(positions: list[int]) -> None:
    with_short = order_statistics([[], positions, [1]], ["", LETTERS[: len(positions)], "z"])
    assert with_short == statistics(positions)
    assert order_statistics([[], [1]], ["", "z"]) is None
    assert expected_by_chance(["", "z"]) is None
    assert compare_orders([[1]], ["z"]) is None


@given(counts=st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(1, 9), min_size=1))
def test_rarer_words_are_in_no_earlier_quarter(counts: dict[str, int]) -> None:
    quarters = frequency_quarters(counts)
    assert quarters.keys() == counts.keys()
    by_frequency = sorted(counts, key=counts.__getitem__, reverse=True)
    ranks = [QUARTERS.index(quarters[word]) for word in by_frequency]
    assert ranks == sorted(ranks)
    assert len({(counts[word], quarters[word]) for word in counts}) == len(set(counts.values()))


# Small tables


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        #         tau   jump  so far  next  beside  run  first
        ([1, 2, 3], (1, 1, 1, 1, 1, 3, 0)),
        ([3, 2, 1], (-1, 1, 1, 0, 0, 1, 1)),
        ([1, 3, 2], (1 / 3, 1.5, 1, 0, 1 / 2, 1, 0)),  # the 3 stands right beside the 1 when it comes
        ([2, 3, 1], (-1 / 3, 1.5, 1.5, 1 / 2, 1 / 2, 1.5, 1 / 2)),
        ([3, 4, 1, 2], (-1 / 3, 5 / 3, 4 / 3, 2 / 3, 2 / 3, 2, 2 / 3)),
        ([4, 2, 6, 1, 3, 5, 7], (1 / 3, 17 / 6, 2, 0, 0, 1, 1 / 2)),
    ],
)
def test_figures_of_one_order(positions: list[int], expected: tuple[float, ...]) -> None:
    found = statistics(positions).figures
    shown = (
        found.kendall,
        found.jump,
        found.canvas_jump,
        found.next_position,
        found.beside,
        found.run_length,
        found.first_position,
    )
    assert shown == pytest.approx(expected)


def test_figures_of_several_orders() -> None:
    """Correlations are means over sentences; jumps and runs are over all steps together."""
    found = statistics([1, 2], [2, 1], [1, 2, 3, 4])
    assert (found.sentences, found.tokens) == (3, 8)
    assert found.figures.kendall == pytest.approx(1 / 3)
    assert found.figures.left_to_right == pytest.approx(2 / 3)
    assert found.figures.right_to_left == pytest.approx(1 / 3)
    assert found.figures.next_position == pytest.approx(4 / 5)
    assert found.figures.run_length == pytest.approx(8 / 4)


def test_first_tokens() -> None:
    found = statistics([2, 1], [1, 2], [2, 1], [3, 1, 2])
    assert found.first_tokens == {"b": 0.5, "a": 0.25, "c": 0.25}
    assert found.figures.first_entropy == pytest.approx(1.5)


def test_groups_tell_when_their_tokens_are_written() -> None:
    found = statistics([3, 1, 2], [2, 1], labels=["NVN", "VN"])
    noun, verb = found.groups["kind"]["N"], found.groups["kind"]["V"]
    assert (noun.tokens, verb.tokens) == (3, 2)
    assert noun.step == pytest.approx((0.5 + 0 + 0) / 3)
    assert verb.step == pytest.approx((1 + 1) / 2)
    assert list(found.groups["kind"]) == ["N", "V"]


def test_groups_are_sorted_by_step_but_quarters_by_frequency() -> None:
    assert list(statistics([3, 1, 2], labels=["XYZ"]).groups["kind"]) == ["Z", "X", "Y"]
    quarters = [QUARTERS[2], QUARTERS[3], QUARTERS[0]]
    assert list(statistics([2, 1, 3], labels=[quarters]).groups["kind"]) == [
        QUARTERS[0],
        QUARTERS[2],
        QUARTERS[3],
    ]


@pytest.mark.parametrize(
    ("counts", "quarters"),
    [
        (
            {"the": 4, "a": 4, "cat": 2, "dog": 2, "sat": 1, "ran": 1, "on": 1, "in": 1},
            [1, 1, 2, 2, 3, 3, 3, 3],
        ),
        ({"the": 1, "cat": 1}, [2, 2]),  # their middle is where the third quarter begins
        ({"the": 98, "cat": 1, "dog": 1}, [1, 3, 3]),
        ({"a": 25, "b": 24, "c": 23, "d": 22}, [0, 1, 2, 3]),
    ],
)
def test_quarters_of_running_words(counts: dict[str, int], quarters: list[int]) -> None:
    assert list(frequency_quarters(counts).values()) == [QUARTERS[number] for number in quarters]


def test_both_baselines_stand_beside() -> None:
    compared = compare_orders([[2, 1, 3]], ["abc"])
    assert compared is not None
    assert compared.found == statistics([2, 1, 3])
    assert compared.left_to_right == statistics([1, 2, 3])
    assert compared.by_chance == expected_by_chance(["abc"])
