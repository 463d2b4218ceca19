from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import full_disk
from hypothesis import given
from hypothesis import strategies as st

from anyorder.config.order import Order
from anyorder.data.orderer import Line, Orderer, order_split, prepare_order
from anyorder.errors import UserError
from anyorder.orders.fixed import (
    ORDERS,
    by_rank,
    common_words,
    count_words,
    order_rule,
    random_positions,
    spread,
    tree_depths,
)

lengths = st.integers(min_value=0, max_value=30)
seeds = st.integers(min_value=0, max_value=2**32 - 1)
piece_counts = st.lists(st.integers(min_value=1, max_value=4), max_size=12)
word_lists = st.lists(st.sampled_from("abcdefgh"), max_size=20)


def ranked(name: str, marks: Sequence[int]) -> list[int]:
    rule = ORDERS[name]
    assert rule.ranks is not None
    return by_rank(rule.ranks(marks))


def over_positions(name: str, length: int) -> list[int]:
    return ranked(name, range(1, length + 1))


def line_of(text: str, *, number: int = 1, pieces: Sequence[int] | None = None) -> Line:
    words = text.split()
    return Line(number=number, words=words, pieces=pieces or [1] * len(words))


def positions_of(orderer: Orderer, *lines: Line) -> list[list[int]]:
    return list(orderer.positions(lines))


def complaint(order: Order, *lines: Line, **settings: Any) -> str:  # noqa: ANN401
    with pytest.raises(UserError) as refused:
        positions_of(prepare_order(order, split="train", **settings), *lines)
    assert "\n" not in str(refused.value)
    return str(refused.value)


class TestLaws:
    @pytest.mark.parametrize("length", range(31))
    @pytest.mark.parametrize("name", ["l2r", "r2l", "odd", "blt"])
    def test_orders_over_tokens_are_permutations(self, name: str, length: int) -> None:
        assert sorted(over_positions(name, length)) == list(range(1, length + 1))

    @given(st.lists(st.integers(min_value=0, max_value=5), max_size=30))
    def test_ranks_rise_and_equal_ranks_go_left_to_right(self, ranks: list[int]) -> None:
        positions = by_rank(ranks)
        assert sorted(positions) == list(range(1, len(ranks) + 1))
        written = [(ranks[position - 1], position) for position in positions]
        assert written == sorted(written)

    @given(lengths, seeds)
    def test_random_positions_are_a_permutation_that_the_generator_decides(
        self, length: int, seed: int
    ) -> None:
        positions = random_positions(length, generator=np.random.default_rng(seed)).tolist()
        assert sorted(positions) == list(range(1, length + 1))
        assert positions == random_positions(length, generator=np.random.default_rng(seed)).tolist()

    @given(lengths)
    def test_blt_has_as_few_levels_as_a_binary_tree_can_have(self, length: int) -> None:
        # bit_length is floor(log2 n) + 1
        assert len(set(tree_depths(length))) == length.bit_length()

    @given(lengths)
    def test_r2l_is_l2r_backwards(self, length: int) -> None:
        assert over_positions("r2l", length) == over_positions("l2r", length)[::-1]

    @given(st.lists(st.booleans(), max_size=30))
    def test_cf_is_rf_with_the_roles_exchanged(self, common: list[bool]) -> None:
        rare = [not word for word in common]
        assert ranked("cf", common) == ranked("rf", rare)

    @given(piece_counts, seeds)
    def test_spread_keeps_words_together_and_rising(self, pieces: list[int], seed: int) -> None:
        word_positions = random_positions(len(pieces), generator=np.random.default_rng(seed)).tolist()
        token_positions = spread(word_positions, pieces=pieces)
        assert sorted(token_positions) == list(range(1, sum(pieces) + 1))
        word_of_token = [word for word, count in enumerate(pieces, start=1) for _ in range(count)]
        written_words = [word_of_token[position - 1] for position in token_positions]
        assert written_words == [word for word in word_positions for _ in range(pieces[word - 1])]
        for word in word_positions:
            own = [position for position in token_positions if word_of_token[position - 1] == word]
            assert own == sorted(own)

    @given(st.lists(word_lists, max_size=8))
    def test_no_other_cut_is_nearer_to_half_of_the_running_words(self, lines: list[list[str]]) -> None:
        counts = count_words(lines)
        common = common_words(counts)
        total = counts.total()

        def unevenness(words: Sequence[str]) -> int:
            return abs(2 * sum(counts[word] for word in words) - total)

        by_frequency = sorted(counts, key=lambda word: (-counts[word], word))
        cuts = [by_frequency[:size] for size in range(len(by_frequency) + 1)]
        assert sorted(common) in [sorted(cut) for cut in cuts]
        assert unevenness(sorted(common)) == min(map(unevenness, cuts))


class TestTables:
    @pytest.mark.parametrize(
        ("name", "length", "positions"),
        [
            ("l2r", 4, [1, 2, 3, 4]),
            ("r2l", 4, [4, 3, 2, 1]),
            ("odd", 7, [1, 3, 5, 7, 2, 4, 6]),
            ("odd", 4, [1, 3, 2, 4]),
            ("blt", 7, [4, 2, 6, 1, 3, 5, 7]),
            ("blt", 6, [3, 1, 5, 2, 4, 6]),
            ("blt", 2, [1, 2]),
            ("blt", 1, [1]),
        ],
    )
    def test_orders_over_tokens(self, name: str, length: int, positions: list[int]) -> None:
        assert over_positions(name, length) == positions

    def test_spread(self) -> None:
        assert spread([3, 1, 2], pieces=[2, 1, 3]) == [4, 5, 6, 1, 2, 3]

    @pytest.mark.parametrize(
        ("counts", "common"),
        [
            ({"the": 5, "of": 3, "cat": 1, "dog": 1}, {"the"}),
            ({"the": 3, "of": 3, "cat": 2, "dog": 2}, {"the", "of"}),
            ({"the": 4, "of": 3, "cat": 2, "dog": 2}, {"the"}),
            ({"b": 1, "a": 1}, {"a"}),
            ({"a": 1}, set()),
            ({}, set()),
        ],
    )
    def test_common_words(self, counts: dict[str, int], common: set[str]) -> None:
        assert common_words(counts) == common


class TestNamedOrders:
    def test_token_orders_see_pieces_and_word_orders_see_words(self) -> None:
        line = line_of("the cat sat", pieces=[1, 2, 1])
        counts = Counter({"the": 5, "cat": 2, "sat": 3})
        by_name = {
            name: positions_of(
                prepare_order(Order(name=name), split="train", common=common_words(counts)), line
            )
            for name in ("r2l", "cf", "rf")
        }
        assert by_name == {"r2l": [[4, 3, 2, 1]], "cf": [[1, 2, 3, 4]], "rf": [[2, 3, 4, 1]]}

    def test_a_word_never_seen_is_rare(self) -> None:
        orderer = prepare_order(Order(name="rf"), split="dev", common=frozenset({"the"}))
        assert positions_of(orderer, line_of("the unheard cat")) == [[2, 3, 1]]

    def test_rnd_draws_anew_from_its_generator(self) -> None:
        orderer = prepare_order(Order(name="rnd"), split="train")
        generator = np.random.default_rng(1)
        line = line_of("a b c", pieces=[5, 5, 5])
        first, second = orderer.positions([line, line], generator=generator)
        assert orderer.random
        assert sorted(first) == sorted(second) == list(range(1, 16))
        assert first != second

    def test_syn_from_a_conllu_file(self, tmp_path: Path) -> None:
        heads = {"The": 2, "cat": 3, "sat": 0}
        rows = [
            f"{number}\t{form}\t_\t_\t_\t_\t{head}\t_\t_\t_"
            for number, (form, head) in enumerate(heads.items(), start=1)
        ]
        (tmp_path / "train.conllu").write_text("\n".join(rows) + "\n\n", encoding="utf-8")
        order = Order(name="syn", files={"train": Path("train.conllu")})
        orderer = prepare_order(order, split="train", locate=lambda path: tmp_path / path)
        assert positions_of(orderer, line_of("the cat sat", pieces=[1, 2, 1])) == [[4, 2, 3, 1]]

    def test_syn_needs_a_parser_or_a_file(self) -> None:
        assert complaint(Order(name="syn")) == (
            "order.name = 'syn' needs order.parser, a spaCy pipeline or 'python', "
            "or order.files.train, a CoNLL-U file"
        )

    @pytest.mark.parametrize("name", ["l2l", "", "mine:", ":mine", "my-orders:mine", "a:b:c"])
    def test_other_names_are_refused(self, name: str) -> None:
        with pytest.raises(
            UserError, match=r"no such order; allowed: l2r, r2l, .* or package\.module:function$"
        ):
            order_rule(name)


class TestOwnOrders:
    def test_from_a_file_by_line_numbers(self, tmp_path: Path) -> None:
        (tmp_path / "positions.txt").write_text("2 1\n\n3 1 2\n", encoding="utf-8")
        order = Order(name="file", files={"train": Path("positions.txt")})
        orderer = prepare_order(order, split="train", locate=lambda path: tmp_path / path)
        lines = [line_of("a b c", number=3, pieces=[1, 2, 1]), line_of("a b"), line_of("", number=2)]
        assert positions_of(orderer, *lines) == [[4, 1, 2, 3], [2, 1], []]

    def test_files_that_are_not_there(self, tmp_path: Path) -> None:
        absent = tmp_path / "positions.txt"
        assert complaint(Order(name="file", files={"train": absent})) == (
            f"order.files.train = '{absent}': no such file"
        )
        assert complaint(Order(name="file")) == (
            "order.name = 'file' needs order.files.train, a permutation a line"
        )

    def test_from_a_function_of_words(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", list(sys.path))  # what is added to it goes with the test
        code = "def mine(words): return list(range(len(words), 0, -1))\n"
        Path("orders_from_the_end.py").write_text(code, encoding="utf-8")
        order = Order(name="orders_from_the_end:mine")
        orderer = prepare_order(order, split="dev")
        assert positions_of(orderer, line_of("three a of", pieces=[2, 1, 1])) == [[4, 3, 1, 2]]
        Path("orders_from_the_end.py").write_text(f"{code}# changed\n", encoding="utf-8")
        assert prepare_order(order, split="dev").fingerprint != orderer.fingerprint


class TestCache:
    def test_positions_are_written_once_and_mapped(self, tmp_path: Path) -> None:
        orderer = prepare_order(Order(name="r2l"), split="train")
        positions = order_split(
            orderer, folder=tmp_path, lines=[line_of("a b c"), line_of("a b", pieces=[2, 1])]
        )
        assert isinstance(positions, np.memmap)
        assert positions.dtype == np.int32
        assert positions.tolist() == [3, 2, 1, 3, 2, 1]
        unread = iter([line_of("a")])
        assert order_split(orderer, folder=tmp_path, lines=unread).tolist() == positions.tolist()
        assert len(list(unread)) == 1
        assert len(list(tmp_path.iterdir())) == 1

    def test_a_refused_line_leaves_nothing_behind(self, tmp_path: Path) -> None:
        path = tmp_path / "positions.txt"
        path.write_text("1 2\n2 2\n", encoding="utf-8")
        orderer = prepare_order(Order(name="file", files={"train": path}), split="train")
        lines = [line_of("a b", number=1), line_of("a b", number=2)]
        with pytest.raises(UserError):
            order_split(orderer, folder=tmp_path / "cache", lines=lines)
        assert not list(tmp_path.glob("cache/*"))

    def test_a_full_disk_is_told_and_leaves_nothing_behind(self, tmp_path: Path) -> None:
        orderer = prepare_order(Order(name="l2r"), split="train")
        refused = pytest.raises(UserError, match=r"order-train-\w+\.npy: can't be written: File too large")
        with full_disk(largest_file=200), refused:
            order_split(orderer, folder=tmp_path, lines=[line_of("a b c")] * 20)
        assert not list(tmp_path.iterdir())

    def test_a_folder_that_cannot_be_made_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "taken").write_text("a file")
        orderer = prepare_order(Order(name="l2r"), split="train")
        with pytest.raises(UserError, match="taken: can't be made a folder: File exists"):
            order_split(orderer, folder=tmp_path / "taken", lines=[line_of("a")])

    def test_no_lines_at_all(self, tmp_path: Path) -> None:
        orderer = prepare_order(Order(name="l2r"), split="train")
        assert order_split(orderer, folder=tmp_path / "new", lines=[]).size == 0

    def test_the_fingerprint_follows_what_the_order_depends_on(self, tmp_path: Path) -> None:
        path = tmp_path / "positions.txt"
        by_file = Order(name="file", files={"train": path, "dev": path})

        def fingerprints() -> list[str]:
            return [
                prepare_order(Order(name="l2r"), split="train").fingerprint,
                prepare_order(Order(name="l2r"), split="dev").fingerprint,
                prepare_order(Order(name="blt"), split="train").fingerprint,
                prepare_order(Order(name="cf"), split="train", common=frozenset("a")).fingerprint,
                prepare_order(Order(name="cf"), split="train", common=frozenset("b")).fingerprint,
                prepare_order(by_file, split="train").fingerprint,
            ]

        path.write_text("1 2\n", encoding="utf-8")
        before = fingerprints()
        assert len(set(before)) == len(before)
        path.write_text("2 1\n", encoding="utf-8")
        after = fingerprints()
        assert after[:-1] == before[:-1]
        assert after[-1] != before[-1]
