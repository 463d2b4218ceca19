"""Answers in a notebook: the replay page in a frame."""

from __future__ import annotations

import html
from collections.abc import Sequence

from anyorder.inference.hypothesis import Hypothesis
from anyorder.viz.page import Rendition, Replay, page

_FRAME = "width:100%;height:{height}px;border:0;border-radius:12px;color-scheme:normal"
_PLAIN, _PER_LINE, _CHARACTERS = (
    300,
    60,
    60,
)  # height of a short sentence, of a line more, and a line's length


def replay_frame(hypotheses: Sequence[Hypothesis]) -> str:
    """HTML that replays how hypotheses were written. Where scripts may not run, a table says the same."""
    renditions = [
        Rendition(order="best" if number == 1 else f"number {number}", steps=one.steps, score=one.score)
        for number, one in enumerate(hypotheses, start=1)
    ]
    made = page(hypotheses[0].text or "(nothing)", [Replay(renditions=renditions)], "")
    lines = 1 + max(sum(map(len, one.tokens)) + 2 * len(one.tokens) for one in hypotheses) // _CHARACTERS
    style = _FRAME.format(height=_PLAIN + _PER_LINE * lines)
    named = f'style="{style}" title="How it was written" loading="lazy"'
    frame = f'<iframe srcdoc="{html.escape(made)}" {named}></iframe>'
    return f"{frame}<details><summary>steps as a table</summary>{hypotheses[0].table()}</details>"
