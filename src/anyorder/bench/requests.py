"""Random requests for completion, and a checker of their constraints that reads nothing but text."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

CompletionRequest = Mapping[str, Any]  # the arguments of `Generator.complete` for one source
_WORD = re.compile(r"\w+(?:-\w+)*")  # includes hyphens, but no other punctuation
_BLANK = re.compile(r"___(?:\{(\d*)(?:(,)(\d*))?\})?")


# --- requests, made from a reference ---


def random_words(reference: str, random: np.random.Generator, *, most: int) -> list[str]:
    """Draw words of the reference, without their punctuation."""
    words = [word for word in _WORD.findall(reference) if word.isalpha()]
    return [words[number] for number in random.permutation(len(words))[:most]]


def in_order_of(reference: str, words: Sequence[str]) -> list[str]:
    """Sort words by where they occur in the reference."""
    remaining = list(words)
    ordered = []
    for word in _WORD.findall(reference):
        if word in remaining:
            remaining.remove(word)
            ordered.append(word)
    return ordered


def identifiers(reference: str) -> list[str]:
    """Return the names in a line of Python, in order."""
    names = re.findall(r"(?<![\w'\"])[A-Za-z_]\w*", re.sub(r"'[^']*'|\"[^\"]*\"", " ", reference))
    return [name for name in names if not keyword.iskeyword(name)]


def blanked(reference: str, random: np.random.Generator) -> str:
    """Replace a random third of the words, next to each other, by a blank."""
    words = reference.split()
    missing = max(1, len(words) // 3)
    start = int(random.integers(len(words) - missing + 1))
    return " ".join([*words[:start], "___", *words[start + missing :]])


def twice_blanked(reference: str, random: np.random.Generator) -> str:
    """Replace two random words that are not neighbours by blanks of one to three words."""
    words = reference.split()
    indices = random.permutation(len(words)).tolist()
    second = next((index for index in indices if abs(index - indices[0]) > 1), indices[0])
    for index in (indices[0], second):
        words[index] = "___{1,3}"
    return " ".join(words)


def thinned(reference: str, random: np.random.Generator) -> str:
    """Remove a random half of the words."""
    words = reference.split()
    remaining = sorted(random.permutation(len(words))[: max(1, len(words) // 2)])
    return " ".join(words[index] for index in remaining)


def first_third(reference: str) -> str:
    """Return the first third of the words."""
    words = reference.split()
    return " ".join(words[: max(1, len(words) // 3)])


def last_third(reference: str) -> str:
    """Return the last third of the words."""
    words = reference.split()
    return " ".join(words[-max(1, len(words) // 3) :])


# --- does a text satisfy a request? ---


def percent_satisfied(texts: Sequence[str], requests: Sequence[CompletionRequest]) -> float | None:
    """Return the percentage of all constraints that are satisfied; None if there are none."""
    satisfied = [
        one for text, request in zip(texts, requests, strict=True) for one in satisfactions(text, request)
    ]
    return 100 * float(np.mean(satisfied)) if satisfied else None


def satisfactions(text: str, request: CompletionRequest) -> list[bool]:
    """Tell for each constraint whether a text satisfies it. Words must be whole; case is ignored."""
    must = list(request.get("must", []))
    satisfied = [
        must[: number + 1].count(word) <= len(re.findall(_whole(word), text, flags=re.IGNORECASE))
        for number, word in enumerate(must)
    ]
    if request.get("in_order"):
        satisfied.append(_in_sequence(text, [_whole(word) for word in must]))
    if "prefix" in request:
        satisfied.append(text.startswith(request["prefix"]))
    if "suffix" in request:
        satisfied.append(text.endswith(request["suffix"]))
    if "template" in request:
        satisfied.append(fits(text, request["template"]))
    if "draft" in request:
        # Punctuation counts as words, because new words may come before it.
        words = re.findall(r"\w+|[^\w\s]", request["draft"])
        satisfied.append(_in_sequence(text, [re.escape(word) for word in words]))
    forbidden = request.get("forbid", [])
    satisfied += [not re.search(_whole(word), text, flags=re.IGNORECASE) for word in forbidden]
    return satisfied


def fits(text: str, template: str) -> bool:
    """Tell whether a text is the template with every blank filled by an allowed number of words."""
    pattern, end = [], 0
    for blank in _BLANK.finditer(template):
        pattern += [re.escape(template[end : blank.start()].strip()), _filling(blank)]
        end = blank.end()
    pattern.append(re.escape(template[end:].strip()))
    return re.fullmatch(r"\s*".join(pattern), text) is not None


def _filling(blank: re.Match[str]) -> str:
    """Return a pattern for the words that may fill a blank."""
    least, ranged, most = blank.groups()
    if least is None:  # no braces
        return r"\S.*?"
    if ranged is None:
        most = least
    # A word may have punctuation attached, so that it is a run of anything but spaces.
    others = f"{{{max(0, int(least or 0) - 1)},{int(most) - 1 if most else ''}}}"
    some = rf"\S+(?:\s+\S+){others}"
    return some if int(least or 0) else rf"(?:{some})?"


def _whole(word: str) -> str:
    # A part of a hyphenated word is no word: "shirt" does not occur in "t-shirt".
    return rf"(?<![\w-])(?:{'|'.join(map(re.escape, word.split('|')))})(?![\w-])"


def _in_sequence(text: str, patterns: Sequence[str]) -> bool:
    return re.search(".*?".join(patterns), text, flags=re.IGNORECASE) is not None
