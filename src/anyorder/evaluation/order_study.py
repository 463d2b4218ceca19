"""Orders of a trained model: what it finds best for given targets, what it learned from, or how it writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from anyorder import config
from anyorder.adaptive.search import search_batch
from anyorder.adaptive.store import OrderStore, is_kept, kept_folder
from anyorder.data.batches import Batch, Example, collate, plan_epoch
from anyorder.data.corpus import lines_to_read
from anyorder.data.dataset import Dataset, Prepared, split_lines
from anyorder.data.features import SUFFIXES as GRID_SUFFIXES
from anyorder.data.features import Grid
from anyorder.data.readers import Fault, File, Files, Pair, count_pairs, in_chunks, open_features, read_pairs
from anyorder.decoding.batching import decode_all
from anyorder.decoding.beam import TokenHypothesis
from anyorder.errors import UserError
from anyorder.inference.inputs import InputEncoder
from anyorder.inference.model_folder import Trained
from anyorder.insertion import NEG_INF
from anyorder.models.indigo import Indigo
from anyorder.models.loss import score_steps
from anyorder.models.registry import ordered
from anyorder.orders.statistics import QUARTERS, frequency_quarters
from anyorder.text.tokenizer import Tokenizer, Tokens
from anyorder.text.words import splitter
from anyorder.training.checkpoint import checkpoints

AT_ONCE = 128  # pairs read together
Progress = Callable[[int, int], None]  # lines done, lines in all


@dataclass(frozen=True)
class OrderedSentence:
    """A sentence, and the order in which it is written."""

    line: int  # in its file, counted from 1
    tokens: tuple[str, ...]  # as they are read
    words: tuple[str, ...]
    pieces: tuple[int, ...]  # tokens of each word
    positions: tuple[int, ...]  # that each step fills, counted from 1
    log_prob: float  # in this order
    second_log_prob: float | None = None  # in the second best order; None: none was looked for, or found
    left_to_right_log_prob: float | None = None  # None: not asked for

    def by_token(self, word_labels: Iterable[str]) -> list[str]:
        """What is known of each word, for each token."""
        both = zip(word_labels, self.pieces, strict=True)
        return [label for label, pieces in both for _ in range(pieces)]


@dataclass(frozen=True)
class FoundOrders:
    """Orders of the lines of a file, one after the other."""

    sentences: list[OrderedSentence]
    left_out: dict[str, int]  # why → how many lines


def files_of_pairs(*, source: Path, target: Path) -> Files:
    """Other files than those of a recipe; a source that ends in .npy or .npz holds feature vectors."""
    name = "features" if source.suffix in GRID_SUFFIXES else "source"
    return {name: File(source, key="--source"), "target": File(target, key="--target")}


def search_targets(
    trained: Trained,
    files: Files,
    *,
    beam: int,
    lines: int | None = None,
    device: torch.device,
    progress: Progress | None = None,
) -> FoundOrders:
    """The best order that the model finds for each target, by a thorough search without dropout.

    Targets longer than the recipe's search.max_length are left out. lines: only the first so many.
    """
    settings = trained.recipe.search.model_copy(update={"beam": beam})
    limit = settings.max_length
    sentences: list[OrderedSentence] = []
    left_out: Counter[str] = Counter()
    for pairs in _encoded_pairs(trained, files, lines=lines, left_out=left_out, progress=progress):
        short = [pair for pair in pairs if len(pair.target.ids) <= limit]
        left_out[f"longer than search.max_length = {limit} tokens"] += len(pairs) - len(short)
        sentences += _searched(trained, short, settings=settings, device=device)
    return FoundOrders(sentences, left_out=dict(+left_out))


def written_outputs(
    trained: Trained,
    files: Files,
    *,
    lines: int | None = None,
    device: torch.device,
    progress: Progress | None = None,
) -> FoundOrders:
    """How the model writes its own best output for each source, by the recipe's [decode].

    Outputs that did not come to their end are left out. lines: only the first so many.
    """
    sentences: list[OrderedSentence] = []
    left_out: Counter[str] = Counter()
    for pairs in _encoded_pairs(trained, files, lines=lines, left_out=left_out, progress=progress):
        outputs = decode_all(
            trained.model,
            [pair.source for pair in pairs],
            settings=trained.recipe.decode,
            device=device,
            lines=[pair.line - 1 for pair in pairs],
        )
        finished = [(pair, best) for pair, (best, *_) in zip(pairs, outputs, strict=True) if best.finished]
        left_out["cut off before the end"] += len(pairs) - len(finished)
        sentences += [_written(pair, best, tokenizer=trained.tokenizer) for pair, best in finished]
    return FoundOrders(sentences, left_out=dict(+left_out))


def kept_from_training(
    recipe: config.Recipe, prepared: Prepared, *, lines: int | None = None, progress: Progress | None = None
) -> tuple[int, FoundOrders]:
    """The best orders of the training targets that the last search found, and the update it was made for.

    Targets longer than search.max_length were not searched, and are left out. lines: only the first so many.
    """
    step, kept = _learned_from(recipe, prepared.train)
    corpus, limit = prepared.train.corpus, recipe.search.max_length
    total = len(corpus) if lines is None else min(lines, len(corpus))
    texts = split_lines(recipe, "train", corpus, prepared.tokenizer)
    sentences: list[OrderedSentence] = []
    for chunk in in_chunks(enumerate(islice(texts, total)), size=AT_ONCE):
        pairs = np.array([pair for pair, _ in chunk])
        orders = kept.of(pairs, device=torch.device("cpu"))
        positions, log_probs = orders.positions[:, 0].tolist(), orders.log_probs.tolist()
        for row, (pair, line) in enumerate(chunk):
            ids = corpus.target[pair].tolist()
            if len(ids) <= limit:
                sentences.append(
                    OrderedSentence(
                        line=line.number,
                        tokens=_pieces(ids, tokenizer=prepared.tokenizer, own=corpus.own(pair)),
                        words=tuple(line.words),
                        pieces=tuple(line.pieces),
                        positions=tuple(positions[row][: len(ids)]),
                        log_prob=log_probs[row][0],
                        second_log_prob=_second(log_probs[row]),
                    )
                )
        if progress is not None:
            progress(int(pairs[-1]) + 1, total)
    left_out = Counter({f"longer than search.max_length = {limit} tokens": total - len(sentences)})
    return step, FoundOrders(sentences, left_out=dict(+left_out))


def _learned_from(recipe: config.Recipe, data: Dataset) -> tuple[int, OrderStore]:
    """What the last checkpoint has learned from, and the update that it was found for."""
    saved = checkpoints(recipe.run)
    step = int(saved[-1].progress()["searched"]["step"]) if saved else 0
    if not step:
        raise UserError(
            f'{recipe.run}: has learned from no kept orders; with order.name = "sao" and search.refresh ≥ 1 '
            "a training does, after search.bootstrap_steps"
        )
    if not is_kept(recipe, data, step=step):
        raise UserError(
            f"{kept_folder(recipe.run, step)}: not the orders of {recipe.run}'s training pairs and [search]"
        )
    return step, OrderStore.open(kept_folder(recipe.run, step), data)


def training_counts(recipe: config.Recipe, *, progress: Progress | None = None) -> Counter[str] | None:
    """How often each word occurs in the training targets; None if they are no longer there."""
    given = recipe.data.train
    texts = {"jsonl": given.jsonl, "captions": given.captions, "target": given.target}
    name, path = next((name, path) for name, path in texts.items() if path is not None)
    file = File(recipe.path(path), key=f"data.train.{name}")
    if not file.path.is_file():
        return None
    total = lines_to_read(recipe, "train", {name: file})
    split = splitter(recipe.text.target).split
    counts: Counter[str] = Counter()
    for entry in islice(read_pairs({name: file}), total):
        if isinstance(entry, Pair):
            counts.update(split(entry.target))
        if progress is not None and (entry.line % AT_ONCE == 0 or entry.line == total):
            progress(entry.line, total)
    return counts


def frequency_labels(sentences: Sequence[OrderedSentence], counts: Mapping[str, int]) -> list[list[str]]:
    """The quarter that each token's word belongs to; a word that was never counted is among the rarest."""
    quarters = frequency_quarters(counts)
    return [
        sentence.by_token(quarters.get(word, QUARTERS[-1]) for word in sentence.words)
        for sentence in sentences
    ]


@dataclass(frozen=True)
class _EncodedPair:
    """A pair as the model sees it."""

    line: int
    source: NDArray[np.generic]  # token ids, or feature vectors
    target: Tokens
    own: tuple[str, ...]  # words of the source that the vocabulary lacks


def _encoded_pairs(
    trained: Trained, files: Files, *, lines: int | None, left_out: Counter[str], progress: Progress | None
) -> Iterator[list[_EncodedPair]]:
    """Some pairs at a time; the reasons of those that can't be used are counted."""
    grid = _features(trained, files)
    encoder = InputEncoder(trained, device=torch.device("cpu"))
    total = count_pairs(files)
    total = total if lines is None else min(lines, total)
    done = 0
    for entries in in_chunks(islice(read_pairs(files), total), size=AT_ONCE):
        left_out.update(entry.reason for entry in entries if isinstance(entry, Fault))
        pairs = [entry for entry in entries if isinstance(entry, Pair)]
        encoded = [
            pair
            for pair in _encoded(encoder, pairs, grid)
            if pair.target.ids and (len(pair.source) or trained.recipe.sourceless)
        ]
        left_out["empty line"] += len(pairs) - len(encoded)
        yield encoded
        done += len(entries)
        if progress is not None:
            progress(done, total)


def _features(trained: Trained, files: Files) -> Grid | None:
    """Feature vectors of all images, or None for a model of text; what the model can't read is refused."""
    width = trained.model.shape.features
    file = files.get("features")
    if file is None:
        if width:
            raise UserError(f"this model reads feature vectors of width {width} (.npy), not text")
        return None
    grid = open_features(file)
    if grid.width != width:
        reads = f"feature vectors of width {width}" if width else "text"
        raise UserError(f"{file.path}: holds vectors of width {grid.width}, but this model reads {reads}")
    return grid


def _encoded(encoder: InputEncoder, pairs: Sequence[Pair], grid: Grid | None) -> Iterator[_EncodedPair]:
    sources = [(pair.source or "") if grid is None else grid[_row(pair)] for pair in pairs]
    encoded = encoder.encode_pairs(sources, [pair.target for pair in pairs])
    for pair, (source, target) in zip(pairs, encoded, strict=True):
        yield _EncodedPair(pair.line, source.array, target, own=source.own_words)


def _row(pair: Pair) -> int:
    assert pair.row is not None, "features have rows"
    return pair.row


def _searched(
    trained: Trained, pairs: Sequence[_EncodedPair], *, settings: config.Search, device: torch.device
) -> list[OrderedSentence]:
    examples = [
        Example(
            source=pair.source,
            target=np.array(pair.target.ids, dtype=np.int32),
            order=np.arange(1, len(pair.target.ids) + 1, dtype=np.int32),
        )
        for pair in pairs
    ]
    model = ordered(trained.model, purpose="search of orders")
    sizes = np.array([len(example.source) + len(example.target) for example in examples], dtype=np.int64)
    sentences: dict[int, OrderedSentence] = {}
    for chosen in plan_epoch(sizes, batch_tokens=trained.recipe.train.batch_tokens, seed=0, epoch=0):
        left_to_right = collate([examples[index] for index in chosen]).to(device)
        orders = search_batch(model, left_to_right, settings, thoroughly=True)
        positions, log_probs = orders.positions[:, 0].tolist(), orders.log_probs.tolist()
        baselines = _log_probs(model, left_to_right)
        for row, index in enumerate(chosen.tolist()):
            pair = pairs[index]
            sentences[index] = OrderedSentence(
                line=pair.line,
                tokens=_pieces(pair.target.ids, tokenizer=trained.tokenizer, own=pair.own),
                words=tuple(pair.target.words),
                pieces=tuple(pair.target.pieces),
                positions=tuple(positions[row][: len(pair.target.ids)]),
                log_prob=log_probs[row][0],
                second_log_prob=_second(log_probs[row]),
                left_to_right_log_prob=baselines[row],
            )
    return [sentences[index] for index in range(len(pairs))]


@torch.no_grad()
def _log_probs(model: Indigo, batch: Batch) -> list[float]:
    """Of the targets of a batch in their orders."""
    scores = score_steps(model, model.encode(batch.source, batch.source_mask), batch)
    return (scores.word.sum(dim=1) + scores.gap.sum(dim=1)).tolist()


def _second(log_probs: Sequence[float]) -> float | None:
    """That of the second best order, if there is one. log_probs: best first."""
    return log_probs[1] if len(log_probs) > 1 and log_probs[1] > NEG_INF else None


def _written(pair: _EncodedPair, hypothesis: TokenHypothesis, *, tokenizer: Tokenizer) -> OrderedSentence:
    read = hypothesis.sentence
    return OrderedSentence(
        line=pair.line,
        tokens=_pieces(read, tokenizer=tokenizer, own=pair.own),
        words=tuple(tokenizer.words(read, own=pair.own)),
        pieces=tuple(_pieces_of_words(read, tokenizer=tokenizer, own=pair.own)),
        positions=hypothesis.positions,
        log_prob=hypothesis.log_prob,
    )


def _pieces(ids: Sequence[int], *, tokenizer: Tokenizer, own: Sequence[str]) -> tuple[str, ...]:
    """Tokens as a person reads them."""
    return tuple(tokenizer.piece(token, own=own) for token in ids)


def _pieces_of_words(ids: Sequence[int], *, tokenizer: Tokenizer, own: Sequence[str]) -> list[int]:
    """Tokens of each word that ids spell."""
    pieces = [1] if ids else []
    for token, following in pairwise(ids):
        if len(tokenizer.words([token, following], own=own)) > 1:  # the first one ends its word
            pieces.append(1)
        else:
            pieces[-1] += 1
    return pieces
