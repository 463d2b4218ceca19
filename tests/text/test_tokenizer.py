from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from anyorder.config.data import Side, Text
from anyorder.errors import UserError
from anyorder.text.tokenizer import BOS, EOD, EOS, FEW_LINES, PAD, SPECIALS, UNK, SideName, Tokenizer
from anyorder.text.words import _mecab_tagger, splitter

SPACES = Side(split="spaces")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
# Every letter inside a word and at the end of one; "rs" and "the" often enough to be merged.
TARGETS = [f"{letter}a{letter}" for letter in LETTERS] + ["the other rs ."] * 5
SOURCES = ["der andere Übersetzer sitzt und sieht die Wörter ."] * 5


def trained(unit: str = "bpe", **settings: object) -> Tokenizer:
    text = Text.model_validate({"unit": unit, "vocabulary": 120, **settings})
    return Tokenizer.train(text, SOURCES, TARGETS)


PIECES = trained()
WORDS = trained("words", source=SPACES, target=SPACES)

word = st.text(alphabet=LETTERS, min_size=1, max_size=8)
lines = st.lists(word, max_size=6).map(" ".join)


# Laws


@given(lines)
def test_decoding_undoes_encoding_for_words_of_known_letters(line: str) -> None:
    encoded = PIECES.encode(line, "target")
    assert PIECES.decode(encoded.ids) == line
    assert PIECES.words(encoded.ids) == encoded.words == line.split()


@given(st.text(max_size=20), st.sampled_from(["source", "target"]), st.sampled_from([PIECES, WORDS]))
def test_any_text_has_ids_in_range_and_pieces_that_add_up(
    line: str, side: SideName, tokenizer: Tokenizer
) -> None:
    encoded = tokenizer.encode(line, side)
    limit = tokenizer.target_size if side == "target" else tokenizer.size
    assert all(UNK <= token < limit for token in encoded.ids)
    assert len(encoded.pieces) == len(encoded.words)
    assert sum(encoded.pieces) == len(encoded.ids)
    assert all(count >= 1 for count in encoded.pieces)


@given(st.lists(st.integers(0, PIECES.size - 1)))
def test_any_ids_can_be_read(ids: list[int]) -> None:
    words = PIECES.words(ids)
    letters = [PIECES.piece(token).removesuffix("·") for token in ids if token >= UNK]
    assert "".join(words) == "".join(letters)
    assert all(words)
    PIECES.decode(ids)


def spellings(word: str, tokenizer: Tokenizer) -> set[tuple[int, ...]]:
    """All ways to put a word together from its parts."""
    parts = tokenizer.parts(word)

    def from_place(place: int) -> Iterator[tuple[int, ...]]:
        if place == len(word):
            yield ()
        for start, end, token in parts:
            if start == place:
                yield from ((token, *rest) for rest in from_place(end))

    return set(from_place(0))


@given(st.text(alphabet="abc", min_size=1, max_size=6), st.sampled_from([PIECES, WORDS]))
def test_the_parts_of_a_word_read_as_the_word(word: str, tokenizer: Tokenizer) -> None:
    found = spellings(word, tokenizer)
    for spelling in found:
        assert tokenizer.words(spelling) == [word]
        assert tokenizer.ends_word[list(spelling)].tolist() == [False] * (len(spelling) - 1) + [True]
    own = tuple(tokenizer.encode(word, "target").ids)
    assert UNK in own or own in found


@given(
    st.text(alphabet="abc", min_size=1, max_size=3),
    st.lists(st.integers(UNK + 1, PIECES.size - 1), max_size=3),
)
def test_all_that_reads_as_a_word_is_made_of_its_parts(word: str, tokens: list[int]) -> None:
    if PIECES.words(tokens) == [word] and PIECES.ends_word[tokens[-1]]:
        assert tuple(tokens) in spellings(word, PIECES)


@pytest.mark.parametrize("unit", ["words", "bpe"])
def test_what_only_a_source_has_is_part_of_words_too(unit: Literal["words", "bpe"]) -> None:
    """A model that copies can write it."""
    lines = iter(["kettle kettle kettle"])
    tokenizer = Tokenizer.train(Text(unit=unit, vocabulary=60), sources=lines, targets=iter(["pot pot"]))
    ids = tokenizer.encode("kettle", "source").ids
    assert max(ids) >= tokenizer.target_size
    assert tuple(ids) in spellings("kettle", tokenizer)


@pytest.mark.parametrize("tokenizer", [PIECES, WORDS], ids=["pieces", "words"])
def test_a_token_ends_its_word_if_the_next_one_begins_another(tokenizer: Tokenizer) -> None:
    following = tokenizer.size - 1
    two_words = [len(tokenizer.words([token, following])) == 2 for token in range(UNK, tokenizer.size)]
    assert tokenizer.ends_word[UNK:].tolist() == two_words
    assert len(tokenizer.ends_word) == tokenizer.size


@given(st.lists(lines, max_size=2 * FEW_LINES))
def test_many_lines_at_once_are_the_same_lines(several: list[str]) -> None:
    assert PIECES.encode_all(several, "source") == [PIECES.encode(line, "source") for line in several]


@pytest.mark.parametrize("unit", ["bpe", "words"])
def test_the_same_lines_give_the_same_bytes(unit: str) -> None:
    text = Text.model_validate({"unit": unit, "vocabulary": 120})
    first = Tokenizer.train(text, SOURCES, TARGETS)
    assert all(
        Tokenizer.train(text, iter(SOURCES), reversed(TARGETS)).to_json() == first.to_json() for _ in range(3)
    )


@pytest.mark.parametrize("tokenizer", [PIECES, WORDS])
def test_saving_and_loading_changes_nothing(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path, tokenizer.text, tokenizer.target_size)
    assert loaded.to_json() == tokenizer.to_json()
    assert (loaded.size, loaded.target_size) == (tokenizer.size, tokenizer.target_size)
    line = "the Übersetzer rsrs 日本"
    assert loaded.encode(line, "target") == tokenizer.encode(line, "target")


def test_hugging_face_reads_the_file_by_itself(tmp_path: Path) -> None:
    PIECES.save(tmp_path)
    alone = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    line = "the other rs ."
    assert alone.encode(line).ids == PIECES.encode(line, "source").ids
    assert alone.decode(alone.encode(line).ids) == line


# The vocabulary


def test_specials_have_the_first_ids() -> None:
    assert (PAD, BOS, EOS, EOD, UNK) == (0, 1, 2, 3, 4)
    for tokenizer in (PIECES, WORDS):
        assert tuple(tokenizer.piece(token) for token in range(5)) == SPECIALS


def test_words_of_targets_come_directly_after_the_specials() -> None:
    tokenizer = Tokenizer.train(
        Text(unit="words", source=SPACES, target=SPACES), ["s s s both"], ["both both t", "t t"]
    )
    assert [tokenizer.piece(token) for token in range(5, tokenizer.size)] == ["both", "t", "s"]
    assert tokenizer.target_size == 7
    assert tokenizer.encode("s t", "source").ids == [7, 6]
    assert tokenizer.encode("s t", "target").ids == [UNK, 6]


def test_a_target_spells_a_piece_of_the_sources_with_its_own() -> None:
    text = Text(source=SPACES, target=SPACES, vocabulary=20)
    tokenizer = Tokenizer.train(text, ["abc"] * 9, ["ba", "ab", "cc"])
    assert [tokenizer.piece(token) for token in tokenizer.encode("abc", "source").ids] == ["abc"]
    target = tokenizer.encode("abc", "target")
    assert tokenizer.words(target.ids) == ["abc"]
    assert target.pieces == [len(target.ids)]
    assert max(target.ids) < tokenizer.target_size < tokenizer.size


def test_sources_may_be_none_at_all() -> None:
    tokenizer = Tokenizer.train(Text(vocabulary=40), (), ["a red ball"])
    assert tokenizer.decode(tokenizer.encode("a red ball", "target").ids) == "a red ball"


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"min_count": 1, "vocabulary": 16}, ["a", "b", "c", "d"]),
        ({"min_count": 2, "vocabulary": 16}, ["a", "b"]),
    ],
)
def test_rare_words_are_left_out(settings: dict[str, int], kept: list[str]) -> None:
    text = Text.model_validate({"unit": "words", "source": SPACES, "target": SPACES, **settings})
    tokenizer = Tokenizer.train(text, ["a b d"], ["a a b c"])
    assert sorted(tokenizer.piece(token) for token in range(5, tokenizer.size)) == kept


@pytest.mark.parametrize("unit", ["bpe", "words"])
def test_the_vocabulary_is_never_larger_than_asked_for(unit: str) -> None:
    many = [f"{first}{second}" for first in "abcdef" for second in "abcdef"] * 2
    text = Text.model_validate({"unit": unit, "vocabulary": 20})
    assert Tokenizer.train(text, many, many).size == 20


def test_a_vocabulary_too_small_for_the_letters_is_refused() -> None:
    with pytest.raises(UserError, match=r"text\.vocabulary = 20: too small .* allowed: from \d+"):
        trained(vocabulary=20)


# Text that looks like marks of ours


@pytest.mark.parametrize("unit", ["bpe", "words"])
@pytest.mark.parametrize("mark", [*SPECIALS, "</w>"])
def test_text_that_looks_like_a_mark_stays_text(unit: str, mark: str) -> None:
    html = [f"{mark} {mark}a x{mark} x{mark}a"] * 50
    text = Text.model_validate({"unit": unit, "source": SPACES, "target": SPACES, "vocabulary": 64})
    tokenizer = Tokenizer.train(text, html, html)
    encoded = tokenizer.encode(html[0], "target")
    assert all(token >= UNK for token in encoded.ids)
    if unit == "bpe" or mark == "</w>":
        assert UNK not in encoded.ids
        assert tokenizer.decode(encoded.ids) == html[0]
    else:
        assert encoded.ids[0] == UNK
        assert encoded.words[0] == mark


# Ids, words and pieces


def ids_of(tokenizer: Tokenizer, *shown: str) -> list[int]:
    ids = {tokenizer.piece(token): token for token in range(tokenizer.size)}
    return [ids[piece] for piece in shown]


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        ([], []),
        (["the", "rs"], ["the", "rs"]),
        (["b·", "a·", "c"], ["bac"]),
        (["the", "b·", "a·"], ["the", "ba"]),
        (["b·", "<unk>", "c"], ["b<unk>", "c"]),
        (["<s>", "the", "<eod>", "rs", "</s>", "<pad>"], ["the", "rs"]),
    ],
)
def test_words_of_pieces(shown: list[str], words: list[str]) -> None:
    assert PIECES.words(ids_of(PIECES, *shown)) == words


def test_unknown_letters_are_one_unknown_piece() -> None:
    encoded = PIECES.encode("the жя", "source")
    assert encoded.ids == [*ids_of(PIECES, "the"), UNK]
    assert PIECES.decode(encoded.ids) == "the <unk>"


# Splitting


@pytest.mark.parametrize(
    ("side", "line", "words", "joined"),
    [
        (Side(), "He isn't here.", ["He", "isn", "'t", "here", "."], "He isn't here."),
        (Side(), "Mr. Low (2,000 km)!", ["Mr.", "Low", "(", "2,000", "km", ")", "!"], "Mr. Low (2,000 km)!"),
        (Side(), "“Yes” – she", ['"', "Yes", '"', "-", "she"], '"Yes" - she'),
        (Side(), "a & b < c | d", ["a", "&", "b", "<", "c", "|", "d"], "a & b < c | d"),
        (Side(lowercase=True), "Mr. LOW runs.", ["mr.", "low", "runs", "."], "mr. low runs."),
        (
            Side(language="de"),
            'Er sagt, z.B.: "Schöne Größe", oder?',
            ["Er", "sagt", ",", "z.B.", ":", '"', "Schöne", "Größe", '"', ",", "oder", "?"],
            'Er sagt, z.B.: "Schöne Größe", oder?',
        ),
        (Side(), "", [], ""),
        (SPACES, " f ( x )  :pass ", ["f", "(", "x", ")", ":pass"], "f ( x ) :pass"),
        (Side(split="spaces", lowercase=True), "If X", ["if", "x"], "if x"),
    ],
)
def test_splitting_and_joining(side: Side, line: str, words: list[str], joined: str) -> None:
    rules = splitter(side)
    assert rules.split(line) == words
    assert rules.join(words) == joined


@pytest.mark.parametrize(
    ("words", "joined"),
    [
        (["je", "-", "li", "tu", "."], "je - li tu."),
        # Words that sacremoses' Czech rules fail at are joined by spaces.
        (["je'", "-", "li", "tu", "."], "je' - li tu ."),
        (["e'", "–", "Mailem"], "e' – Mailem"),
    ],
)
def test_joining_czech(words: list[str], joined: str) -> None:
    assert splitter(Side(language="cs")).join(words) == joined


def test_moses_is_loaded_only_by_models_that_split_by_it() -> None:
    code = """
import sys
from anyorder.config import Side, Text
from anyorder.text.tokenizer import Tokenizer
tokenizer = Tokenizer.train(Text(source=Side(split="spaces"), target=Side(split="spaces")), ["a"], ["b"])
tokenizer.decode(tokenizer.encode("b", "target").ids)
print("sacremoses" in sys.modules)
tokenizer = Tokenizer.train(Text(), ["a"], ["b"])
print("sacremoses" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_an_unknown_moses_language_is_silent(
    capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    rules = splitter(Side(language="xx"))
    assert rules.join(rules.split("One, two.")) == "One, two."
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list


@pytest.mark.parametrize(
    ("words", "joined"),
    [
        ([], ""),
        (["これ", "は", "本", "。"], "これは本。"),
        (["Kyoto", "City", "は", "1", "つ"], "Kyoto Cityは1つ"),
        (["A", "-", "B"], "A-B"),
    ],
)
def test_joining_japanese(words: list[str], joined: str) -> None:
    assert splitter(Side(split="mecab")).join(words) == joined


def test_splitting_japanese() -> None:
    pytest.importorskip("MeCab")
    pytest.importorskip("ipadic")
    assert splitter(Side(split="mecab")).split("これは日本の本です。") == [
        *("これ", "は", "日本", "の", "本", "です", "。")
    ]


def test_japanese_without_its_extra_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "MeCab", None)
    _mecab_tagger.cache_clear()
    with pytest.raises(UserError, match=r"pip install 'anyorder\[japanese\]'"):
        splitter(Side(split="mecab")).split("これは本です。")


# Broken files


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "no such file"),
        ("", "not a tokenizer: "),
        ('{"version": "1.0"}', "not a tokenizer: "),
        (
            tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a")).to_str(),
            "ids must begin <pad>",
        ),
    ],
)
def test_a_missing_or_broken_file_is_named(tmp_path: Path, content: str | None, complaint: str) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as raised:
        Tokenizer.load(tmp_path, Text(), 5)
    assert str(raised.value).startswith(f"{path}: ")
    assert complaint in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_target_size_of_another_file_is_refused(tmp_path: Path) -> None:
    WORDS.save(tmp_path)
    with pytest.raises(UserError, match="target_size = 9999"):
        Tokenizer.load(tmp_path, WORDS.text, 9999)


# Bags

BAGS = trained(source=SPACES, target=SPACES, bag=True)
CAPTION = ["the", "other", "rs", "sees", "the", "rs", "."]


@given(st.permutations(CAPTION))
def test_all_orders_of_the_same_words_are_one_bag(words: list[str]) -> None:
    bag = BAGS.encode(" ".join(words), "source")
    assert bag == BAGS.encode(" ".join(CAPTION), "source")
    assert Counter(bag.words) == Counter(CAPTION)
    assert sum(bag.pieces) == len(bag.ids)
    assert BAGS.encode(" ".join(words), "target").words == words
