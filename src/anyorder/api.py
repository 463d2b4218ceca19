"""The functions of the library: load, train and evaluate models, and compute orders.

Everything heavy is imported when a function is called, so that `import anyorder` is fast.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anyorder.config.data import Splits
    from anyorder.config.order import Order
    from anyorder.config.recipe import Recipe
    from anyorder.evaluation.results import EvaluationReport
    from anyorder.inference.generator import Generator

# `key=value` texts as on the command line, or dotted keys with their values.
Overrides = Iterable[str] | Mapping[str, object]
_log = logging.getLogger("anyorder")


def load(
    folder: str | Path,
    *,
    device: str | None = None,
    precision: str = "fp32",
    trust_code: bool = False,
) -> Generator:
    """Load a trained model, ready to generate, complete and score.

    folder: the folder of a run, or the name of a model that comes with the package.
    device: "cpu", "cuda", ...; None picks a GPU if there is one.
    precision: "fp32", or "int8" for 8-bit weights, which are faster on a CPU and nearly as good.
    trust_code: whether the model's own recipe may name order functions to import and other models to read.

    >>> import anyorder
    >>> model = anyorder.load("django-small", device="cpu")
    >>> model.generate("return y .").text
    'return y'
    """
    from anyorder.inference import hypothesis
    from anyorder.inference.generator import Generator
    from anyorder.viz.notebook import replay_frame

    hypothesis.draw_in_notebook = replay_frame
    return Generator.load(folder, device=device, precision=precision, trust_code=trust_code)


def train(
    recipe: str | Path | Recipe, overrides: Overrides = (), *, resume: bool = False, overwrite: bool = False
) -> Path:
    """Train a model by a recipe; returns the run's folder, which `load` takes.

    recipe: path of a TOML recipe (`anyorder init` writes one), or a `Recipe`.
    overrides: keys to change, as {"train.steps": 1000} or as ["train.steps=1000"].
    resume: continue a run that was stopped; overwrite: delete an existing run of that name first.

    Progress goes to the logger "anyorder" at level INFO, and figures to metrics.jsonl in the run's folder.
    Ctrl-C saves the state of training and raises KeyboardInterrupt.

    >>> import anyorder
    >>> run = anyorder.train("recipe.toml", {"train.steps": 2, "run": "runs/short"})
    >>> anyorder.load(run, device="cpu").name
    'short'
    """
    from anyorder.training.trainer import train as train_model

    settings = _recipe(recipe, overrides)
    if not train_model(settings, listener=_LogListener(), resume=resume, overwrite=overwrite):
        raise KeyboardInterrupt
    return settings.run


def evaluate(
    run: str | Path,
    *,
    split: Splits = "test",
    metrics: Sequence[str] | None = None,
    beams: Sequence[int] = (),
    overrides: Overrides = (),
    first_lines: int | None = None,
    device: str | None = None,
) -> EvaluationReport:
    """Decode a split of a run's data and score it; the report is also stored in the run's folder.

    To score text that is there already, use `anyorder.metrics.evaluate`.

    split: "train", "dev" or "test". metrics: names of `METRICS`; None: those that need nothing installed.
    beams: beam sizes, of which the best on dev is used; empty for the recipe's.
    overrides: keys of [data] and [decode] to change, as for `train`.
    first_lines: evaluate only this many lines.

    >>> import anyorder
    >>> run = anyorder.train("recipe.toml", {"train.steps": 2, "run": "runs/evaluated"})
    >>> report = anyorder.evaluate(run, split="dev", metrics=["bleu"], first_lines=2)
    >>> report.lines, list(report.scores)
    (2, ['bleu'])
    """
    from anyorder.evaluation.evaluate import Evaluator, ScoringSettings
    from anyorder.metrics import DEFAULT

    evaluator = Evaluator.load(
        Path(run),
        listener=_LogListener(),
        overrides=_override_texts(overrides),
        first_lines=first_lines,
        device=device,
    )
    scoring = ScoringSettings(metrics=DEFAULT if metrics is None else metrics)
    return evaluator.evaluate(split, beams=beams, scoring=scoring).report


def order_positions(
    words: Sequence[str], order: str | Order = "l2r", *, common_words: Iterable[str] = (), seed: int = 1
) -> list[int]:
    """The order in which a sentence of T words is written: the position that each step fills, from 1, (T,).

    order: a name of `ORDERS`, "module:function" for a function of your own, or a recipe's [order] section,
    which the order "syn" needs for its parser.
    common_words: words that count as common, for the orders "cf" and "rf". seed: for the order "rnd".

    >>> import anyorder
    >>> anyorder.order_positions("a dog runs along the beach".split(), "blt")
    [3, 1, 5, 2, 4, 6]
    >>> anyorder.order_positions(["the", "dog", "runs"], "rf", common_words=["the"])
    [2, 3, 1]
    """
    import numpy as np

    from anyorder.config.order import Order
    from anyorder.data.orderer import Line, prepare_order
    from anyorder.orders.fixed import order_rule

    section = order
    if isinstance(section, str):
        order_rule(section, key="order")  # refuses unknown names
        section = Order(name=section)
    orderer = prepare_order(section, split="test", common=frozenset(common_words))
    line = Line(number=1, words=words, pieces=[1] * len(words))
    return next(orderer.positions([line], generator=np.random.default_rng(seed)))


def _recipe(recipe: str | Path | Recipe, overrides: Overrides) -> Recipe:
    from anyorder.config.recipe import load_recipe, recipe_with

    texts = _override_texts(overrides)
    if isinstance(recipe, str | Path):
        return load_recipe(Path(recipe), texts)
    values = recipe.model_dump(mode="json", exclude_none=True)
    return recipe_with(values, texts, origin="recipe")


def _override_texts(overrides: Overrides) -> list[str]:
    if not isinstance(overrides, Mapping):
        return list(overrides)
    return [f"{key}={json.dumps(value, default=str)}" for key, value in overrides.items()]


class _LogListener:
    """Reports the progress of training and evaluation to the logger of the package."""

    def note(self, text: str) -> None:
        _log.info("%s", text)

    def preparing(self, what: str, done: int, total: int) -> None:
        _log.debug("%s: %d of %d", what, done, total)

    def trained(self, step: int, steps: int, metrics: dict[str, float]) -> None:
        _log.info("step %d of %d: %s", step, steps, _figures(metrics))

    def validated(self, step: int, scores: dict[str, Any], *, best: bool) -> None:
        _log.info("dev at step %d%s: %s", step, ", the best so far" if best else "", _figures(scores))


def _figures(values: Mapping[str, Any]) -> str:
    numbers = {key: value for key, value in values.items() if isinstance(value, int | float)}
    return ", ".join(f"{key} {value:.4g}" for key, value in numbers.items())
