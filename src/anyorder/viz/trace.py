"""Show in the terminal how a sentence was written, step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from anyorder.inference.hypothesis import Step

NEW_WORD = "bold underline green"
# Of a longer canvas, only some words around the new one are shown: the picture would grow by its square.
LONGEST, AROUND = 200, 12


def draw_trace(steps: Sequence[Step], title: str) -> RenderableType:
    """Draw one line a step: its word, the canvas with that word marked, and its probability if known.

    The word has a column of its own, because a pipe keeps neither colour nor underline.
    """
    with_probability = any(not math.isnan(step.log_prob) for step in steps)
    table = Table(
        title=Text(title, style="bold"), title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    table.add_column("step", justify="right", style="dim", no_wrap=True)
    table.add_column("word", max_width=20, overflow="fold")
    table.add_column("sentence", overflow="fold")
    if with_probability:
        table.add_column("p", justify="right", style="dim", no_wrap=True)
    for number, step in enumerate(steps, start=1):
        row = [Text(str(number)), Text(step.token), _sentence(step)]
        if with_probability:
            row.append(Text("" if math.isnan(step.log_prob) else f"{math.exp(step.log_prob):.3f}"))
        table.add_row(*row)
    return table


def _sentence(step: Step) -> Text:
    first = max(0, step.index - 1 - AROUND) if len(step.canvas) > LONGEST else 0
    last = step.index + AROUND if len(step.canvas) > LONGEST else len(step.canvas)
    words = [
        Text(word, style=NEW_WORD if index == step.index else "")
        for index, word in enumerate(step.canvas[first:last], first + 1)
    ]
    left, right = ([Text("…")] if hidden else [] for hidden in (first > 0, last < len(step.canvas)))
    return Text(" ").join([*left, *words, *right])
