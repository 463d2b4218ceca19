"""Words: how lines of text are split into words, and words joined again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from anyorder.config.data import Side
from anyorder.errors import UserError


@dataclass(frozen=True)
class Splitter:
    """Splits text into words, and joins words again."""

    split: Callable[[str], list[str]]
    join: Callable[[Sequence[str]], str]


@cache  # Moses' rules are slow to build
def splitter(side: Side) -> Splitter:
    """Get the rules that one side of a recipe asks for."""
    match side.split:
        case "moses":
            rules = _moses(side.language)
        case "spaces":
            rules = Splitter(split=str.split, join=" ".join)
        case "mecab":
            # The tagger is loaded at the first line: a model that only writes Japanese doesn't need it.
            rules = Splitter(split=lambda line: _mecab_tagger().parse(line).split(), join=_join_japanese)
    if not side.lowercase:
        return rules
    # After splitting, because Moses recognises abbreviations such as "Mr." by their capital.
    return Splitter(split=lambda line: [word.lower() for word in rules.split(line)], join=rules.join)


def word_spans(words: Sequence[str], text: str) -> list[tuple[int, int]] | None:
    """Find the words in a text, ignoring case and spaces: first character and end of each.

    Returns None if the words don't spell the text.
    """
    spans, cursor = [], 0
    for word in words:
        while cursor < len(text) and text[cursor].isspace():
            cursor += 1
        end = cursor + len(word)
        if text[cursor:end].lower() != word.lower():
            return None
        spans.append((cursor, end))
        cursor = end
    return spans if not text[cursor:].strip() else None


def _moses(language: str) -> Splitter:
    import sacremoses  # slow to load, and not needed for code or Japanese

    normalizer = sacremoses.MosesPunctNormalizer(lang=language)
    tokenizer = sacremoses.MosesTokenizer(lang=language)
    detokenizer = sacremoses.MosesDetokenizer(lang=language)

    def split(line: str) -> list[str]:
        return tokenizer.tokenize(normalizer.normalize(line), escape=False)

    def join(words: Sequence[str]) -> str:
        try:
            return detokenizer.detokenize(words, unescape=False)
        except TypeError:  # a bug of sacremoses with Czech "e' - mail" or "je' - li"
            return " ".join(words)

    return Splitter(split=split, join=join)


@cache
def _mecab_tagger() -> Any:  # noqa: ANN401 (MeCab has no types)
    try:
        import ipadic
        import MeCab
    except ImportError:
        raise UserError(
            "text: split = \"mecab\" needs MeCab and ipadic: pip install 'anyorder[japanese]'"
        ) from None
    return MeCab.Tagger(f"{ipadic.MECAB_ARGS} -Owakati")


def _join_japanese(words: Sequence[str]) -> str:
    line = ""
    for before, word in zip(["", *words], words, strict=False):
        both_latin = all(neighbour.isascii() and neighbour.isalnum() for neighbour in (before, word))
        line += f" {word}" if both_latin else word
    return line
