"""Show what an editor changed: in the terminal, or as a web page of its own."""

from __future__ import annotations

import html
from collections.abc import Sequence

from rich.text import Text

from anyorder.inference.edited import Edited, html_diff, spaced

STYLES = {"same": "", "before": "red strike", "after": "green underline"}
# A pipe keeps no colour: there, deleted and inserted words stand in brackets.
BRACKETS = {"same": ("", ""), "before": ("[-", "-]"), "after": ("{+", "+}")}


def draw_diff(edited: Edited, *, colour: bool) -> Text:
    """The draft with its deleted and inserted words. colour: False puts them in brackets."""
    drawn = Text()
    for segment in spaced(edited):
        opening, closing = ("", "") if colour else BRACKETS[segment.kind]
        drawn.append(f"{opening}{segment.text}{closing}", style=STYLES[segment.kind])
    return drawn


def diff_page(title: str, edited: Sequence[tuple[str | None, Edited]]) -> str:
    """One HTML file of all differences. edited: each with its source, if it has one."""
    rows = "\n".join(_row(source, one) for source, one in edited)
    changed = sum(one.changed for _, one in edited)
    edits = sum(len(one.edits) for _, one in edited)
    return _PAGE.format(
        title=html.escape(title),
        summary=f"{edits} edits in {changed} of {len(edited)} drafts. Point at one to see its probability.",
        rows=rows,
    )


def _row(source: str | None, edited: Edited) -> str:
    above = "" if not source else f'<p class="source">{html.escape(source)}</p>'
    refused = ", ".join(map(html.escape, edited.refused))
    below = f'<p class="source">not deleted, because too much would be gone: {refused}</p>' if refused else ""
    return f"<li>{above}<p>{html_diff(edited)}</p>{below}</li>"


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 1rem/1.6 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
li {{ margin: 1rem 0; }}
p {{ margin: 0; white-space: pre-wrap; }}
.source {{ opacity: 0.7; font-size: 0.9rem; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{summary}</p>
<ol>
{rows}
</ol>
</body>
</html>
"""
