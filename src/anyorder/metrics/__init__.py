"""How good written text is, by what measure, and how another can measure the same."""

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
DEFAULT = ("bleu", "chrf", "ter", "exact")  # all that need nothing more to be installed


def evaluate(
    written: Sequence[str],
    references: References,
    *,
    metrics: Sequence[str] = DEFAULT,
    options: Options | None = None,
) -> dict[str, Result]:
    """Scores of a text, all but CIDEr-D's and TER from 0 to 100, by the names of METRICS.

    references: one or more, each with as many lines as the text, as sacreBLEU has them.
    """
    _check_lines(written, references)
    unknown = [name for name in metrics if name not in METRICS]
    if unknown:
        raise UserError(f"metric {unknown[0]!r}: no such metric; allowed: {', '.join(METRICS)}")
    # All are made before the first one scores: what one of them lacks should be known at once.
    made = {name: METRICS[name](options or Options()) for name in metrics}
    return {name: _result(metric, written, references) for name, metric in made.items()}


def bleu(written: Sequence[str], *references: Sequence[str], side: Side) -> float:
    """Corpus BLEU, on the words that this side's text is made of."""
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
