from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyorder.config.order import Order
from anyorder.data.orderer import Line, prepare_order
from anyorder.errors import UserError
from anyorder.orders.syntax import python_depths

Spelled = list[tuple[str, int]]  # words of an expression, and how deep each lies in it

NAMES = st.sampled_from(["a", "größe", "_x1", "2", "'ä b'.strip", "f'{a}'", '"_STR:0_"'])


def _below(expression: Spelled) -> Spelled:
    return [(word, depth + 1) for word, depth in expression]


def _listed(items: list[Spelled]) -> Spelled:
    """Expressions below the one that they are part of, with commas that are its own."""
    return [pair for number, item in enumerate(items) for pair in [*[(",", 0)] * (number > 0), *_below(item)]]


def _compound(inner: st.SearchStrategy[Spelled]) -> st.SearchStrategy[Spelled]:
    some = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        some.map(lambda items: [("[", 0), *_listed(items), ("]", 0)]),
        some.map(lambda items: [("f", 1), ("(", 0), *_listed(items), (")", 0)]),
        inner.map(lambda item: [("f", 1), ("(", 0), ("key", 1), ("=", 1), *_below(_below(item)), (")", 0)]),
        inner.map(lambda item: [("[", 0), ("-", 1), ("(", 1), *_below(_below(item)), (")", 1), ("]", 0)]),
        st.tuples(inner, inner).map(
            lambda two: [
                ("(", -1),
                *_below(two[0]),
                ("if", 0),
                ("a", 1),
                ("else", 0),
                *_below(two[1]),
                (")", -1),
            ]
        ),
    )


def _simple() -> st.SearchStrategy[Spelled]:
    return NAMES.filter(lambda name: " " not in name).map(lambda name: [(name, 0)])


@given(st.recursive(_simple(), _compound, max_leaves=12))
def test_depths_are_those_that_an_expression_is_built_with(expression: Spelled) -> None:
    """Brackets of precedence are of no node: they belong to what is around them, here depth −1."""
    words = ["return", *(word for word, _ in expression)]
    assert python_depths(1, words) == [0, *(depth + 1 for _, depth in expression)]


@pytest.mark.parametrize(
    ("code", "depths"),
    [
        ("return self . resolve ( context )", [0, 3, 2, 2, 1, 2, 1]),
        ("if a is not b :pass", [0, 2, 1, 1, 2, 0]),  # a word that spans two nodes is as high as the higher
        ("def f ( self , ü ) : pass", [0, 0, 0, 1, 0, 1, 0, 0, 1]),
        ("try : pass _newline_ except KeyError : pass", [0, 0, 1, 0, 1, 2, 1, 2]),
        ("_newline_ a = 'b c' _newline_ _newline_ d", [0, 1, 0, 1, 1, 0, 0, 1]),
        ("from a import b as c", [0, 0, 0, 1, 1, 1]),
        (r"'\d' % f'{a} b'", [2, 1, 2, 2]),
        ("", []),
    ],
)
def test_depths_of_lines(code: str, depths: list[int]) -> None:
    assert python_depths(1, code.split()) == depths


def test_the_order_goes_down_the_tree() -> None:
    words = ["return", "self", ".", "resolve", "(", "context", ")"]
    orderer = prepare_order(Order(name="syn", parser="python"), split="train")
    line = Line(number=1, words=words, pieces=[1] * len(words))
    (positions,) = orderer.positions([line])
    assert [words[position - 1] for position in positions] == [
        "return",
        "(",
        ")",
        ".",
        "resolve",
        "context",
        "self",
    ]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("return ( a", "'(' was never closed"),
        ("elif a : pass", "invalid syntax"),
        ("a \0", "source code string cannot contain null bytes"),
        ("( " * 300, "too many nested parentheses"),
    ],
)
def test_what_is_not_python_is_refused_in_one_line(code: str, reason: str) -> None:
    with pytest.raises(UserError) as caught:
        python_depths(7, code.split())
    assert str(caught.value) == f"order.parser = 'python': target line 7 is not Python: {reason}"
