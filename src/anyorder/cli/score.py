"""score: log p of targets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from anyorder.cli.generate import located, read_sources
from anyorder.cli.options import (
    AS_JSON,
    BY_CHANCE,
    BY_FILE,
    BY_TREES,
    DEVICE,
    ORDER_FILE,
    RUN,
    TRUST_CODE,
    order_section,
    orders_that_need,
)
from anyorder.cli.output import check_equally_many, print_json, print_line, results, table
from anyorder.config.decode import Decode
from anyorder.errors import UserError
from anyorder.orders.fixed import order_names

if TYPE_CHECKING:
    from anyorder.inference.scoring import MarginalScore, TargetScore

    Scores = Sequence[TargetScore] | Sequence[MarginalScore]

OWN, MARGINAL, SEARCHED = "own", "marginal", orders_that_need("search")


_DESCRIBED = {
    key: f"{(field.description or '')[:1].upper()}{(field.description or '')[1:]}"
    for key, field in Decode.model_fields.items()
}


def score(
    run: RUN,
    source: Path = typer.Option(
        ..., "--source", help="File of sources, one per line, or .npy feature vectors."
    ),
    target: Path = typer.Option(..., "--target", help="File of targets, one per line."),
    order: str = typer.Option(
        OWN,
        "--order",
        help=f"{OWN}: the order that the model was trained in; {MARGINAL}: the sum over many orders; or "
        f"{order_names()}, where {SEARCHED} is the best order found.",
    ),
    parser: str | None = typer.Option(
        None, "--parser", help=f"For {BY_TREES}, as order.parser; default: the run's."
    ),
    order_file: Path | None = ORDER_FILE,
    beam: int = typer.Option(8, "--beam", min=1, help=f"Orders to find for {SEARCHED} and {MARGINAL}."),
    samples: int | None = typer.Option(
        None, "--samples", min=2, help=f"For {MARGINAL}: random orders to draw, to estimate all others."
    ),
    seed: int = typer.Option(1, "--seed", min=0, help=f"For {BY_CHANCE} and --samples."),
    max_source: int | None = typer.Option(
        None, "--max-source", help=f"{_DESCRIBED['max_source']}; default: as in the recipe."
    ),
    max_target: int | None = typer.Option(
        None, "--max-target", help=f"{_DESCRIBED['max_target']}; default: as in the recipe."
    ),
    cut: bool | None = typer.Option(None, "--cut/--no-cut", help=f"{_DESCRIBED['cut']}."),
    total: bool = typer.Option(False, "--total", help="Print the sums over all pairs, not a line for each."),
    as_json: bool = AS_JSON,
    device: str | None = DEVICE,
    trust_code: bool = TRUST_CODE,
) -> None:
    """Compute log p of each target given its source, written in one order or in any.

    For one order, a line holds log p and its two parts, those of the words and of the gaps.

    For --order marginal, a line holds three figures: a lower bound of log p in any order, which is the sum
    over the orders found and the model's own; log p in the likeliest of these orders; and their number. With
    --samples, the first figure is an estimate that includes all other orders too, and the last one is its
    standard error, as far as the samples show it.

    Example: `anyorder score runs/l2r --source dev.en --target dev.de`
    """
    from anyorder.data.readers import read_lines
    from anyorder.inference.generator import Generator
    from anyorder.inference.trust import check_code

    _check_flags(order, order_file=order_file, samples=samples)
    generator = Generator.load(run, device=device, trust_code=trust_code)
    sources = list(read_sources([source]))
    targets = [line for _, line in read_lines(target)]
    check_equally_many((source, sources), (target, targets))
    given: Any = order
    if order not in (MARGINAL, OWN):
        if parser is None and (parser := generator.trained.recipe.order.parser) is not None:
            check_code(generator.trained.recipe, trust_code=trust_code)
        given = order_section(order, parser=parser, order_file=order_file)
    how: dict[str, Any] = {"order": given, "beam": beam, "samples": samples, "seed": seed}
    bounds: dict[str, Any] = {"max_source": max_source, "max_target": max_target, "cut": cut}
    places = {
        "source": [one.where for one in sources],
        "target": [f"{target}:{number}" for number in range(1, len(targets) + 1)],
    }
    scores: Scores
    with located(places):
        scores = generator.score([one.source for one in sources], targets, **how, **bounds)
    if total:
        _show_sums(scores, as_json=as_json)
    else:
        _show(scores, as_json=as_json)


def _check_flags(order: str, *, order_file: Path | None, samples: int | None) -> None:
    if order in (OWN, MARGINAL) and order_file is not None:
        raise UserError(f"--order-file {order_file}: is for the orders {BY_FILE}, not for {order}")
    if order != MARGINAL and samples is not None:
        raise UserError(f"--samples {samples}: is for --order {MARGINAL}, not for {order}")


def _show(scores: Scores, *, as_json: bool) -> None:
    """Print one line for each pair."""
    for one in scores:
        if as_json:
            print_json(asdict(one))
        else:
            print_line("\t".join(_figures(one)))


def _figures(one: TargetScore | MarginalScore) -> list[str]:
    from anyorder.inference.scoring import TargetScore

    if isinstance(one, TargetScore):
        return [f"{figure:.4f}" for figure in (one.score, one.word_score, one.gap_score)]
    last = str(one.orders) if one.standard_error is None else f"{one.standard_error:.4f}"
    return [f"{one.score:.4f}", f"{one.best.score:.4f}", last]


def _show_sums(scores: Scores, *, as_json: bool) -> None:
    sums = _sums(scores)
    if as_json:
        print_json(sums)
        return
    drawn = table(*(name.replace("_", " ") for name in sums))
    drawn.add_row(*(f"{value:,}" if isinstance(value, int) else f"{value:,.4f}" for value in sums.values()))
    results.print(drawn)


def _sums(scores: Scores) -> dict[str, float]:
    """Add up the scores of all pairs; a step is a token or the end of a target."""
    from anyorder.inference.scoring import MarginalScore

    marginals = [one for one in scores if isinstance(one, MarginalScore)]
    in_one_order = [one.best if isinstance(one, MarginalScore) else one for one in scores]
    steps = sum(len(one.positions) + 1 for one in in_one_order)
    score = math.fsum(one.score for one in scores)
    sums = {"pairs": len(scores), "steps": steps, "score": score, "score_a_step": score / max(1, steps)}
    if not marginals:
        sums["word_score"] = math.fsum(one.word_score for one in in_one_order)
        sums["gap_score"] = math.fsum(one.gap_score for one in in_one_order)
        return sums
    sums["best_score"] = math.fsum(one.score for one in in_one_order)
    errors = [one.standard_error for one in marginals if one.standard_error is not None]
    if errors:
        sums["standard_error"] = math.hypot(*errors)  # the samples of different pairs are independent
    return sums
