"""The matrix of an order: what its signs say, in the terminal and as a chart."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import combinations
from pathlib import Path

import pytest
from corpora import assert_one_line_refusal, call_here, json_lines
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from anyorder.inference.hypothesis import steps
from anyorder.viz.relations import draw_relations, relations_chart, relations_of

Capture = pytest.CaptureFixture[str]

ORDERS = st.integers(1, 7).flatmap(lambda length: st.permutations(range(1, length + 1)))


def words(positions: list[int]) -> list[str]:
    return [f"w{position}" for position in positions]


@given(positions=ORDERS)
def test_a_row_says_which_tokens_its_own_stands_right_of(positions: list[int]) -> None:
    found = relations_of(words(positions), positions)
    sentence = ["<s>", *(f"w{position}" for position in sorted(positions)), "</s>"]
    for row, token in enumerate(found.tokens):
        for column, other in enumerate(found.tokens):
            apart = sentence.index(token) - sentence.index(other)
            assert found.signs[row][column] == (apart > 0) - (apart < 0)


@given(positions=ORDERS)
def test_indices_are_those_on_the_canvas_of_each_step(positions: list[int]) -> None:
    found = relations_of(words(positions), positions)
    assert found.indices[0] == [0, 1]
    for indices, step in zip(found.indices[1:], steps(words(positions), positions), strict=True):
        canvas = ["<s>", *step.canvas, "</s>"]
        assert [canvas[index] for index in indices] == list(found.tokens[: len(indices)])


def test_the_paper_s_example() -> None:
    # (<s>, </s>, dream, I) stand at 0, 3, 2, 1 at its step 3.
    assert relations_of(["dream", "I"], [2, 1]).indices[-1] == [0, 3, 2, 1]


def test_in_the_terminal() -> None:
    assert draw_relations(relations_of(["dream", "I"], [2, 1])).plain.split("\n") == [
        "relations: a row's word stands left of (−) or right of (+) a column's",
        "step  word   <s>  </s>  1  2",
        "      <s>      0     −  −  −",
        "      </s>     +     0  +  +",
        "   1  dream    +     −  0  +",
        "   2  I        +     −  −  0",
        "",
        "index on the canvas after each step; the last column holds the positions",
        "step  word   0  1  2",
        "      <s>    0  0  0",
        "      </s>   1  2  3",
        "   1  dream     1  2",
        "   2  I            1",
    ]


def test_wide_characters_take_two_columns() -> None:
    lines = draw_relations(relations_of(["夢", "I"], [2, 1])).plain.split("\n")
    assert [line.index("+") for line in lines[4:6]] == [
        13,
        14,
    ]  # the first one's word is one character shorter


def drawn(chart: Figure) -> list[str]:
    """The text and the signs of each step's panel, row by row."""
    panels = []
    for axes in chart.axes:
        step, canvas = (text.get_text() for text in axes.texts[-2:])
        labels = [text.get_text() for text in axes.texts[:-2]]  # a word and an index a row
        signs = {
            (int(y), int(x)): str(line.get_label())
            for line in axes.lines
            for x, y in line.get_xydata().tolist()
        }
        size = len(labels) // 2
        assert len(signs) == size * size
        rows = [
            " ".join([word, *(signs[row, column] for column in range(size)), index])
            for row, (word, index) in enumerate(zip(labels[0::2], labels[1::2], strict=True))
        ]
        panels.append(" ".join([step, *rows, canvas]))
    return panels


def test_the_chart_has_a_matrix_for_each_step() -> None:
    assert drawn(relations_chart(relations_of(["<b>", "&"], [2, 1]), title="t")) == [
        "step 0 <s> 0 − 0 </s> + 0 1 <s> </s>",
        "step 1 <s> 0 − − 0 </s> + 0 + 2 <b> + − 0 1 <s> <b> </s>",
        "step 2 <s> 0 − − − 0 </s> + 0 + + 3 <b> + − 0 + 2 & + − − 0 1 <s> & <b> </s>",
    ]


@settings(max_examples=8, deadline=None)
@given(positions=ORDERS)
def test_panels_stay_on_the_paper_and_off_each_other(positions: list[int]) -> None:
    chart = relations_chart(relations_of(words(positions), positions), title="t")
    boxes = [axes.get_position() for axes in chart.axes]
    for box in boxes:
        assert box.x0 >= 0 and box.x1 < 1 and box.y0 >= 0 and box.y1 < 1
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_the_command_shows_and_draws_them(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "relations.svg"
    answer = call_here(capsys, "order", "r2l", "I dream", "--relations", "--svg", path)
    said = answer.stdout.decode()
    assert answer.returncode == 0
    assert draw_relations(relations_of(["dream", "I"], [2, 1])).plain in said
    ids = [group.attrib.get("id", "") for group in ElementTree.parse(path).findall(".//{*}g")]
    assert [name for name in ids if name.startswith("step")] == ["step0", "step1", "step2"]


def test_the_command_tells_programs(capsys: Capture) -> None:
    (line,) = json_lines(call_here(capsys, "order", "r2l", "I dream", "--relations", "--json"))
    assert line["relations"] == [[0, -1, -1, -1], [1, 0, 1, 1], [1, -1, 0, 1], [1, -1, -1, 0]]
    (line,) = json_lines(call_here(capsys, "order", "r2l", "I dream", "--json"))
    assert "relations" not in line


def test_nothing_to_draw_is_refused(capsys: Capture, tmp_path: Path) -> None:
    answer = call_here(capsys, "order", "l2r", " ", "--relations", "--json", "--svg", tmp_path / "r.svg")
    answer.stdout = b""  # what was said of the empty sentence
    assert_one_line_refusal(answer, "nothing to draw")
