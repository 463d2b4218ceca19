"""Sequence models that write their words in any order, by insertion.

Load a trained model, or one that comes with the package, and let it *generate*:

>>> import anyorder
>>> model = anyorder.load("django-small")
>>> model.generate("params is an empty list .").text
'params = [ ]'

A list of sources gets a list of answers. An answer is a list of hypotheses, best first, and a hypothesis
knows the steps that wrote it:

>>> [best, *others] = model.generate("x is None .", beam=3, n_best=3)
>>> for step in best.steps:
...     print(step.token, "goes into gap", step.gap)
x goes into gap 0
= goes into gap 1
None goes into gap 2

*Complete* a sentence around given text, blanks or required words:

>>> model.complete("call foo with x .", "y = ___", beam=4).text
'y = foo ( x )'

*Score* a target, in the order that the model was trained in or in any other:

>>> round(model.score("x is None .", "x = None").score, 1)
-0.1

*Train* a model by a recipe, and *evaluate* it on a split of its data:

    anyorder.train("recipe.toml", {"order.name": "r2l", "run": "runs/r2l"})
    anyorder.evaluate("runs/r2l", split="test").scores["bleu"].score

`ORDERS` and `METRICS` list the fixed orders and the metrics by name. Bad input raises `UserError`, with one
line that says what was given and what is allowed. The command line, `anyorder --help`, can do more.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from anyorder.api import evaluate, load, order_positions, train
from anyorder.errors import UserError
from anyorder.version import __version__

if TYPE_CHECKING:
    from anyorder.inference.generator import Generator
    from anyorder.inference.hypothesis import Answer, Completion, Fill, Hypothesis, Step
    from anyorder.inference.scoring import MarginalScore, TargetScore
    from anyorder.metrics import METRICS
    from anyorder.orders.fixed import ORDERS
    from anyorder.serve.notebook import studio

__all__ = [
    "METRICS",
    "ORDERS",
    "Answer",
    "Completion",
    "Fill",
    "Generator",
    "Hypothesis",
    "MarginalScore",
    "Step",
    "TargetScore",
    "UserError",
    "__version__",
    "evaluate",
    "load",
    "order_positions",
    "studio",
    "train",
]

# Torch and sacreBLEU take seconds to import: these are imported when they are first used.
_LAZY = {
    "METRICS": "anyorder.metrics",
    "ORDERS": "anyorder.orders.fixed",
    "Answer": "anyorder.inference.hypothesis",
    "Completion": "anyorder.inference.hypothesis",
    "Fill": "anyorder.inference.hypothesis",
    "Generator": "anyorder.inference.generator",
    "Hypothesis": "anyorder.inference.hypothesis",
    "MarginalScore": "anyorder.inference.scoring",
    "Step": "anyorder.inference.hypothesis",
    "TargetScore": "anyorder.inference.scoring",
    "studio": "anyorder.serve.notebook",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
