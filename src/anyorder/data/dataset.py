"""Datasets: from a recipe's files to the vocabulary, tokens and orders that training reads.

Everything is cached by content, so preparing the same data again costs almost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from anyorder.config.data import Splits
from anyorder.config.model import Edit, Shape
from anyorder.config.recipe import Recipe
from anyorder.data.batches import Batch, Example, collate
from anyorder.data.corpus import Corpus, Statistics, load_split, statistics, train_tokenizer
from anyorder.data.edits import EditBatch, EditExample, collate_edits
from anyorder.data.orderer import Line, Orderer, order_split, prepare_order
from anyorder.data.readers import Features, in_chunks, stream_pairs
from anyorder.editing import Alignment, align, script_order
from anyorder.errors import UserError
from anyorder.orders.fixed import gathered, order_rule, random_positions, spread
from anyorder.system.progress import Progress, TaskProgress
from anyorder.text.bpe_dropout import BpeDropout, CutPair
from anyorder.text.pairs import WordDropout
from anyorder.text.tokenizer import Tokenizer

CHUNK = 2048  # lines tokenised at once
# Make random numbers independent of those for orders and partial targets.
HIDING, DROPOUT, SCRIPTS = 1, 3, 4


@dataclass(frozen=True)
class Dataset:
    """A tokenised split, with the order of each target."""

    corpus: Corpus
    positions: NDArray[np.int32] | None  # orders of all targets, concatenated; None: drawn in each epoch
    orderer: Orderer
    hiding: WordDropout | None = None  # hides words, so that the model learns to copy them
    dropout: BpeDropout | None = None  # cuts words into other pieces in each epoch
    edit: Edit | None = None  # which edits an editor learns from
    _alignments: dict[int, Alignment] = field(default_factory=dict)  # of drafts and targets, once worked out

    @property
    def key(self) -> str:
        """Digest of the pairs and their orders."""
        return f"{self.corpus.key}-{self.orderer.fingerprint}"

    def batch(
        self, pairs: Sequence[int] | NDArray[np.int64], *, seed: int, epoch: int, weight: float = 1.0
    ) -> Batch | EditBatch:
        """Some pairs as the model sees them in an epoch. weight: factor of their loss."""
        if self.edit is None:
            examples = [self.example(int(pair), seed=seed, epoch=epoch) for pair in pairs]
            return collate([replace(example, weight=weight) for example in examples])
        scripts = [self._edits(self.edit, int(pair), seed=seed, epoch=epoch) for pair in pairs]
        return collate_edits([replace(script, weight=weight) for script in scripts])

    def _edits(self, settings: Edit, index: int, *, seed: int, epoch: int) -> EditExample:
        """A draft with the edits of a shortest script, in the order of the recipe."""
        assert self.corpus.draft is not None, "an editor's corpus has drafts"
        source, draft, target = (
            side[index] for side in (self.corpus.source, self.corpus.draft, self.corpus.target)
        )
        alignment = self._alignment(settings, index)
        generator = np.random.default_rng([seed, epoch, index, SCRIPTS])
        order = script_order(alignment, order=settings.order, generator=generator)
        return EditExample(source=source, draft=draft, target=target, alignment=alignment, order=order)

    def __len__(self) -> int:
        return len(self.corpus)

    def example(self, index: int, *, seed: int, epoch: int) -> Example:
        """A pair as the model sees it in an epoch; what is random differs from epoch to epoch."""
        source, target = self.corpus.source[index], self.corpus.target[index]
        cut = self._cut(index, seed=seed, epoch=epoch)
        if cut is not None:
            source, target = cut.source, cut.target
        if self.positions is None:
            order = random_positions(len(target), generator=np.random.default_rng([seed, epoch, index]))
        else:
            start, end = self.corpus.target.offsets[index : index + 2]
            order = np.asarray(self.positions[start:end])
            order = order if cut is None else self._order_of_cut(index, order.tolist(), cut.pieces)
        if self.hiding is not None:
            generator = np.random.default_rng([seed, epoch, index, HIDING])
            source, target = self.hiding.hidden(source, target, generator=generator)
        return Example(source=source, target=target, order=order.astype(np.int32))

    def pieces(self, index: int, *, seed: int, epoch: int) -> list[int]:
        """Number of tokens of each word of a target in an epoch."""
        cut = self._cut(index, seed=seed, epoch=epoch)
        return self.corpus.pieces[index].tolist() if cut is None else cut.pieces

    def _alignment(self, settings: Edit, index: int) -> Alignment:
        """A shortest script from a draft to its target, worked out once."""
        assert self.corpus.draft is not None, "an editor's corpus has drafts"
        if index not in self._alignments:
            draft, target = self.corpus.draft[index].tolist(), self.corpus.target[index].tolist()
            self._alignments[index] = align(draft, target, substitute=settings.substitute)
        return self._alignments[index]

    def _cut(self, index: int, *, seed: int, epoch: int) -> CutPair | None:
        if self.dropout is None:
            return None
        return self.dropout.cut(
            self.corpus.source[index],
            self.corpus.target[index],
            self.corpus.pieces[index].tolist(),
            draw=int(np.random.default_rng([seed, epoch, index, DROPOUT]).integers(2**31)),
        )

    def _order_of_cut(self, index: int, positions: list[int], pieces: list[int]) -> NDArray[np.int64]:
        """Adapt an order of the old tokens to the new pieces. pieces: new tokens of each word."""
        if self.orderer.level == "tokens":
            (positions,) = self.orderer.positions([Line(number=0, words=(), pieces=pieces)])
        else:
            positions = spread(gathered(positions, pieces=self.corpus.pieces[index].tolist()), pieces=pieces)
        return np.array(positions)

    def sizes(self) -> NDArray[np.int64]:
        """Number of source and target tokens of each pair; for an editor, of source and draft, and edits."""
        if self.edit is None or self.corpus.draft is None:
            return self.corpus.source.lengths() + self.corpus.target.lengths()
        alignments = (self._alignment(self.edit, index) for index in range(len(self)))
        edits = [sum(not pair.same for pair in alignment) for alignment in alignments]
        return self.corpus.source.lengths() + self.corpus.draft.lengths() + np.array(edits, dtype=np.int64)

    def first(self, pairs: int) -> Dataset:
        """Keep only the first `pairs` pairs."""
        return replace(self, corpus=self.corpus.first(pairs))


@dataclass(frozen=True)
class Prepared:
    """A recipe's data, ready for training."""

    tokenizer: Tokenizer
    shape: Shape
    common_words: frozenset[str]
    train: Dataset
    dev: Dataset

    def statistics(self) -> dict[Splits, Statistics]:
        """Measure the training and dev splits."""
        corpora: dict[Splits, Corpus] = {"train": self.train.corpus, "dev": self.dev.corpus}
        return {split: statistics(corpus, self.tokenizer) for split, corpus in corpora.items()}


def prepare(recipe: Recipe, *, progress: Progress | None = None) -> Prepared:
    """Tokenise and order a recipe's training and dev data, or open what is cached."""

    def named(task: str) -> TaskProgress | None:
        return None if progress is None else lambda done, total: progress(task, done, total)

    tokenizer = train_tokenizer(recipe, progress=named("learning the vocabulary"))
    train = load_split(recipe, "train", tokenizer, progress=named("tokenising train"))
    dev = load_split(recipe, "dev", tokenizer, progress=named("tokenising dev"))
    check_width(recipe, "dev", dev, width=_width(train))
    edit = recipe.edit if recipe.editing else None
    return Prepared(
        tokenizer=tokenizer,
        shape=Shape(
            vocabulary=tokenizer.size,
            target_vocabulary=tokenizer.target_size,
            features=_width(train),
            extractor=train.source.grid.extractor if isinstance(train.source, Features) else None,
        ),
        common_words=train.common_words,
        train=replace(
            _ordered(recipe, "train", train, tokenizer, train.common_words, progress),
            hiding=_hiding(recipe, train, tokenizer),
            dropout=_bpe_dropout(recipe, tokenizer),
            edit=edit,
        ),
        dev=replace(_ordered(recipe, "dev", dev, tokenizer, train.common_words, progress), edit=edit),
    )


def _width(corpus: Corpus) -> int:
    """Width of the feature vectors; 0 for text sources."""
    return corpus.source.grid.width if isinstance(corpus.source, Features) else 0


def check_width(recipe: Recipe, split: Splits, corpus: Corpus, *, width: int) -> None:
    """Refuse feature vectors of another width than the model's."""
    if _width(corpus) != width:
        given = getattr(recipe.data, split).features
        raise UserError(
            f"{recipe.path(given)}: holds vectors of width {_width(corpus)} (data.{split}.features), but the "
            f"model's have {width}"
        )


def _hiding(recipe: Recipe, train: Corpus, tokenizer: Tokenizer) -> WordDropout | None:
    share = recipe.train.hide_words
    return WordDropout.of(train.target.values, vocabulary=tokenizer.size, share=share) if share else None


def _bpe_dropout(recipe: Recipe, tokenizer: Tokenizer) -> BpeDropout | None:
    share = recipe.train.bpe_dropout
    return BpeDropout(tokenizer, share=share) if share else None


def _ordered(
    recipe: Recipe,
    split: Splits,
    corpus: Corpus,
    tokenizer: Tokenizer,
    common: frozenset[str],
    progress: Progress | None,
) -> Dataset:
    if recipe.adaptive:
        order_rule(recipe.search.bootstrap, key="search.bootstrap")
    orderer = prepare_order(
        recipe.fixed_order, split=split, common=common, locate=recipe.path, normalise=tokenizer.normalised
    )
    if orderer.random:
        return Dataset(corpus, positions=None, orderer=orderer)

    def lines() -> Iterator[Line]:
        over_words = orderer.level == "words"
        found = split_lines(recipe, split, corpus, tokenizer) if over_words else _unsplit_lines(corpus)
        for done, line in enumerate(found, start=1):
            yield line
            if progress is not None and (done % CHUNK == 0 or done == len(corpus)):
                progress(f"ordering {split}", done, len(corpus))

    positions = order_split(orderer, folder=corpus.folder, lines=lines())
    return Dataset(corpus, positions=positions, orderer=orderer)


def _unsplit_lines(corpus: Corpus) -> Iterator[Line]:
    """Lines for orders over tokens, which need only lengths and not the text."""
    for index, number in enumerate(corpus.lines):
        yield Line(number=int(number), words=(), pieces=corpus.pieces[index].tolist())


def split_lines(recipe: Recipe, split: Splits, corpus: Corpus, tokenizer: Tokenizer) -> Iterator[Line]:
    """Lines for orders over words, which are split from the text again: a corpus holds only ids."""
    for chunk in in_chunks(stream_pairs(recipe, split, lines=corpus.lines), size=CHUNK):
        encoded = tokenizer.encode_all([pair.target for pair in chunk], "target")
        for pair, tokens in zip(chunk, encoded, strict=True):
            yield Line(number=pair.line, words=tokens.words, pieces=tokens.pieces)
