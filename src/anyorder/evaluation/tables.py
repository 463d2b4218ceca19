"""Tables that compare runs, for a terminal, a Markdown page or a paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anyorder.evaluation.compare import DECIMALS, MeanScore, RunComparison, SystemRow

_LATEX_SIGNS = {
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "↓": r"$\downarrow$",
    "−": "$-$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}
_NOTHING = "–"


@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    text: str
    bold: bool = False


@dataclass(frozen=True)
class Table:
    """Rows below named columns; the first `labels` columns hold text, the others figures."""

    columns: list[str]
    rows: list[list[Cell]]
    labels: int


def score_table(compared: RunComparison) -> Table:
    """Scores by system and metric, the best in bold; counts seeds if a system was trained with several."""
    several = any(len(row.runs) > 1 for row in compared.rows)
    columns = ["order", *(["seeds"] if several else []), *compared.metrics.values()]
    rows = [
        [
            Cell(row.label),
            *([Cell(str(len(row.runs)))] if several else []),
            *(_score(row.scores[name]) for name in compared.metrics),
        ]
        for row in compared.rows
    ]
    return Table(columns=columns, rows=rows, labels=1)


def difference_table(compared: RunComparison) -> Table | None:
    """Differences from the baseline with their intervals and p-values; None if nothing was tested."""
    rows = [cells for row in compared.rows for cells in _differences(row, compared)]
    if not rows:
        return None
    columns = [f"against {compared.baseline}", "by", "difference", "95 %", "p (bs)", "p (ar)"]
    if all(cells[-1].text == _NOTHING for cells in rows):
        rows = [cells[:-1] for cells in rows]
    else:
        columns.append("p (seeds)")
    return Table(columns=columns, rows=rows, labels=2)


def explanation(compared: RunComparison, *, best: str = "bold") -> list[str]:
    """Notes below the tables, one line each. best: how the tables mark the best."""
    lines = [f"{compared.lines} lines of {compared.split}; the best of each column is {best}"]
    if any(len(row.runs) > 1 for row in compared.rows):
        lines.append("mean ± standard deviation over the runs that differ in nothing but their seed")
    tests = [difference.over_lines for row in compared.rows for difference in row.differences.values()]
    if tests:
        lines.append(
            "p: how often chance makes such a difference; bs: paired bootstrap, ar: approximate "
            f"randomisation, both over lines; {tests[0].samples} samples, seed {tests[0].seed}"
        )
    if any(one.seeds_p is not None for row in compared.rows for one in row.differences.values()):
        lines.append("p (seeds): all ways to deal the trainings to the two rows")
    if compared.seen_lines:
        lines.append(f"without the {compared.seen_lines} lines that also occur in train: {_unseen(compared)}")
    lines += [f"{row.label}: {_origin(row)}" for row in compared.rows]
    lines += [
        f"{label.removesuffix(' ↓')}: {compared.signatures[name]}" for name, label in compared.metrics.items()
    ]
    return lines


def _unseen(compared: RunComparison) -> str:
    def scores(row: SystemRow) -> str:
        return ", ".join(
            f"{compared.metrics[name]} {mean:.{DECIMALS}f}" for name, mean in row.unseen_scores.items()
        )

    return "; ".join(f"{row.label}: {scores(row)}" for row in compared.rows)


def _score(score: MeanScore) -> Cell:
    deviation = "" if score.deviation is None else f" ± {score.deviation:.{DECIMALS}f}"
    return Cell(f"{score.mean:.{DECIMALS}f}{deviation}", bold=score.best)


def _differences(row: SystemRow, compared: RunComparison) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for name, tested in row.differences.items():
        difference = tested.over_lines.difference
        trainings = _NOTHING if tested.seeds_p is None else f"{tested.seeds_p:.4f}"
        figures = [
            _signed(difference.score),
            f"{_signed(difference.low)} to {_signed(difference.high)}",
            f"{tested.over_lines.bootstrap_p:.4f}",
            f"{tested.over_lines.randomisation_p:.4f}",
            trainings,
        ]
        label = row.label if not rows else ""
        rows.append([Cell(label), Cell(compared.metrics[name]), *map(Cell, figures)])
    return rows


def _signed(value: float) -> str:
    return f"{value:+.{DECIMALS}f}".replace("-", "−")


def _origin(row: SystemRow) -> str:
    beams = [f"beam {beam}" for beam in row.beams]
    return ", ".join(f"{run} ({beam})" for run, beam in zip(row.runs, beams, strict=True))


# --- formats ---


def as_markdown(compared: RunComparison) -> str:
    """The tables and their notes in Markdown."""
    parts = ["\n".join(_markdown_rows(table)) for table in _tables(compared)]
    return "\n\n".join([*parts, "\n".join(f"- {line}" for line in explanation(compared))]) + "\n"


def as_latex(compared: RunComparison) -> str:
    """The tables in LaTeX with booktabs; their notes are comments."""
    parts = ["\n".join(_latex_rows(table)) for table in _tables(compared)]
    return "\n\n".join([*parts, "\n".join(f"% {line}" for line in explanation(compared))]) + "\n"


def _tables(compared: RunComparison) -> list[Table]:
    return [table for table in (score_table(compared), difference_table(compared)) if table is not None]


def _markdown_rows(table: Table) -> list[str]:
    marks = ["---" if number < table.labels else "---:" for number in range(len(table.columns))]
    bodies = [_marked(row, escape=_in_markdown, bold="**{}**".format) for row in table.rows]
    header = [_in_markdown(column) for column in table.columns]
    return [f"| {' | '.join(cells)} |" for cells in (header, marks, *bodies)]


def _latex_rows(table: Table) -> list[str]:
    figures = len(table.columns) - table.labels
    rows = [_marked(row, escape=_in_latex, bold=r"\textbf{{{}}}".format) for row in table.rows]
    return [
        rf"\begin{{tabular}}{{{'l' * table.labels}{'r' * figures}}}",
        r"\toprule",
        " & ".join(map(_in_latex, table.columns)) + r" \\",
        r"\midrule",
        *(" & ".join(cells) + r" \\" for cells in rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _marked(row: Sequence[Cell], *, escape: Callable[[str], str], bold: Callable[[str], str]) -> list[str]:
    return [bold(escape(cell.text)) if cell.bold else escape(cell.text) for cell in row]


def _in_markdown(text: str) -> str:
    return "".join(f"\\{sign}" if sign in r"\|*_`<" else sign for sign in text)


def _in_latex(text: str) -> str:
    return "".join(_LATEX_SIGNS.get(sign, sign) for sign in text)
