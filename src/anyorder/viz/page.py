"""Write one HTML file that replays how sentences were written, without a server, a network or other files.

The file holds sources and sentences as JSON, and the script in `page.html` shows them. The script never reads
them as HTML, so a source may hold tags, quotes or the end of a script.
"""

from __future__ import annotations

import base64
import html
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anyorder.errors import UserError
from anyorder.inference.hypothesis import Step, written_at
from anyorder.viz.component import assembled


@dataclass(frozen=True)
class Rendition:
    """A sentence and the order that it was written in."""

    order: str  # as the page shows it, e.g. "rare words first"
    steps: Sequence[Step]
    score: float | None = None
    equals_reference: bool | None = None  # None: there is no reference


@dataclass(frozen=True)
class Replay:
    """A source (text, a picture or both) and the renditions of it."""

    renditions: Sequence[Rendition]
    source: str = ""
    picture: NDArray[np.uint8] | None = None  # (height, width, 3)
    reference: str = ""


def page(title: str, replays: Sequence[Replay], intro: str) -> str:
    """Return the page as HTML."""
    data = {"title": title, "intro": intro, "replays": [_replay_data(replay) for replay in replays]}
    parts = {"title": html.escape(title), "data": _script_safe(data)}
    return assembled("page.html", parts)


def write_page(path: Path, title: str, replays: Sequence[Replay], intro: str) -> None:
    """Write the page to a file and replace what was there."""
    made = page(title, replays, intro)
    try:
        path.write_text(made, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: can't write the page: {error.strerror}") from None


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Encode a picture as PNG. pixels: (height, width, 3), red, green and blue."""
    with io.BytesIO() as file:
        Image.fromarray(pixels).save(file, format="PNG", optimize=True)
        return file.getvalue()


def _replay_data(replay: Replay) -> dict[str, Any]:
    return {
        "source": replay.source,
        "picture": None if replay.picture is None else _data_uri(replay.picture),
        "reference": replay.reference,
        "renditions": [_rendition_data(rendition) for rendition in replay.renditions],
    }


def _rendition_data(rendition: Rendition) -> dict[str, Any]:
    """The finished sentence and the step of each word; the page derives all canvases from these."""
    return {
        "order": rendition.order,
        "score": _known(rendition.score),
        "equalsReference": rendition.equals_reference,
        "words": list(rendition.steps[-1].canvas) if rendition.steps else [],
        "writtenAt": written_at(rendition.steps),
        "probabilities": [_known(math.exp(step.log_prob)) for step in rendition.steps],
    }


def _known(number: float | None) -> float | None:
    """Return the number, or None for NaN and infinity, which JSON doesn't have."""
    return number if number is not None and math.isfinite(number) else None


def _data_uri(picture: NDArray[np.uint8]) -> str:
    return "data:image/png;base64," + base64.b64encode(png(picture)).decode("ascii")


def _script_safe(data: dict[str, Any]) -> str:
    """JSON that can neither end the script element around it nor open a comment there."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
