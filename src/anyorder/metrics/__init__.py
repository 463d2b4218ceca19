"""Metrics: scores of hypotheses against references, each with a signature that makes it reproducible."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anyorder.config.data import Side
from anyorder.errors import UserError
from anyorder.metrics.cider import cider_metric
from anyorder.metrics.exact import exact, exact_match, python_tokens
from anyorder.metrics.meteor import Meteor
from anyorder.metrics.metric import Metric, Options, References, Result
from anyorder.metrics.ribes import ribes_metric
from anyorder.metrics.sacrebleu import bleu_metric, chrf_metric, ter_metric

__all__ = ["DEFAULT", "METRICS", "Metric", "Options", "Result", "bleu", "evaluate", "exact"]

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
}
DEFAULT = ("bleu", "chrf", "ter", "exact")  # metrics that need no extra packages


def evaluate(
    written: Sequence[str],
    references: References,
    *,
    metrics: Sequence[str] = DEFAULT,
    options: Options | None = None,
) -> dict[str, Result]:
    """Score a text; all scores but those of CIDEr-D and TER lie between 0 and 100.

    written: hypotheses, one per line; references: one or more texts with equally many lines, as in sacreBLEU;
    metrics: names from METRICS, which are also the keys of the result.
    """
    _check_lines(written, references)
    unknown = [name for name in metrics if name not in METRICS]
    if unknown:
        raise UserError(f"metric {unknown[0]!r}: no such metric; allowed: {', '.join(METRICS)}")
    # Build all metrics before computing any: a missing package is then reported at once.
    made = {name: METRICS[name](options or Options()) for name in metrics}
    return {name: _result(metric, written, references) for name, metric in made.items()}


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
