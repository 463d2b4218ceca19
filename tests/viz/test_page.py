"""The page carries its data unharmed, and nothing in the data can harm the page."""

import base64
import io
import json
import math
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray
from PIL import Image  # comes with tensorboard

from anyorder.errors import UserError
from anyorder.inference.hypothesis import steps
from anyorder.viz.page import Rendition, Replay, png, write_page

NASTY = '</script><script>alert(1)</script><!-- <b>"&\u2028{{data}} {{title}}'


class PageReader(HTMLParser):
    """What a browser would find: the elements, the title and the data."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        tag, attributes = self.elements[-1] if self.elements else ("", {})
        key = attributes.get("id") or tag
        self.texts[key] = self.texts.get(key, "") + data

    @property
    def data(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.texts["data"])
        return loaded


def written_page(
    folder: Path,
    *,
    title: str = "Replays",
    intro: str = "In any order.",
    replays: Sequence[Replay] | None = None,
) -> str:
    replay = Replay(
        source="eine kleine Katze",
        reference="a small cat",
        renditions=[
            Rendition(
                order="rare words first",
                steps=steps(["cat", "small", "a"], [3, 2, 1], [math.log(0.5), math.log(0.25), math.nan]),
                score=-1.5,
                equals_reference=True,
            )
        ],
    )
    path = folder / "page.html"
    write_page(path, title=title, intro=intro, replays=[replay] if replays is None else replays)
    return path.read_text(encoding="utf-8")


def test_data_is_what_was_given(tmp_path: Path) -> None:
    assert PageReader(written_page(tmp_path)).data == {
        "title": "Replays",
        "intro": "In any order.",
        "replays": [
            {
                "source": "eine kleine Katze",
                "picture": None,
                "reference": "a small cat",
                "renditions": [
                    {
                        "order": "rare words first",
                        "score": -1.5,
                        "equalsReference": True,
                        "words": ["a", "small", "cat"],
                        "writtenAt": [3, 2, 1],
                        "probabilities": [0.5, 0.25, None],
                    }
                ],
            }
        ],
    }


def test_nothing_in_the_data_becomes_html(tmp_path: Path) -> None:
    nasty_replay = Replay(source=NASTY, reference=NASTY, renditions=[Rendition(NASTY, steps([NASTY], [1]))])
    page = PageReader(written_page(tmp_path, title=NASTY, intro=NASTY, replays=[nasty_replay]))
    harmless = PageReader(written_page(tmp_path))
    assert page.elements == harmless.elements
    assert page.texts["title"].strip() == NASTY
    assert page.data["intro"] == NASTY
    assert page.data["replays"][0]["source"] == NASTY
    assert page.data["replays"][0]["renditions"][0]["words"] == [NASTY]


def test_page_asks_for_nothing_from_outside(tmp_path: Path) -> None:
    page = written_page(tmp_path)
    links = [
        attributes[name]
        for _, attributes in PageReader(page).elements
        for name in ("src", "href")
        if name in attributes
    ]
    assert all(link is not None and link.startswith("data:") for link in links)
    assert not any(sign in page for sign in ("http:", "https:", "url(", "@import", "fetch(", "innerHTML"))
    assert "default-src 'none'" in page


def test_a_sentence_may_be_empty_and_so_may_the_page(tmp_path: Path) -> None:
    empty = Replay(source="nothing", renditions=[Rendition(order="left to right", steps=[])])
    rendition = PageReader(written_page(tmp_path, replays=[empty])).data["replays"][0]["renditions"][0]
    assert (rendition["words"], rendition["writtenAt"], rendition["score"]) == ([], [], None)
    assert PageReader(written_page(tmp_path, replays=[])).data["replays"] == []


def test_picture_lies_in_the_page(tmp_path: Path) -> None:
    picture = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3)
    replay = Replay(picture=picture, renditions=[])
    link = PageReader(written_page(tmp_path, replays=[replay])).data["replays"][0]["picture"]
    kind, _, encoded = link.partition(",")
    assert kind == "data:image/png;base64"
    assert base64.b64decode(encoded) == png(picture)


def test_a_page_that_cannot_be_written_is_refused_by_name(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "page.html"
    with pytest.raises(UserError, match=r"missing/page\.html: can't write the page: No such file"):
        write_page(missing, title="t", intro="", replays=[])


@given(
    pixels=arrays(np.uint8, array_shapes(min_dims=2, max_dims=2, max_side=7).map(lambda shape: (*shape, 3)))
)
def test_png_keeps_every_pixel(pixels: NDArray[np.uint8]) -> None:
    decoded = Image.open(io.BytesIO(png(pixels)))
    assert decoded.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(decoded), pixels)
