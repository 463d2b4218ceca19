"""In a notebook: answers replay themselves, and the studio opens."""

from __future__ import annotations

import html
import re

from servers import request

import anyorder


def test_an_answer_replays_itself_and_says_the_same_without_scripts() -> None:
    answer = anyorder.load("django-small", device="cpu").generate("x is None .", beam=2, n_best=2)
    drawn = answer._repr_html_()
    page = html.unescape(re.search(r'srcdoc="([^"]*)"', drawn)[1])  # type: ignore[index]
    assert "class Player" in page and '"writtenAt": [1, 2, 3]' in page
    assert drawn.count("<iframe") == 1
    assert "<table>" in drawn and "None" in answer.best.table()
    assert answer.best._repr_html_().startswith("<iframe")


def test_the_studio_opens_on_this_machine() -> None:
    with anyorder.studio(anyorder.load("django-small", device="cpu")) as page:
        assert page.url.startswith("http://127.0.0.1:")
        assert f'src="{page.url}"' in page._repr_html_()
        reply = request(f"{page.url}v1/generate", {"source": "x is None ."})
        assert reply.json["hypotheses"][0]["text"] == "x = None"
    assert "Studio at" in repr(page)
