"""The command that scores any system's output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from anyorder.cli.output import AS_JSON, print_json, print_line, results, table
from anyorder.errors import UserError

if TYPE_CHECKING:
    from anyorder.metrics import Metric, Result
    from anyorder.metrics.significance import Comparison


def evaluate(
    hyp: Path = typer.Option(..., "--hyp", help="What a system wrote, a line each; plain, .gz or .xz."),
    ref: list[Path] = typer.Option(
        ..., "--ref", help="What it should have written; once for each reference."
    ),
    metrics: str = typer.Option(
        "bleu,chrf,ter,exact",
        "--metrics",
        help="Any of bleu, chrf, ter, ribes, meteor, cider, exact and python, with commas.",
    ),
    tokenize: str = typer.Option(
        "13a", "--tokenize", help="How sacreBLEU splits words: 13a, none, intl, char, zh, ja-mecab, ..."
    ),
    lowercase: bool = typer.Option(False, "--lowercase", help="Capitals don't count."),
    lang: str = typer.Option("en", "--lang", help="Language, for METEOR."),
    cider_tokenize: str = typer.Option(
        "ptb", "--cider-tokenize", help="How CIDEr-D splits words: ptb, as published, or as --tokenize."
    ),
    sentences: bool = typer.Option(False, "--sentences", help="Score each line too."),
    baseline: Path | None = typer.Option(
        None, "--baseline", help="Another system's output, to test the difference for significance."
    ),
    samples: int = typer.Option(1000, "--samples", min=1, help="Of each test with --baseline."),
    seed: int = typer.Option(12345, "--seed", min=0, help="Of the samples; the default is sacreBLEU's."),
    as_json: bool = AS_JSON,
) -> None:
    """Score text against one or more references, each score with its signature.

    With --baseline, a paired bootstrap and approximate randomisation say how often chance alone makes such a
    difference (p), and intervals hold 95 % of the samples.

    Example: `anyorder evaluate --hyp output.txt --ref test.de --metrics bleu,meteor --lang de`
    """
    from anyorder.metrics import Options
    from anyorder.metrics import evaluate as score
    from anyorder.metrics.significance import compare

    names = _metric_names(metrics)
    options = Options(tokenize=tokenize, lowercase=lowercase, language=lang, cider_tokenize=cider_tokenize)
    written = _read(hyp)
    references = [_read_beside(hyp, path, flag="--ref", lines=len(written)) for path in ref]
    scored = score(written, references, metrics=names, options=options)
    comparisons: dict[str, Comparison] = {}
    if baseline is not None:
        other = _read_beside(hyp, baseline, flag="--baseline", lines=len(written))
        others = score(other, references, metrics=names, options=options)
        comparisons = {
            name: compare(scored[name], others[name], samples=samples, seed=seed) for name in scored
        }
    show = _print_as_json if as_json else _print_for_people
    show(scored, comparisons, sentences=sentences)


def _metric_names(given: str) -> list[str]:
    from anyorder.metrics import METRICS

    names = [name.strip() for name in given.split(",")]
    for name in names:
        if name not in METRICS:
            raise UserError(f"--metrics {given}: no metric {name!r}; allowed: {','.join(METRICS)}")
    return names


def _read(path: Path) -> list[str]:
    from anyorder.reading import read_lines

    lines = [text for _, text in read_lines(path)]
    if not lines:
        raise UserError(f"{path}: empty; allowed: a line or more")
    return lines


def _read_beside(hyp: Path, path: Path, *, flag: str, lines: int) -> list[str]:
    """Lines of a file that must have as many as --hyp."""
    read = _read(path)
    if len(read) != lines:
        raise UserError(
            f"{hyp} has {lines} lines but {path} has {len(read)}; --hyp and {flag} must have as many"
        )
    return read


def _print_as_json(
    scored: Mapping[str, Result], comparisons: Mapping[str, Comparison], *, sentences: bool
) -> None:
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
    scored: Mapping[str, Result], comparisons: Mapping[str, Comparison], *, sentences: bool
) -> None:
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


def _print_comparisons(scored: Mapping[str, Result], comparisons: Mapping[str, Comparison]) -> None:
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
