"""What all still pictures share: their paper, type and colours."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.sax import saxutils

_LIGHT = """
text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;fill:#1f2328}
.title{font-size:18px;font-weight:600}
.head{font-weight:600}
.quiet{fill:#59636e}
.end{text-anchor:end}
.middle{text-anchor:middle}
.paper{fill:#fff}
"""
_DARK = """
text{fill:#e6edf3}
.quiet{fill:#9198a1}
.paper{fill:#0d1117}
"""


# What XML has no way to write.
_UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escape(content: str) -> str:
    """Any text, so that it may stand in a picture."""
    return saxutils.escape(_UNWRITABLE.sub("\ufffd", content))


def picture(
    parts: Iterable[str], *, title: str, width: float, height: float, light: str = "", dark: str = ""
) -> str:
    """An SVG without scripts, fonts or links on paper as light or dark as the reader's screen is.

    Lengths are in pixels. light, dark: CSS rules of the picture's own, the latter for what differs.
    """
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}">',
            f"<title>{escape(title)}</title>",
            f"<style>{_LIGHT}{light.lstrip()}@media(prefers-color-scheme:dark){{{_DARK}{dark.lstrip()}}}\n"
            "</style>",
            f'<rect class="paper" width="{width}" height="{height}" rx="8"/>',
            *parts,
            "</svg>\n",
        ]
    )


def text(x: float, y: float, content: str, *, kind: str) -> str:
    """A line of text; kind: CSS classes."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y}">{escape(content)}</text>'
