"""One HTML file that replays how sentences were written: no server, no network, nothing beside it.

What a model read and wrote lies in the file as JSON; the script in `page.html` shows it. Nothing of it is
ever read as HTML, so a source may hold tags, quotes or the end of a script.
"""

from __future__ import annotations

import base64
import html
import io
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anyorder.errors import UserError
from anyorder.inference.hypothesis import Step, written_at


@dataclass(frozen=True)
class Rendition:
    """One way in which a sentence was written."""

    order: str  # as people call it, e.g. "rare words first"
    steps: Sequence[Step]
    score: float | None = None
    equals_reference: bool | None = None  # None: there is no reference


@dataclass(frozen=True)
class Replay:
    """Something that was read, a text or a picture or both, and the ways in which it was written about."""

    renditions: Sequence[Rendition]
    source: str = ""
    picture: NDArray[np.uint8] | None = None  # (height, width, 3)
    reference: str = ""


def page(title: str, replays: Sequence[Replay], intro: str) -> str:
    """The page's HTML."""
    data = {"title": title, "intro": intro, "replays": [_replay_data(replay) for replay in replays]}
    parts = {"title": html.escape(title), "data": _script_safe(data)}
    template = (files("anyorder.viz") / "page.html").read_text(encoding="utf-8")
    # In one pass, so that a title or a source that looks like a placeholder stays what it is.
    return re.sub(r"\{\{(title|data)\}\}", lambda found: parts[found[1]], template)


def write_page(path: Path, title: str, replays: Sequence[Replay], intro: str) -> None:
    """Write the page; whatever was at the path is replaced."""
    made = page(title, replays, intro)
    try:
        path.write_text(made, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: can't write the page: {error.strerror}") from None


def png(pixels: NDArray[np.uint8]) -> bytes:
    """A picture as a PNG file. pixels: (height, width, 3), red, green and blue."""
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
    """The finished sentence with the step of every word: all the canvases in between follow from these."""
    return {
        "order": rendition.order,
        "score": _known(rendition.score),
        "equalsReference": rendition.equals_reference,
        "words": list(rendition.steps[-1].canvas) if rendition.steps else [],
        "writtenAt": written_at(rendition.steps),
        "probabilities": [_known(math.exp(step.log_prob)) for step in rendition.steps],
    }


def _known(number: float | None) -> float | None:
    """JSON has neither NaN nor infinity: what is not a known number is null."""
    return number if number is not None and math.isfinite(number) else None


def _data_uri(picture: NDArray[np.uint8]) -> str:
    return "data:image/png;base64," + base64.b64encode(png(picture)).decode("ascii")


def _script_safe(data: dict[str, Any]) -> str:
    """JSON that can't end the script element that it stands in, nor open a comment there."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
