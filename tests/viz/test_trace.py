"""A trace replays the insertions, and every surface shows the same ones."""

import io
import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from anyorder.inference.hypothesis import Step, steps, written_at
from anyorder.viz.animation import svg
from anyorder.viz.trace import draw_trace

WRITING_SVG = Path(__file__).parents[2] / "docs" / "writing.svg"

permutations = st.integers(1, 9).flatmap(lambda length: st.permutations(range(1, length + 1)))


def printed(renderable: object, *, width: int = 80, terminal: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, no_color=terminal)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def readme_steps() -> list[Step]:
    return steps(["dog", "runs", "beach", "along", "the", "a"], [2, 3, 6, 4, 5, 1])


@given(positions=permutations)
def test_last_canvas_is_the_sentence_in_position_order(positions: list[int]) -> None:
    history = steps([f"w{position}" for position in positions], positions)
    assert history[-1].canvas == tuple(f"w{position}" for position in sorted(positions))


@given(positions=permutations)
def test_taking_the_new_token_away_gives_the_canvas_before(positions: list[int]) -> None:
    history = steps([f"w{position}" for position in positions], positions)
    before: tuple[str, ...] = ()
    for step in history:
        assert step.canvas[step.index - 1] == step.token
        assert step.canvas[: step.index - 1] + step.canvas[step.index :] == before
        before = step.canvas


@given(positions=permutations)
def test_written_at_inverts_the_positions(positions: list[int]) -> None:
    writers = written_at(steps(["same"] * len(positions), positions))
    assert [writers[position - 1] for position in positions] == list(range(1, len(positions) + 1))


def test_steps_of_a_small_sentence() -> None:
    assert steps(["dog", "a", "runs"], [2, 1, 3], [-0.1, -0.2, -0.3]) == [
        Step(canvas=("dog",), index=1, token="dog", log_prob=-0.1),
        Step(canvas=("a", "dog"), index=1, token="a", log_prob=-0.2),
        Step(canvas=("a", "dog", "runs"), index=3, token="runs", log_prob=-0.3),
    ]


def test_no_tokens_make_no_steps() -> None:
    assert steps([], []) == []


def test_unknown_probabilities_are_not_a_number() -> None:
    assert all(math.isnan(step.log_prob) for step in readme_steps())


@pytest.mark.parametrize(
    ("tokens", "positions", "log_probs"),
    [(["a", "b"], [1, 1], None), (["a"], [1, 2], None), (["a", "b"], [1, 2], [-0.5])],
)
def test_steps_that_do_not_fit_are_refused(
    tokens: list[str], positions: list[int], log_probs: list[float] | None
) -> None:
    with pytest.raises(ValueError):
        steps(tokens, positions, log_probs)


def test_drawing_has_a_line_a_step_and_no_codes_in_a_pipe() -> None:
    history = steps(["dog", "a", "runs"], [2, 1, 3], [math.log(0.5), math.log(0.25), 0.0])
    lines = [line.split() for line in printed(draw_trace(history, "As it was written")).splitlines()]
    assert lines == [
        ["As", "it", "was", "written"],
        ["step", "word", "sentence", "p"],
        ["1", "dog", "dog", "0.500"],
        ["2", "a", "a", "dog", "0.250"],
        ["3", "runs", "a", "dog", "runs", "1.000"],
    ]


def test_drawing_without_probabilities_has_no_column_for_them() -> None:
    header = printed(draw_trace(readme_steps(), "t")).splitlines()[1]
    assert header.split() == ["step", "word", "sentence"]


def test_new_word_is_underlined_even_without_colour() -> None:
    last = printed(draw_trace(readme_steps(), "t"), terminal=True).splitlines()[-1]
    bold_and_underlined = "\x1b[1;4m"
    assert f"{bold_and_underlined}a\x1b[0m dog runs along the beach" in last


def test_drawing_shows_markup_as_it_is() -> None:
    text = printed(draw_trace(steps(["[bold]", "[/]"], [1, 2]), "[red]title"))
    assert "[bold] [/]" in text
    assert "[red]title" in text


@pytest.mark.parametrize("width", [40, 80])
def test_long_sentences_wrap_inside_the_console(width: int) -> None:
    words = [f"word{number}" for number in range(1, 31)]
    text = printed(draw_trace(steps(words, range(1, 31)), "long"), width=width)
    assert all(len(line) <= width for line in text.splitlines())
    assert text.count("word30") == 2  # in the column of words, and at the end of the last sentence


def test_picture_of_the_readme_is_up_to_date() -> None:
    assert WRITING_SVG.read_text(encoding="utf-8") == svg(readme_steps())


def test_svg_shows_the_finished_sentence_where_nothing_moves() -> None:
    still = [
        (float(group.attrib["transform"].removeprefix("translate(").partition(",")[0]), label.text)
        for group in ElementTree.fromstring(svg(readme_steps())).findall("{*}g")
        for label in group.findall(".//{*}text")
        if group.attrib["style"].startswith("animation-name:word") and group.attrib["opacity"] == "1"
    ]
    assert [text for _, text in sorted(still)] == ["<s>", "a", "dog", "runs", "along", "the", "beach", "</s>"]


def test_svg_is_well_formed_whatever_the_words_are() -> None:
    drawn = svg(steps(["<b>", "\x1b[31m", "a\x00&\ufffe"], [1, 3, 2]))
    shown = "".join(ElementTree.fromstring(drawn).itertext())
    assert "<b>" in shown
    assert "a\ufffd&\ufffd" in shown


def test_svg_needs_nothing_from_outside_and_runs_no_script() -> None:
    picture = svg(steps(["<script>", "&"], [2, 1]))
    root = ElementTree.fromstring(picture)
    assert not root.findall(".//{*}script")
    assert picture.count("http") == 1  # the name of the SVG namespace
    assert "url(" not in picture
    assert "&lt;script&gt;" in picture
