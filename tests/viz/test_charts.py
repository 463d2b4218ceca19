"""Charts show all points, say what they hide, and are files that need nothing else."""

from __future__ import annotations

import importlib.util
import io
import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path

import pytest
from corpora import assert_one_line_refusal, call_here
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from anyorder.errors import UserError
from anyorder.orders.statistics import compare_orders
from anyorder.viz.charts import Curve, check_chart, coinciding, line_chart, render, save_chart
from anyorder.viz.orders import heat_chart, order_chart
from anyorder.viz.relations import relations_chart, relations_of

Capture = pytest.CaptureFixture[str]
NASTY = "<b> & $x_1$ _a \x00\x1b"


def chart(*curves: Curve, title: str = "t") -> Figure:
    return line_chart(curves, title=title, x_label="update")


def all_charts(text: str) -> list[Figure]:
    compared = compare_orders([[2, 1, 3], [2, 1]], ["abc", "de"], labels={text: [[text] * 3, [text] * 2]})
    assert compared is not None
    return [
        chart(Curve(text, {1: 1.0, 2: 3.0}), title=text),
        order_chart(compared, title=text),
        heat_chart(compared.found.heat, title=text),
        relations_chart(relations_of([text, "b"], [2, 1]), title=text),
    ]


# Files


@pytest.mark.parametrize("number", range(4))
def test_a_picture_needs_nothing_from_outside(number: int) -> None:
    picture = render(all_charts(NASTY)[number]).decode()
    root = ElementTree.fromstring(picture)
    links = [value for part in root.iter() for name, value in part.attrib.items() if name.endswith("href")]
    assert all(link.startswith("#") for link in links)
    assert all(target.startswith("#") for target in re.findall(r"url\((.)", picture))
    assert not root.findall(".//{*}script") and not root.findall(".//{*}image")


@pytest.mark.parametrize("number", range(4))
def test_text_is_shown_as_it_is(number: int) -> None:
    root = ElementTree.fromstring(render(all_charts(NASTY)[number]))
    title = root.find("{*}title")
    shown = NASTY.replace("\x00", "\ufffd").replace("\x1b", "\ufffd")
    assert title is not None and title.text == shown
    assert shown in ["".join(text.itertext()) for text in root.findall(".//{*}text")]


def test_the_same_chart_is_the_same_file() -> None:
    for one, again in zip(all_charts("a"), all_charts("a"), strict=True):
        assert render(one) == render(again)


def test_the_suffix_says_what_kind_of_file_it_is(tmp_path: Path) -> None:
    figure = chart(Curve("a", {1: 1.0, 2: 2.0}))
    for name, start in (("c.svg", b"<?xml"), ("c.PNG", b"\x89PNG"), ("c.pdf", b"%PDF"), ("chart", b"<?xml")):
        save_chart(figure, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)


def test_charts_stand_on_white() -> None:
    for figure in all_charts("夢"):
        picture = Image.open(io.BytesIO(render(figure, kind="png"))).convert("RGB")
        assert picture.getpixel((1, 1)) == (255, 255, 255)


def test_a_wrong_suffix_is_refused(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "r.gif"
    answer = call_here(capsys, "order", "r2l", "I dream", "--relations", "--svg", path)
    assert_one_line_refusal(answer, f"--svg {path}: a chart must end in .svg, .png or .pdf")
    assert not path.exists()


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anyorder.viz.charts.find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"^--svg a\.svg: charts need matplotlib; pip install 'anyorder\[viz\]'$"
    ):
        check_chart("--svg", Path("a.svg"))
    with pytest.raises(UserError, match="charts need matplotlib"):
        chart(Curve("a", {1: 1.0}))
    assert importlib.util.find_spec("matplotlib") is not None


# Line charts


def test_a_curve_without_points_leaves_the_colours_of_others_alone() -> None:
    full = Curve("one", {0: 1.0, 2: 3.0})
    alone, second = chart(full, Curve("two", {0: 1.0, 2: 2.0})), chart(Curve("none", {}), full)
    assert [line.get_gid() for line in second.axes[0].lines] == ["curve2"]
    assert second.axes[0].lines[0].get_color() == alone.axes[0].lines[1].get_color()
    assert [text.get_text() for text in second.legends[0].get_texts()] == ["one"]


@settings(max_examples=8, deadline=None)
@given(labels=st.lists(st.text("abc <&_$", min_size=1, max_size=30), min_size=1, max_size=14))
def test_the_legend_stays_on_the_paper_and_off_the_curves(labels: list[str]) -> None:
    figure = chart(*(Curve(f"x{label}", {0: 1.0, 1: number}) for number, label in enumerate(labels)))
    FigureCanvasAgg(figure).draw()
    paper, legend = figure.bbox, figure.legends[0].get_window_extent()
    assert len(figure.legends[0].get_texts()) == len(labels)
    assert legend.x0 >= paper.x0 and legend.x1 <= paper.x1 and legend.y0 >= paper.y0
    assert legend.y1 <= figure.axes[0].get_window_extent().y0


@settings(max_examples=25, deadline=None)
@given(low=st.floats(-200, 200), span=st.floats(0, 300))
def test_axes_are_marked_by_round_numbers_around_all_values(low: float, span: float) -> None:
    (axes,) = chart(Curve("a", {1: low, 2: low + span})).axes
    bottom, top = axes.get_ylim()
    assert bottom <= low + 1e-9 and top >= low + span - 1e-9
    ticks = [float(tick) for tick in axes.get_yticks()]
    assert (ticks[0], ticks[-1]) == pytest.approx((bottom, top))
    assert 2 <= len(ticks) <= 11
    steps = [after - before for before, after in pairwise(ticks)]
    assert steps == pytest.approx([steps[0]] * len(steps))
    assert f"{steps[0]:.0e}"[0] in "125"


@pytest.mark.parametrize("value", [0.0, 5.0])
def test_one_point_is_a_chart(value: float) -> None:
    (axes,) = chart(Curve("x", {3: value})).axes
    assert axes.lines[0].get_xydata().tolist() == [[3, value]]
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    assert left < 3 < right and bottom <= value <= top


# Curves that hide one another


def test_curves_that_coincide_are_named_below_the_chart() -> None:
    points = {1: 2.0, 2: 3.0}
    figure = chart(Curve("A", points), Curve("B", {1: 2.0, 2: 9.0}), Curve("C", points))
    assert figure.legends[0].get_title().get_text() == "A and C coincide"
    root = ElementTree.fromstring(render(figure))
    assert "A and C coincide" in ["".join(text.itertext()) for text in root.findall(".//{*}text")]


def test_curves_that_differ_are_not_said_to_coincide() -> None:
    figure = chart(Curve("A", {1: 2.0, 2: 3.0}), Curve("B", {1: 2.0, 2: 3.1}))
    assert figure.legends[0].get_title().get_text() == ""


def test_which_curves_coincide() -> None:
    long, near, short = (
        Curve("long", {1: 1.0, 2: 2.0}),
        Curve("near", {1: 1.0, 2: 2.05}),
        Curve("short", {2: 2.0}),
    )
    beside = Curve("beside", {3: 2.0})
    assert coinciding([long, near, short, beside], tolerance=0.1) == [["long", "near", "short"]]
    assert coinciding([long, near, short, beside], tolerance=0.01) == [["long", "short"]]
    assert coinciding([beside], tolerance=1.0) == []
