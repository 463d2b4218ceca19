"""Tokenised splits: memory-mapped arrays of token ids, made once and then cached."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from anyorder.config.data import Splits
from anyorder.config.recipe import Recipe
from anyorder.data import cache, readers
from anyorder.data.readers import Fault, Features, File, Files, Pair
from anyorder.errors import UserError
from anyorder.orders.fixed import common_words
from anyorder.system.files import published, read_array, read_json, write_array
from anyorder.system.progress import TaskProgress
from anyorder.text.pairs import PairEncoder, SourceTokens
from anyorder.text.tokenizer import UNK, SideName, Tokenizer, Tokens

_CHUNK = 4096  # lines tokenised at once


@dataclass(frozen=True)
class Ragged:
    """Sequences of different lengths in one array: sequence i is values[offsets[i] : offsets[i + 1]]."""

    values: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> npt.NDArray[np.int32]:
        if not 0 <= index < len(self):
            raise IndexError(f"{index} of {len(self)} sequences")
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of values in each sequence."""
        return np.diff(self.offsets)

    def first(self, number: int) -> Ragged:
        """Keep only the first `number` sequences."""
        return replace(self, offsets=self.offsets[: number + 1])


@dataclass(frozen=True)
class Corpus:
    """A tokenised split, without boundary tokens."""

    key: str  # digest of its content, for caches of what is derived from it
    folder: Path
    source: Ragged | Features
    target: Ragged
    pieces: Ragged  # for each target, the number of tokens of each word
    lines: npt.NDArray[np.int64]  # line number of each pair in its file, counted from 1
    skipped: dict[str, int]  # reason → number of pairs that were left out
    common_words: frozenset[str]  # the most frequent words, which make up half of the targets' text
    own_words: list[list[str]]  # of each source or draft, its words outside the vocabulary
    draft: Ragged | None = None  # what an editor changes into the targets

    def own(self, index: int) -> Sequence[str]:
        """The words that the ids beyond the vocabulary stand for in this pair."""
        return self.own_words[index] if self.own_words else ()

    def __len__(self) -> int:
        return len(self.lines)

    def first(self, pairs: int) -> Corpus:
        """Keep only the first `pairs` pairs."""
        return replace(
            self,
            source=self.source.first(pairs),
            target=self.target.first(pairs),
            draft=None if self.draft is None else self.draft.first(pairs),
            pieces=self.pieces.first(pairs),
            lines=self.lines[:pairs],
        )


@dataclass(frozen=True)
class Statistics:
    """Size of a split; lengths are in tokens, or in vectors for image features."""

    pairs: int
    skipped: int
    vocabulary: int
    target_vocabulary: int
    mean_source: float
    mean_target: float
    longest_target: int
    unknown_source: float  # share of `<unk>` among the tokens
    unknown_target: float


def train_tokenizer(recipe: Recipe, *, progress: TaskProgress | None = None) -> Tokenizer:
    """Learn the vocabulary of the recipe's training text, or load it from the cache."""
    files = readers.split_files(recipe, "train")
    texts = readers.texts_of(files)
    settings: dict[str, object] = {"train_lines": recipe.data.train_lines}
    if recipe.editing:
        settings["editing"] = True  # the words of drafts are learned too
    folder = cache.entry(recipe, "tokenizers", files=texts, settings=settings)
    if not folder.exists():
        tokenizer = _learn(recipe, texts, progress=progress)
        with published(folder, key=cache.KEY) as unfinished:
            tokenizer.save(unfinished)
            _save_json(unfinished, "target_size", tokenizer.target_size)
    return Tokenizer.load(folder, recipe.text, _load_json(folder, "target_size"))


def load_split(
    recipe: Recipe, split: Splits, tokenizer: Tokenizer, *, progress: TaskProgress | None = None
) -> Corpus:
    """Tokenise a split, or open it in the cache.

    Empty, over-long and unreadable lines of train and dev are refused or skipped, as data.bad_lines says. All
    lines of the test split are kept, because scores are over all of them.
    """
    files = readers.split_files(recipe, split)
    settings: dict[str, object] = {
        "tokenizer": tokenizer.to_json(),
        "target_size": tokenizer.target_size,
        "max_length": recipe.data.max_length,
        "bad_lines": recipe.data.bad_lines,
        "keep_all": split == "test",
        "copying": recipe.model.copying,
        "train_lines": recipe.data.train_lines if split == "train" else 0,
        **({"editing": True} if recipe.editing else {}),
    }
    folder = cache.entry(recipe, "corpora", files=files, settings=settings)
    if not folder.exists():
        tokenised = _tokenise(recipe, split, files, tokenizer, progress=progress)
        with published(folder, key=cache.KEY) as unfinished:
            tokenised.save(unfinished, drafts=recipe.editing)
    return _open_corpus(folder, features=files.get("features"), drafts=recipe.editing)


def statistics(corpus: Corpus, tokenizer: Tokenizer) -> Statistics:
    """Measure a split: the numbers of the paper's Table 2, and how much was skipped or unknown."""
    source, target = corpus.source, corpus.target
    return Statistics(
        pairs=len(corpus),
        skipped=sum(corpus.skipped.values()),
        vocabulary=tokenizer.size,
        target_vocabulary=tokenizer.target_size,
        mean_source=float(source.lengths().mean()),
        mean_target=float(target.lengths().mean()),
        longest_target=int(target.lengths().max()),
        unknown_source=_unknown_share(source) if isinstance(source, Ragged) else 0.0,
        unknown_target=_unknown_share(target),
    )


def _unknown_share(sequences: Ragged) -> float:
    return float(np.count_nonzero(sequences.values == UNK) / max(1, len(sequences.values)))


# Tokenising


def _learn(recipe: Recipe, files: Files, *, progress: TaskProgress | None) -> Tokenizer:
    lines = lines_to_read(recipe, "train", files)
    total = 2 * lines  # every pair is read for its source and again for its target
    reads = count(start=1)

    def pairs() -> Iterator[Pair]:
        for entry in islice(readers.read_pairs(files), lines):
            done = next(reads)
            if progress is not None and (done % _CHUNK == 0 or done == total):
                progress(done, total)
            if isinstance(entry, Pair):
                yield entry
            elif recipe.data.bad_lines == "refuse":
                raise entry.refusal()

    return Tokenizer.train(
        recipe.text,
        sources=(pair.source for pair in pairs() if pair.source is not None),
        targets=chain.from_iterable(_target_texts(pair, recipe) for pair in pairs()),
    )


def _target_texts(pair: Pair, recipe: Recipe) -> Iterator[str]:
    """The target of a pair, and its draft, which has the same words."""
    yield pair.target
    if recipe.editing and pair.draft is not None:
        yield pair.draft


def lines_to_read(recipe: Recipe, split: Splits, files: Files) -> int:
    """Number of lines to read of a split: all, unless data.train_lines limits the training split."""
    lines = readers.count_pairs(files)
    return min(lines, recipe.data.train_lines or lines) if split == "train" else lines


class _Growing:
    """A ragged array to which sequences are appended."""

    def __init__(self) -> None:
        self._values = array("i")
        self._offsets = array("q", [0])

    def append(self, sequence: list[int]) -> None:
        self._values.extend(sequence)
        self._offsets.append(len(self._values))

    def save(self, folder: Path, name: str) -> None:
        _save_array(folder, f"{name}.values", np.asarray(self._values, dtype=np.int32))
        _save_array(folder, f"{name}.offsets", np.asarray(self._offsets, dtype=np.int64))


class _Tokenised:
    """A split to which pairs are added as they are tokenised."""

    def __init__(self) -> None:
        self.source, self.draft, self.target, self.pieces = (_Growing() for _ in range(4))
        self.own_words: list[tuple[str, ...]] = []
        self.lines = array("q")
        self.rows = array("q")  # row of each pair's image in the features
        self.target_words: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.first_fault: Fault | None = None

    def keep(
        self, pair: Pair, source: SourceTokens | None, draft: SourceTokens | None, target: Tokens
    ) -> None:
        if pair.row is not None:
            self.rows.append(pair.row)
        self.source.append([] if source is None else source.ids)
        named = source if draft is None else draft
        self.own_words.append(() if named is None else named.own)
        self.draft.append([] if draft is None else draft.ids)
        self.target.append(target.ids)
        self.pieces.append(target.pieces)
        self.target_words.update(target.words)
        self.lines.append(pair.line)

    def skip(self, fault: Fault) -> None:
        self.first_fault = self.first_fault or fault
        self.skipped[fault.reason] += 1

    def save(self, folder: Path, *, drafts: bool) -> None:
        self.source.save(folder, "source")
        if drafts:
            self.draft.save(folder, "draft")
        self.target.save(folder, "target")
        self.pieces.save(folder, "pieces")
        _save_array(folder, "lines", np.asarray(self.lines, dtype=np.int64))
        _save_array(folder, "rows", np.asarray(self.rows, dtype=np.int64))
        _save_json(folder, "skipped", self.skipped)
        _save_json(folder, "own_words", self.own_words if any(self.own_words) else [])
        _save_json(folder, "common_words", sorted(common_words(self.target_words)))


def _tokenise(
    recipe: Recipe, split: Splits, files: Files, tokenizer: Tokenizer, *, progress: TaskProgress | None
) -> _Tokenised:
    total = lines_to_read(recipe, split, files)
    if "features" in files:
        readers.check_features(files["features"])
    limit = None if split == "test" else recipe.data.max_length
    encoder = PairEncoder(tokenizer, copying=recipe.model.copying, editing=recipe.editing)
    tokenised = _Tokenised()
    done = 0
    for chunk in readers.in_chunks(islice(readers.read_pairs(files), total), size=_CHUNK):
        _tokenise_chunk(chunk, files, encoder, limit=limit, into=tokenised)
        done += len(chunk)
        if progress is not None:
            progress(done, total)
    fault = tokenised.first_fault
    if fault is not None and split == "test":
        raise UserError(f"{fault}; a test line can't be left out")
    if fault is not None and recipe.data.bad_lines == "refuse":
        raise fault.refusal(more=tokenised.skipped.total() - 1)
    if not tokenised.lines:
        raise UserError(f"data.{split}: none of its {total} lines can be used")
    return tokenised


def _tokenise_chunk(
    chunk: list[Pair | Fault], files: Files, encoder: PairEncoder, *, limit: int | None, into: _Tokenised
) -> None:
    """Keep or skip each pair of a chunk. Without a limit, empty and long lines are kept too."""
    pairs = [entry for entry in chunk if isinstance(entry, Pair)]
    texts = iter(encoder.sources([pair.source for pair in pairs if pair.source is not None]))
    sources = [None if pair.source is None else next(texts) for pair in pairs]
    drafts: list[SourceTokens | None] = [None] * len(pairs)
    if encoder.editing:
        drafts = [*encoder.drafts([pair.draft or "" for pair in pairs])]
    targets = encoder.targets([pair.target for pair in pairs], drafts if encoder.editing else sources)
    encoded = zip(sources, drafts, targets, strict=True)
    for entry in chunk:
        if isinstance(entry, Fault):
            into.skip(entry)
            continue
        source, draft, target = next(encoded)
        fault = None
        if encoder.editing and entry.draft is None:
            fault = Fault(files["jsonl"].path, entry.line, reason='no "draft"')
        elif limit is not None:
            sides: Sides = [("source", source), ("draft", draft), ("target", target)]
            fault = _length_fault(entry.line, sides, files, limit=limit)
        if fault is None:
            into.keep(entry, source, draft, target)
        else:
            into.skip(fault)


Sides = list[tuple[SideName | Literal["draft"], SourceTokens | Tokens | None]]


def _length_fault(line: int, sides: Sides, files: Files, *, limit: int) -> Fault | None:
    """Check that no side of a pair is empty or too long."""
    for side, tokens in sides:
        if tokens is not None and not tokens.ids:
            return readers.side_fault(files, side, line=line, reason="empty line")
        if tokens is not None and len(tokens.ids) > limit:
            detail = f"{len(tokens.ids)} tokens, data.max_length = {limit}"
            return readers.side_fault(files, side, line=line, reason="over-long line", detail=detail)
    return None


# Folders of the cache


def _save_array(folder: Path, name: str, values: npt.NDArray[Any]) -> None:
    with (folder / f"{name}.npy").open("wb") as file:
        write_array(file, values)


def _save_json(folder: Path, name: str, value: object) -> None:
    (folder / f"{name}.json").write_text(json.dumps(value))


def _open_corpus(folder: Path, *, features: File | None, drafts: bool) -> Corpus:
    return Corpus(
        key=folder.name,
        folder=folder,
        source=(
            _open_ragged(folder, "source")
            if features is None
            else Features(grid=readers.open_features(features), rows=_mapped(folder, "rows"))
        ),
        target=_open_ragged(folder, "target"),
        pieces=_open_ragged(folder, "pieces"),
        lines=_mapped(folder, "lines"),
        skipped=_load_json(folder, "skipped"),
        common_words=frozenset(_load_json(folder, "common_words")),
        own_words=_load_json(folder, "own_words"),
        draft=_open_ragged(folder, "draft") if drafts else None,
    )


def _open_ragged(folder: Path, name: str) -> Ragged:
    return Ragged(values=_mapped(folder, f"{name}.values"), offsets=_mapped(folder, f"{name}.offsets"))


def _mapped(folder: Path, name: str) -> npt.NDArray[Any]:
    return read_array(folder / f"{name}.npy", remedy=_remedy(folder))


def _load_json(folder: Path, name: str) -> Any:  # noqa: ANN401 (whatever was saved)
    return read_json(folder / f"{name}.json", remedy=_remedy(folder))


def _remedy(folder: Path) -> str:
    return f"remove {folder}, and it will be made again (data.cache)"
