"""What completions are asked for, and whether they kept to it: by text alone, apart from all that decodes."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Request = Mapping[str, Any]  # as `Generator.complete` takes it
WORD = re.compile(r"\w+(?:-\w+)*")  # with its hyphens, without its punctuation
BLANK = re.compile(r"___(?:\{(\d*)(?:(,)(\d*))?\})?")


# --- requests, drawn from a reference ---


def drawn_words(reference: str, chance: np.random.Generator, *, most: int) -> list[str]:
    """Words of a reference, by chance, without their punctuation."""
    words = [word for word in WORD.findall(reference) if word.isalpha()]
    return [words[number] for number in chance.permutation(len(words))[:most]]


def in_order_of(reference: str, words: Sequence[str]) -> list[str]:
    """The same words as they follow each other there."""
    left = list(words)
    ordered = []
    for word in WORD.findall(reference):
        if word in left:
            left.remove(word)
            ordered.append(word)
    return ordered


def identifiers(reference: str) -> list[str]:
    """Names in a line of Python, in their order."""
    names = re.findall(r"(?<![\w'\"])[A-Za-z_]\w*", re.sub(r"'[^']*'|\"[^\"]*\"", " ", reference))
    return [name for name in names if not keyword.iskeyword(name)]


def blanked(reference: str, chance: np.random.Generator) -> str:
    """A reference with a third of its words, side by side, left out."""
    words = reference.split()
    missing = max(1, len(words) // 3)
    start = int(chance.integers(len(words) - missing + 1))
    return " ".join([*words[:start], "___", *words[start + missing :]])


def twice_blanked(reference: str, chance: np.random.Generator) -> str:
    """A reference with two words left out that stand apart, for each of which one to three may come."""
    words = reference.split()
    places = chance.permutation(len(words)).tolist()
    apart = next((place for place in places if abs(place - places[0]) > 1), places[0])
    for place in (places[0], apart):
        words[place] = "___{1,3}"
    return " ".join(words)


def thinned(reference: str, chance: np.random.Generator) -> str:
    """A reference with half of its words left out, here and there."""
    words = reference.split()
    staying = sorted(chance.permutation(len(words))[: max(1, len(words) // 2)])
    return " ".join(words[place] for place in staying)


def first_third(reference: str) -> str:
    """How it begins."""
    words = reference.split()
    return " ".join(words[: max(1, len(words) // 3)])


def last_third(reference: str) -> str:
    """How it ends."""
    words = reference.split()
    return " ".join(words[-max(1, len(words) // 3) :])


# --- whether a text keeps to them ---


def kept_share(written: Sequence[str], requests: Sequence[Request]) -> float | None:
    """Percent of all constraints that are kept; None: there are none."""
    kept = [one for text, request in zip(written, requests, strict=True) for one in verdicts(text, request)]
    return 100 * float(np.mean(kept)) if kept else None


def verdicts(text: str, request: Request) -> list[bool]:
    """For each constraint whether the text keeps it; words count as whole ones, in upper or lower case."""
    must = list(request.get("must", []))
    found = [
        must[: number + 1].count(word) <= len(re.findall(_whole(word), text, flags=re.IGNORECASE))
        for number, word in enumerate(must)
    ]
    if request.get("in_order"):
        found.append(_follow(text, [_whole(word) for word in must]))
    if "prefix" in request:
        found.append(text.startswith(request["prefix"]))
    if "suffix" in request:
        found.append(text.endswith(request["suffix"]))
    if "template" in request:
        found.append(fits(text, request["template"]))
    if "draft" in request:
        # Signs are words of their own here: others may come before them.
        words = re.findall(r"\w+|[^\w\s]", request["draft"])
        found.append(_follow(text, [re.escape(word) for word in words]))
    found += [not re.search(_whole(word), text, flags=re.IGNORECASE) for word in request.get("forbid", [])]
    return found


def fits(text: str, template: str) -> bool:
    """Whether a text is a template with its blanks filled by as many words as they allow."""
    pattern, end = [], 0
    for blank in BLANK.finditer(template):
        pattern += [re.escape(template[end : blank.start()].strip()), _filling(blank)]
        end = blank.end()
    pattern.append(re.escape(template[end:].strip()))
    return re.fullmatch(r"\s*".join(pattern), text) is not None


def _filling(blank: re.Match[str]) -> str:
    least, ranged, most = blank.groups()
    if least is None:  # no braces
        return r"\S.*?"
    if ranged is None:
        most = least
    # A word may have signs glued to it, so that it is a run of anything but spaces.
    others = f"{{{max(0, int(least or 0) - 1)},{int(most) - 1 if most else ''}}}"
    some = rf"\S+(?:\s+\S+){others}"
    return some if int(least or 0) else rf"(?:{some})?"


def _whole(word: str) -> str:
    # A part of a hyphenated word is none: "shirt" does not stand in "t-shirt".
    return rf"(?<![\w-])(?:{'|'.join(map(re.escape, word.split('|')))})(?![\w-])"


def _follow(text: str, patterns: Sequence[str]) -> bool:
    return re.search(".*?".join(patterns), text, flags=re.IGNORECASE) is not None
