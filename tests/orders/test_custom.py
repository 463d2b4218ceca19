from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyorder.errors import UserError
from anyorder.orders.custom import OrderFile, OrderFunction, checked_positions


def refusal(given_positions: object, *, length: int) -> str:
    with pytest.raises(UserError) as refused:
        checked_positions(given_positions, length=length, where="here")
    assert "\n" not in str(refused.value)
    return str(refused.value)


class TestLaws:
    @given(st.permutations(range(1, 9)))
    def test_a_permutation_passes_and_one_less_each_does_not(self, positions: list[int]) -> None:
        assert checked_positions(positions, length=8, where="here") == positions
        from_zero = [position - 1 for position in positions]
        assert refusal(from_zero, length=8) == "here: positions are counted from 0, must be counted from 1"

    @given(st.lists(st.integers(min_value=-1, max_value=5), max_size=5), st.integers(0, 5))
    def test_nothing_but_a_permutation_passes(self, positions: list[int], length: int) -> None:
        if sorted(positions) == list(range(1, length + 1)):
            assert checked_positions(tuple(positions), length=length, where="here") == positions
        else:
            assert refusal(positions, length=length).startswith("here: ")


class TestRefusals:
    @pytest.mark.parametrize(
        ("given_positions", "message"),
        [
            ([1, 2], "here: 2 positions given, must be 3, one for each word"),
            ([0, 1, 2], "here: positions are counted from 0, must be counted from 1"),
            ([1, 1, 3], "here: not a permutation of 1 to 3; missing: 2; more than once: 1"),
            ([1, 2, 4], "here: not a permutation of 1 to 3; missing: 3; out of range: 4"),
        ],
    )
    def test_what_is_no_permutation_is_told_why(self, given_positions: object, message: str) -> None:
        assert refusal(given_positions, length=3) == message

    @pytest.mark.parametrize(
        ("given_positions", "shown"),
        [
            ("123", "'123'"),
            (None, "None"),
            ([1.0, 2.0, 3.0], "[1.0, 2.0, 3.0]"),
            ([True, 2, 3], "[True, 2, 3]"),
            (np.eye(2), "array([[1., 0.], [0., 1.]])"),
        ],
    )
    def test_what_is_no_list_of_numbers_is_shown_on_one_line(
        self, given_positions: object, shown: str
    ) -> None:
        assert refusal(given_positions, length=3) == (
            f"here: {shown} given, must be a list of whole numbers, the positions counted from 1"
        )

    def test_numbers_of_numpy_are_numbers(self) -> None:
        positions = checked_positions(list(np.array([2, 1])), length=2, where="here")
        assert positions == [2, 1]
        assert all(type(position) is int for position in positions)

    def test_long_lists_of_faults_are_cut(self) -> None:
        assert refusal([1] * 9, length=9).endswith("; missing: 2 3 4 5 6 …; more than once: 1")

    def test_long_values_are_cut(self) -> None:
        assert refusal("x" * 999, length=1).startswith(f"here: '{'x' * 118}… given")


class TestFile:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "positions.txt"

    @pytest.mark.parametrize("content", [b"2 1\n\n3 1 2\n", b"\xef\xbb\xbf2 1\r\n\r\n 3\t1  2"])
    def test_line_numbers_choose_the_permutation(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        permutations = OrderFile(path)
        assert permutations.word_positions(3, ["a", "b", "c"]) == [3, 1, 2]
        assert permutations.word_positions(1, ["a", "b"]) == [2, 1]
        assert permutations.word_positions(2, []) == []

    @pytest.mark.parametrize(
        ("line", "words", "complaint"),
        [
            (1, "a b c", ":1: 2 positions given, must be 3, one for each word"),
            (2, "a b", ":2: 'two' given, must be a position, counted from 1"),
            (3, "a b", ":3: positions are counted from 0, must be counted from 1"),
            (4, "a", ":4: '\ufffd' given, must be a position, counted from 1"),
            (5, "a", ": has 4 lines, but there is a target line 5; a permutation for each line is needed"),
        ],
    )
    def test_errors_name_file_and_line(self, path: Path, line: int, words: str, complaint: str) -> None:
        path.write_bytes(b"1 2\n1 two\n0 1\n\xff\n")
        with pytest.raises(UserError) as refused:
            OrderFile(path).word_positions(line, words.split())
        assert str(refused.value) == f"{path}{complaint}"

    def test_the_fingerprint_follows_the_content(self, path: Path) -> None:
        path.write_text("1 2\n")
        before = OrderFile(path).fingerprint
        assert OrderFile(path).fingerprint == before
        path.write_text("2 1\n")
        assert OrderFile(path).fingerprint != before


class TestFunction:
    @pytest.fixture
    def module(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
        """A module in the current directory, under a name that no other test has imported."""
        name = "orders_for_" + re.sub(r"\W", "_", request.node.name)
        (tmp_path / f"{name}.py").write_text(
            "def shortest_first(words):\n"
            "    return sorted(range(1, len(words) + 1), key=lambda position: len(words[position - 1]))\n"
            "def from_zero(words):\n    return list(range(len(words)))\n"
            "def broken(words):\n    raise RuntimeError('no\\nsuch word')\n"
            "def silent(words):\n    raise ValueError\n"
            "def leaving(words):\n    raise SystemExit(3)\n"
            "a_number = 3\n",
            encoding="utf-8",
        )
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", list(sys.path))  # what is added to it goes with the test
        return name

    def refusal(self, name: str) -> str:
        with pytest.raises(UserError) as refused:
            OrderFunction(name, split="train").word_positions(7, ["a", "b"])
        return str(refused.value)

    def test_is_found_in_the_current_directory(self, module: str) -> None:
        function = OrderFunction(f"{module}:shortest_first", split="dev")
        assert function.word_positions(1, ("three", "a", "of")) == [2, 3, 1]

    @pytest.mark.parametrize(
        ("function", "complaint"),
        [
            ("from_zero", "positions are counted from 0, must be counted from 1"),
            ("broken", "the function raised RuntimeError: no such word"),
            ("silent", "the function raised ValueError"),
            ("leaving", "the function raised SystemExit: 3"),
        ],
    )
    def test_wrong_results_name_function_and_line(self, module: str, function: str, complaint: str) -> None:
        name = f"{module}:{function}"
        assert self.refusal(name) == f"order {name}, train line 7: {complaint}"

    @pytest.mark.parametrize("function", ["absent", "a_number"])
    def test_a_module_without_the_function(self, module: str, function: str) -> None:
        assert self.refusal(f"{module}:{function}") == (
            f"order.name = '{module}:{function}': {module} has no function '{function}'"
        )

    def test_no_such_module(self, module: str) -> None:
        for absent in ("orders_nowhere", f"{module}.inner"):
            assert self.refusal(f"{absent}:mine") == (
                f"order.name = '{absent}:mine': no module '{absent}' in the current directory "
                "or among installed packages"
            )

    @pytest.mark.parametrize(
        ("code", "raised"),
        [
            ("import orders_nowhere", "ModuleNotFoundError: No module named 'orders_nowhere'"),
            ("raise SystemExit", "SystemExit"),
        ],
    )
    def test_a_module_that_cannot_be_imported(self, module: str, code: str, raised: str) -> None:
        Path(f"{module}_2.py").write_text(f"{code}\n", encoding="utf-8")
        assert self.refusal(f"{module}_2:mine") == (
            f"order.name = '{module}_2:mine': importing {module}_2 raised {raised}"
        )

    def test_the_fingerprint_follows_the_code(self, module: str) -> None:
        before = OrderFunction(f"{module}:from_zero", split="train").fingerprint
        code = Path(f"{module}.py")
        code.write_text(code.read_text(encoding="utf-8") + "another_number = 4\n", encoding="utf-8")
        assert OrderFunction(f"{module}:from_zero", split="train").fingerprint != before

    def test_built_in_functions_have_no_code_to_follow(self) -> None:
        assert OrderFunction("builtins:sorted", split="train").fingerprint == ""
