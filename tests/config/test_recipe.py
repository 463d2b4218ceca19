"""Recipes: what is read, and how every kind of mistake is answered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from corpora import write_corpus
from hypothesis import given
from hypothesis import strategies as st

from anyorder import config
from anyorder.config.recipe import Recipe, load_recipe
from anyorder.config.section import checked
from anyorder.errors import UserError


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def refusal(recipe: Path, *overrides: str) -> str:
    with pytest.raises(UserError) as refused:
        load_recipe(recipe, overrides)
    said = str(refused.value)
    assert "\n" not in said
    return said


# What a recipe says


def test_a_recipe_survives_json(recipe: Path) -> None:
    read = load_recipe(
        recipe, ["order.files.train=orders.txt", "data.test.jsonl=test.jsonl", "train.init=runs/l2r"]
    )
    values = json.loads(json.dumps(read.model_dump(mode="json"), allow_nan=False))
    assert checked(Recipe, values, origin="config.json") == read


def test_a_run_is_named_after_its_recipe(recipe: Path) -> None:
    assert load_recipe(recipe).run == Path("runs/recipe")
    assert load_recipe(recipe, ["run=elsewhere"]).run == Path("elsewhere")


def test_a_tilde_is_a_home(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    found = load_recipe(recipe, ["run=~/run", "train.init=~/init", "data.root=~/data", "data.cache=~/cache"])
    assert (found.run, found.train.init) == (Path("/home/someone/run"), Path("/home/someone/init"))
    assert found.path(Path("a")) == Path("/home/someone/data/a")
    assert found.data.cache is not None
    assert found.path(found.data.cache) == Path("/home/someone/cache")
    assert "run: ~nobody-of-that-name/x: no such user" in refusal(recipe, "run=~nobody-of-that-name/x")
    with pytest.raises(UserError, match="no such user, or one without a home"):
        load_recipe(recipe, ["data.root=~nobody-of-that-name"]).path(Path("a"))


def test_paths_start_from_the_data_root(recipe: Path) -> None:
    read = load_recipe(recipe, ["data.root=~/somewhere"])
    assert read.path(Path("train.source")) == Path.home() / "somewhere" / "train.source"
    assert read.path(Path("/train.source")) == Path("/train.source")


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("train.steps=7", "train", "steps", 7),
        ("train.steps = 7", "train", "steps", 7),
        ("train.lr=2e-3", "train", "lr", 2e-3),
        ("decode.merge=true", "decode", "merge", True),
        ("order.name=blt", "order", "name", "blt"),
        ('order.name="blt"', "order", "name", "blt"),
        ("order.name=my.orders:inside_out", "order", "name", "my.orders:inside_out"),
        ("data.root=/some where/a=b", "data", "root", Path("/some where/a=b")),
        ('order.files={ dev = "dev.order" }', "order", "files", {"dev": Path("dev.order")}),
        ("order.files.dev=dev.order", "order", "files", {"dev": Path("dev.order")}),
        ("text.source={ split = 'spaces', lowercase = true }", "text", "source",
         config.Side(split="spaces", lowercase=True)),
    ],
)  # fmt: skip
def test_overrides_are_toml_or_bare_words(
    recipe: Path, override: str, section: str, key: str, value: object
) -> None:
    assert getattr(getattr(load_recipe(recipe, [override]), section), key) == value


@given(steps=st.integers(min_value=1), lr=st.floats(min_value=1e-9, max_value=1e9), name=st.text())
def test_an_override_reads_back_any_value(recipe: Path, steps: int, lr: float, name: str) -> None:
    quoted = json.dumps(name, ensure_ascii=False).replace("\x7f", r"\u007f")
    read = load_recipe(recipe, [f"train.steps={steps}", f"train.lr={lr!r}", f"order.name={quoted}"])
    assert (read.train.steps, read.train.lr, read.order.name) == (steps, lr, name)


# Mistakes


@pytest.mark.parametrize(
    ("override", "answer"),
    [
        # unknown keys
        ("train.stepz=3", "train.stepz = 3: no such key; did you mean steps? allowed: accumulate, average"),
        ("trian.steps=3", 'trian = {"steps": 3}: no such key; did you mean train? allowed: canvas, data'),
        ("data.dev.sauce=x", 'data.dev.sauce = "x": no such key; did you mean source? allowed: captions'),
        (
            "xyz=3",
            "xyz = 3: no such key; allowed: canvas, data, decode, edit, insertion, model, order, run, search",
        ),
        # wrong types
        ("train.steps=many", 'train.steps = "many": must be a valid integer'),
        ("train.steps=1.5", "train.steps = 1.5: must be a valid integer"),
        ("text.source.lowercase=perhaps", 'text.source.lowercase = "perhaps": must be a valid boolean'),
        ("order.name=3", "order.name = 3: must be a valid string"),
        ("order.name.x=3", 'order.name = {"x": 3}: must be a valid string'),
        ("run=3", "run = 3: must be a path, in quotes"),
        ("data.cache=[]", "data.cache = []: must be a path, in quotes"),
        ("model=3", "model = 3: must be a section, with keys of its own"),
        ("order.files=3", "order.files = 3: must be a section, with keys of its own"),
        # out of range
        ("train.steps=0", "train.steps = 0: must be greater than or equal to 1"),
        ("model.dropout=1", "model.dropout = 1: must be less than 1"),
        ("train.lr=inf", "train.lr = Infinity: must be a finite number"),
        ("train.lr=nan", "train.lr = NaN: must be a finite number"),
        ("run=", "run: must not be empty"),
        # wrong words
        (
            "train.schedule=linear",
            "train.schedule = \"linear\": must be 'inverse-sqrt', 'cosine' or 'constant'",
        ),
        ("order.files.trian=x", "order.files.trian = \"trian\": must be 'train', 'dev' or 'test'"),
        # keys that don't go together
        ("model.width=15", "model: width (15) must be a multiple of heads (2)"),
        ("decode.n_best=4", "decode: n_best (4) must not exceed beam (1)"),
        ("train.average=9", "train: average (9) must not exceed keep (5)"),
        ("train={ select = 'bleu', validate_lines = 0 }", "train: select = 'bleu' needs validate_lines > 0"),
        ("data.train.jsonl=x", "data.train: give either jsonl or a source and a target, not both"),
        (
            "data.test.source=x",
            "data.test: give target and one of source or features, target alone, or jsonl",
        ),
        (
            "model={ kind = 'transformer', first = 'position' }",
            'model: first = "position" is for kind = "indigo", not "transformer"',
        ),
        (
            "model={ kind = 'transformer', steps_back = 8 }",
            'model: steps_back = 8 is for kind = "indigo", not "transformer"',
        ),
        (
            "model={ kind = 'insertion', width = 7, heads = 1 }",
            "model: width (7) must be even for sinusoidal positions",
        ),
        (
            "insertion={ loss = 'ilm', termination = 'gap' }",
            'insertion: termination = "gap" is for the losses "uniform" and "binary", which count gap by '
            'gap; with loss = "ilm" it must be "classifier" or "sequence"',
        ),
    ],
)
def test_a_wrong_value_is_answered_by_key_given_and_allowed(recipe: Path, override: str, answer: str) -> None:
    assert refusal(recipe, override).startswith(f"command line: {answer}")


@pytest.mark.parametrize(
    ("overrides", "answer"),
    [
        (
            ["model.kind=transformer", "order.name=blt"],
            'order.name = "blt": must be "l2r" for model.kind = "transformer"; '
            'only "indigo" learns other orders',
        ),
        (
            ["data.dev={ features = 'dev.npy', target = 'dev.target' }"],
            "data.dev has features to read from, but data.train text; they must be alike",
        ),
        (
            ["data.test={ target = 'dev.target' }"],
            "data.test has nothing to read from, but data.train text; they must be alike",
        ),
        (
            ["text.bag=true"],
            'model.encoder_positions = "relative": must be "none" for text.bag = true, where positions mean '
            "nothing",
        ),
        (
            ["model.kind=insertion", "order.name=sao"],
            'order.name = "sao": must be "l2r" for model.kind = "insertion"; '
            'only "indigo" learns other orders',
        ),
        (
            ["decode.parallel=true"],
            'decode.parallel = true: must be false for model.kind = "indigo", which has no use for it',
        ),
        (
            ["model.kind=transformer", "decode.eos_penalty=1"],
            'decode.eos_penalty = 1.0: must be 0.0 for model.kind = "transformer", which has no use for it',
        ),
        (
            ["model.kind=insertion", "decode.beam=4"],
            'decode.beam = 4: must be 1 for model.kind = "insertion", which has no use for it',
        ),
        (
            ["model.kind=insertion", "insertion.termination=sequence", "decode.parallel=true"],
            'decode.parallel = true: needs insertion.termination = "gap": each gap must predict its own end',
        ),
        (
            ["model.kind=insertion", "insertion.loss=ilm", "decode.parallel=true"],
            'decode.parallel = true: needs insertion.termination = "gap": each gap must predict its own end',
        ),
        (
            ["model.kind=insertion", "decode.search=sample"],
            'decode.search = "sample": needs insertion.termination = "classifier" or "sequence": where each '
            "gap predicts its own end, the sentence has no probability of ending",
        ),
    ],
)
def test_sections_that_do_not_fit_are_answered_by_key(
    recipe: Path, overrides: list[str], answer: str
) -> None:
    assert refusal(recipe, *overrides) == f"{recipe}: {answer}"


@pytest.mark.parametrize(
    ("override", "answer"),
    [
        ("nonsense", "'nonsense': an override is written key=value, e.g. train.steps=1000"),
        ("=3", "'=3': an override is written key=value, e.g. train.steps=1000"),
        ("run.x=3", "'run.x=3': run is a value, not a section"),
    ],
)
def test_a_wrong_override_says_how_one_is_written(recipe: Path, override: str, answer: str) -> None:
    recipe = recipe.with_name("with-run.toml")
    recipe.write_text('run = "somewhere"')
    assert refusal(recipe, override) == answer


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        (b"[train]\nsteps = = 3", "not valid TOML: Invalid value (at line 2, column 9)"),
        (b"\nrun = '\xff'", "not valid UTF-8 (byte 0xff in line 2)"),
        (
            b"",
            "data: missing; its keys are bad_lines, cache, dev, licence, max_length, name, root, test, train",
        ),
        (
            b"[data.train]\njsonl = 'x'",
            "data.dev: missing; its keys are captions, draft, features, jsonl, source, target",
        ),
        (
            b"[data]\nroot = 'x'",
            "data.train: missing; its keys are captions, draft, features, jsonl, source, target (and 1 more)",
        ),
        (
            b"[data]\ntrain = 3\ndev = { jsonl = 'x' }",
            "data.train = 3: must be a section, with keys of its own",
        ),
        (b"data = 3\n[model]\nwidth = 7", "data = 3: must be a section"),
    ],
)
def test_a_wrong_recipe_is_answered_by_its_name(tmp_path: Path, content: bytes, answer: str) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_bytes(content)
    assert refusal(recipe).startswith(f"{recipe}: {answer}")


def test_a_mistake_in_the_file_is_not_blamed_on_the_command_line(tmp_path: Path) -> None:
    recipe = write_corpus(tmp_path)
    recipe.write_text(recipe.read_text().replace("heads = 2", "heads = 0"))
    assert refusal(recipe, "train.steps=3").startswith(f"{recipe}: model.heads = 0: must be")


def test_a_recipe_that_is_not_there(tmp_path: Path) -> None:
    assert (
        refusal(tmp_path / "mine.toml") == f"{tmp_path}/mine.toml: no such recipe; `anyorder init` writes one"
    )
    assert refusal(tmp_path) == f"{tmp_path}: is a folder; give the recipe, a .toml file"


def test_a_long_value_is_cut(recipe: Path) -> None:
    said = refusal(recipe, f"train.steps={'x' * 1000}")
    assert len(said) < 200
