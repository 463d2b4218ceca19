"""Metrics: scores of hypotheses against references, each with a signature that makes it reproducible."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from anyorder.config.data import Side
from anyorder.errors import UserError
from anyorder.metrics.cider import cider_metric
from anyorder.metrics.edits import edit_metric, errant_metric
from anyorder.metrics.exact import exact, exact_match, python_tokens
from anyorder.metrics.gleu import gleu_metric
from anyorder.metrics.meteor import Meteor
from anyorder.metrics.metric import Metric, Options, References, Result
from anyorder.metrics.ribes import ribes_metric
from anyorder.metrics.sacrebleu import bleu_metric, chrf_metric, ter_metric

__all__ = [
    "DEFAULT",
    "METRICS",
    "Metric",
    "Options",
    "Result",
    "bleu",
    "check_drafts",
    "evaluate",
    "exact",
]

# The one list of metrics: the command line, reports and messages take their names from here.
METRICS: dict[str, Callable[[Options], Metric]] = {
    "bleu": bleu_metric,
    "chrf": chrf_metric,
    "ter": ter_metric,
    "ribes": ribes_metric,
    "meteor": Meteor,
    "cider": cider_metric,
    "exact": exact_match,
    "python": python_tokens,
    "gleu": gleu_metric,
    "edits": edit_metric,
    "errant": errant_metric,
}
DEFAULT = ("bleu", "chrf", "ter", "exact")  # metrics that need no extra packages


def evaluate(
    written: Sequence[str],
    references: References,
    *,
    metrics: Sequence[str] = DEFAULT,
    options: Options | None = None,
    drafts: Sequence[str] | None = None,
) -> dict[str, Result]:
    """Score a text; all scores but those of CIDEr-D and TER lie between 0 and 100.

    written: hypotheses, one per line; references: one or more texts with equally many lines, as in sacreBLEU;
    metrics: names from METRICS, which are also the keys of the result; drafts: what was edited, which metrics
    of edits compare with.
    """
    _check_lines(written, references)
    unknown = [name for name in metrics if name not in METRICS]
    if unknown:
        raise UserError(f"metric {unknown[0]!r}: no such metric; allowed: {', '.join(METRICS)}")
    # Build all metrics before computing any: a missing package is then reported at once.
    made = {name: METRICS[name](options or Options()) for name in metrics}
    check_drafts(made, drafts)
    if drafts is not None:
        if len(drafts) != len(written):
            raise UserError(f"drafts: {len(drafts)} lines but {len(written)} were written")
        made = {name: metric.for_drafts(drafts) for name, metric in made.items()}
    return {name: _result(metric, written, references) for name, metric in made.items()}


def check_drafts(metrics: Mapping[str, Metric], drafts: Sequence[str] | None) -> None:
    """Refuse metrics of edits where there is nothing that was edited."""
    for name, metric in metrics.items():
        if metric.needs_drafts and drafts is None:
            raise UserError(f"metric {name!r}: compares with drafts; give them, or another metric")


def bleu(written: Sequence[str], *references: Sequence[str], side: Side) -> float:
    """Corpus BLEU, on words as a side of a recipe splits them."""
    options = Options.for_side(side)
    return evaluate(written, references, metrics=["bleu"], options=options)["bleu"].score


def _check_lines(written: Sequence[str], references: References) -> None:
    if not references:
        raise UserError("references: none given; allowed: one or more, each with a line for each written one")
    if not written:
        raise UserError("nothing to evaluate: no line was written")
    for number, lines in enumerate(references, start=1):
        if len(lines) != len(written):
            raise UserError(f"reference {number} has {len(lines)} lines but {len(written)} were written")


def _result(metric: Metric, written: Sequence[str], references: References) -> Result:
    statistics = metric.statistics(written, references)
    return Result(
        metric=metric,
        score=metric.score(statistics),
        signature=metric.signature(references=len(references)),
        statistics=statistics,
        references=len(references),
    )
