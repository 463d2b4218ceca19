"""Compare runs in one HTML file: scores, training curves, beams, orders and case studies.

The file needs no other file and no network. Charts are SVG images inside it. The case studies are the replay
page of `viz/page.py` in a frame.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import TYPE_CHECKING

from anyorder.evaluation.case_studies import WrittenAgain, WrittenRow
from anyorder.evaluation.compare import RunComparison
from anyorder.evaluation.curves import BeamCurves, TrainingFigure, beam_chart, training_chart
from anyorder.evaluation.tables import Cell, Table, difference_table, explanation, score_table
from anyorder.orders.statistics import Figures, OrderStatistics, expected_by_chance, order_statistics
from anyorder.version import __version__
from anyorder.viz.charts import listed, render
from anyorder.viz.orders import heat_chart
from anyorder.viz.page import Rendition, Replay, page

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Cases:
    """The lines that the report shows step by step."""

    lines: Sequence[int]  # of the results, counted from 1
    why: str  # why these lines were chosen
    references: Sequence[Sequence[str]]  # of all lines of the results


@dataclass(frozen=True)
class Content:
    """Everything that a report shows; empty parts are left out."""

    compared: RunComparison
    training: Sequence[TrainingFigure]
    beams: BeamCurves | None
    written: WrittenAgain  # covers the case studies and the lines whose orders are studied
    order_lines: int  # orders are studied on the first lines, up to this one
    cases: Cases


def report(content: Content) -> str:
    """Return the report as HTML."""
    compared = content.compared
    labels = listed([row.label for row in compared.rows])
    sections = [
        _scores(compared),
        _training(content.training),
        _beams(content.beams),
        _orders(content.written, lines=content.order_lines),
        _case_studies(content.written, content.cases, split=compared.split),
    ]
    parts = {
        "title": html.escape(f"{labels} on {compared.split}"),
        "intro": f"{compared.lines} lines of {compared.split}, by anyorder {__version__}",
        "sections": "\n".join(section for section in sections if section),
    }
    template = (files("anyorder.evaluation") / "report.html").read_text(encoding="utf-8")
    # In one pass, so that text that looks like a placeholder is left alone.
    return re.sub(r"\{\{(title|intro|sections)\}\}", lambda found: parts[found[1]], template)


def _scores(compared: RunComparison) -> str:
    tables = [table for table in (score_table(compared), difference_table(compared)) if table is not None]
    return _section("Scores", *map(_table, tables), _remarks(explanation(compared)))


def _training(figures: Sequence[TrainingFigure]) -> str:
    return _section("Training", _figures(map(training_chart, figures))) if figures else ""


def _beams(found: BeamCurves | None) -> str:
    return "" if found is None else _section("Beams", _figures([beam_chart(found)]))


# --- orders ---


def _orders(written: WrittenAgain, *, lines: int) -> str:
    """Statistics of the orders of hypotheses; empty unless some hypothesis has two tokens."""
    studied = [(row, _studied(row, lines)) for row in written.rows]
    by_label = {
        row.label: statistics
        for row, hypotheses in studied
        if (
            statistics := order_statistics(
                [positions for positions, _ in hypotheses], [text for _, text in hypotheses]
            )
        )
    }
    by_chance = expected_by_chance([text for _, hypotheses in studied for _, text in hypotheses])
    if by_chance is None:
        return ""
    remark = f"Orders in which the hypotheses of the first {lines} lines were written, token by token."
    charts = [heat_chart(statistics.heat, title=label) for label, statistics in by_label.items()]
    table = _order_table({**by_label, "by chance": by_chance})
    meanings = [f"{figure.metadata['title']}: {figure.metadata['meaning']}" for figure in fields(Figures)]
    return _section("Orders", f"<p>{remark}</p>", _figures(charts), _table(table), _remarks(meanings))


def _studied(row: WrittenRow, lines: int) -> list[tuple[Sequence[int], Sequence[str]]]:
    """Positions in the order written, and tokens from left to right, of the first lines."""
    hypotheses = (hypothesis for line, hypothesis in row.hypotheses.items() if line <= lines)
    return [
        (hypothesis.positions, hypothesis.steps[-1].canvas) for hypothesis in hypotheses if hypothesis.tokens
    ]


def _order_table(statistics: dict[str, OrderStatistics]) -> Table:
    rows = []
    for figure in fields(Figures):
        shown = "{:.1%}".format if figure.metadata["share"] else "{:.3f}".format
        values = (getattr(one.figures, figure.name) for one in statistics.values())
        cells = [figure.metadata["title"], *(shown(value).replace("-", "−") for value in values)]
        rows.append([Cell(text) for text in cells])
    return Table(columns=["", *statistics], rows=rows, labels=1)


# --- case studies ---


def _case_studies(written: WrittenAgain, cases: Cases, *, split: str) -> str:
    if not cases.lines:
        return ""
    which = "Line" if len(cases.lines) == 1 else "Lines"
    replays = page(
        title=f"{which} {listed(list(map(str, cases.lines)))} of {split}",
        intro=cases.why,
        replays=[_replay(written, line, cases.references) for line in cases.lines],
    )
    return _section("Case studies", f'<iframe title="Case studies" srcdoc="{html.escape(replays)}"></iframe>')


def _replay(written: WrittenAgain, line: int, references: Sequence[Sequence[str]]) -> Replay:
    wanted = [lines[line - 1] for lines in references]
    hypotheses = {row.label: row.hypotheses[line] for row in written.rows if line in row.hypotheses}
    return Replay(
        source=written.sources[line],
        reference=wanted[0],
        renditions=[
            Rendition(
                order=label,
                steps=hypothesis.steps,
                score=hypothesis.score,
                equals_reference=hypothesis.text in wanted,
            )
            for label, hypothesis in hypotheses.items()
        ],
    )


# --- HTML ---


def _section(title: str, *parts: str) -> str:
    return "\n".join([f"<section><h2>{html.escape(title)}</h2>", *parts, "</section>"])


def _remarks(lines: Iterable[str]) -> str:
    return "\n".join(['<ul class="remarks">', *(f"<li>{html.escape(line)}</li>" for line in lines), "</ul>"])


def _table(table: Table) -> str:
    return "\n".join(['<div class="scroll"><table>', *_rows(table), "</table></div>"])


def _rows(table: Table) -> Iterator[str]:
    header = [Cell(column) for column in table.columns]
    yield f"<thead>{_row(header, tag='th', labels=table.labels)}</thead>"
    yield "<tbody>"
    for row in table.rows:
        yield _row(row, tag="td", labels=table.labels)
    yield "</tbody>"


def _row(cells: Sequence[Cell], *, tag: str, labels: int) -> str:
    drawn = []
    for number, cell in enumerate(cells):
        text = html.escape(cell.text)
        kind = "" if number < labels else ' class="figure"'
        drawn.append(f"<{tag}{kind}>{f'<b>{text}</b>' if cell.bold else text}</{tag}>")
    return f"<tr>{''.join(drawn)}</tr>"


def _figures(charts: Iterable[Figure]) -> str:
    """Charts as images, so that the ids in one SVG can't meet those in another."""
    images = [
        f'<img alt="{html.escape(chart.get_suptitle())}" src="{_data_uri(render(chart))}">'
        for chart in charts
    ]
    return "\n".join(['<div class="figures">', *images, "</div>"])


def _data_uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode("ascii")
