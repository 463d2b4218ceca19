"""What a user gives of a target, as text: a template with blanks, required and forbidden words.

`CanvasText` checks it, and `CompiledCanvas` turns it into tokens that decoding keeps to. `completion` makes
text of the result.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from anyorder import config
from anyorder.decoding.allowed import items_fit
from anyorder.decoding.beam import TokenHypothesis
from anyorder.decoding.constraints import CLOSED, UNLIMITED, Blank, Canvas, ForbiddenWord, Way
from anyorder.errors import UserError
from anyorder.text.pairs import SourceTokens
from anyorder.text.tokenizer import SPECIALS, UNK, Tokenizer, Tokens
from anyorder.text.words import splitter, word_spans

BLANK = re.compile(r"(?<!_)___(?!_)(?:\{(?P<bounds>[^}]*)\})?")
TOO_LONG_BLANK = re.compile(r"_{4,}")
BOUNDS = re.compile(r"(?P<least>\d{0,9})(?P<comma>,?)(?P<most>\d{0,9})", re.ASCII)
ALTERNATIVE = "|"


class CanvasText(config.Section):
    """What a target must contain, what it must not, and where the model may write.

    A prefix and a suffix may be given together; a template and a draft each stand alone.
    """

    template: str | None = Field(
        None, description="text with blanks: ___, or ___{1,3} for one to three words"
    )
    prefix: str | None = Field(None, description="the target begins with it")
    suffix: str | None = Field(None, description="the target ends with it")
    draft: str | None = Field(None, description="text into which words may be inserted everywhere")
    must: tuple[str, ...] = Field((), description="words or phrases that must appear; | between alternatives")
    in_order: bool = Field(False, description="must appear in the order given, not in any")
    forbid: tuple[str, ...] = Field((), description="words that must not appear")

    @field_validator("must", "forbid", mode="before")
    @classmethod
    def _one_is_a_list_too(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        frames = [name for name in ("template", "draft") if getattr(self, name) is not None]
        ends = [name for name in ("prefix", "suffix") if getattr(self, name) is not None]
        if len(frames) > 1 or (frames and ends):
            raise ValueError(
                f"{' and '.join(frames + ends)} given: give a template, a draft, or a prefix and a suffix"
            )
        for name, text in [("template", self.template or ""), *(("must", text) for text in self.must)]:
            if too_long := TOO_LONG_BLANK.search(text):
                raise ValueError(
                    f"{name} = {text!r}: has {len(too_long[0])} underscores in a row; a blank is three: ___"
                )
        if self.template is not None and not BLANK.search(self.template):
            raise ValueError(f"template = {self.template!r}: has no blank; write ___ where words are missing")
        if self.in_order and len(self.must) < 2:
            raise ValueError("in_order: is for two or more of must")
        for text in self.must:
            if not all(part.strip() for part in text.split(ALTERNATIVE)):
                raise ValueError(f"must = {text!r}: a word is missing")
        for text in self.forbid:
            if not text.strip():
                raise ValueError(f"forbid = {text!r}: a word is missing")
        return self


@dataclass(frozen=True)
class Given:
    """A part of the given text that nothing is inserted into."""

    text: str
    words: tuple[str, ...]  # its words by the target's rules
    glued_left: bool = False  # no space stands between it and the blank on this side
    glued_right: bool = False


@dataclass(frozen=True)
class CompiledWay:
    """One way to write a required item, with its text."""

    way: Way
    parts: tuple[Given, ...]
    sizes: tuple[int, ...]  # number of tokens of each part
    is_draft: bool = False


class CompiledCanvas:
    """A user's canvas in the tokens of a model.

    source: the source, from which words may be copied; where: begins error messages, e.g. a file and a line.
    """

    def __init__(
        self,
        text: CanvasText,
        tokenizer: Tokenizer,
        *,
        source: SourceTokens | None = None,
        where: str = "canvas",
    ) -> None:
        self._text, self._tokenizer, self._where = text, tokenizer, where
        self._source = source or SourceTokens(ids=[])
        self._rules = splitter(tokenizer.text.target)
        self._parts: list[Given] = []  # given parts of the template
        self._draft_parts: list[Given] = []  # words of the draft, which are required in their order
        self._separators: dict[int, str] = {}  # of a draft: the text between each part and the next
        self._lead = self._trail = ""  # white space around the given text
        self._numbered = False  # whether the user gave blanks, which then have numbers
        blanks, before, after = self._frame()
        items = [self._ways(must) for must in self._musts()]
        self._tokens = self._encoded(self._parts, self._draft_parts, *itertools.chain.from_iterable(items))
        encoded = [self._tokens[part.words] for part in self._parts]
        self._sizes = [len(tokens) for tokens in encoded]
        template: list[tuple[int, int]] = []
        for tokens, right in zip(encoded, after, strict=True):
            template += [(token, CLOSED) for token in tokens[:-1]]
            template.append((tokens[-1], right))
        self.items = [[self._in_order(parts) for parts in ways] for ways in items]
        if self._draft_parts:
            self.items.append([self._in_order(self._draft_parts, is_draft=True)])
        self.canvas = Canvas(
            blanks=tuple(blanks),
            before=before,
            template=tuple(template),
            items=tuple(tuple(way.way for way in item) for item in self.items),
            forbidden=tuple(self._forbidden()),
        )
        self._after = after
        self._check_room()

    # --- from text to tokens ---

    def _frame(self) -> tuple[list[Blank], int, list[int]]:
        """Find the given parts; returns the blanks, the one before all parts and the one after each part."""
        text = self._text
        if text.draft is not None:
            self._split_draft(text.draft)
            return [Blank()], 0, []
        if text.template is not None:
            return self._template(text.template)
        if text.prefix is not None or text.suffix is not None:
            prefix, suffix = ((side or "") for side in (text.prefix, text.suffix))
            return self._template(f"{prefix} ___ {suffix}", whole=(prefix, suffix))
        return [Blank()], 0, []

    def _template(
        self, text: str, *, whole: tuple[str, str] | None = None
    ) -> tuple[list[Blank], int, list[int]]:
        """Split a template at its blanks; whole: a prefix and a suffix, in which underscores are text."""
        found = list(BLANK.finditer(text)) if whole is None else []
        pieces = [text[end:start] for end, start in pairwise([0, *_ends(found), len(text)])] if found else []
        pieces = pieces[::2] if found else list(whole or ())
        blanks = [self._blank(match) for match in found] if found else [Blank()]
        self._numbered = True
        self._lead, self._trail = _leading(pieces[0]), _trailing(pieces[-1])
        before, after = CLOSED, []
        for number, piece in enumerate(pieces):
            stripped = piece.strip()
            first, last = number == 0, number == len(pieces) - 1
            if not stripped:
                if not (first or last):
                    raise self.refusal(f"template = {text!r}: two blanks stand side by side; one will do")
                before = 0 if first else before
                continue
            glued = whole is None
            self._parts.append(
                self._given(
                    stripped,
                    glued_left=glued and not first and not piece[0].isspace(),
                    glued_right=glued and not last and not piece[-1].isspace(),
                )
            )
            after.append(CLOSED if last else number)
        return blanks, before, after

    def _blank(self, match: re.Match[str]) -> Blank:
        if match["bounds"] is None:  # no braces: one word or more
            return Blank(least=1)
        bounds = BOUNDS.fullmatch(match["bounds"])
        if bounds is not None and (bounds["least"] or bounds["most"]):
            least = int(bounds["least"] or 0)
            most = (int(bounds["most"]) if bounds["most"] else None) if bounds["comma"] else least
            if most is None or most >= max(1, least):
                return Blank(least=least, most=most)
        raise self.refusal(
            f"template: {match[0]!r}: must be ___, ___{{2}}, ___{{1,3}}, ___{{2,}} or ___{{,3}} words, "
            "with a space before braces that are text"
        )

    def _split_draft(self, text: str) -> None:
        """Split a draft into words and the text between them."""
        self._lead, self._trail = _leading(text), _trailing(text)
        words = self._rules.split(text)
        spans = word_spans(words, text)
        if spans is None:  # the rules change some characters: split at white space instead
            spans = [match.span() for match in re.finditer(r"\S+", text)]
        self._draft_parts = [self._given(text[start:end]) for start, end in spans]
        for number, ((_, end), (start, _)) in enumerate(pairwise(spans)):
            self._separators[number] = text[end:start]

    def _given(self, text: str, *, glued_left: bool = False, glued_right: bool = False) -> Given:
        words = _split(self._tokenizer.text.target, text)
        if not words:
            raise self.refusal(f"{text!r}: holds no word by the target's rules")
        return Given(text, words, glued_left=glued_left, glued_right=glued_right)

    def _encoded(self, *parts: Sequence[Given]) -> dict[tuple[str, ...], list[int]]:
        """The tokens of all parts, by their words."""
        every = {part.words for some in parts for part in some}
        return {words: self._source.copied(_spelled(self._tokenizer, words)).ids for words in every}

    def _musts(self) -> Sequence[str]:
        must = self._text.must
        return [" ___ ".join(must)] if self._text.in_order else must

    def _ways(self, must: str) -> list[list[Given]]:
        """The parts of each alternative of a phrase; a blank inside it allows words there."""
        if self._text.in_order and ALTERNATIVE in must:
            raise self.refusal(f"must = {must!r}: alternatives can't be given with in_order")
        return [self._way(part.strip(), must) for part in must.split(ALTERNATIVE)]

    def _way(self, phrase: str, must: str) -> list[Given]:
        if "___" not in phrase:
            return [self._given(phrase)]
        texts = [part.strip() for part in phrase.split("___")]
        if not all(texts) or "___{" in phrase:
            raise self.refusal(f"must = {must!r}: a blank must stand between words, without bounds")
        return [self._given(text) for text in texts]

    def _in_order(self, parts: Sequence[Given], *, is_draft: bool = False) -> CompiledWay:
        """Parts that follow each other, each in one piece, with room for words between them."""
        encoded = [self._tokens[part.words] for part in parts]
        opens = [number == len(tokens) for tokens in encoded for number in range(1, len(tokens) + 1)]
        words = sum(len(part.words) for part in parts)
        tokens = tuple(token for part in encoded for token in part)
        way = Way(tokens, tuple(opens), words)
        return CompiledWay(way, tuple(parts), tuple(map(len, encoded)), is_draft=is_draft)

    def _forbidden(self) -> Iterator[ForbiddenWord]:
        everything = [*self._parts, *(part for item in self.items for way in item for part in way.parts)]
        given = {word for part in everything for word in part.words}
        for text in self._text.forbid:
            if text.strip() == SPECIALS[UNK]:
                yield ForbiddenWord.of_token(UNK)
                continue
            words = self._rules.split(text)
            if len(words) != 1:
                raise self.refusal(
                    f"forbid = {text!r}: is {len(words)} words by the target's rules ({' '.join(words)}); "
                    "must be one"
                )
            if words[0] in given:
                raise self.refusal(f"forbid = {text!r}: is also among what is given")
            yield ForbiddenWord(len(words[0]), tuple(self._tokenizer.parts(words[0])))
            copied = self._source.copied_as.get(words[0])
            if copied is not None and copied >= self._tokenizer.size:
                yield ForbiddenWord.of_token(copied)

    def _check_room(self) -> None:
        """Refuse required items that the blanks have no room for."""
        canvas = self.canvas
        rooms = tuple(UNLIMITED if blank.most is None else blank.most for blank in canvas.blanks)
        sizes = tuple(max(way.words for way in item) for item in canvas.items)
        if not items_fit(rooms, sizes):
            words = " + ".join(map(str, sizes))
            allowed = ", ".join("any number" if room == UNLIMITED else str(room) for room in rooms)
            whole = ": what must appear in order goes into one blank" if self._text.in_order else ""
            raise self.refusal(f"must: {words} words don't fit into blanks of at most {allowed} words{whole}")

    def refusal(self, text: str) -> UserError:
        """An error about this canvas."""
        return UserError(f"{self._where}: {text}")

    # --- from tokens back to text ---

    def parts_written(self, hypothesis: TokenHypothesis) -> Iterator[tuple[Given, int | None, Sequence[int]]]:
        """Each given part with the steps of its tokens, and its number if it is part of the frame."""
        begin = 0
        for number, (part, size) in enumerate(zip(self._parts, self._sizes, strict=True)):
            yield part, number, range(begin, begin + size)
            begin += size
        for number, item in enumerate(self.items):
            steps = [step for step, owner in enumerate(hypothesis.owners) if owner == number]
            written = tuple(hypothesis.tokens[step] for step in steps)
            way = next(way for way in item if way.way.tokens == written)
            ends = list(accumulate(way.sizes, initial=0))
            for index, (part, (first, end)) in enumerate(zip(way.parts, pairwise(ends), strict=True)):
                yield part, index if way.is_draft else None, steps[first:end]

    @property
    def spaces_around(self) -> tuple[str, str]:
        """The white space that the given text begins and ends with."""
        return self._lead, self._trail

    def separator(self, part: int) -> str | None:
        """The text between a part of a draft and the next part."""
        return self._separators.get(part)

    def blank_after(self, part: int | None) -> int | None:
        """The number, from 1, of the blank right of a part, or of the first blank for None."""
        if not self._numbered:
            return None
        number = self.canvas.before if part is None else self._after[part]
        return None if number == CLOSED else number + 1

    def join(self, words: Sequence[str]) -> str:
        """Join words by the target's rules."""
        return self._rules.join(words)

    def words(self, tokens: Sequence[int]) -> list[str]:
        """The words that tokens spell."""
        return self._tokenizer.words(tokens, own=self._source.own)


# Splitting may be slow, and requests often require the same words.
@lru_cache(maxsize=4096)
def _split(side: config.Side, text: str) -> tuple[str, ...]:
    return tuple(splitter(side).split(text))


@lru_cache(maxsize=4096)
def _spelled(tokenizer: Tokenizer, words: tuple[str, ...]) -> Tokens:
    return tokenizer.encode_words([words], "target")[0]


def _ends(matches: Sequence[re.Match[str]]) -> list[int]:
    return [index for match in matches for index in match.span()]


def _leading(text: str) -> str:
    return text[: len(text) - len(text.lstrip())]


def _trailing(text: str) -> str:
    return text[len(text.rstrip()) :] if text.strip() else ""


def canvas_text(given: CanvasText | str | Mapping[str, Any], *, where: str) -> CanvasText:
    """Check a canvas that is given as a template, as keys, or as such. where: begins error messages."""
    if isinstance(given, CanvasText):
        return given
    values = {"template": given} if isinstance(given, str) else given
    return config.checked(CanvasText, values, origin=where)
