"""Docstrings as the API page shows them.

In the code an argument is a line `name: meaning`, a field has its meaning in a comment behind it, and an
example is a doctest. For Markdown these become lists, docstrings and fenced blocks.
"""

from __future__ import annotations

import re
from typing import Any

import griffe


class Readable(griffe.Extension):
    """Turn our docstrings into Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:  # noqa: ANN401 (what griffe hands over)
        """Rewrite the docstring of an object, or make one of its comment."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
        elif isinstance(obj, griffe.Attribute) and obj.lineno is not None:
            comment = re.search(r"  # (.+)$", obj.lines_collection[obj.filepath][obj.lineno - 1])
            if comment is not None:
                text = comment[1][0].upper() + comment[1][1:]
                obj.docstring = griffe.Docstring(text, parent=obj)


def as_markdown(text: str) -> str:
    """Fence doctests, and make a list of the lines that explain arguments."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.startswith(">>>"):
            parts.append(f"```pycon\n{paragraph}\n```")
        elif re.match(r"[a-z_]+(, [a-z_]+)*: ", paragraph):
            # One sentence may follow another: `split: ... metrics: ...`.
            items = re.sub(r"(?<=[.;]) (?=[a-z_]+: )", "\n", paragraph)
            parts.append(re.sub(r"^([a-z_]+(?:, [a-z_]+)*): ", r"- `\1`: ", items, flags=re.MULTILINE))
        else:
            parts.append(paragraph)
    return "\n\n".join(parts)
