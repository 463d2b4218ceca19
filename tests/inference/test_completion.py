"""Completions keep to what the user gives: templates, required and forbidden words, drafts."""

from __future__ import annotations

import itertools
import json
import re
from functools import cache
from pathlib import Path

import pytest
import torch
from corpora import assert_one_line_refusal, call_here, json_lines, learn, learned, write_corpus, write_lines
from hypothesis import given, settings
from hypothesis import strategies as st

import anyorder
from anyorder import config
from anyorder.config.model import Shape
from anyorder.decoding.beam import TokenHypothesis
from anyorder.errors import UserError
from anyorder.inference.canvas_text import CanvasText, CompiledCanvas
from anyorder.inference.completion import filled
from anyorder.inference.generator import Generator
from anyorder.inference.hypothesis import Completion
from anyorder.inference.loaded_model import LoadedModel
from anyorder.inference.model_folder import Trained
from anyorder.models.indigo import Indigo
from anyorder.text.tokenizer import Tokenizer
from anyorder.text.words import word_spans

GERMAN = [
    "Ein Hund rennt am Strand entlang.",
    "Zwei Hunde spielen im Schnee, und ein Kind sieht zu.",
    'Die Frau sagt: "Komm her!"',
    "Ein Mann in einem roten Hemd steht auf einer Leiter.",
    "Das Kind läuft über die Straße.",
]
WORDS = ["Hund", "Hunde", "Strand", "Kind", "rot", "Leitern", "rennt", "Straße"]
TEXT = config.Text(
    source=config.Side(language="en"),
    target=config.Side(language="de", lowercase=True),
    vocabulary=70,
)
SEARCHES = {
    "greedy": {},
    "beam": {"beam": 3, "n_best": 3},
    "joint": {"search": "joint", "beam": 3, "n_best": 3},
    "sample": {"search": "sample", "n_best": 3},
}
searches = pytest.mark.parametrize("search", SEARCHES)


@cache
def generator(seed: int = 0, first: str = "word") -> Generator:
    """A model with random weights over pieces of German words; its nonsense must keep to canvases too."""
    tokenizer = Tokenizer.train(TEXT, sources=GERMAN, targets=GERMAN)
    recipe = config.Recipe(
        run=Path("nowhere"),
        data=config.Data(
            train=config.SplitFiles(source=Path("a"), target=Path("b")),
            dev=config.SplitFiles(source=Path("a"), target=Path("b")),
        ),
        text=TEXT,
        model=config.Model(width=16, hidden=16, heads=2, encoder_layers=1, decoder_layers=1, first=first),
        decode=config.Decode(max_ratio=0, max_length=40),
        canvas=config.Canvas(share=0.5),
    )
    torch.manual_seed(seed)
    shape = Shape(vocabulary=tokenizer.size, target_vocabulary=tokenizer.target_size)
    model = Indigo(recipe.model, shape, marks_given=True, reads_required=True).eval()
    return Generator(
        LoadedModel(
            Trained(model=model, tokenizer=tokenizer, recipe=recipe, common_words=frozenset(), scores={}),
            device=torch.device("cpu"),
        ),
        name="random",
    )


def one(canvas: object, **options: object) -> Completion:
    return generator().complete(["ein Hund"], [canvas], **options)[0][0]


# --- a checker that knows text alone ---


def holds_word(text: str, phrase: str) -> bool:
    """Whether the phrase is there in whole words: no letter directly beside it."""
    return re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text) is not None


def matches_template(text: str, template: str) -> bool:
    """Whether the text is the template's byte for byte outside blanks, white space beside them aside."""
    parts = re.split(r"_{3,}(?:\{[\d,]*\})?", template)
    pattern = r"\s*(.*?)\s*".join(re.escape(part.strip()) for part in parts)
    return re.fullmatch(pattern, text.strip(), flags=re.DOTALL) is not None


# --- laws ---


@searches
@pytest.mark.parametrize("first", ["word", "position"])
@settings(max_examples=8)
@given(
    must=st.lists(st.sampled_from(WORDS), max_size=4),
    alternatives=st.booleans(),
    in_order=st.booleans(),
    seed=st.integers(0, 5),
)
def test_required_words_appear_whole(
    first: str, must: list[str], alternatives: bool, in_order: bool, seed: int, search: str
) -> None:
    in_order = in_order and len(must) > 1
    asked = [*must, *(["rote Katze|Mann im Hemd"] if alternatives and not in_order else [])]
    canvas = {"must": asked, "in_order": in_order}
    for found in generator(seed, first).complete(["ein Hund"], [canvas], **SEARCHES[search])[0]:
        for word in must:
            assert holds_word(found.text, word)
        if alternatives and not in_order:
            assert holds_word(found.text, "rote Katze") or holds_word(found.text, "Mann im Hemd")
        if in_order:
            assert re.search(r"\b.*\b".join(map(re.escape, must)), found.text)
        counted = [len(re.findall(rf"(?<!\w){word}(?!\w)", found.text)) for word in must]
        assert all(number >= must.count(word) for number, word in zip(counted, must, strict=True))


@searches
@pytest.mark.parametrize(
    "template",
    [
        "Ein ___ rennt ___ den Strand.",
        "___ und  ein\tKind ___",
        "„Komm“, sagt ___{1,2}",
        "___{2} Hund ___{,1}!",
        "Ein Mann(___)",
        " ___{3,} ",
    ],
)
def test_text_outside_blanks_comes_back_byte_for_byte(template: str, search: str) -> None:
    for seed in range(3):
        canvas = {"template": template, "forbid": ["kind"] if "Kind" not in template else []}
        for found in generator(seed).complete(["ein Hund"], [canvas], **SEARCHES[search])[0]:
            assert matches_template(found.text, template), found.text
            assert "  " not in found.text.replace("und  ein", "")
            if "Kind" not in template:
                assert not holds_word(found.text, "kind")


@searches
def test_a_draft_keeps_its_words_in_their_order(search: str) -> None:
    draft = 'Die Frau  sagt: "Komm her!"'
    for found in generator().complete(["ein Hund"] * 3, [{"draft": draft}] * 3, **SEARCHES[search])[1]:
        cursor = 0
        for word in re.findall(r"\w+|[^\w\s]", draft):
            cursor = found.text.index(word, cursor) + len(word)


@searches
def test_an_empty_canvas_is_what_generate_writes(search: str) -> None:
    sources = ["ein Hund", "", "zwei Hunde rennen am Strand"]
    free = generator().generate(sources, **SEARCHES[search])
    around_nothing = generator().complete(sources, [{}, {}, {}], **SEARCHES[search])
    for line, hypotheses in enumerate(free):
        assert len(hypotheses) == len(around_nothing[line])
        for output, found in zip(hypotheses, around_nothing[line], strict=True):
            assert {**vars(output)} == {
                key: value for key, value in vars(found).items() if key not in ("fills", "given")
            }


@searches
@pytest.mark.parametrize("first", ["word", "position"])
def test_unknown_words_may_be_given_where_none_may_be_written(first: str, search: str) -> None:
    hypotheses = generator(first=first).complete(
        ["ein Hund"], [{"must": ["漢"]}], unknown=False, **SEARCHES[search]
    )[0]
    assert all(output.text.count("漢") == 1 for output in hypotheses)
    assert not any("<unk>" in output.text for output in hypotheses)


def test_blanks_have_as_many_words_as_they_should() -> None:
    sources = ["a b", "c d e", "f g h a b", "h"]
    template = "a ___{2,3} b ___{1} c ___{,2} d ___"
    for (found,) in Generator.load(learned().run).complete(sources, [template] * len(sources)):
        words = {fill.blank: len(fill.text.split()) for fill in found.fills}
        assert 2 <= words[1] <= 3
        assert words[2] == 1
        assert words.get(3, 0) <= 2
        assert words[4] >= 1


def test_a_fill_is_as_likely_as_its_steps() -> None:
    found = one({"template": "Ein ___ rennt ___"})
    after_given = slice(found.given, len(found.tokens))
    steps = sum(found.word_scores[after_given]) + sum(found.gap_scores[after_given])
    assert sum(fill.log_prob for fill in found.fills) == pytest.approx(steps)
    assert found.word_scores[: found.given] == (0.0,) * found.given
    assert all(fill.blank in (1, 2) for fill in found.fills)


def test_phrases_stay_whole_unless_allowed() -> None:
    found = one({"must": ["roten Hemd"]}, beam=2)
    assert holds_word(found.text, "roten Hemd")
    apart = [one({"must": ["roten ___ Hemd"], "forbid": ["kind"]}, search="sample", seed=n) for n in range(8)]
    assert all(re.search(r"\broten\b.*\bHemd\b", found.text) for found in apart)
    assert any(not holds_word(found.text, "roten Hemd") for found in apart)


@searches
def test_a_line_does_not_end_with_the_beginning_of_a_word_that_reads_as_a_forbidden_one(search: str) -> None:
    options = {**SEARCHES[search], "max_length": 5}
    if search == "sample":
        options["n_best"] = 40
    for seed, word in itertools.product(range(3), "enratd"):
        for found in generator(seed).complete(["ein Hund"], [{"forbid": [word]}], **options)[0]:
            pieces = [piece for _, piece in sorted(zip(found.positions, found.tokens, strict=True))]
            words = "".join(piece[:-1] if piece.endswith("·") else f"{piece} " for piece in pieces).split()
            assert word not in words, found.text


def test_unknown_words_and_signs_can_be_forbidden() -> None:
    for seed in range(8):
        options = {"search": "sample", "n_best": 20, "temperature": 3.0, "seed": seed}
        found = generator().complete(["ein Hund"], [{"forbid": ["<unk>", "|"]}], **options)[0]
        assert not any("<unk>" in one.text for one in found)


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ("Hund___{,1} Kind", "Hund Kind"),
        ("Hund ___{,1}Kind", "Hund Kind"),
        ("Hund___{,1}Kind", "HundKind"),
        ("Hund ___{,1} Kind", "Hund Kind"),
    ],
)
def test_an_empty_blank_does_not_glue_what_stands_beside_it(template: str, wanted: str) -> None:
    compiled = CompiledCanvas(CanvasText(template=template), generator().tokenizer)
    tokens = tuple(token for token, _ in compiled.canvas.template)
    zeros, positions = (0.0,) * len(tokens), tuple(range(1, len(tokens) + 1))
    hypothesis = TokenHypothesis(
        tokens, positions, zeros, zeros, True, 0.0, 0.0, len(tokens), given=len(tokens)
    )
    assert filled(compiled, hypothesis).text == wanted


def test_many_words_for_many_blanks_are_checked_quickly() -> None:
    """Trying every way to distribute them over the blanks would take too long."""
    blanks = " und ".join(["___{,3}"] * 7)
    with pytest.raises(UserError, match="words don't fit into blanks of at most 3, 3"):
        one({"template": blanks, "must": ["Hund"] * 22})
    CompiledCanvas(CanvasText(template=blanks, must=("ein Hund",) * 7), generator().tokenizer)
    CompiledCanvas(CanvasText(must=("Hund",) * 250), generator().tokenizer)


def test_seams_follow_the_targets_rules() -> None:
    tokenizer = generator().tokenizer
    compiled = CompiledCanvas(CanvasText(template="Ein Hund ___ rennt ___"), tokenizer)
    comma, dot = (tokenizer.encode(sign, "target").ids for sign in (",", "."))
    given_tokens = [token for token, _ in compiled.canvas.template]
    tokens = [*given_tokens, *comma, *dot]
    before = len(tokenizer.encode("Ein Hund", "target").ids)
    positions = [
        *range(1, before + 1),
        *range(before + 2, len(given_tokens) + 2),
        before + 1,
        len(given_tokens) + 2,
    ]
    zeros = (0.0,) * len(tokens)
    hypothesis = TokenHypothesis(
        tuple(tokens), tuple(positions), zeros, zeros, True, 0.0, 0.0, len(tokens), given=len(given_tokens)
    )
    assert filled(compiled, hypothesis).text == "Ein Hund, rennt."


@given(st.text(alphabet="ab. \t", max_size=12))
def test_words_are_found_where_they_stand(text: str) -> None:
    spans = word_spans(text.split(), text)
    assert spans is not None
    assert [text[start:end] for start, end in spans] == text.split()
    assert word_spans(["ab", "x"], "ab") is None


# --- mistakes ---


@pytest.mark.parametrize(
    ("canvas", "complaint"),
    [
        ("ein Hund", "has no blank; write ___"),
        ("ein ___ ___ Hund", "two blanks stand side by side"),
        ("ein ____ Hund", "template = 'ein ____ Hund': has 4 underscores in a row; a blank is three: ___"),
        ("ein ___ Hund _____{2}", "has 5 underscores in a row; a blank is three: ___"),
        ({"must": ["ein ____ Hund"]}, "must = 'ein ____ Hund': has 4 underscores in a row"),
        ("ein ___{3,1}", "must be ___, ___{2}"),
        ("ein ___{1-3} Hund", "template: '___{1-3}': must be ___, ___{2}"),
        ("ein ___{1, 3} Hund", "template: '___{1, 3}': must be ___, ___{2}"),
        ("ein ___{x} Hund", "with a space before braces that are text"),
        (f"ein ___{{1,{'9' * 20}}} Hund", "must be ___, ___{2}"),
        (
            {"template": "___{1} und ___{1}", "must": ["a", "b"], "in_order": True},
            "at most 1, 1 words: what must appear in order goes into one blank",
        ),
        ({"template": "a ___", "prefix": "b"}, "template and prefix given"),
        ({"template": "a ___", "draft": "b"}, "template and draft given"),
        ({"must": ["Hund|"]}, "a word is missing"),
        ({"must": ["a ___ b", "x"], "template": "___{2}"}, "2 + 1 words don't fit into blanks of at most 2"),
        ({"forbid": ["roten Hemd"]}, "is 2 words by the target's rules (roten hemd); must be one"),
        ({"forbid": ["Hund"], "must": ["ein Hund"]}, "is also among what is given"),
        ({"musst": ["Hund"]}, "no such key; did you mean must?"),
        ({"must": ["Hund " * 50]}, "but decode.max_length = 40"),
        ({"must": ["Hund"], "in_order": True}, "is for two or more of must"),
    ],
)
def test_an_impossible_canvas_is_refused_in_one_line(canvas: object, complaint: str) -> None:
    with pytest.raises(UserError, match=re.escape(complaint)) as refusal:
        one(canvas)
    assert str(refusal.value).startswith("canvas 1: ")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("sources", [None, [""], ["  "]])
def test_what_is_required_needs_a_source(sources: list[str] | None) -> None:
    with pytest.raises(UserError, match=r"^canvas 1: source: missing or blank; this model needs one$"):
        generator().complete(sources, [{"must": ["Hund"]}])


def test_underscores_of_a_prefix_are_text() -> None:
    assert one({"prefix": "a ____ b"}).text.startswith("a ____ b")


def test_one_canvas_gets_one_answer_and_a_list_a_list() -> None:
    template = "Ein ___ rennt"
    [of_list] = generator().complete(["ein Hund"], [template], beam=2, n_best=2)
    alone = generator().complete("ein Hund", template, beam=2, n_best=2)
    assert alone == generator().complete("ein Hund", {"template": template}, beam=2, n_best=2) == of_list
    assert alone.text == alone[0].text
    with pytest.raises(UserError, match="sources: a list given for one canvas"):
        generator().complete(["ein Hund"], template)
    with pytest.raises(UserError, match="sources: one source given for a list of canvases"):
        generator().complete("ein Hund", [template])


def test_only_indigo_completes(tmp_path: Path) -> None:
    recipe = write_corpus(tmp_path)
    learn(recipe, tmp_path / "run", "model.kind=transformer", "train.steps=1")
    with pytest.raises(UserError, match=r'model.kind = "transformer" can\'t write around'):
        Generator.load(tmp_path / "run").complete(["a"], ["a ___"])
    with pytest.raises(UserError, match="merge_partial"):
        one("Ein ___", merge_partial=True)
    with pytest.raises(UserError, match="1 sources but 2 canvases"):
        generator().complete(["a"], ["a ___", "b ___"])


# --- models of targets alone ---


def test_a_model_of_targets_alone_fills_blanks(tmp_path: Path) -> None:
    recipe = write_corpus(tmp_path)
    text = recipe.read_text()
    for split in ("train", "dev"):
        text = text.replace(f'source = "{split}.source", ', "")
    recipe.write_text(text)
    learn(recipe, tmp_path / "run", "train.steps=4", "canvas.share=0.5")
    generator = Generator.load(tmp_path / "run")
    ((found,),) = generator.complete(None, ["a ___{1,2} b"])
    assert re.fullmatch(r"a( \S+){1,2} b", found.text)
    assert generator.generate([""])[0]
    with pytest.raises(UserError, match="reads no source"):
        generator.generate(["a b"])


# --- the command ---


def test_a_blank_source_is_a_source(capsys: pytest.CaptureFixture[str]) -> None:
    """The command does not read stdin then, and refuses the required word instead of ignoring it."""
    assert_one_line_refusal(
        call_here(capsys, "complete", learned().run, "--source", "", "--must", "h"),
        "complete: source: missing",
    )
    assert call_here(capsys, "complete", learned().run, "--source", "").stdout == b"\n"


def test_the_command_completes_one_canvas(capsys: pytest.CaptureFixture[str]) -> None:
    answer = call_here(
        capsys, "complete", learned().run, "--source", "a b c", "--must", "h", "--forbid", "a", "--json"
    )
    (line,) = json_lines(answer)
    (found,) = line["hypotheses"]
    assert "h" in found["text"].split()
    assert "a" not in found["text"].split()
    assert found["given"] == 1
    assert {"text", "log_prob", "blank"} == found["fills"][0].keys()


def test_the_command_completes_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    requests = [
        {"source": "a b", "template": "d ___ e"},
        {"source": "c d", "must": ["f", "g|h"]},
        {"source": ""},
        {"source": "a b c", "prefix": "b"},
    ]
    path = write_lines(tmp_path / "asked.jsonl", [json.dumps(request) for request in requests])
    answer = call_here(capsys, "complete", learned().run, path)
    assert answer.returncode == 0, answer.stderr.decode()
    first, second, third, fourth = answer.stdout.decode().splitlines()
    assert re.fullmatch(r"d( \S+)* e", first)
    assert "f" in second.split() and {"g", "h"} & set(second.split())
    assert third == ""
    assert fourth.startswith("b")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "asked.jsonl:1: not valid JSON"),
        ("[]", "asked.jsonl:1: no JSON object"),
        ('{"source": 3}', "asked.jsonl:1: source = 3: must be a string"),
        ('{"source": "a", "muss": "b"}', "asked.jsonl:1: muss"),
        (r'{"source": "a \ud800"}', "asked.jsonl:1: holds half of a surrogate pair"),
        ('{"source": ' + "9" * 5000 + "}", "asked.jsonl:1: not valid JSON (Exceeds the limit"),
        ("[" * 100_000, "asked.jsonl:1: not valid JSON (maximum recursion depth"),
    ],
)
def test_a_bad_request_is_named(
    line: str, complaint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "asked.jsonl", [line])
    answer = call_here(capsys, "complete", learned().run, path)
    assert answer.stdout == b"\n"  # its line, so that answers stay aligned with requests
    answer.stdout = b""
    assert_one_line_refusal(answer, complaint)


@pytest.mark.parametrize("options", [{"beam": 3}, {"search": "sample", "seed": 3}], ids=["beam", "sample"])
def test_a_bad_request_changes_no_other_answer(options: dict[str, object]) -> None:
    model = anyorder.load("django-small")
    sources = ["x is None .", "call foo with x .", "return y ."]
    canvases = ["x = ___", {"must": ["self"]}, "return ___"]
    good = model.complete(sources, canvases, **options)
    bad = {"template": "a ____ b"}, {"must": ["none"], "forbid": ["none"]}
    for number, wrong in enumerate(bad):
        mixed = [*canvases[:number], wrong, *canvases[number + 1 :]]
        answers = model.complete_or_refuse(sources, mixed, **options)
        assert isinstance(answers[number], UserError)
        assert str(answers[number]).startswith(f"canvas {number + 1}: ")
        for other in {0, 1, 2} - {number}:
            answer = answers[other]
            assert not isinstance(answer, UserError)
            assert [(one.text, one.positions) for one in answer] == [
                (one.text, one.positions) for one in good[other]
            ]
            assert answer.best.score == pytest.approx(good[other].best.score, abs=1e-4)
        with pytest.raises(UserError, match=f"^canvas {number + 1}: "):
            model.complete(sources, mixed, **options)
