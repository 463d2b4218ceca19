"""Scores of any system's text: read, compared with a baseline's, and told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyorder.cli.output import print_json, print_line, results, table
from anyorder.errors import UserError

if TYPE_CHECKING:
    from anyorder.evaluation.significance import PairedTests
    from anyorder.metrics import Metric, Options, Result


def evaluate_files(
    hyp: Path | None,
    ref: Sequence[Path],
    *,
    metrics: Sequence[str],
    options: Options,
    sentences: bool,
    baseline: Path | None,
    samples: int,
    seed: int,
    as_json: bool,
) -> None:
    """Score a file and print what came out; baseline: another, to test the difference."""
    from anyorder.evaluation.significance import paired_tests
    from anyorder.metrics import evaluate as score

    if hyp is None:
        raise UserError("give RUN, the folder of a trained model, or --hyp and --ref")
    if not ref:
        raise UserError(f"--hyp {hyp}: give --ref, what should have been written, too")
    written = read_text(hyp)
    references = [_read_beside(hyp, path, flag="--ref", lines=len(written)) for path in ref]
    scored = score(written, references, metrics=metrics, options=options)
    comparisons: dict[str, PairedTests] = {}
    if baseline is not None:
        other = _read_beside(hyp, baseline, flag="--baseline", lines=len(written))
        others = score(other, references, metrics=metrics, options=options)
        comparisons = {
            name: paired_tests(scored[name], others[name], samples=samples, seed=seed) for name in scored
        }
    show = _print_as_json if as_json else _print_for_people
    show(scored, comparisons, sentences=sentences)


def read_text(path: Path) -> list[str]:
    """Lines of a file that must have some."""
    from anyorder.data.readers import read_lines

    lines = [text for _, text in read_lines(path)]
    if not lines:
        raise UserError(f"{path}: empty; allowed: a line or more")
    return lines


def _read_beside(hyp: Path, path: Path, *, flag: str, lines: int) -> list[str]:
    """Lines of a file that must have as many as --hyp."""
    read = read_text(path)
    if len(read) != lines:
        raise UserError(
            f"{hyp} has {lines} lines but {path} has {len(read)}; --hyp and {flag} must have as many"
        )
    return read


def _print_as_json(
    scored: Mapping[str, Result], comparisons: Mapping[str, PairedTests], *, sentences: bool
) -> None:
    """An object for each metric; sentences: for each line too."""
    if sentences:
        for line, scores in enumerate(_by_line(scored), start=1):
            print_json({"line": line, **scores})
    for name, result in scored.items():
        told: dict[str, Any] = {
            "metric": name,
            "score": result.score,
            "higher_is_better": result.metric.higher_is_better,
            "signature": result.signature,
        }
        if sentences:
            told["sentence_signature"] = result.sentence_signature
        if name in comparisons:
            told |= asdict(comparisons[name])
        print_json(told)


def _print_for_people(
    scored: Mapping[str, Result], comparisons: Mapping[str, PairedTests], *, sentences: bool
) -> None:
    """A line for each metric, after the tests of its difference; sentences: each line's scores first."""
    if sentences:
        drawn = table("line", *(_label(result.metric) for result in scored.values()))
        for line, scores in enumerate(_by_line(scored), start=1):
            drawn.add_row(str(line), *(f"{score:.2f}" for score in scores.values()))
        results.print(drawn)
    if comparisons:
        _print_comparisons(scored, comparisons)
    for name, result in scored.items():
        interval = f" ± {comparisons[name].system.half_width:.2f}" if name in comparisons else ""
        print_line(f"{_label(result.metric):<13} {result.score:6.2f}{interval}  {result.signature}")
        if sentences and result.sentence_signature != result.signature:
            print_line(f"{'  of each line':<20}  {result.sentence_signature}")


def _print_comparisons(scored: Mapping[str, Result], comparisons: Mapping[str, PairedTests]) -> None:
    drawn = table("", "baseline", "system", "difference", "95 %", "p (bs)", "p (ar)")
    for name, compared in comparisons.items():
        difference = compared.difference
        drawn.add_row(
            _label(scored[name].metric),
            f"{compared.baseline.score:.2f}",
            f"{compared.system.score:.2f}",
            f"{difference.score:+.2f}",
            f"{difference.low:+.2f} to {difference.high:+.2f}",
            f"{compared.bootstrap_p:.4f}",
            f"{compared.randomisation_p:.4f}",
        )
    results.print(drawn)
    one = next(iter(comparisons.values()))
    print_line(f"bs: paired bootstrap, ar: approximate randomisation; {one.samples} samples, seed {one.seed}")
    print_line("")


def _label(metric: Metric) -> str:
    """The metric's name, with an arrow where less is better."""
    return metric.name if metric.higher_is_better else f"{metric.name} ↓"


def _by_line(scored: Mapping[str, Result]) -> list[dict[str, float]]:
    columns = [result.sentence_scores().tolist() for result in scored.values()]
    return [dict(zip(scored, scores, strict=True)) for scores in zip(*columns, strict=True)]
