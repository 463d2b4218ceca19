"""Decode lines on which runs differ once more, because stored hypotheses don't hold their steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import combinations

from anyorder.errors import UserError
from anyorder.evaluation.compare import group_trainings, row_labels
from anyorder.evaluation.results import RunResults
from anyorder.evaluation.split import EvaluationSplit, read_split
from anyorder.inference.generator import Generator
from anyorder.inference.hypothesis import Hypothesis
from anyorder.system.progress import ProgressListener

Lines = Sequence[int]  # line numbers of the results, counted from 1


@dataclass(frozen=True)
class WrittenRow:
    """What the first training of a system writes for some lines."""

    label: str
    hypotheses: dict[int, Hypothesis]  # by line; a blank source has none


@dataclass(frozen=True)
class WrittenAgain:
    """The same lines, decoded by all systems."""

    sources: dict[int, str]  # by line; empty for feature sources
    rows: list[WrittenRow]


def most_different(results: Sequence[RunResults], *, count: int) -> list[int]:
    """The lines whose hypotheses have least in common, from the first; of equals the earlier ones."""
    first_trainings = [group[0].hypotheses for group in group_trainings(results)]
    hypotheses = [[text.split() for text in texts] for texts in zip(*first_trainings, strict=True)]
    distances = [_distance(of_line) for of_line in hypotheses]
    ranked = sorted(range(len(distances)), key=lambda row: (-distances[row], row))
    return sorted(row + 1 for row in ranked[:count])


def write_again(
    results: Sequence[RunResults],
    lines: Iterable[int],
    *,
    listener: ProgressListener,
    first_lines: int | None = None,
    device: str | None = None,
) -> WrittenAgain:
    """Decode some lines as they were decoded for the results.

    Unless there are no lines, this needs the models and their data.
    first_lines: the value that the results were made with.
    """
    wanted = sorted(set(lines))
    if not wanted:
        return WrittenAgain(sources={}, rows=[])
    groups = group_trainings(results)
    rows: list[WrittenRow] = []
    sources: dict[int, str] = {}
    for label, (one, *_) in zip(row_labels(groups), groups, strict=True):
        generator = Generator.load(one.run, device=device)
        text = _read(one, generator=generator, first_lines=first_lines)
        sources = {line: _shown(text, line) for line in wanted}
        rows.append(WrittenRow(label, _written(one, text, wanted, generator=generator, listener=listener)))
    return WrittenAgain(sources=sources, rows=rows)


def _distance(texts: Sequence[Sequence[str]]) -> float:
    """Sum over all pairs of hypotheses of one minus their share of common words."""
    return sum(
        1 - SequenceMatcher(None, one, other, autojunk=False).ratio()
        for one, other in combinations(texts, 2)
        if one != other
    )


def _read(one: RunResults, *, generator: Generator, first_lines: int | None) -> EvaluationSplit:
    report = one.report
    text = read_split(
        report.recipe,
        report.split,
        tokenizer=generator.tokenizer,
        feature_width=generator.trained.model.shape.features,
        first_lines=first_lines,
    )
    if len(text.sources) != report.lines:
        raise UserError(
            f"{one.run}: was evaluated on {report.lines} lines of {report.split}, but its data has "
            f"{len(text.sources)} now; `anyorder evaluate {one.run} --split {report.split}` makes new results"
        )
    return text


def _shown(text: EvaluationSplit, line: int) -> str:
    source = text.sources[line - 1]
    return source if isinstance(source, str) else ""


def _written(
    one: RunResults,
    text: EvaluationSplit,
    lines: Lines,
    *,
    generator: Generator,
    listener: ProgressListener,
) -> dict[int, Hypothesis]:
    what = f"writing again with {one.run}"
    hypotheses: dict[int, Hypothesis] = {}
    for run_of_lines in _runs(lines):
        listener.preparing(what, len(hypotheses), len(lines))
        answers = generator.answer(
            [text.sources[line - 1] for line in run_of_lines],
            settings=one.report.decode,
            first_line=run_of_lines[0] - 1,
        )
        hypotheses |= {line: answer[0] for line, answer in zip(run_of_lines, answers, strict=True) if answer}
    listener.preparing(what, len(lines), len(lines))
    return hypotheses


def _runs(lines: Lines) -> list[list[int]]:
    """Group consecutive lines, because sampling depends on the number of a line."""
    runs: list[list[int]] = []
    for line in lines:
        if runs and line == runs[-1][-1] + 1:
            runs[-1].append(line)
        else:
            runs.append([line])
    return runs
