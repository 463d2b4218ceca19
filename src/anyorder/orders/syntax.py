"""Syntax trees and parts of speech of targets, from spaCy, a CoNLL-U file or Python's own parser.

A dependency tree is a list of heads: the parent of each word, counted from 1, or 0 for a root. A sentence may
have several roots. The SYN order needs only the depth of each word: 0 for a root, 1 for its children, and so
on. Parts of speech are the universal ones (UPOS): NOUN, VERB, DET and so on.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import Any

from anyorder.errors import UserError

PYTHON = "python"  # order.parser for targets that are Python code, instead of a spaCy pipeline
LINE_BREAK = "_newline_"  # how Django and other data sets with one target per line write a line break
# Syntax nodes that know their position in the text. The others, such as the list of arguments, add no depth.
PLACED_NODES = ast.expr | ast.stmt | ast.excepthandler | ast.keyword | ast.arg | ast.alias

# spaCy components that take time and don't help the parser.
NOT_NEEDED = ["ner", "lemmatizer", "textcat", "textcat_multilabel"]
CONLLU_COLUMNS = 10
CONLLU_FORM, CONLLU_TAG, CONLLU_HEAD = 1, 3, 6
CONLLU_NOTHING = "_"
SHOWN_CHARACTERS = 60


def levels(heads: Sequence[int]) -> list[list[int]]:
    """List the words, counted from 1, by level of the tree, roots first, each level left to right.

    A word above which the heads form a cycle is in no level.
    """
    children: list[list[int]] = [[] for _ in range(len(heads) + 1)]
    for word, head in enumerate(heads, start=1):
        children[head].append(word)
    found = []
    level = children[0]
    while level:
        found.append(level)
        level = sorted(child for word in level for child in children[word])
    return found


def depths(heads: Sequence[int]) -> list[int]:
    """Depth of each word in a tree; roots have depth 0."""
    depth_of = {word: depth for depth, level in enumerate(levels(heads)) for word in level}
    return [depth_of[word] for word in range(1, len(heads) + 1)]


class SpacyParser:
    """Computes heads and tags with a spaCy pipeline, which is loaded at the first sentence."""

    def __init__(self, name: str, *, key: str = "order.parser =") -> None:
        """key: the recipe key or flag that named the pipeline, for error messages."""
        self.name = name
        self._given = f"{key} {name!r}"

    @property
    def version(self) -> str:
        """Version of an installed pipeline, digest of one that is a folder, or empty if there is none."""
        try:
            return importlib.metadata.version(self.name)
        except importlib.metadata.PackageNotFoundError:
            return _content_digest(Path(self.name))

    def heads(self, sentences: Iterable[Sequence[str]]) -> Iterator[list[int]]:
        """Parse sentences that are split into words, in batches; sentences are read ahead."""
        for doc in self._docs(sentences):
            if not doc.has_annotation("DEP"):
                raise UserError(f"{self._given}: this spaCy pipeline has no dependency parser")
            # spaCy makes a root its own head.
            yield [0 if token.head.i == token.i else token.head.i + 1 for token in doc]

    def tags(self, sentences: Iterable[Sequence[str]]) -> Iterator[list[str]]:
        """Tag sentences that are split into words, in batches; sentences are read ahead."""
        for doc in self._docs(sentences):
            if not doc.has_annotation("POS"):
                raise UserError(f"{self._given}: this spaCy pipeline doesn't tell parts of speech")
            yield [token.pos_ for token in doc]

    def _docs(self, sentences: Iterable[Sequence[str]]) -> Iterator[Any]:
        pipeline = self._pipeline
        from spacy.tokens import Doc

        yield from pipeline.pipe(Doc(pipeline.vocab, words=list(words)) for words in sentences)

    @cached_property
    def _pipeline(self) -> Any:  # noqa: ANN401 - spaCy is optional, so its types are too
        try:
            import spacy
        except ImportError:
            raise UserError(f"{self._given} needs spaCy: pip install 'anyorder[syntax]'") from None
        try:
            return spacy.load(self.name, exclude=NOT_NEEDED)
        except (OSError, TypeError):  # a module with this name may be installed that is no pipeline
            raise UserError(
                f"{self._given}: no such spaCy pipeline is installed; "
                f"try `python -m spacy download {self.name}`"
            ) from None


def _content_digest(folder: Path) -> str:
    """Digest of all files of a folder; empty if there are none."""
    digest = hashlib.sha256()
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        with path.open("rb") as content:
            digest.update(f"{path.relative_to(folder)} ".encode())
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest() if files else ""


@dataclass(frozen=True)
class ParsedSentence:
    """A sentence of a CoNLL-U file.

    Forms are the words of the text. A multiword token (French *du*) is one form for several syntactic words
    (*de le*), and only these have heads. `spelled` lists the syntactic words of each form, counted from 1.
    """

    forms: list[str]
    spelled: list[range]
    heads: list[int]
    tags: list[str]  # parts of speech of the syntactic words

    def form_depths(self) -> list[int]:
        """Depth of each form: that of its highest syntactic word."""
        word_depths = depths(self.heads)
        return [min(word_depths[word - 1] for word in words) for words in self.spelled]

    def form_tags(self) -> list[str]:
        """Part of speech of each form: that of its highest syntactic word, the leftmost of several."""
        word_depths = depths(self.heads)
        highest = [min(words, key=lambda word: word_depths[word - 1]) for words in self.spelled]
        return [self.tags[word - 1] for word in highest]


class ConlluFile:
    """A CoNLL-U file of a split's targets: sentence n belongs to line n."""

    def __init__(self, path: Path, *, normalise: Callable[[str], str] | None = None) -> None:
        """The file is read at first use. normalise: applied to its forms, as it was to the targets."""
        self.path = path
        self.normalise = normalise

    def word_depths(self, line: int, words: Sequence[str]) -> list[int]:
        """Depth of each word of a target line, which may be split differently from the file."""
        return self._aligned(line, words, form_ranks=self._sentence(line).form_depths())

    def word_tags(self, line: int, words: Sequence[str]) -> list[str]:
        """Part of speech of each word of a target line: that of the highest form that overlaps it."""
        sentence = self._sentence(line)
        form_depths, form_tags = sentence.form_depths(), sentence.form_tags()
        if CONLLU_NOTHING in form_tags:
            form = sentence.forms[form_tags.index(CONLLU_NOTHING)]
            raise UserError(f"{self.path}: sentence {line} has no part of speech (UPOS) for {form!r}")
        by_depth = sorted(range(len(form_tags)), key=form_depths.__getitem__)
        ranks = [by_depth.index(form) for form in range(len(form_tags))]
        return [form_tags[by_depth[rank]] for rank in self._aligned(line, words, form_ranks=ranks)]

    def _sentence(self, line: int) -> ParsedSentence:
        if line > len(self._sentences):
            raise UserError(
                f"{self.path}: has {len(self._sentences)} sentences, but there is a target line {line}; "
                "a sentence for each line is needed"
            )
        return self._sentences[line - 1]

    def _aligned(self, line: int, words: Sequence[str], *, form_ranks: Sequence[int]) -> list[int]:
        sentence = self._sentence(line)
        forms = [self.normalise(form) for form in sentence.forms] if self.normalise else sentence.forms
        found = aligned_depths(words, forms=forms, form_depths=form_ranks)
        if found is None:
            raise UserError(
                f"{self.path}: sentence {line} reads {_shown(forms)}, but target line {line} "
                f"reads {_shown(words)}"
            )
        return found

    @cached_property
    def _sentences(self) -> list[ParsedSentence]:
        return read_conllu(self.path)


def aligned_depths(
    words: Sequence[str], *, forms: Sequence[str], form_depths: Sequence[int]
) -> list[int] | None:
    """For each word, the smallest depth of the forms that share a character with it.

    Spaces and case are ignored. Returns None if words and forms don't spell the same characters.
    """
    spellings = [_characters(word) for word in words]
    form_spellings = [_characters(form) for form in forms]
    if "".join(spellings) != "".join(form_spellings):
        return None
    depth_of_character = [
        depth for spelling, depth in zip(form_spellings, form_depths, strict=True) for _ in spelling
    ]
    deepest = max(form_depths, default=0)
    found, start = [], 0
    for spelling in spellings:
        end = start + len(spelling)
        # A word of unusual spaces overlaps no form: it gets the largest depth.
        found.append(min(depth_of_character[start:end], default=deepest))
        start = end
    return found


def read_conllu(path: Path) -> list[ParsedSentence]:
    """Read the sentences of a CoNLL-U file, without comments and empty nodes (5.1)."""
    rows = groupby(_rows(path), key=lambda row: bool(row.columns))
    return [_parsed_sentence(list(block)) for filled, block in rows if filled]


@dataclass(frozen=True)
class _Row:
    """A line that is not a comment; without columns it is a blank line, which ends a sentence."""

    where: str
    columns: list[str]


def _rows(path: Path) -> Iterator[_Row]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}:{number}"
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise UserError(f"{where}: not UTF-8: {error.reason} at byte {error.start + 1}") from None
            if text.startswith("#"):
                continue
            columns = text.split("\t") if text.strip() else []
            if columns and len(columns) != CONLLU_COLUMNS:
                raise UserError(f"{where}: {len(columns)} columns between tabs; CoNLL-U has {CONLLU_COLUMNS}")
            yield _Row(where=where, columns=columns)


def _parsed_sentence(rows: list[_Row]) -> ParsedSentence:
    sentence = ParsedSentence(forms=[], spelled=[], heads=[], tags=[])
    word_rows: list[_Row] = []
    spelled_until = 0  # last syntactic word that a form covers
    for row in rows:
        identifier = row.columns[0]
        if re.fullmatch(r"\d+\.\d+", identifier):  # an empty node
            continue
        words = _numbered_words(row, next_word=len(word_rows) + 1)
        if words.start > spelled_until:
            sentence.forms.append(row.columns[CONLLU_FORM])
            sentence.spelled.append(words)
            spelled_until = words[-1]
        elif "-" in identifier:
            raise UserError(f"{row.where}: ID {identifier!r}: overlaps the multiword token before it")
        if "-" not in identifier:
            word_rows.append(row)
    if spelled_until > len(word_rows):
        raise UserError(
            f"{rows[-1].where}: the sentence ends at word {len(word_rows)}, within a multiword token "
            f"that goes to {spelled_until}"
        )
    sentence.heads.extend(_head(row, words=len(word_rows)) for row in word_rows)
    sentence.tags.extend(row.columns[CONLLU_TAG] for row in word_rows)
    if 0 not in sentence.heads:
        raise UserError(f"{rows[0].where}: the sentence that starts here has no root (a word with HEAD 0)")
    _refuse_circles(sentence.heads, word_rows=word_rows)
    return sentence


def _numbered_words(row: _Row, *, next_word: int) -> range:
    """Syntactic words of a row: one, or those of a multiword token."""
    identifier = re.fullmatch(r"(\d+)(?:-(\d+))?", row.columns[0])
    if identifier is not None:
        first, last = int(identifier[1]), int(identifier[2] or identifier[1])
        if first == next_word and first <= last:
            return range(first, last + 1)
    raise UserError(
        f"{row.where}: ID {row.columns[0]!r}: must be {next_word}, the next word, "
        f"or a multiword token from there on"
    )


def _head(row: _Row, *, words: int) -> int:
    given = row.columns[CONLLU_HEAD]
    if not re.fullmatch(r"\d+", given):
        raise UserError(f"{row.where}: HEAD {given!r}: must be a number, 0 for a root")
    if int(given) > words:
        raise UserError(f"{row.where}: HEAD {given}: must be at most {words}, the words of the sentence")
    return int(given)


def _refuse_circles(heads: Sequence[int], *, word_rows: Sequence[_Row]) -> None:
    reached = {word for level in levels(heads) for word in level}
    for word, row in enumerate(word_rows, start=1):
        if word not in reached:
            raise UserError(f"{row.where}: the heads above word {word} go round in a circle, to no root")


def python_depths(line: int, words: Sequence[str]) -> list[int]:
    """Depth of each word of a target line in the syntax tree of Python: 0 for a statement.

    A word that belongs to a node but to none of its children has the node's depth: in `return f ( x )` the
    root is `return`, the brackets of the call lie below it, and `f` and `x` below the call.
    """
    rows = [list(row) for breaks, row in groupby(words, key=LINE_BREAK.__eq__) if not breaks]
    text = "\n".join(map(" ".join, rows))
    character_depths = _character_depths(_parsed(line, text), text.encode())
    ends = accumulate((len(word.encode()) + 1 for row in rows for word in row), initial=0)
    spans = pairwise(ends)
    # A word may span several nodes, as `:pass` does. A line break belongs to no node and has a statement's
    # depth.
    return [0 if word == LINE_BREAK else min(character_depths[slice(*next(spans))][:-1]) for word in words]


def _character_depths(tree: ast.Module, text: bytes) -> list[int]:
    row_starts = list(accumulate((len(row) + 1 for row in text.split(b"\n")), initial=0))
    found = [0] * (len(text) + 1)  # with an end, like a space after the last word
    waiting: list[tuple[ast.AST, int]] = [(node, 0) for node in tree.body]
    while waiting:
        node, depth = waiting.pop()
        if isinstance(node, PLACED_NODES):
            # Parents come before their children, which overwrite their own part.
            start = row_starts[node.lineno - 1] + node.col_offset
            end = row_starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
            found[start:end] = [depth] * (end - start)
            depth += 1
        if not isinstance(node, ast.JoinedStr):  # its parts have no positions before Python 3.12
            waiting.extend((child, depth) for child in ast.iter_child_nodes(node))
    return found


def _parsed(line: int, source: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes such as "\d"
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__
        raise UserError(f"order.parser = {PYTHON!r}: target line {line} is not Python: {reason}") from None


def _characters(text: str) -> str:
    return "".join(text.split()).casefold()


def _shown(tokens: Sequence[str]) -> str:
    text = " ".join(tokens)
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…")
