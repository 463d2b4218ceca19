"""Edited drafts keep what must stay, hold what is required, and leave everything else byte for byte."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path

import pytest
import torch
from corpora import (
    Interrupter,
    assert_one_line_refusal,
    call_here,
    json_lines,
    last_weights,
    learn,
    learned,
    recipe_of,
    write_lines,
)
from corpora import Watcher as Silent
from hypothesis import given, settings
from hypothesis import strategies as st

from anyorder import config
from anyorder.config.model import Shape
from anyorder.data.dataset import prepare
from anyorder.errors import UserError
from anyorder.inference.generator import Generator
from anyorder.inference.loaded_model import LoadedModel
from anyorder.inference.model_folder import Trained
from anyorder.models.editor import Editor
from anyorder.system.distributed import Processes
from anyorder.text.tokenizer import Tokenizer
from anyorder.training.trainer import Training, train

Capture = pytest.CaptureFixture[str]
GERMAN = [
    "Ein Hund rennt am Strand entlang.",
    "Zwei Hunde spielen im Schnee, und ein Kind sieht zu.",
    'Die Frau sagt: "Komm her!"',
    "Ein Mann in einem roten Hemd steht auf einer Leiter.",
    "Das Kind läuft über die Straße.",
]
WORDS = sorted({word.strip('.,:!"') for line in GERMAN for word in line.split()})
UNITS = {"pieces": {"unit": "bpe", "vocabulary": 90}, "words": {"unit": "words", "vocabulary": 30}}


@cache
def generator(
    seed: int = 0, unit: str = "pieces", *, sourceless: bool = True, split: str = "spaces"
) -> Generator:
    """An editor with random weights; its nonsense must keep to the rules too."""
    side = {"split": split, "language": "de"}
    text = config.Text.model_validate(UNITS[unit] | {"source": side, "target": side})
    tokenizer = Tokenizer.train(text, sources=GERMAN, targets=GERMAN)
    files = {"draft": "d", "target": "t"} | ({} if sourceless else {"source": "s"})
    small = {"width": 16, "hidden": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    recipe = config.Recipe.model_validate(
        {
            "run": "nowhere",
            "data": {"train": files, "dev": files},
            "text": text.model_dump(),
            "model": {"kind": "editor", "copying": seed % 2 == 0, **small},
            "decode": {"max_ratio": 1},
        }
    )
    torch.manual_seed(seed)
    shape = Shape(vocabulary=tokenizer.size, target_vocabulary=tokenizer.target_size)
    model = Editor(recipe.model, recipe.edit, shape)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    trained = Trained(model.eval(), tokenizer, recipe, common_words=frozenset(), scores={})
    return Generator(LoadedModel(trained, device=torch.device("cpu")), name="random")


@st.composite
def requests(draw: st.DrawFn) -> dict[str, object]:
    """Drafts of known and unknown words, with rules that do not contradict each other."""
    chance = random.Random(draw(st.integers(0, 10**6)))
    words = chance.choices([*WORDS, "Zyx", "qu", "éß"], k=chance.randint(1, 9))
    draft = (" " * chance.randint(1, 2)).join(words)
    first = chance.randrange(len(words))
    kept = words[first : first + chance.randint(1, 3)]
    keep = [(" " * (1 + ("  " in draft))).join(kept)] if chance.random() < 0.6 else []
    keep = [part for part in keep if part in draft]
    unkept = [word for word in {*words, *WORDS} if word not in kept or not keep]
    chance.shuffle(unkept)
    forbid, rest = unkept[: chance.randint(0, 3)], unkept[3:]
    must = [" ".join(rest[:2]), rest[2]][: chance.randint(0, 2)] + (
        ["Neuwort"] if chance.random() < 0.2 else []
    )
    return {"draft": draft, "keep": keep, "must": must, "forbid": forbid}


@pytest.mark.parametrize("unit", UNITS)
@given(request=requests(), seed=st.integers(0, 3))
def test_what_is_asked_for_holds(unit: str, request: dict[str, list[str]], seed: int) -> None:
    assert_holds(generator(seed, unit), request)


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
@settings(max_examples=500)
@given(request=requests(), seed=st.integers(0, 3))
def test_it_holds_a_thousand_times(unit: str, request: dict[str, list[str]], seed: int) -> None:
    assert_holds(generator(seed, unit), request)


def assert_holds(model: Generator, request: dict[str, list[str]]) -> None:
    edited = model.edit(request)
    words = edited.text.split()
    joined = f" {' '.join(words)} "
    for part in request["keep"]:
        assert part in edited.text
    for part in [*request["keep"], *request["must"]]:
        assert f" {' '.join(part.split())} " in joined
    assert not set(request["forbid"]) & set(words)
    assert "<unk>" not in edited.text
    # Each edit says what it changed, and together they say all.
    pieces, cursor = [], 0
    for edit in edited.edits:
        assert edited.draft[edit.start : edit.end] == edit.before
        assert edit.start >= cursor
        assert 0 <= edit.probability <= 1
        assert (edit.kind == "insert") == (not edit.before)
        assert (edit.kind == "delete") == (not edit.after)
        pieces += [edited.draft[cursor : edit.start], edit.after]
        cursor = edit.end
    rebuilt = " ".join([*pieces, edited.draft[cursor:]])
    assert "".join(rebuilt.split()) == "".join(edited.text.split())


@pytest.mark.parametrize("unit", UNITS)
def test_nothing_changes_where_the_model_is_cautious(unit: str) -> None:
    drafts = [*GERMAN, "  Zyx  und\tein éß Hund ,und „da“ …  ", "", "   "]
    found = generator(0, unit, split="moses").edit(drafts, cautious=1.0)
    for draft, edited in zip(drafts, found, strict=True):
        assert (edited.text, edited.edits, edited.changed) == (draft, (), False)
        assert repr(edited).startswith("Edited(text=")


@pytest.mark.parametrize("unit", UNITS)
def test_one_draft_is_edited_as_in_a_batch(unit: str) -> None:
    model = generator(1, unit)
    together = model.edit(GERMAN, max_deleted=1.0)
    for draft, edited in zip(GERMAN, together, strict=True):
        alone = model.edit(draft, max_deleted=1.0)
        assert (alone.text, [edit.kind for edit in alone.edits]) == (
            edited.text,
            [edit.kind for edit in edited.edits],
        )
        assert alone.log_prob == pytest.approx(edited.log_prob, rel=1e-4)


def test_a_page_of_a_notebook_shows_the_difference() -> None:
    edited = generator(1).edit("Ein <Hund> rennt", must="Kind", forbid="rennt")
    shown = edited._repr_html_()
    assert "<ins title=" in shown and "<del title=" in shown
    assert "<Hund>" not in shown


@pytest.mark.parametrize(
    ("asked", "options", "parts"),
    [
        ("a b", {"keep": "c"}, ["keep = 'c': is not in the draft"]),
        (["a b", "c"], {"keep": "d"}, ["keep = 'd': is not in any of the 2 drafts"]),
        ({"draft": "a b", "keep": ["c"]}, {}, ["draft 1: keep = 'c': is not in the draft"]),
        ({"draft": "a b", "keep": ["a"], "forbid": "a"}, {}, ["forbid = 'a': is also among what must stay"]),
        ("a b", {"must": "c d", "forbid": "d"}, ["forbid = 'd': is also among"]),
        ("a b", {"forbid": "c d"}, ["is 2 words by the target's rules (c d); must be one"]),
        ("a b", {"must": " "}, ["must", "a word is missing"]),
        ({"drafd": "a"}, {}, ["draft 1: ", "draft"]),
        (["a", "b"], {"sources": ["a"]}, ["1 sources but 2 drafts"]),
        (["a", "b"], {"sources": "a"}, ["one source given for a list of drafts"]),
        ("a", {"sources": "b"}, ["reads no source"]),
        ("a", {"beam": 2}, ["decode.beam = 2: must be 1", '"editor"']),
        ("a", {"cautious": 2}, ["cautious = 2", "less than or equal to 1"]),
    ],
)
def test_wrong_requests_are_answered_in_one_line(
    asked: object, options: dict[str, object], parts: list[str]
) -> None:
    with pytest.raises(UserError) as error:
        generator().edit(asked, **options)  # type: ignore[call-overload]
    for part in parts:
        assert part in str(error.value)


def test_an_editor_needs_its_source_and_other_models_do_not_edit() -> None:
    with pytest.raises(UserError, match="draft 1: source: missing; this model reads one beside the draft"):
        generator(sourceless=False).edit("ein Hund")
    assert generator(sourceless=False).edit("ein Hund", "a dog").draft == "ein Hund"
    with pytest.raises(UserError, match=r'generate: model.kind = "editor" needs a draft to change; use edit'):
        generator().generate("a dog")
    with pytest.raises(UserError, match=r'complete: model.kind = "editor"'):
        generator().complete(None, "a ___")
    with pytest.raises(UserError, match=r'score: .*model.kind = "editor"'):
        generator().score("", "a dog")
    with pytest.raises(
        UserError, match=r'edit: model.kind = "indigo" can\'t change a draft; must be "editor"'
    ):
        Generator.load(learned().run, device="cpu").edit("a b", "c")


# --- from files to an editor ---

RECIPE = """
[data]
root = "{folder}"
cache = "cache"
train = {{ draft = "train.draft", target = "train.target" }}
dev = {{ draft = "dev.draft", target = "dev.target" }}

[text]
unit = "words"
target = {{ split = "spaces" }}

[model]
kind = "editor"
width = 32
hidden = 32
heads = 2
encoder_layers = 0
decoder_layers = 1
dropout = 0.0
copying = true

[train]
steps = 120
batch_tokens = 400
lr = 1e-2
warmup = 5
schedule = "cosine"
validate_every = 60
validate_lines = 20
select = "exact"
device = "cpu"
"""


@cache
def corpus(folder: Path) -> Path:
    """Each "a" is deleted, each "y" becomes "z", and an "e" follows each "d": the recipe."""
    for split, number in {"train": 300, "dev": 40}.items():
        chance = random.Random(number)
        words = [chance.choices("acdy", k=chance.randint(1, 3)) for _ in range(number)]
        drafts = ["".join(f"{word} b " for word in line) for line in words]  # so that edits lie apart
        targets = [line.replace("a", "").replace("y", "z").replace("d", "d e") for line in drafts]
        write_lines(folder / f"{split}.draft", drafts)
        write_lines(folder / f"{split}.target", [" ".join(line.split()) for line in targets])
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(folder=folder))
    return recipe


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An editor that has learned this."""
    folder = tmp_path_factory.mktemp("editor")
    learn(corpus(folder), folder / "run")
    return folder / "run"


def test_an_editor_learns_its_edits(trained: Path, capsys: Capture) -> None:
    draft = write_lines(trained.parent / "asked", ["a b y b", "d b unseen b", ""])
    answer = call_here(capsys, "edit", trained, draft)
    assert answer.stdout.decode().splitlines() == ["b z b", "d e b unseen b", ""]
    one = json_lines(call_here(capsys, "edit", trained, "--draft", "a b y b", "--json"))[0]
    found = [
        (edit["kind"], edit["start"], edit["end"], edit["before"], edit["after"]) for edit in one["edits"]
    ]
    assert found == [("delete", 0, 1, "a", ""), ("substitute", 4, 5, "y", "z")]
    assert all(edit["probability"] > 0.5 for edit in one["edits"])
    assert (one["finished"], one["refused"]) == (True, [])
    shown = call_here(capsys, "edit", trained, "--draft", "a b y b", "--diff")
    assert shown.stdout.decode() == "[-a-] b [-y-] {+z+} b\n"
    page = trained.parent / "page.html"
    call_here(capsys, "edit", trained, draft, "--html", page)
    assert "3 edits in 2 of 3 drafts" in page.read_text()


def test_too_much_is_not_deleted_and_reported(trained: Path, capsys: Capture) -> None:
    answer = call_here(capsys, "edit", trained, "--draft", "a b a b", "--max-deleted", 0.3)
    assert answer.returncode == 0
    assert len(answer.stdout.split()) >= 3
    assert "edit: not deleted, because too much would be gone: a" in answer.stderr.decode()


def test_requests_come_as_jsonl_too(trained: Path, capsys: Capture, tmp_path: Path) -> None:
    asked = [{"draft": "a b", "keep": ["a"]}, {"draft": "a", "keep": ["x"]}, {"draft": "c", "must": "d"}]
    path = write_lines(tmp_path / "asked.jsonl", [*map(json.dumps, asked), "{"])
    answer = call_here(capsys, "edit", trained, path)
    assert answer.returncode == 2
    first, second, third, fourth = answer.stdout.decode().splitlines()
    assert "a" in first.split() and second == "" and "d" in third.split() and fourth == ""
    reported = answer.stderr.decode().splitlines()
    assert reported[0].startswith(f"anyorder: {path}:2: keep = 'x': is not in the draft")
    assert reported[1].startswith(f"anyorder: {path}:4: not valid JSON")


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--source", "a"], ["--source: is for --draft"]),
        (["FILE", "--draft", "a"], ["give a file, or --draft and --source, not both"]),
        (["FILE", "--html", "no/page"], ["--html"]),
        (["FILE", "--sources", "FILE2"], ["has 1 lines", "has 2"]),
    ],
)
def test_flags_that_do_not_fit_are_refused(
    trained: Path, capsys: Capture, tmp_path: Path, flags: list[str], parts: list[str]
) -> None:
    files = {"FILE": write_lines(tmp_path / "one", ["a"]), "FILE2": write_lines(tmp_path / "two", ["a", "b"])}
    answer = call_here(capsys, "edit", trained, *(files.get(flag, flag) for flag in flags))
    assert_one_line_refusal(answer, *parts)


def test_evaluation_scores_edits(trained: Path, capsys: Capture) -> None:
    asked = ("evaluate", trained, "--split", "dev", "--metrics", "exact,gleu,edits", "--json")
    (report,) = json_lines(call_here(capsys, *asked))
    assert report["scores"]["edits"]["score"] > 90
    assert report["scores"]["exact"]["score"] > 80
    # Results are compared without the data, so the drafts are kept beside them.
    compared = call_here(capsys, "compare", trained, trained, "--split", "dev")
    assert compared.returncode == 2  # the same run twice
    assert (trained / "results" / "dev.drafts.txt").read_text() == (trained.parent / "dev.draft").read_text()
    card = call_here(capsys, "card", trained)
    assert "It changes a draft, a line of text (split at spaces)." in card.stdout.decode()
    assert "edited = model.edit(draft)" in card.stdout.decode()
    of_files = ("evaluate", "--hyp", trained / "results" / "dev.txt", "--ref", trained.parent / "dev.target")
    drafts = ("--drafts", trained.parent / "dev.draft")
    (found,) = json_lines(call_here(capsys, *of_files, *drafts, "--metrics", "edits", "--json"))
    assert found["score"] == report["scores"]["edits"]["score"]
    assert_one_line_refusal(call_here(capsys, *of_files, "--metrics", "gleu"), "'gleu'", "drafts")


@pytest.mark.parametrize("order", ["l2r", "random"])
def test_a_stopped_training_goes_on_as_if_nothing_had_happened(tmp_path: Path, order: str) -> None:
    recipe = corpus(tmp_path)
    settings = ("train.steps=12", "train.validate_every=6", "model.dropout=0.2", f"edit.order={order}")
    learn(recipe, tmp_path / "whole", *settings)
    train(recipe_of(recipe, tmp_path / "parts", *settings, "train.log_every=1"), listener=Interrupter(at=5))
    train(recipe_of(recipe, tmp_path / "parts", *settings), listener=Silent(), resume=True)
    assert last_weights(tmp_path / "parts") == last_weights(tmp_path / "whole")


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ('data.dev={target="dev.target"}', "data.dev.draft: missing"),
        ('model={kind="indigo"}', 'data.train.draft: is for model.kind = "editor"'),
        ("text.bag=true", "text.bag"),
        ("train.hide_words=0.1", "train.hide_words = 0.1: must be 0.0"),
        ("order.name=r2l", 'order.name = "r2l"'),
        ("decode.beam=3", "decode.beam = 3: must be 1"),
        ("edit.order=best", "edit.order"),
    ],
)
def test_recipes_that_do_not_fit_are_refused(tmp_path: Path, override: str, part: str) -> None:
    with pytest.raises(UserError) as error:
        recipe_of(corpus(tmp_path), tmp_path / "run", override)
    assert part in str(error.value)


def test_files_of_different_lengths_are_refused(tmp_path: Path) -> None:
    recipe = corpus(tmp_path)
    write_lines(tmp_path / "dev.draft", ["a"])
    with pytest.raises(UserError, match=r"dev.target has 40 lines but .*dev.draft has 1;"):
        learn(recipe, tmp_path / "run")


def test_an_update_does_not_depend_on_the_number_of_its_parts(tmp_path: Path) -> None:
    gradients = []
    for parts in (1, 3):
        recipe = recipe_of(
            corpus(tmp_path), tmp_path / "run", "model.dropout=0.3", f"train.accumulate={parts}"
        )
        alone = Processes(rank=0, count=1, device=torch.device("cpu"))
        training = Training(recipe, prepare(recipe), alone, Silent())
        pairs = max(training.batches.plan(0), key=len)
        batches = training.batches.of_update(step=1, epoch=0, pairs=pairs)
        assert len(batches) == parts
        training.optimiser.update(1, batches)
        gradients.append(
            {
                name: parameter.grad
                for name, parameter in training.model.named_parameters()
                if parameter.grad is not None
            }
        )
    whole, split = gradients
    assert split.keys() == whole.keys()
    for name in whole:
        torch.testing.assert_close(split[name], whole[name], rtol=0, atol=2e-6)
