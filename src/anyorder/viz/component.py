"""The pages that show how sentences are written: one script and one style for all of them.

The replay page, the studio and notebooks are templates with names in double braces, which stand for the
files in `assets/` or for values. A page is one file and asks for nothing from elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files


def assembled(template: str, values: Mapping[str, str] | None = None) -> str:
    """A template with files and values in place of their names.

    Values are put in last and in one pass, so that one that looks like a name is left alone.
    """
    known = values or {}

    def put(found: re.Match[str]) -> str:
        return known[found[1]] if found[1] in known else found[0]

    return re.sub(r"\{\{([\w.]+)\}\}", put, _with_files(template))


@cache
def _with_files(template: str) -> str:
    folder = files("anyorder.viz")
    text = (folder / template).read_text(encoding="utf-8")
    return re.sub(
        r"\{\{([\w]+\.(?:css|js|html))\}\}",
        lambda found: (folder / "assets" / found[1]).read_text(encoding="utf-8").rstrip("\n"),
        text,
    )


@cache
def studio_page() -> str:
    """The studio, which a server shows at its root."""
    return assembled("assets/studio.html")
