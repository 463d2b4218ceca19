from __future__ import annotations

import gzip
import importlib.metadata
import json
import re
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import full_disk
from hypothesis import given
from hypothesis import strategies as st

from anyorder.config.data import Side, Splits
from anyorder.config.recipe import Recipe
from anyorder.data.corpus import Ragged, load_split, statistics, train_tokenizer
from anyorder.data.readers import Features, Pair, raw_pairs
from anyorder.errors import UserError
from anyorder.orders.fixed import common_words, count_words
from anyorder.text.tokenizer import Tokenizer

SPACES = {"split": "spaces"}
SOURCE = "eins zwei\ndrei\nvier fünf sechs\n"
TARGET = "one two\nthree\nfour five six\n"


def recipe_of(folder: Path, *, train: dict[str, str] | None = None, **data: object) -> Recipe:
    """A recipe of whole words over files of the folder; all splits are as train unless they are given."""
    train = train or {"source": "train.de", "target": "train.en"}
    splits = {"train": train, "dev": train, "test": train}
    values = {"root": folder, "cache": folder / "cache", **splits, **data}
    text = {"unit": "words", "source": SPACES, "target": SPACES}
    return Recipe.model_validate({"run": "run", "data": values, "text": text})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.de").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "train.en").write_text(TARGET, encoding="utf-8")
    return tmp_path


def cached_files(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in (folder / "cache").rglob("*") if path.is_file()}


# Laws


@given(st.lists(st.lists(st.integers(0, 99))))
def test_a_ragged_array_is_its_sequences(sequences: list[list[int]]) -> None:
    lengths = [len(sequence) for sequence in sequences]
    ragged = Ragged(
        values=np.array(list(chain.from_iterable(sequences)), dtype=np.int32),
        offsets=np.cumsum([0, *lengths], dtype=np.int64),
    )
    assert [ragged[number].tolist() for number in range(len(ragged))] == sequences
    assert ragged.lengths().tolist() == lengths
    for number in range(len(sequences) + 1):
        first = ragged.first(number)
        assert [first[index].tolist() for index in range(len(first))] == sequences[:number]
    for outside in (-1, len(sequences)):
        with pytest.raises(IndexError):
            ragged[outside]


def test_a_split_is_what_the_tokenizer_makes_of_its_lines(folder: Path) -> None:
    recipe = recipe_of(folder)
    tokenizer = train_tokenizer(recipe)
    corpus = load_split(recipe, "train", tokenizer)
    pairs = raw_pairs(recipe, "train")
    assert len(corpus) == len(pairs) == 3
    for number, pair in enumerate(pairs):
        target = tokenizer.encode(pair.target, "target")
        assert corpus.source[number].tolist() == tokenizer.encode(pair.source or "", "source").ids
        assert corpus.target[number].tolist() == target.ids
        assert corpus.pieces[number].tolist() == target.pieces
    assert corpus.lines.tolist() == [1, 2, 3]
    assert corpus.skipped == {}
    assert corpus.common_words == common_words(count_words(pair.target.split() for pair in pairs)) != set()


def test_arrays_are_memory_maps(folder: Path) -> None:
    recipe = recipe_of(folder)
    corpus = load_split(recipe, "train", train_tokenizer(recipe))
    assert isinstance(corpus.source, Ragged)
    for values in (corpus.source.values, corpus.target.values, corpus.pieces.values, corpus.lines):
        assert isinstance(values, np.memmap)
    assert corpus.target.values.dtype == np.int32
    assert corpus.target.offsets.dtype == np.int64


# The cache


def test_the_second_time_comes_from_the_cache(folder: Path) -> None:
    recipe = recipe_of(folder)
    tokenizer = train_tokenizer(recipe)
    first = load_split(recipe, "train", tokenizer)
    files = cached_files(folder)
    calls: list[tuple[int, int]] = []
    again = load_split(recipe, "train", train_tokenizer(recipe), progress=lambda *call: calls.append(call))
    assert (again.key, again.folder) == (first.key, first.folder)
    assert (again.skipped, again.common_words) == (first.skipped, first.common_words)
    assert cached_files(folder) == files
    assert calls == []


@pytest.mark.parametrize(
    ("files", "settings"),
    [
        ({"train.de": "eins zwei\ndrei\nsieben\n"}, {}),
        ({"train.en": "one\ntwo\nthree\n"}, {}),
        ({}, {"max_length": 100}),
        ({}, {"bad_lines": "skip"}),
        ({}, {"train_lines": 2}),
    ],
)
def test_what_a_split_depends_on_changes_its_key(
    folder: Path, files: dict[str, str], settings: dict[str, Any]
) -> None:
    recipe = recipe_of(folder)
    tokenizer = train_tokenizer(recipe)
    before = load_split(recipe, "train", tokenizer).key
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    assert load_split(recipe_of(folder, **settings), "train", tokenizer).key != before


@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_wrong_ending_is_not_hidden_by_an_entry_of_the_same_bytes(folder: Path, split: Splits) -> None:
    recipe = recipe_of(folder)
    tokenizer = train_tokenizer(recipe)
    load_split(recipe, split, tokenizer)
    (folder / "train.de.gz").write_bytes((folder / "train.de").read_bytes())
    misnamed = recipe_of(folder, train={"source": "train.de.gz", "target": "train.en"})
    complaint = r"train\.de\.gz: not a whole \.gz file"
    with pytest.raises(UserError, match=complaint):
        train_tokenizer(misnamed)
    with pytest.raises(UserError, match=complaint):
        load_split(misnamed, split, tokenizer)


def test_packed_text_is_the_same_text(folder: Path) -> None:
    (folder / "train.de.gz").write_bytes(gzip.compress(SOURCE.encode()))
    packed = recipe_of(folder, train={"source": "train.de.gz", "target": "train.en"})
    tokenizer = train_tokenizer(packed)
    assert tokenizer.to_json() == train_tokenizer(recipe_of(folder)).to_json()
    plain, unpacked = (load_split(each, "train", tokenizer) for each in (recipe_of(folder), packed))
    assert isinstance(plain.source, Ragged)
    assert isinstance(unpacked.source, Ragged)
    assert plain.source.values.tolist() == unpacked.source.values.tolist()


def test_another_tokenizer_changes_the_key(folder: Path) -> None:
    recipe = recipe_of(folder)
    other = Tokenizer.train(recipe.text, ["eins"], ["one"])
    keys = {load_split(recipe, "train", each).key for each in (train_tokenizer(recipe), other)}
    assert len(keys) == 2


@pytest.mark.parametrize(
    ("split", "package", "changes"),
    [
        ("moses", "sacremoses", True),
        ("moses", "ipadic", False),
        ("mecab", "mecab-python3", True),
        ("mecab", "ipadic", True),
        ("spaces", "sacremoses", False),
    ],
)
def test_another_version_of_what_splits_the_text_starts_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch, split: str, package: str, changes: bool
) -> None:
    if split == "mecab":
        pytest.importorskip("MeCab")
    recipe = recipe_of(folder)
    text = recipe.text.model_copy(update={"target": Side.model_validate({"split": split})})
    recipe = recipe.model_copy(update={"text": text})
    load_split(recipe, "train", train_tokenizer(recipe))
    before = cached_files(folder)
    installed = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "99.0" if name == package else installed(name)
    )
    load_split(recipe, "train", train_tokenizer(recipe))
    made_anew = {path.parts[1] for path in cached_files(folder) - before}
    assert made_anew == ({"tokenizers", "corpora"} if changes else set())


def test_a_tokenizer_is_learnt_anew_from_other_text_or_rules(folder: Path) -> None:
    recipe = recipe_of(folder)
    before = train_tokenizer(recipe)
    rarer = recipe.model_copy(update={"text": recipe.text.model_copy(update={"min_count": 2})})
    assert train_tokenizer(rarer).size == 5 < before.size
    (folder / "train.en").write_text("one\none\none\n")
    after = train_tokenizer(recipe)
    assert after.target_size == 6 < before.target_size


def test_half_written_entries_are_never_used(folder: Path) -> None:
    def broken_off(done: int, total: int) -> None:
        raise KeyboardInterrupt

    recipe = recipe_of(folder)
    tokenizer = train_tokenizer(recipe)
    before = cached_files(folder)
    with pytest.raises(KeyboardInterrupt):
        load_split(recipe, "train", tokenizer, progress=broken_off)
    assert cached_files(folder) == before
    assert len(load_split(recipe, "train", tokenizer)) == 3


@pytest.mark.parametrize("largest_file", [0, 150])  # room for nothing, or for the head of an array
def test_a_full_disk_is_told_and_leaves_nothing_behind(folder: Path, largest_file: int) -> None:
    recipe = recipe_of(folder)
    with full_disk(largest_file=largest_file), pytest.raises(UserError) as in_learning:
        train_tokenizer(recipe)
    tokenizer = train_tokenizer(recipe)
    before = cached_files(folder)
    with full_disk(largest_file=largest_file), pytest.raises(UserError) as in_tokenising:
        load_split(recipe, "train", tokenizer)
    for refused, kind in ((in_learning, "tokenizers"), (in_tokenising, "corpora")):
        place = re.escape(str(folder / "cache" / kind))
        assert re.fullmatch(
            rf"{place}/\w+: can't be written: File too large \(data\.cache\)", str(refused.value)
        )
    assert cached_files(folder) == before
    assert not list(folder.glob("cache/*/.unfinished*"))
    assert len(load_split(recipe, "train", tokenizer)) == 3


def test_two_at_once_share_one_entry(folder: Path) -> None:
    """The second run does all its work while the first is about to store the same."""
    recipe = recipe_of(folder)
    tokenizer = train_tokenizer(recipe)
    faster: list[str] = []
    slower = load_split(
        recipe,
        "train",
        tokenizer,
        progress=lambda done, total: faster.append(load_split(recipe, "train", tokenizer).key),
    )
    assert faster == [slower.key]
    assert len(slower) == 3
    assert list(slower.folder.parent.iterdir()) == [slower.folder]


def test_the_cache_is_in_the_users_cache_folder_by_default(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "xdg"))
    recipe = recipe_of(folder, cache=None)
    corpus = load_split(recipe, "train", train_tokenizer(recipe))
    assert corpus.folder.is_relative_to(folder / "xdg" / "anyorder")


def test_a_cache_that_cannot_be_written_is_named(folder: Path) -> None:
    (folder / "taken").write_text("a file")
    with pytest.raises(UserError, match=r"taken/.*: can't be written: Not a directory \(data\.cache\)$"):
        train_tokenizer(recipe_of(folder, cache=folder / "taken"))


def test_progress_ends_at_the_total(folder: Path) -> None:
    recipe = recipe_of(folder)
    learning: list[tuple[int, int]] = []
    tokenizer = train_tokenizer(recipe, progress=lambda *call: learning.append(call))
    tokenising: list[tuple[int, int]] = []
    load_split(recipe, "train", tokenizer, progress=lambda *call: tokenising.append(call))
    assert learning == [(6, 6)]
    assert tokenising == [(3, 3)]


# Bad files and lines


def test_files_of_unequal_length_are_refused(folder: Path) -> None:
    recipe = recipe_of(folder)
    tokenizer = train_tokenizer(recipe)
    (folder / "train.en").write_text("one\ntwo\n")
    complaint = r"train\.de has 3 lines but .*train\.en has 2;"
    with pytest.raises(UserError, match=complaint):
        train_tokenizer(recipe)
    with pytest.raises(UserError, match=complaint):
        load_split(recipe, "train", tokenizer)


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    (tmp_path / "train.de").write_bytes(b"a\n \nb\nM\xe4rz\nc d e f\ng\n")
    (tmp_path / "train.en").write_bytes(b"A\nB\n\nC\nD\nE F G H\n")
    return tmp_path


def test_skipped_lines_take_their_pair_along_and_are_counted(bad: Path) -> None:
    recipe = recipe_of(bad, bad_lines="skip", max_length=3)
    corpus = load_split(recipe, "dev", train_tokenizer(recipe))
    assert corpus.lines.tolist() == [1]
    assert corpus.skipped == {"empty line": 2, "not valid UTF-8": 1, "over-long line": 2}
    assert len(corpus.source) == len(corpus.target) == len(corpus.pieces) == 1
    assert raw_pairs(recipe, "dev", lines=corpus.lines) == [Pair(line=1, source="a", target="A")]


def test_refused_lines_are_named_with_how_many_more(bad: Path) -> None:
    skipping = recipe_of(bad, bad_lines="skip", max_length=3)
    refusing = recipe_of(bad, bad_lines="refuse", max_length=3)
    with pytest.raises(UserError) as raised:
        load_split(refusing, "train", train_tokenizer(skipping))
    assert str(raised.value) == (
        f"{bad / 'train.de'}:2: empty line (and 4 more bad lines); "
        'set data.bad_lines = "skip" to leave them out'
    )


@pytest.mark.parametrize(
    ("source", "target", "complaint"),
    [
        ("a\n", "\n", "train.en:1: empty line; set"),
        ("a\n", "b c d e\n", "train.en:1: over-long line (4 tokens, data.max_length = 3); set"),
    ],
)
def test_refusals(tmp_path: Path, source: str, target: str, complaint: str) -> None:
    (tmp_path / "train.de").write_text(source)
    (tmp_path / "train.en").write_text(target)
    recipe = recipe_of(tmp_path, max_length=3)
    with pytest.raises(UserError, match=re.escape(complaint)):
        load_split(recipe, "train", train_tokenizer(recipe))


def test_a_refusal_in_jsonl_says_which_side(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text(json.dumps({"source": "", "target": "one"}))
    recipe = recipe_of(tmp_path, train={"jsonl": "pairs.jsonl"})
    with pytest.raises(UserError, match=re.escape("pairs.jsonl:1: empty line (source); set")):
        load_split(recipe, "train", train_tokenizer(recipe))


BAD_JSON = """{"source": "eins", "target": "one"}
{oops
{"source": "zwei"}
{"target": "three"}
{"source": "vier", "target": 4}
{"source": "fünf", "target": "five"}

"""


def test_bad_lines_of_jsonl_are_skipped_and_counted(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text(BAD_JSON, encoding="utf-8")
    recipe = recipe_of(tmp_path, train={"jsonl": "pairs.jsonl"}, bad_lines="skip")
    tokenizer = train_tokenizer(recipe)
    reasons = {"not valid JSON": 1, 'no "target"': 1, 'no "source"': 1, '"target" is no string': 1}
    for _ in ("made", "from the cache"):
        corpus = load_split(recipe, "train", tokenizer)
        assert corpus.lines.tolist() == [1, 6]
        assert corpus.skipped == reasons
    with pytest.raises(UserError, match=r"pairs\.jsonl:2: not valid JSON .*; a test line can't be left out"):
        load_split(recipe, "test", tokenizer)


def test_bad_lines_of_jsonl_are_refused_unless_the_recipe_skips_them(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text(BAD_JSON, encoding="utf-8")
    recipe = recipe_of(tmp_path, train={"jsonl": "pairs.jsonl"})
    with pytest.raises(UserError, match=r'pairs\.jsonl:2: not valid JSON .*; set data\.bad_lines = "skip"'):
        train_tokenizer(recipe)
    tokenizer = Tokenizer.train(recipe.text, ["eins"], ["one"])
    with pytest.raises(UserError, match=r"pairs\.jsonl:2: .* \(and 3 more bad lines\)"):
        load_split(recipe, "train", tokenizer)


def test_wrong_encoding_stops_learning_a_vocabulary(bad: Path) -> None:
    with pytest.raises(UserError, match=r"train\.de:4: not valid UTF-8 .*; set data\.bad_lines"):
        train_tokenizer(recipe_of(bad))


@pytest.mark.parametrize("bad_lines", ["refuse", "skip"])
def test_a_test_split_is_kept_whole(tmp_path: Path, bad_lines: str) -> None:
    (tmp_path / "train.de").write_text("a\n\nb c d e\n")
    (tmp_path / "train.en").write_text("A\nB\n\n")
    recipe = recipe_of(tmp_path, bad_lines=bad_lines, max_length=3)
    corpus = load_split(recipe, "test", train_tokenizer(recipe))
    assert corpus.lines.tolist() == [1, 2, 3]
    assert corpus.source.lengths().tolist() == [1, 0, 4]
    assert corpus.target.lengths().tolist() == [1, 1, 0]


def test_a_test_line_that_cannot_be_read_is_always_refused(bad: Path) -> None:
    recipe = recipe_of(bad, bad_lines="skip")
    with pytest.raises(UserError, match=r"train\.de:4: not valid UTF-8 .*; a test line can't be left out"):
        load_split(recipe, "test", train_tokenizer(recipe))


def test_a_split_with_nothing_left_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.de").write_text("\n\n")
    (tmp_path / "train.en").write_text("A\nB\n")
    recipe = recipe_of(tmp_path, bad_lines="skip")
    with pytest.raises(UserError, match=r"data\.train: none of its 2 lines can be used"):
        load_split(recipe, "train", train_tokenizer(recipe))


# Image features


def test_features_follow_the_kept_lines(tmp_path: Path) -> None:
    grid = np.arange(3 * 2 * 4, dtype=np.float32).reshape(3, 2, 4)
    np.save(tmp_path / "train.npy", grid)
    (tmp_path / "train.en").write_text("a cat\n\na dog\n")
    recipe = recipe_of(tmp_path, train={"features": "train.npy", "target": "train.en"}, bad_lines="skip")
    corpus = load_split(recipe, "train", train_tokenizer(recipe))
    assert isinstance(corpus.source, Features)
    assert corpus.lines.tolist() == [1, 3]
    assert np.array_equal(corpus.source[0], grid[0])
    assert np.array_equal(corpus.source[1], grid[2])
    assert corpus.source.lengths().tolist() == [2, 2]
    assert raw_pairs(recipe, "train", lines=[3]) == [Pair(line=3, source=None, target="a dog", row=2)]


def test_features_are_looked_through_when_they_are_first_read(tmp_path: Path) -> None:
    np.save(tmp_path / "train.npy", np.full((3, 2, 4), np.nan))
    (tmp_path / "train.en").write_text(TARGET)
    recipe = recipe_of(tmp_path, train={"features": "train.npy", "target": "train.en"})
    tokenizer = train_tokenizer(recipe)
    for _ in range(2):  # a refusal leaves no entry
        with pytest.raises(UserError, match=r"train\.npy: vector 1 of line 1 isn't finite"):
            load_split(recipe, "train", tokenizer)


# Statistics


def test_statistics(folder: Path) -> None:
    (folder / "test.de").write_text("eins neu\n\ndrei\n")
    (folder / "test.en").write_text("one two three new\n\nthree\n")
    recipe = recipe_of(folder, test={"source": "test.de", "target": "test.en"})
    tokenizer = train_tokenizer(recipe)
    counted = statistics(load_split(recipe, "test", tokenizer), tokenizer)
    assert (counted.pairs, counted.skipped, counted.longest_target) == (3, 0, 4)
    assert (counted.vocabulary, counted.target_vocabulary) == (5 + 12, 5 + 6)
    assert counted.mean_source == pytest.approx(3 / 3)
    assert counted.mean_target == pytest.approx(5 / 3)
    assert counted.unknown_source == pytest.approx(1 / 3)
    assert counted.unknown_target == pytest.approx(1 / 5)


# The beginning of a split


@pytest.mark.parametrize("lines", [1, 2, 3, 4])
def test_the_first_training_lines_are_what_a_shorter_file_has(folder: Path, lines: int) -> None:
    recipe = recipe_of(folder, train_lines=lines)
    whole_dev = load_split(recipe, "dev", train_tokenizer(recipe))
    tokenizer, train = train_tokenizer(recipe), load_split(recipe, "train", train_tokenizer(recipe))
    for name in ("train.de", "train.en"):
        kept = (folder / name).read_text(encoding="utf-8").splitlines(keepends=True)[:lines]
        (folder / name).write_text("".join(kept), encoding="utf-8")
    cut = recipe_of(folder)
    wanted = load_split(cut, "train", train_tokenizer(cut))
    assert tokenizer.to_json() == train_tokenizer(cut).to_json()
    assert train.target.values.tolist() == wanted.target.values.tolist()
    assert train.source.lengths().tolist() == wanted.source.lengths().tolist()
    assert len(whole_dev) == SOURCE.count("\n")


def test_the_first_pairs_of_a_corpus(folder: Path) -> None:
    recipe = recipe_of(folder)
    corpus = load_split(recipe, "train", train_tokenizer(recipe))
    first = corpus.first(2)
    assert (len(first), len(first.source), len(first.target), len(first.pieces)) == (2, 2, 2, 2)
    assert first.lines.tolist() == [1, 2]
    assert first.target[1].tolist() == corpus.target[1].tolist()


def test_files_of_unequal_length_are_refused_even_beyond_the_lines_to_read(folder: Path) -> None:
    (folder / "train.en").write_text(TARGET + "seven\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"3 lines but .* has 4"):
        train_tokenizer(recipe_of(folder, train_lines=2))
