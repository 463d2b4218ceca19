"""Exact match, of words and of Python tokens."""

from __future__ import annotations

import io
import platform
import tokenize
from collections.abc import Callable, Sequence
from textwrap import dedent

from anyorder.metrics.metric import Mean, Options, References, case_of
from anyorder.version import __version__

_NO_CODE = (tokenize.NL, tokenize.COMMENT)
_LAYOUT = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)  # only their presence matters, not their width


def exact(written: Sequence[Sequence[str]], *references: Sequence[Sequence[str]]) -> float:
    """Percentage of sentences that have exactly the words of a reference."""
    equal = sum(
        any(list(one) == list(other) for other in others)
        for one, *others in zip(written, *references, strict=True)
    )
    return 100 * equal / len(written) if written else 0.0


def exact_match(options: Options) -> Mean:
    """Percentage of lines that have exactly the words of a reference; the width of spaces is ignored."""
    case = case_of(lowercase=options.lowercase)
    words = _lowercased_words if options.lowercase else str.split
    details = f"case:{case}|tok:none|version:anyorder-{__version__}"
    return Mean(name="exact match", details=details, judge=_same(words))


def python_tokens(options: Options) -> Mean:
    """Percentage of lines with the same Python tokens as a reference; spaces and comments are ignored."""
    major, minor, _ = platform.python_version_tuple()
    details = f"case:mixed|tok:python-{major}.{minor}|version:anyorder-{__version__}"
    return Mean(name="Python tokens", details=details, judge=_same(code_tokens))


def code_tokens(text: str) -> list[str]:
    """Split code into Python tokens; text that isn't Python is split into words."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(dedent(text)).readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return text.split()
    if any(token.type == tokenize.ERRORTOKEN for token in tokens):
        return text.split()
    return [
        tokenize.tok_name[token.type] if token.type in _LAYOUT else token.string
        for token in tokens
        if token.type not in _NO_CODE
    ]


def _same(
    parts: Callable[[str], list[str]],
) -> Callable[[Sequence[str], References], list[float]]:
    """Build a function that scores a line 1 if it has the same parts as a reference, else 0."""

    def judge(written: Sequence[str], references: References) -> list[float]:
        return [
            float(any(parts(text) == parts(wanted) for wanted in choices))
            for text, *choices in zip(written, *references, strict=True)
        ]

    return judge


def _lowercased_words(text: str) -> list[str]:
    return text.lower().split()
