"""Lines on which runs differ, written once more to see how: outputs that are kept don't tell their steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import combinations

from anyorder.errors import UserError
from anyorder.evaluation.compare import group_trainings, row_labels
from anyorder.evaluation.decode import EvaluationListener
from anyorder.evaluation.results import RunResults
from anyorder.evaluation.split import EvaluationSplit, read_split
from anyorder.inference.generator import Generator
from anyorder.inference.hypothesis import Hypothesis

Lines = Sequence[int]  # of the results, counted from 1


@dataclass(frozen=True)
class WrittenRow:
    """What a system, by its first training, writes for some lines."""

    label: str
    outputs: dict[int, Hypothesis]  # by line; a blank source has none


@dataclass(frozen=True)
class WrittenAgain:
    """The same lines, written by all systems."""

    sources: dict[int, str]  # by line; empty where features are read
    rows: list[WrittenRow]


def most_different(results: Sequence[RunResults], *, count: int) -> list[int]:
    """The lines whose outputs have least in common, from the first; of equals the earlier ones."""
    first_trainings = [group[0].hypotheses for group in group_trainings(results)]
    outputs = [[text.split() for text in texts] for texts in zip(*first_trainings, strict=True)]
    distances = [_distance(of_line) for of_line in outputs]
    ranked = sorted(range(len(distances)), key=lambda row: (-distances[row], row))
    return sorted(row + 1 for row in ranked[:count])


def write_again(
    results: Sequence[RunResults],
    lines: Iterable[int],
    *,
    listener: EvaluationListener,
    first_lines: int | None = None,
    device: str | None = None,
) -> WrittenAgain:
    """Decode some lines as they were decoded for the results. Unless there are none it takes models and data.

    first_lines: as the results were made with.
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
    """How much less than all words the outputs have in common, over all pairs of them."""
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
    listener: EvaluationListener,
) -> dict[int, Hypothesis]:
    what = f"writing again with {one.run}"
    outputs: dict[int, Hypothesis] = {}
    for run_of_lines in _runs(lines):
        listener.preparing(what, len(outputs), len(lines))
        answers = generator.answer(
            [text.sources[line - 1] for line in run_of_lines],
            settings=one.report.decode,
            first_line=run_of_lines[0] - 1,
        )
        outputs |= {line: answer[0] for line, answer in zip(run_of_lines, answers, strict=True) if answer}
    listener.preparing(what, len(lines), len(lines))
    return outputs


def _runs(lines: Lines) -> list[list[int]]:
    """Neighbouring lines together: sampling depends on where a line stands."""
    runs: list[list[int]] = []
    for line in lines:
        if runs and line == runs[-1][-1] + 1:
            runs[-1].append(line)
        else:
            runs.append([line])
    return runs
