"""What metrics say: laws that all of them keep, then values that their reference implementations give."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer
from _pytest.mark.structures import ParameterSet
from corpora import QUIET, assert_one_line_refusal, call_here, json_lines, write_lines
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU

from anyorder.cli import app
from anyorder.config.data import Side
from anyorder.errors import UserError
from anyorder.metrics import DEFAULT, METRICS, Options, bleu, evaluate, exact
from anyorder.metrics.exact import code_tokens
from anyorder.metrics.meteor import run_java

Capture = pytest.CaptureFixture[str]

needs_nltk = pytest.mark.skipif(find_spec("nltk") is None, reason="without the extra `metrics`")
needs_coco = pytest.mark.skipif(find_spec("pycocoevalcap") is None, reason="without the extra `metrics`")
needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="without Java")
METEOR_RUNS = [needs_coco, needs_java]

# In German METEOR reads no paraphrases, which take it ten seconds.
PLAIN = Options(tokenize="none", cider_tokenize="none", language="de")
EVERY = [
    pytest.param("bleu"),
    pytest.param("chrf"),
    pytest.param("ter"),
    pytest.param("ribes", marks=needs_nltk),
    pytest.param("meteor", marks=METEOR_RUNS),
    pytest.param("cider", marks=needs_coco),
    pytest.param("exact"),
    pytest.param("python"),
]


def all_but(*names: str) -> list[ParameterSet]:
    return [param for param in EVERY if param.values[0] not in names]


WRITTEN = ["the cat sat on the mat", "a dog runs fast now", "he reads the book there", "x = f ( 1 , 2 )"]
REFERENCES = [
    ["the cat sat on a mat", "a dog runs fast now", "there he reads a book", "x = f(1, 2)"],
    ["a cat sat upon the mat", "the dog runs very fast", "he reads the book there", "y = f(1)"],
]

# From sacreBLEU's README and tests.
DOGS = ["The dog bit the man.", "It wasn't surprising.", "The man had just bitten him."]
DOG_REFERENCES = [
    ["The dog bit the man.", "It was not unexpected.", "The man bit him first."],
    ["The dog had bit the man.", "No one was surprised.", "The man had bitten the dog."],
]


def score(name: str, written: Sequence[str], *references: Sequence[str], options: Options = PLAIN) -> float:
    return evaluate(written, references, metrics=[name], options=options)[name].score


def test_every_metric_is_tested_here() -> None:
    of_edits = ["gleu", "edits", "errant"]  # in test_edits.py
    assert [*(param.values[0] for param in EVERY), *of_edits] == list(METRICS)


# Laws


@pytest.mark.parametrize("name", EVERY)
def test_nothing_is_better_than_the_reference_itself(name: str) -> None:
    perfect = score(name, REFERENCES[0], REFERENCES[0])
    assert perfect == pytest.approx({"ter": 0, "cider": 1000}.get(name, 100))
    result = evaluate(WRITTEN, [REFERENCES[0]], metrics=[name], options=PLAIN)[name]
    assert result.score < perfect if result.metric.higher_is_better else result.score > perfect


@pytest.mark.parametrize("name", all_but("meteor"))
def test_the_order_of_references_does_not_count(name: str) -> None:
    assert score(name, WRITTEN, *REFERENCES) == pytest.approx(score(name, WRITTEN, *reversed(REFERENCES)))


@pytest.mark.parametrize("name", all_but("meteor"))
def test_the_order_of_lines_does_not_count(name: str) -> None:
    backwards = [lines[::-1] for lines in REFERENCES]
    assert score(name, WRITTEN[::-1], *backwards) == pytest.approx(score(name, WRITTEN, *REFERENCES))


# CIDEr-D's weights come from all references, so a part of them has weights of its own.
@pytest.mark.parametrize("name", all_but("cider"))
def test_statistics_of_lines_add_up_to_those_of_their_text(name: str) -> None:
    whole = evaluate(WRITTEN, REFERENCES, metrics=[name], options=PLAIN)[name]
    chosen = [0, 2, 3]
    part = score(
        name, [WRITTEN[line] for line in chosen], *([lines[line] for line in chosen] for lines in REFERENCES)
    )
    assert whole.metric.scores(whole.statistics[chosen].sum(axis=0)[None])[0] == pytest.approx(part)


# BLEU of a sentence leaves out n-grams that it is too short for; METEOR is compared with its program below.
@pytest.mark.parametrize("name", all_but("bleu", "cider", "meteor"))
def test_a_sentence_is_scored_like_a_text_of_one_line(name: str) -> None:
    result = evaluate(WRITTEN, REFERENCES, metrics=[name], options=PLAIN)[name]
    alone = [
        score(name, [text], *([reference] for reference in choices))
        for text, *choices in zip(WRITTEN, *REFERENCES, strict=True)
    ]
    assert result.sentence_scores() == pytest.approx(alone)
    assert result.sentence_signature == result.signature


def test_bleu_of_sentences_is_that_of_sacrebleu() -> None:
    result = evaluate(["yes", *WRITTEN], [["yes", *lines] for lines in REFERENCES], metrics=["bleu"])["bleu"]
    theirs = BLEU(effective_order=True)
    wanted = [
        theirs.sentence_score(text, choices).score
        for text, *choices in zip(["yes", *WRITTEN], *(["yes", *lines] for lines in REFERENCES), strict=True)
    ]
    assert result.sentence_scores() == pytest.approx(wanted)
    assert "|eff:no|" in result.signature
    assert result.sentence_signature == result.signature.replace("eff:no", "eff:yes")


@pytest.mark.parametrize("name", all_but("ter", "meteor", "python"))
def test_capitals_count_unless_in_lower_case(name: str) -> None:
    shouted = [text.upper() for text in WRITTEN]
    lowercase = Options(tokenize="none", cider_tokenize="none", lowercase=True)
    assert score(name, shouted, *REFERENCES) < score(name, WRITTEN, *REFERENCES)
    assert score(name, shouted, *REFERENCES, options=lowercase) == pytest.approx(
        score(name, WRITTEN, *REFERENCES, options=lowercase)
    )


@pytest.mark.parametrize("name", EVERY)
def test_empty_lines_can_be_scored(name: str) -> None:
    texts, references = ["", "a b c d", ""], ["a b c d", "", "e f g h"]
    edits = 12  # on references of 8 words
    assert score(name, texts, references) == pytest.approx(100 * edits / 8 if name == "ter" else 0)


# Values of the reference implementations


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        # sacreBLEU's test_bleu.py
        (Options(), 48.530827),
        (Options(tokenize="none"), 49.1919566),
        (Options(tokenize="intl"), 43.91623493),
        # `sacrebleu ref1 ref2 -i hyp -w 6`, with the flags of these options
        (Options(tokenize="char"), 72.610642),
        (Options(lowercase=True), 48.530827),
    ],
)
def test_bleu(options: Options, wanted: float) -> None:
    assert score("bleu", DOGS, *DOG_REFERENCES, options=options) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [  # sacreBLEU's test_sentence_bleu.py
        (Options(), 8.493),
        (Options(tokenize="none"), 7.347),
        (Options(tokenize="intl"), 8.493),
        (Options(tokenize="char"), 40.8759),
        (Options(tokenize="char", lowercase=True), 42.0267),
    ],
)
def test_bleu_of_a_sentence(options: Options, wanted: float) -> None:
    reference = "producţia de zahăr brut se exprimă în zahăr alb;"
    written = "Producția de zahăr primă va fi exprimată în ceea ce privește zahărul alb;"
    result = evaluate([written], [[reference]], metrics=["bleu"], options=options)["bleu"]
    assert result.sentence_scores() == pytest.approx([wanted], abs=1e-3)


@pytest.mark.parametrize(
    ("written", "references", "wanted"),
    [
        # sacreBLEU's test_chrf.py, where precision equals recall, so that their weights don't matter
        (["a"], [["a"]], 100),
        ([""], [["reference"]], 0),
        (["a b c"], [["abc"]], 100),
        (["a", "b"], [["a", "c"]], 50),
        (["aa"], [["ab"]], 25),
        # `sacrebleu ref1 ref2 -i hyp -m chrf -w 6`
        (DOGS, DOG_REFERENCES, 59.727518),
        (DOGS[1:2], [lines[1:2] for lines in DOG_REFERENCES], 35.346353),
        (DOGS[2:], [lines[2:] for lines in DOG_REFERENCES], 51.877408),
    ],
)
def test_chrf(written: list[str], references: list[list[str]], wanted: float) -> None:
    assert score("chrf", written, *references) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(
    ("written", "references", "wanted"),
    [
        # sacreBLEU's test_ter.py
        (["aaaa bbbb cccc dddd"], [["aaaa bbbb cccc dddd"]], 0),
        (["dddd eeee ffff"], [["aaaa bbbb cccc"]], 100),
        ([""], [["a"]], 100),
        (["d e f g h a b c"], [["a b c d e f g h"]], 12.5),
        # `sacrebleu ref1 ref2 -i hyp -m ter -w 6`
        (DOGS, DOG_REFERENCES, 40),
        (DOGS[1:2], [lines[1:2] for lines in DOG_REFERENCES], 75),
        (DOGS[2:], [lines[2:] for lines in DOG_REFERENCES], 54.545455),
    ],
)
def test_ter(written: list[str], references: list[list[str]], wanted: float) -> None:
    assert score("ter", written, *references) == pytest.approx(wanted, abs=1e-6)


GUIDE = "It is a guide to action which ensures that the military always obeys the commands of the party"
GUIDE_REFERENCES = [
    "It is a guide to action that ensures that the military will forever heed Party commands",
    "It is the guiding principle which guarantees the military forces "
    "always being under the command of the Party",
    "It is the practical guide for the army always to heed the directions of the party",
]
HISTORY = "he read the book because he was interested in world history"
HISTORY_REFERENCE = "he was interested in world history because he read the book"


@needs_nltk
@pytest.mark.parametrize(
    ("written", "references", "wanted"),
    [
        # Isozaki et al. 2010, by the rank correlations that the paper works out; all words match.
        ([HISTORY], [[HISTORY_REFERENCE]], 100 * 21 / 55),
        (["Bob hit John yesterday"], [["John hit Bob yesterday"]], 50),
        # NTT's RIBES.py 1.03.1
        (["the book was read by the boy"], [["the boy read the book"]], 18.38645430449837),
        ([GUIDE], [[reference] for reference in GUIDE_REFERENCES], 88.41583342199357),
        (["a b c"], [["a b c d e"]], 93.55069850316178),
        (["e d c b a"], [["a b c d e"]], 0),
        # NLTK's ribes_score.py
        ([GUIDE, HISTORY], [[reference, HISTORY_REFERENCE] for reference in GUIDE_REFERENCES], 63.30),
    ],
)
def test_ribes(written: list[str], references: list[list[str]], wanted: float) -> None:
    assert score("ribes", written, *references) == pytest.approx(wanted, abs=5e-3)


@pytest.mark.slow  # reads its paraphrases, for ten seconds
@needs_coco
@needs_java
def test_meteor_in_english() -> None:
    """As `java -jar meteor-1.5.jar hyp refs -l en -norm -r 2` prints them."""
    written = [*DOGS, "Two young boys are playing football in the park."]
    references = [
        [*DOG_REFERENCES[0], "Two kids play soccer at the park."],
        [*DOG_REFERENCES[1], "Some children kick a ball outdoors."],
    ]
    result = evaluate(written, references, metrics=["meteor"])["meteor"]
    wanted = [100, 23.065718303799987, 38.28133319653021, 34.6828939900984]
    assert result.sentence_scores() == pytest.approx(wanted)
    assert result.score == pytest.approx(39.648660483705883)
    assert result.signature == (
        "nrefs:2|lang:en|case:lc|tok:meteor|modules:exact,stem,synonym,paraphrase|version:1.5"
    )


GERMAN = [
    "Ein Mann mit einem orangefarbenen Hut starrt etwas an.",
    "Ein Boston Terrier läuft über grünes Gras.",
    "Ein Mädchen zerbricht einen Stock mit einem Tritt.",
    "Fünf Leute stehen vor einem Haus im Schnee.",
    "Leute reparieren das Dach eines Hauses.",
]
GERMAN_REFERENCE = [
    "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt.",
    "Ein Boston Terrier läuft über saftig-grünes Gras vor einem weißen Zaun.",
    "Ein Mädchen in einem Karateanzug bricht einen Stock mit einem Tritt.",
    "Fünf Leute in Winterjacken und mit Helmen stehen im Schnee mit Schneemobilen im Hintergrund.",
    "Leute Reparieren das Dach eines Hauses.",
]


@needs_coco
@needs_java
def test_meteor_in_german() -> None:
    """As `java -jar meteor-1.5.jar hyp ref -l de -norm -m "exact stem"` prints them."""
    result = evaluate(GERMAN, [GERMAN_REFERENCE], metrics=["meteor"], options=PLAIN)["meteor"]
    wanted = [58.61957921854875, 49.37613019891501, 58.65954922894425, 25.686523024926067, 100]
    assert result.sentence_scores() == pytest.approx(wanted)
    assert result.score == pytest.approx(53.1287211961534)
    assert result.signature == "nrefs:1|lang:de|case:lc|tok:meteor|modules:exact,stem|version:1.5"


@needs_coco
@needs_java
@pytest.mark.parametrize(
    ("language", "modules", "wanted", "of_lines"),
    [
        ("tr", "exact,stem", 45.348320362224515, [67.15995365971326, 12]),
        ("other", "exact", 45.21536005296494, [67.15995365971326, 8]),
    ],
)
def test_meteor_of_words_that_are_apart_already(
    language: str, modules: str, wanted: float, of_lines: list[float]
) -> None:
    """As `java -jar meteor-1.5.jar hyp ref -l tr -lower -m "exact stem"` prints them."""
    written = ["bir adam şapka ile bakıyor.", "köpek çimlerde koşuyor"]
    reference = ["bir adam şapkası ile bakıyor.", "köpekler çimlerin üstünde koşuyor"]
    options = Options(language=language)
    result = evaluate(written, [reference], metrics=["meteor"], options=options)["meteor"]
    assert result.score == pytest.approx(wanted)
    assert result.sentence_scores() == pytest.approx(of_lines)
    assert result.signature == f"nrefs:1|lang:{language}|case:lc|tok:13a|modules:{modules}|version:1.5"


@needs_coco
@needs_java
def test_meteor_takes_no_text_for_a_part_of_its_protocol() -> None:
    tricky = ["a ||| b c", "a\rb\nc", "a\u2028b c", "a||| |b c", "|||", "EVAL ||| a b c", ""]
    plain = ["a b c", "a b c", "a b c", "a | b c", "", "EVAL a b c", ""]
    reference = ["a b c"] * len(plain)
    meteor = METRICS["meteor"](PLAIN)
    counts = meteor.statistics(tricky, [reference, reference])
    assert counts.tolist() == meteor.statistics(plain, [reference]).tolist()
    assert meteor.statistics(reference, [tricky])[:3].tolist() == counts[:3].tolist()


@needs_coco
@needs_java
def test_no_java_is_left_behind() -> None:
    program = """
import os
from anyorder.errors import UserError
from anyorder.metrics import Options, evaluate
from anyorder.metrics.meteor import run_java
evaluate(["a b"], [["a b"]], metrics=["meteor"], options=Options(language="de"))
try:
    run_java(["-jar", "nowhere.jar"], lines=["a"], needed_by="this test")
except UserError:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print("no child")
"""
    done = subprocess.run([sys.executable, "-c", program], env=QUIET, capture_output=True, text=True)
    assert done.stdout == "no child\n", done.stderr


CAPTIONS = [*DOGS, "Two young boys are playing football in the park.", "a cat ||| sat on the mat"]
CAPTION_REFERENCES = [
    [*DOG_REFERENCES[0], "Two kids play soccer at the park.", "the cat sat upon a mat"],
    [*DOG_REFERENCES[1], "Some children kick a ball outdoors.", "a cat sits on the mat"],
]
# pycocoevalcap 1.2: Cider().compute_score of these lines, as they are and by PTBTokenizer().tokenize.
CIDER_OF_WORDS = [7.34688919, 0.35586684, 2.28629561, 0.51433303, 2.66194521]
CIDER_AS_PUBLISHED = [7.08708609, 1.35416667, 2.13314352, 0.51433303, 1.64541032]


@needs_coco
@pytest.mark.parametrize(
    ("tokenize", "wanted"),
    [("none", CIDER_OF_WORDS), pytest.param("ptb", CIDER_AS_PUBLISHED, marks=needs_java)],
)
def test_cider(tokenize: str, wanted: list[float]) -> None:
    options = Options(cider_tokenize=tokenize)
    result = evaluate(CAPTIONS, CAPTION_REFERENCES, metrics=["cider"], options=options)["cider"]
    assert result.sentence_scores() == pytest.approx([100 * one for one in wanted])
    assert result.score == pytest.approx(100 * sum(wanted) / len(wanted))
    assert f"|tok:{tokenize}|" in result.signature


@needs_coco
@needs_java
def test_cider_keeps_lines_together_whatever_is_in_them() -> None:
    tricky = ["a\u2028b c", "", "d\x0be\rf  g", "Mädchen –"]
    assert score("cider", tricky, tricky, options=Options()) == pytest.approx(
        score("cider", ["a b c", "", "d e f g", "Mädchen –"], tricky, options=Options())
    )


def test_japanese_words() -> None:
    pytest.importorskip("MeCab")
    written, reference = ["これはペンです。"], ["これは本です。"]
    theirs = BLEU(tokenize="ja-mecab").corpus_score(written, [reference])
    result = evaluate(written, [reference], metrics=["bleu"], options=Options(tokenize="ja-mecab"))["bleu"]
    assert result.score == pytest.approx(theirs.score)


# Exact match


@pytest.mark.parametrize(
    ("written", "references", "wanted"),
    [
        (["a b", "c"], [["a b", "d"]], 50),
        (["a  b ", "c"], [["a b", "c"]], 100),
        (["a b", "c"], [["b a", "c"], ["a b", "x"]], 100),
        (["ab"], [["a b"]], 0),
        (["A"], [["a"]], 0),
        ([""], [[""]], 100),
    ],
)
def test_exact_match(written: list[str], references: list[list[str]], wanted: float) -> None:
    assert score("exact", written, *references) == wanted


def test_validation_uses_the_same_measures() -> None:
    side = Side(split="spaces")
    assert bleu(WRITTEN, REFERENCES[0], side=side) == score("bleu", WRITTEN, REFERENCES[0])
    words, wanted = ([line.split() for line in lines] for lines in (WRITTEN, REFERENCES[0]))
    assert exact(words, wanted) == score("exact", WRITTEN, REFERENCES[0])


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("f(a,b)", "f ( a , b )", True),
        ("    return x", "return x", True),
        ("x = 1  # one", "x=1", True),
        ("s = 'a  b'", "s='a  b'", True),
        ("s = 'a  b'", "s = 'a b'", False),
        ("s = 'a'", 's = "a"', False),
        ("x = 1", "x = 1.0", False),
        ("notx", "not x", False),
        ("if x:\n    y\nz", "if x :\n  y\nz", True),
        ("if x:\n    y\nz", "if x:\n    y\n    z", False),
        ("s = 'no end", "s  =  'no end", True),
        ("s = 'no end", "s = 'no  end '", False),
        ("f ( 1", "f ( 2", False),
        ("price in $ ?", "price  in $ ?", True),
        ("", "   ", True),
    ],
)
def test_python_tokens(one: str, other: str, equal: bool) -> None:
    assert (code_tokens(one) == code_tokens(other)) == equal
    assert score("python", [one], [other]) == 100 * equal


@given(st.lists(st.sampled_from(["x", "12", "+", "==", "if", "'a b'", ",", "lambda"]), min_size=1), st.data())
def test_spaces_between_python_tokens_do_not_count(words: list[str], data: st.DataObject) -> None:
    gaps = data.draw(st.lists(st.sampled_from([" ", "  ", "\t"]), min_size=len(words), max_size=len(words)))
    spaced = "".join(word + gap for word, gap in zip(words, gaps, strict=True))
    assert code_tokens(spaced) == code_tokens(" ".join(words))


@given(st.text())
def test_any_text_has_python_tokens(text: str) -> None:
    assert code_tokens(text) == code_tokens(text)


# Mistakes


@pytest.mark.parametrize(
    ("written", "references", "settings", "parts"),
    [
        (["a"], [["a", "b"]], {}, ["reference 1 has 2 lines but 1 were written"]),
        ([], [[]], {}, ["no line was written"]),
        (["a"], [], {}, ["references: none given"]),
        (["a"], [["a"]], {"metrics": ["rouge"]}, ["'rouge'", ", ".join(METRICS)]),
        (["a"], [["a"]], {"options": Options(tokenize="x")}, ["tokenize 'x'", "13a", "ja-mecab"]),
    ],
)
def test_what_cannot_be_evaluated_is_refused(
    written: list[str], references: list[list[str]], settings: dict[str, list[str]], parts: list[str]
) -> None:
    with pytest.raises(UserError) as refused:
        evaluate(written, references, **settings)
    assert all(part in str(refused.value) for part in parts)


@pytest.mark.parametrize(
    ("name", "missing", "needs"),
    [
        ("ribes", "nltk.translate.ribes_score", "pip install 'anyorder[metrics]'"),
        ("meteor", "pycocoevalcap", "pip install 'anyorder[metrics]'"),
        ("cider", "pycocoevalcap.cider.cider", "pip install 'anyorder[metrics]'"),
    ],
)
def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, missing: str, needs: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UserError, match=f"^{name} needs ") as refused:
        score(name, ["a"], ["a"])
    assert needs in str(refused.value)


@needs_coco
@pytest.mark.parametrize("name", ["meteor", "cider"])
def test_missing_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=f"^{name} .*needs Java"):
        score(name, ["a"], ["a"], options=Options())


@needs_nltk
def test_an_nltk_that_computes_ribes_wrongly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anyorder.metrics.ribes.version", lambda _: "3.9.1")
    with pytest.raises(UserError, match=r"NLTK 3\.10\.4 or later, and this is 3\.9\.1"):
        score("ribes", ["a"], ["a"])


def test_missing_mecab_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    with pytest.raises(UserError, match=r"^tokenize 'ja-mecab': needs MeCab .*'anyorder\[japanese\]'$"):
        score("bleu", ["a"], ["a"], options=Options(tokenize="ja-mecab"))


@needs_coco
@pytest.mark.parametrize(
    ("reference", "tokenize", "message"),
    [
        ("a", "x", "^cider: tokenize 'x': allowed: .*; or ptb$"),
        ("  ", "none", "^cider: no reference has a word$"),
    ],
)
def test_what_cider_cannot_score_is_refused(reference: str, tokenize: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        score("cider", ["a"], [reference], options=Options(cider_tokenize=tokenize))


@needs_nltk
def test_a_line_that_is_too_long_for_ribes_is_named() -> None:
    with pytest.raises(UserError, match=r"^ribes: line 2: .*2000"):
        score("ribes", ["a", "a " * 2001], ["a", "a"])


@needs_java
def test_a_failure_of_java_is_told_in_one_line() -> None:
    with pytest.raises(UserError, match=r"^meteor: Java has failed: .*nowhere\.jar"):
        run_java(["-jar", "nowhere.jar"], lines=[], needed_by="meteor")


@needs_coco
@needs_java
def test_a_language_that_meteor_does_not_know_is_refused() -> None:
    with pytest.raises(UserError, match=r"^meteor: language 'ja': allowed: cs, da, de, .*exact"):
        score("meteor", ["a"], ["a"], options=Options(language="ja"))


# The command


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_lines(tmp_path / "hyp", DOGS)
    for number, lines in enumerate(DOG_REFERENCES, start=1):
        write_lines(tmp_path / f"ref{number}", lines)
    write_lines(tmp_path / "base", DOG_REFERENCES[0])
    write_lines(tmp_path / "short", DOGS[:2])
    write_lines(tmp_path / "empty", [])
    return tmp_path


def test_the_command_lists_every_metric() -> None:
    flags = {
        parameter.name: parameter for parameter in typer.main.get_command(app).commands["evaluate"].params
    }
    assert all(name in flags["metrics"].help for name in METRICS)
    assert flags["metrics"].default == ",".join(DEFAULT)


def test_scores_and_signatures_for_people(files: Path, capsys: Capture) -> None:
    answer = call_here(
        capsys, "evaluate", "--hyp", files / "hyp", "--ref", files / "ref1", "--ref", files / "ref2"
    )
    first, *others = answer.stdout.decode().splitlines()
    assert first.split()[:2] == ["BLEU", "48.53"]
    assert first.split()[2].startswith("nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert [line.split()[0] for line in others] == ["chrF2", "TER", "exact"]


def test_json_tells_sentences_and_comparisons(files: Path, capsys: Capture) -> None:
    text = ["--hyp", files / "hyp", "--ref", files / "ref1", "--baseline", files / "base"]
    how = ["--metrics", "bleu,exact", "--sentences", "--samples", "50", "--json"]
    told = json_lines(call_here(capsys, "evaluate", *text, *how))
    assert [line["line"] for line in told[:3]] == [1, 2, 3]
    assert told[0] == {"line": 1, "bleu": pytest.approx(100), "exact": 100}
    by_metric = {line["metric"]: line for line in told[3:]}
    assert list(by_metric) == ["bleu", "exact"]
    exact_match = by_metric["exact"]
    assert exact_match["baseline"]["score"] == 100
    assert exact_match["system"]["score"] == exact_match["score"] == pytest.approx(100 / 3)
    assert exact_match["difference"]["score"] == pytest.approx(-200 / 3)
    assert exact_match["samples"] == 50
    assert 0 < exact_match["randomisation_p"] <= 1


def test_people_see_p_values_and_sentences(files: Path, capsys: Capture) -> None:
    flags = ["--sentences", "--baseline", files / "base", "--samples", "50", "--seed", "7"]
    answer = call_here(capsys, "evaluate", "--hyp", files / "hyp", "--ref", files / "ref1", *flags)
    shown = answer.stdout.decode()
    assert "p (bs)" in shown
    assert "50 samples, seed 7" in shown
    assert [line.split()[0] for line in shown.splitlines()[:4]] == ["line", "1", "2", "3"]


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (
            "--hyp hyp --ref short",
            ["hyp has 3 lines but short has 2", "--hyp and --ref must have equally many"],
        ),
        ("--hyp hyp --ref ref1 --baseline short", ["short has 2", "--hyp and --baseline"]),
        ("--hyp empty --ref ref1", ["empty: empty"]),
        ("--hyp hyp --ref empty", ["empty: empty"]),
        ("--hyp hyp --ref nowhere", ["nowhere: no such file"]),
        ("--hyp hyp --ref ref1 --metrics bleu,rouge", ["--metrics bleu,rouge", "'rouge'", ",".join(METRICS)]),
        ("--hyp hyp --ref ref1 --tokenize x", ["tokenize 'x'", "13a"]),
        ("--hyp hyp --ref ref1 --samples 0", ["--samples"]),
        ("--hyp hyp", ["--ref"]),
    ],
)
def test_bad_input_is_answered_in_one_line(
    files: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, flags: str, parts: list[str]
) -> None:
    monkeypatch.chdir(files)
    assert_one_line_refusal(call_here(capsys, "evaluate", *flags.split()), *parts)
