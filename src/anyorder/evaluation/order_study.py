"""The orders of a trained model: the best for given targets, those it was trained on, and those it writes in.

Every function returns the orders of many sentences, which `anyorder orders` then turns into statistics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from anyorder import config
from anyorder.adaptive.objective import search_batch
from anyorder.adaptive.store import OrderStore, orders_are_stored, stored_orders_folder
from anyorder.data.batches import Batch, Example, collate, plan_epoch
from anyorder.data.corpus import lines_to_read
from anyorder.data.dataset import Dataset, Prepared, split_lines
from anyorder.data.features import SUFFIXES as GRID_SUFFIXES
from anyorder.data.features import Grid
from anyorder.data.readers import Fault, File, Files, Pair, count_pairs, in_chunks, open_features, read_pairs
from anyorder.decoding.beam import TokenHypothesis
from anyorder.decoding.decode import decode_all
from anyorder.errors import UserError
from anyorder.inference.generation import InputEncoder
from anyorder.inference.model_folder import Trained
from anyorder.insertion import NEG_INF
from anyorder.models.indigo import Indigo
from anyorder.models.loss import score_steps
from anyorder.models.registry import ordered
from anyorder.orders.statistics import QUARTERS, frequency_quarters
from anyorder.system.progress import TaskProgress
from anyorder.text.tokenizer import Tokenizer, Tokens
from anyorder.text.words import splitter
from anyorder.training.checkpoint import checkpoints

CHUNK_PAIRS = 128  # pairs that are read and searched together


@dataclass(frozen=True)
class OrderedSentence:
    """A sentence and the order in which it is written."""

    line: int  # line number in its file, counted from 1
    tokens: tuple[str, ...]  # from left to right
    words: tuple[str, ...]
    pieces: tuple[int, ...]  # number of tokens of each word
    positions: tuple[int, ...]  # position that each step writes, counted from 1
    log_prob: float  # log-probability of the sentence in this order
    second_log_prob: float | None = None  # log-probability in the second best order, if that is known
    left_to_right_log_prob: float | None = None  # None if it was not computed

    def by_token(self, word_labels: Iterable[str]) -> list[str]:
        """Repeat the label of each word for every token of the word."""
        both = zip(word_labels, self.pieces, strict=True)
        return [label for label, pieces in both for _ in range(pieces)]


@dataclass(frozen=True)
class FoundOrders:
    """The orders of the sentences of a file."""

    sentences: list[OrderedSentence]
    left_out: dict[str, int]  # reason → number of lines that have no order for this reason


def files_of_pairs(*, source: Path, target: Path) -> Files:
    """Return files given by the user. A source that ends in .npy or .npz contains feature vectors."""
    name = "features" if source.suffix in GRID_SUFFIXES else "source"
    return {name: File(source, key="--source"), "target": File(target, key="--target")}


def search_target_orders(
    trained: Trained,
    files: Files,
    *,
    beam: int,
    lines: int | None = None,
    device: torch.device,
    progress: TaskProgress | None = None,
) -> FoundOrders:
    """Search the best order for each target thoroughly and without dropout.

    Targets longer than search.max_length of the recipe are left out.
    lines: number of lines to search, from the first; None for all.
    """
    settings = trained.recipe.search.model_copy(update={"beam": beam})
    limit = settings.max_length
    sentences: list[OrderedSentence] = []
    left_out: Counter[str] = Counter()
    for pairs in _encoded_pairs(trained, files, lines=lines, left_out=left_out, progress=progress):
        short = [pair for pair in pairs if len(pair.target.ids) <= limit]
        left_out[f"longer than search.max_length = {limit} tokens"] += len(pairs) - len(short)
        sentences += _search_pairs(trained, short, settings=settings, device=device)
    return FoundOrders(sentences, left_out=dict(+left_out))


def decode_orders(
    trained: Trained,
    files: Files,
    *,
    lines: int | None = None,
    device: torch.device,
    progress: TaskProgress | None = None,
) -> FoundOrders:
    """Decode each source with [decode] of the recipe and return the order of the best hypothesis.

    Hypotheses that were cut off are left out. lines: number of lines to decode, from the first; None for all.
    """
    sentences: list[OrderedSentence] = []
    left_out: Counter[str] = Counter()
    for pairs in _encoded_pairs(trained, files, lines=lines, left_out=left_out, progress=progress):
        answers = decode_all(
            trained.model,
            [pair.source for pair in pairs],
            settings=trained.recipe.decode,
            device=device,
            lines=[pair.line - 1 for pair in pairs],
        )
        finished = [(pair, best) for pair, (best, *_) in zip(pairs, answers, strict=True) if best.finished]
        left_out["cut off before the end"] += len(pairs) - len(finished)
        sentences += [_decoded_order(pair, best, tokenizer=trained.tokenizer) for pair, best in finished]
    return FoundOrders(sentences, left_out=dict(+left_out))


def load_training_orders(
    recipe: config.Recipe,
    prepared: Prepared,
    *,
    lines: int | None = None,
    progress: TaskProgress | None = None,
) -> tuple[int, FoundOrders]:
    """Load the best orders that the last search of training stored, and the update that it preceded.

    Targets longer than search.max_length were not searched and are left out.
    lines: number of training pairs, from the first; None for all.
    """
    step, stored = _last_stored_orders(recipe, prepared.train)
    corpus, limit = prepared.train.corpus, recipe.search.max_length
    total = len(corpus) if lines is None else min(lines, len(corpus))
    texts = split_lines(recipe, "train", corpus, prepared.tokenizer)
    sentences: list[OrderedSentence] = []
    for chunk in in_chunks(enumerate(islice(texts, total)), size=CHUNK_PAIRS):
        pairs = np.array([pair for pair, _ in chunk])
        orders = stored.of(pairs, device=torch.device("cpu"))
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


def _last_stored_orders(recipe: config.Recipe, data: Dataset) -> tuple[int, OrderStore]:
    """Open the orders that the last checkpoint was trained on, and return the update they were found for."""
    saved = checkpoints(recipe.run)
    step = int(saved[-1].progress()["searched"]["step"]) if saved else 0
    if not step:
        raise UserError(
            f'{recipe.run}: was not trained on stored orders; with order.name = "sao" and search.refresh ≥ 1 '
            "a run is, once its bootstrap is over"
        )
    folder = stored_orders_folder(recipe.run, step)
    if not orders_are_stored(recipe, data, step=step):
        raise UserError(f"{folder}: not the orders of {recipe.run}, its training pairs and [search]")
    return step, OrderStore.open(folder, data)


def training_counts(recipe: config.Recipe, *, progress: TaskProgress | None = None) -> Counter[str] | None:
    """Count the words of the training targets; None if the file no longer exists."""
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
        if progress is not None and (entry.line % CHUNK_PAIRS == 0 or entry.line == total):
            progress(entry.line, total)
    return counts


def frequency_labels(sentences: Sequence[OrderedSentence], counts: Mapping[str, int]) -> list[list[str]]:
    """Label each token with the frequency quarter of its word. A word without a count is among the rarest."""
    quarters = frequency_quarters(counts)
    return [
        sentence.by_token(quarters.get(word, QUARTERS[-1]) for word in sentence.words)
        for sentence in sentences
    ]


@dataclass(frozen=True)
class _EncodedPair:
    """A pair as the model reads it."""

    line: int
    source: NDArray[np.generic]  # token ids, or feature vectors
    target: Tokens
    own: tuple[str, ...]  # words of the source that the vocabulary lacks


def _encoded_pairs(
    trained: Trained,
    files: Files,
    *,
    lines: int | None,
    left_out: Counter[str],
    progress: TaskProgress | None,
) -> Iterator[list[_EncodedPair]]:
    """Yield pairs in chunks, and count in `left_out` why pairs can't be used."""
    grid = _features(trained, files)
    encoder = InputEncoder(trained, device=torch.device("cpu"))
    total = count_pairs(files)
    total = total if lines is None else min(lines, total)
    done = 0
    for entries in in_chunks(islice(read_pairs(files), total), size=CHUNK_PAIRS):
        left_out.update(entry.reason for entry in entries if isinstance(entry, Fault))
        pairs = [entry for entry in entries if isinstance(entry, Pair)]
        encoded = [
            pair
            for pair in _encode(encoder, pairs, grid)
            if pair.target.ids and (len(pair.source) or trained.recipe.sourceless)
        ]
        left_out["empty line"] += len(pairs) - len(encoded)
        yield encoded
        done += len(entries)
        if progress is not None:
            progress(done, total)


def _features(trained: Trained, files: Files) -> Grid | None:
    """Open the feature vectors, if the model reads any; refuse sources that it can't read."""
    width = trained.model.shape.features
    file = files.get("features")
    if file is None:
        if width:
            raise UserError(f"this model reads feature vectors of width {width} (.npy), not text")
        return None
    grid = open_features(file)
    if grid.width != width:
        reads = f"feature vectors of width {width}" if width else "text"
        raise UserError(f"{file.path}: contains vectors of width {grid.width}, but this model reads {reads}")
    return grid


def _encode(encoder: InputEncoder, pairs: Sequence[Pair], grid: Grid | None) -> Iterator[_EncodedPair]:
    sources = [(pair.source or "") if grid is None else grid[_feature_row(pair)] for pair in pairs]
    encoded = encoder.encode_pairs(sources, [pair.target for pair in pairs])
    for pair, (source, target) in zip(pairs, encoded, strict=True):
        yield _EncodedPair(pair.line, source.array, target, own=source.own_words)


def _feature_row(pair: Pair) -> int:
    assert pair.row is not None, "features have rows"
    return pair.row


def _search_pairs(
    trained: Trained, pairs: Sequence[_EncodedPair], *, settings: config.Search, device: torch.device
) -> list[OrderedSentence]:
    """Search the orders of pairs, batched by length; the result follows the order of the pairs."""
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
    """Return the log-probability of each target of a batch in its order."""
    scores = score_steps(model, model.encode(batch.source, batch.source_mask), batch)
    return (scores.word.sum(dim=1) + scores.gap.sum(dim=1)).tolist()


def _second(log_probs: Sequence[float]) -> float | None:
    """Return the log-probability of the second best order, if there is one. log_probs: best first."""
    return log_probs[1] if len(log_probs) > 1 and log_probs[1] > NEG_INF else None


def _decoded_order(
    pair: _EncodedPair, hypothesis: TokenHypothesis, *, tokenizer: Tokenizer
) -> OrderedSentence:
    ids = hypothesis.sentence
    return OrderedSentence(
        line=pair.line,
        tokens=_pieces(ids, tokenizer=tokenizer, own=pair.own),
        words=tuple(tokenizer.words(ids, own=pair.own)),
        pieces=tuple(_pieces_of_words(ids, tokenizer=tokenizer, own=pair.own)),
        positions=hypothesis.positions,
        log_prob=hypothesis.log_prob,
    )


def _pieces(ids: Sequence[int], *, tokenizer: Tokenizer, own: Sequence[str]) -> tuple[str, ...]:
    """Return the text of each token."""
    return tuple(tokenizer.piece(token, own=own) for token in ids)


def _pieces_of_words(ids: Sequence[int], *, tokenizer: Tokenizer, own: Sequence[str]) -> list[int]:
    """Count the tokens of each word of a sentence."""
    pieces = [1] if ids else []
    for token, following in pairwise(ids):
        if len(tokenizer.words([token, following], own=own)) > 1:  # the first token ends its word
            pieces.append(1)
        else:
            pieces[-1] += 1
    return pieces
