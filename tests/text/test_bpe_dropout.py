"""Words in other pieces: the same text, cut as the paper's algorithm cuts it, and orders that fit."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise, product
from math import prod
from pathlib import Path
from random import Random

import numpy as np
import pytest
from corpora import call, learn, recipe_of, write_corpus, write_lines

from anyorder import config
from anyorder.config.data import Text
from anyorder.config.recipe import Recipe
from anyorder.data.dataset import prepare
from anyorder.errors import UserError
from anyorder.text.bpe_dropout import SPELLINGS, BpeDropout
from anyorder.text.tokenizer import UNK, Tokenizer

TEXT = ["the lowest of the low towers", "slower and slower he goes", "a new tower is the newest"]
SOURCES = ["der niedrigste der niedrigen tower", "langsam und langsamer", "ein neuer tower"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(Text(vocabulary=90), sources=SOURCES * 2, targets=TEXT * 3)


def cut_target(dropout: BpeDropout, line: str, *, draw: int) -> tuple[list[int], list[int]]:
    tokens = dropout.tokenizer.encode(line, "target")
    nothing = np.zeros((1, 3), dtype=np.float32)  # vectors of an image
    cut = dropout.cut(nothing, np.array(tokens.ids, dtype=np.int32), tokens.pieces, draw=draw)
    assert cut.source is nothing
    return cut.target.tolist(), cut.pieces


# Laws


@pytest.mark.parametrize("line", [*TEXT, "lowest newest towers", "a"])
def test_with_no_merge_left_out_words_are_cut_as_usual(tokenizer: Tokenizer, line: str) -> None:
    tokens = tokenizer.encode(line, "target")
    assert cut_target(BpeDropout(tokenizer, share=0.0), line, draw=0) == (tokens.ids, tokens.pieces)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_text_stays_and_every_piece_can_be_written(tokenizer: Tokenizer, share: float) -> None:
    dropout = BpeDropout(tokenizer, share=share)
    longer = 0
    for line in TEXT:
        usual = tokenizer.encode(line, "target")
        for draw in range(SPELLINGS):
            ids, pieces = cut_target(dropout, line, draw=draw)
            assert tokenizer.words(ids) == usual.words
            assert max(ids) < tokenizer.target_size
            ends = np.flatnonzero(tokenizer.ends_word[ids]) + 1
            assert np.cumsum(pieces).tolist() == ends.tolist()
            longer += len(ids) > len(usual.ids)
    assert longer > SPELLINGS


def test_without_any_merge_letters_are_left(tokenizer: Tokenizer) -> None:
    ids, pieces = cut_target(BpeDropout(tokenizer, share=1 - 1e-12), "the new tower", draw=7)
    assert [tokenizer.piece(token).rstrip("·") for token in ids] == list("thenewtower")
    assert pieces == [3, 3, 5]


def spellings(
    parts: tuple[str, ...], ranks: dict[tuple[str, str], int], share: float
) -> dict[tuple[str, ...], float]:
    """How likely each is, over all ways to leave merges out, step by step."""
    possible = [place for place, halves in enumerate(pairwise(parts)) if halves in ranks]
    likely: dict[tuple[str, ...], float] = defaultdict(float)
    for kept in product([True, False], repeat=len(possible)):
        chance = prod(1 - share if each else share for each in kept)
        left = [place for place, each in zip(possible, kept, strict=True) if each]
        if not left:
            likely[parts] += chance
            continue
        first = min(left, key=lambda place: (ranks[parts[place], parts[place + 1]], place))
        merged = (*parts[:first], parts[first] + parts[first + 1], *parts[first + 2 :])
        for spelling, of_rest in spellings(merged, ranks, share).items():
            likely[spelling] += chance * of_rest
    return likely


@pytest.mark.parametrize("word", ["lowest", "slower", "towers"])
def test_spellings_are_as_frequent_as_by_counting_all_ways(tokenizer: Tokenizer, word: str) -> None:
    merges = json.loads(tokenizer.to_json())["model"]["merges"]
    ranks = {(left, right): rank for rank, (left, right) in enumerate(merges)}
    expected = spellings((*word[:-1], f"{word[-1]}</w>"), ranks, 0.3)
    assert sum(expected.values()) == pytest.approx(1)
    dropout, draws = BpeDropout(tokenizer, share=0.3), 4000
    ids = tuple(tokenizer.encode(word, "source").ids)
    found = Counter(dropout._merged(ids, Random(draw)) for draw in range(draws))
    by_text = {tuple(tokenizer.spelled([piece]) for piece in each): number for each, number in found.items()}
    assert len(expected) > 3
    for spelling, chance in expected.items():
        assert by_text.get(spelling, 0) == pytest.approx(draws * chance, abs=5 * (draws * chance) ** 0.5 + 1)
    assert by_text.keys() <= expected.keys()


def test_a_word_of_both_sides_is_cut_alike_and_others_are_not_cut_together(tokenizer: Tokenizer) -> None:
    dropout = BpeDropout(tokenizer, share=0.5)
    line, numbers = "he goes newest he", set()
    source, target = (tokenizer.encode(line, side) for side in ("source", "target"))
    assert source.ids == target.ids
    for draw in range(SPELLINGS):
        both = (np.array(tokens.ids, dtype=np.int32) for tokens in (source, target))
        cut = dropout.cut(*both, target.pieces, draw=draw)
        assert cut.source.tolist() == cut.target.tolist()
        assert cut.pieces[0] == cut.pieces[3]
        numbers.add(tuple(cut.pieces))
    assert len(numbers) > 4


def test_words_of_a_pair_are_cut_as_if_each_had_its_own_chance(tokenizer: Tokenizer) -> None:
    dropout = BpeDropout(tokenizer, share=0.5)
    words = [tuple(tokenizer.encode(word, "source").ids) for word in ("lowest", "slower")]
    draws = range(0, 2**31, 2**31 // 5000)
    both = Counter(tuple(dropout._spelling(word, draw) for word in words) for draw in draws)
    one, other = (Counter(dropout._spelling(word, draw) for draw in draws) for word in words)
    apart = sum(
        abs(both[first, second] / len(draws) - one[first] * other[second] / len(draws) ** 2)
        for first, second in product(one, other)
    )
    assert len(one) > 4 < len(other)
    assert apart < 0.15  # twice the total variation from independence; by chance about 0.1


def test_what_has_an_unknown_letter_stays_as_it_is(tokenizer: Tokenizer) -> None:
    usual = tokenizer.encode("xyzzylow tower", "target")
    assert UNK in usual.ids
    ids, pieces = cut_target(BpeDropout(tokenizer, share=1 - 1e-12), "xyzzylow tower", draw=0)
    assert ids[: usual.pieces[0]] == usual.ids[: usual.pieces[0]]
    assert pieces == [usual.pieces[0], 5]


# In training


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for split in ("train", "dev"):
        write_lines(folder / f"{split}.source", SOURCES)
        write_lines(folder / f"{split}.target", TEXT)
    return folder


def recipe_with(folder: Path, *changes: str) -> Recipe:
    splits = {split: {"source": f"{split}.source", "target": f"{split}.target"} for split in ("train", "dev")}
    data = {"root": str(folder), "cache": "cache", **splits}
    values = {"run": str(folder / "run"), "data": data, "text": {"vocabulary": 90}}
    return config.recipe_with(values, changes, origin="here")


@pytest.mark.parametrize("order", ["l2r", "r2l", "odd", "blt", "rf", "rnd"])
def test_orders_are_those_of_the_pieces_that_are_seen(folder: Path, order: str) -> None:
    recipe = recipe_with(folder, f"order.name={order}", "train.bpe_dropout=0.4")
    prepared = prepare(recipe)
    train, seen = prepared.train, 0
    for pair, epoch in product(range(len(TEXT)), range(6)):
        usual = train.corpus.target[pair]
        example = train.example(pair, seed=1, epoch=epoch)
        positions, length = example.order.tolist(), len(example.target)
        assert sorted(positions) == list(range(1, length + 1))
        assert prepared.tokenizer.decode(example.target.tolist()) == prepared.tokenizer.decode(usual.tolist())
        pieces = train.pieces(pair, seed=1, epoch=epoch)
        assert sum(pieces) == length
        seen += length > len(usual)
        match order:
            case "l2r":
                assert positions == list(range(1, length + 1))
            case "r2l":
                assert positions == list(range(length, 0, -1))
            case "odd":
                assert positions == [*range(1, length + 1, 2), *range(2, length + 1, 2)]
            case "rf":
                words = np.repeat(np.arange(len(pieces)), pieces)[np.array(positions) - 1]
                usual_pieces = train.corpus.pieces[pair]
                start, end = train.corpus.target.offsets[pair : pair + 2]
                assert train.positions is not None
                usual_words = np.repeat(np.arange(len(pieces)), usual_pieces)[train.positions[start:end] - 1]
                assert list(dict.fromkeys(words)) == list(dict.fromkeys(usual_words))
                assert all(
                    after > before
                    for before, after in pairwise(positions)
                    if words[positions.index(before)] == words[positions.index(after)]
                )
    assert seen > 10


def test_epochs_differ_and_can_be_had_again_and_dev_is_as_usual(folder: Path) -> None:
    recipe = recipe_with(folder, "train.bpe_dropout=0.4")
    first, again = prepare(recipe), prepare(recipe)

    def seen(epoch: int) -> list[list[int]]:
        return [first.train.example(pair, seed=1, epoch=epoch).target.tolist() for pair in range(len(TEXT))]

    assert seen(0) != seen(1)
    again.train.example(2, seed=1, epoch=1)  # what was asked for before must not matter
    assert [again.train.example(pair, seed=1, epoch=0).target.tolist() for pair in range(len(TEXT))] == seen(
        0
    )
    for pair in range(len(first.dev)):
        example = first.dev.example(pair, seed=1, epoch=0)
        assert example.target.tolist() == first.dev.corpus.target[pair].tolist()


def test_orders_that_are_searched_afterwards_are_of_the_usual_pieces(tmp_path: Path) -> None:
    recipe, run, pieces = write_corpus(tmp_path), tmp_path / "run", ("text.unit=bpe", "text.vocabulary=90")
    for split in ("train", "dev"):
        write_lines(tmp_path / f"{split}.source", SOURCES)
        write_lines(tmp_path / f"{split}.target", TEXT)
    learn(recipe, run, *pieces, "train.bpe_dropout=0.5", "train.steps=4")
    answer = call("search-orders", run, "--output", tmp_path / "orders.jsonl")
    assert answer.returncode == 0, answer.stderr
    found = [json.loads(line) for line in (tmp_path / "orders.jsonl").read_text().splitlines()]
    targets = prepare(recipe_of(recipe, run, *pieces)).train.corpus.target
    assert [len(each["tokens"]) for each in found] == targets.lengths().tolist()
    for each in found:
        assert each["orders"]
        for order in each["orders"]:
            assert sorted(order["positions"]) == list(range(1, len(each["tokens"]) + 1))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (["text.unit=words"], 'train.bpe_dropout = 0.1: must be 0 for text.unit = "words": words have no'),
        (["order.name=sao"], 'train.bpe_dropout = 0.1: must be 0 for order.name = "sao": its orders are of'),
        (["train.bpe_dropout=1"], "train.bpe_dropout = 1"),
    ],
)
def test_what_it_is_not_for(folder: Path, changes: list[str], complaint: str) -> None:
    with pytest.raises(UserError) as refused:
        recipe_with(folder, "train.bpe_dropout=0.1", *changes)
    assert complaint in str(refused.value)
