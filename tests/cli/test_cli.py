"""Commands beside those that use a model: what they print, write and refuse."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from corpora import (
    PAIRS,
    QUIET,
    assert_one_line_refusal,
    call,
    call_here,
    command,
    json_lines,
    learned,
    write_corpus,
    write_lines,
)
from safetensors.numpy import load_file

import anyorder
from anyorder import config
from anyorder.bench.timing import time_rows
from anyorder.cli import app
from anyorder.cli.bench import show
from anyorder.cli.complete import UNUSED
from anyorder.config.recipe import load_recipe
from anyorder.inference.hypothesis import steps
from anyorder.metrics import METRICS
from anyorder.orders.fixed import ORDERS
from anyorder.system.interruption import INTERRUPTED
from anyorder.training.checkpoint import checkpoints
from anyorder.viz.animation import svg

Capture = pytest.CaptureFixture[str]


def commands(group: Any, *names: str) -> list[str]:  # noqa: ANN401 (typer may carry its own copy of click)
    """All that can be called, e.g. `bench attention`."""
    if not hasattr(group, "commands"):
        return [" ".join(names)]
    return [found for name, inner in group.commands.items() for found in commands(inner, *names, name)]


# Help and usage


@pytest.mark.parametrize("command", commands(typer.main.get_command(app)))
def test_every_command_explains_itself_by_an_example(capsys: Capture, command: str) -> None:
    answer = call_here(capsys, *command.split(), "--help")
    shown = answer.stdout.decode()
    assert answer.returncode == 0
    assert "Example: " in shown
    assert f"anyorder {command}" in shown.partition("Example: ")[2]


def parameters(name: str) -> dict[str, Any]:
    """The arguments and flags of a command, as click has them."""
    return {parameter.name: parameter for parameter in typer.main.get_command(app).commands[name].params}


@pytest.mark.parametrize(
    ("name", "without"),
    [("generate", (*config.Decode.keys_that_need("editing"), "max_target")), ("complete", UNUSED)],
)
def test_every_key_of_decoding_is_a_flag_explained_as_in_a_recipe(
    name: str, without: tuple[str, ...]
) -> None:
    flags = parameters(name)
    for key, field in config.Decode.model_fields.items():
        if key in without:
            assert key not in flags
            continue
        assert f"--{key.replace('_', '-')}" in flags[key].opts
        assert flags[key].help.lower() == f"{field.description}.".lower()


def test_help_lists_the_orders_and_metrics_that_exist() -> None:
    left_out_by: dict[tuple[str, str], set[str]]
    left_out_by = {("order", "name"): {"sao"}, ("init", "order"): {"file"}, ("score", "order"): set()}
    for (name, flag), left_out in left_out_by.items():
        listed = set(re.findall(r"\w+", parameters(name)[flag].help))
        assert listed & ORDERS.keys() == ORDERS.keys() - left_out
    assert set(re.findall(r"\w+", parameters("evaluate")["metrics"].help)) >= METRICS.keys()


def test_help_shows_the_unknown_word(capsys: Capture) -> None:
    """It is Markdown, which takes a bare <unk> for a tag and leaves it out."""
    assert "<unk>" in call_here(capsys, "generate", "--help").stdout.decode()


def test_help_does_not_wait_for_torch() -> None:
    program = "import sys; from anyorder.cli import app; app(['--help'], standalone_mode=False); "
    program += "sys.exit(not {'torch', 'sacrebleu'}.isdisjoint(sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], env=QUIET, capture_output=True).returncode == 0


def test_the_shell_completes_commands_and_flags(capsys: Capture) -> None:
    for typed, completed in {"anyorder gen": "generate", "anyorder score --sam": "--samples"}.items():
        typed_so_far = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
        answer = subprocess.run(
            command(),
            env={**QUIET, **typed_so_far, "_ANYORDER_COMPLETE": "complete_bash"},
            capture_output=True,
            check=False,
        )
        assert (answer.returncode, answer.stdout.decode().split()) == (0, [completed])
    script = subprocess.run(
        command(), env={**QUIET, "_ANYORDER_COMPLETE": "source_bash"}, capture_output=True, check=False
    )
    assert "complete -o default -F _anyorder_completion anyorder" in script.stdout.decode()
    shown = call_here(capsys, "--help").stdout.decode()
    assert "--install-completion" in shown and "--show-completion" in shown


def test_the_version(capsys: Capture) -> None:
    assert call_here(capsys, "--version").stdout.decode() == f"anyorder {anyorder.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["frobnicate"], ["No such command 'frobnicate'.", "(see `anyorder --help`)"]),
        (["order", "--frob"], ["No such option: --frob", "(see `anyorder order --help`)"]),
        (["order", "rnd", "a", "--seed", "-1"], ["--seed"]),
        (["train"], ["Missing argument 'recipe'", "(see `anyorder train --help`)"]),
        (["train", "nowhere.toml"], ["nowhere.toml: no such recipe; `anyorder init` writes one"]),
        (
            ["train", "nowhere.toml", "--resume", "--overwrite"],
            ["--resume and --overwrite: give one of them"],
        ),
        (
            ["bench", "attention", "--width", "10", "--heads", "4"],
            ["--width 10 must be a multiple of --heads 4"],
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_answered_in_one_line(capsys: Capture, arguments: list[str], parts: list[str]) -> None:
    assert_one_line_refusal(call_here(capsys, *arguments), *parts)


@pytest.mark.parametrize(
    "arguments",
    [
        ["generate", "run", "--svg", "nowhere/file"],
        ["generate", "run", "--html", "nowhere/file"],
        ["complete", "run", "--source", "a", "--html", "nowhere/file"],
        ["compare", "run", "--svg", "nowhere/file"],
        ["order", "l2r", "a b", "--svg", "nowhere/file"],
        ["search-orders", "run", "--output", "nowhere/file"],
        ["demo", "--page", "nowhere/file"],
    ],
    ids=lambda arguments: f"{arguments[0]} {arguments[-2]}",
)
def test_a_file_without_a_folder_is_refused_before_any_work(capsys: Capture, arguments: list[str]) -> None:
    answer = call_here(capsys, *arguments)
    assert_one_line_refusal(answer, f"{arguments[-2]} nowhere/file: there is no folder nowhere")


def test_ctrl_c_is_answered_while_the_commands_are_imported() -> None:
    program = """if True:
        import sys

        class CtrlC:
            def find_spec(self, name, path=None, target=None):
                if name == "anyorder.cli":
                    raise KeyboardInterrupt

        sys.meta_path.insert(0, CtrlC())
        from anyorder.__main__ import main

        main()
    """
    answer = subprocess.run([sys.executable, "-c", program], env=QUIET, capture_output=True, check=False)
    assert (answer.returncode, answer.stdout, answer.stderr) == (INTERRUPTED, b"", b"")


def test_there_must_be_a_run_to_resume(capsys: Capture, tmp_path: Path) -> None:
    recipe, run = write_corpus(tmp_path), tmp_path / "run"
    answer = call_here(capsys, "train", recipe, f"run={run}", "--resume")
    assert_one_line_refusal(answer, f"{run}: there is no run to resume", "--resume")
    assert not run.exists()


# order


@pytest.mark.parametrize(
    ("name", "positions", "written"),
    [
        ("l2r", [1, 2, 3, 4, 5, 6, 7], "abcdefg"),
        ("r2l", [7, 6, 5, 4, 3, 2, 1], "gfedcba"),
        ("odd", [1, 3, 5, 7, 2, 4, 6], "acegbdf"),
        ("blt", [4, 2, 6, 1, 3, 5, 7], "dbfaceg"),
    ],
)
def test_an_order_as_json(capsys: Capture, name: str, positions: list[int], written: str) -> None:
    (row,) = json_lines(call_here(capsys, "order", name, "a b c d e f g", "--json"))
    assert row == {"order": name, "positions": positions, "words": list(written)}
    assert json_lines(call_here(capsys, "order", name, *"abcdefg", "--json")) == [row]  # words apart


def test_common_and_rare_words_are_counted_in_a_corpus(capsys: Capture, tmp_path: Path) -> None:
    corpus = write_lines(tmp_path / "corpus", ["the cat", "the the dog", "a"])  # `the` is half of all words
    for name, positions in {"cf": [2, 4, 1, 3], "rf": [1, 3, 2, 4]}.items():
        (row,) = json_lines(call_here(capsys, "order", name, "cat the dog the", "--corpus", corpus, "--json"))
        assert row["positions"] == positions


def test_a_random_order_depends_on_the_seed_alone(capsys: Capture) -> None:
    drawn = [
        json_lines(call_here(capsys, "order", "rnd", *range(20), "--seed", seed, "--json"))[0]["positions"]
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert sorted(drawn[0]) == list(range(1, 21))


def test_an_order_of_ones_own(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_orders_of_test_cli.py").write_text(
        "def last_first(words):\n    return [len(words), *range(1, len(words))]\n"
    )
    monkeypatch.chdir(tmp_path)
    (row,) = json_lines(call_here(capsys, "order", "own_orders_of_test_cli:last_first", "a b c", "--json"))
    assert row["positions"] == [3, 1, 2]


def test_an_order_is_drawn_step_by_step(capsys: Capture) -> None:
    drawn = call_here(capsys, "order", "blt", "a b c").stdout.decode().splitlines()
    assert drawn[0].strip() == "blt: a b c"
    assert [line.split() for line in drawn[2:]] == [
        ["1", "b", "b"],
        ["2", "a", "a", "b"],
        ["3", "c", "a", "b", "c"],
    ]


def test_a_byte_order_mark_is_no_text() -> None:
    answer = call("order", "r2l", "--json", given=b"\xef\xbb\xbfa b\n")
    assert json_lines(answer)[0]["words"] == ["b", "a"]


def test_output_goes_through_links_and_into_pipes(tmp_path: Path) -> None:
    kept = write_lines(tmp_path / "kept.svg", ["before"])
    kept.chmod(0o600)
    link = tmp_path / "link.svg"
    link.symlink_to(kept)
    assert call("order", "l2r", "a b", "--svg", link).returncode == 0
    assert link.is_symlink()
    assert kept.read_text().startswith("<svg")
    assert kept.stat().st_mode & 0o777 == 0o600
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert call("order", "l2r", "a b", "--svg", pipe).returncode == 0
    assert os.read(reader, 4) == b"<svg"
    os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.parametrize("path", ["", "."])
def test_output_needs_a_name(capsys: Capture, path: str) -> None:
    assert_one_line_refusal(
        call_here(capsys, "order", "l2r", "a b", "--svg", path), "--svg '.': must be a file"
    )
    assert_one_line_refusal(call_here(capsys, "card", learned().run, "--output", path), "must be a file")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
def test_a_full_disk_behind_stdout_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        answer = subprocess.run(
            command("order", "l2r", "a b"), env=QUIET, stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (answer.returncode, answer.stderr) == (2, b"anyorder: output: No space left on device\n")


def test_orders_of_the_lines_of_stdin() -> None:
    rows = json_lines(call("order", "r2l", "--json", given="a ä\n\nc d e\n".encode()))
    assert [row["positions"] for row in rows] == [[2, 1], [], [3, 2, 1]]
    assert rows[0]["words"] == ["ä", "a"]
    assert_one_line_refusal(call("order", "r2l", given=b"a\n\xff\n"), "stdin:2: not valid UTF-8")


def write_trees(path: Path, sentences: list[str]) -> Path:
    """CoNLL-U in which every word hangs on the last one."""
    blocks = []
    for sentence in sentences:
        words = sentence.split()
        heads = [len(words)] * (len(words) - 1) + [0]
        rows = [
            f"{number}\t{word}\t_\t_\t_\t_\t{head}\t_\t_\t_\n"
            for number, (word, head) in enumerate(zip(words, heads, strict=True), start=1)
        ]
        blocks.append("".join(rows))
    path.write_text("\n".join(blocks), encoding="utf-8")
    return path


def test_orders_from_a_file(capsys: Capture, tmp_path: Path) -> None:
    permutations = write_lines(tmp_path / "permutations", ["2 3 1"])
    trees = write_trees(tmp_path / "trees.conllu", ["a b c"])
    for name, path, positions in (("file", permutations, [2, 3, 1]), ("syn", trees, [3, 1, 2])):
        (row,) = json_lines(call_here(capsys, "order", name, "a b c", "--order-file", path, "--json"))
        assert row["positions"] == positions


def test_an_order_becomes_a_moving_picture(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "order.svg"
    assert call_here(capsys, "order", "r2l", "a b c", "--svg", path).returncode == 0
    assert path.read_text() == svg(steps(["c", "b", "a"], [3, 2, 1]))
    answer = call_here(capsys, "order", "r2l", "a b c", "--svg", tmp_path, "--json")
    assert answer.stderr.decode() == f"anyorder: --svg '{tmp_path}': must be a file\n"


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (
            ["up", "a b"],
            "order.name = 'up': no such order; allowed: l2r, r2l, odd, blt, syn, cf, rf, rnd, sao, file or",
        ),
        (["cf", "a b"], "order cf needs word counts: --corpus FILE"),
        (["cf", "a b", "--corpus", "nowhere"], "nowhere: no such file"),
        (
            ["syn", "a b"],
            "order syn needs --parser NAME, a spaCy pipeline or python, or --order-file FILE, a CoNLL-U",
        ),
        (["file", "a b"], "order file needs --order-file FILE, one permutation per line, counted from 1"),
        (["file", "a b", "--order-file", "nowhere"], "--order-file nowhere: no such file"),
        (["blt", "a b", "--order-file", "f"], "--order-file f: is for the orders syn and file, not for blt"),
        (["nowhere.at.all:f", "a b"], "order.name = 'nowhere.at.all:f': no module 'nowhere'"),
        (["json:nothing", "a b"], "json has no function 'nothing'"),
        (["json:dumps", "a b"], "must be a list of whole numbers, the positions counted from 1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_order_is_answered_in_one_line(capsys: Capture, arguments: list[str], part: str) -> None:
    assert_one_line_refusal(call_here(capsys, "order", *arguments), part)


# init


def init_flags(corpus: Path) -> list[object]:
    return [
        *("--train-source", corpus / "train.source", "--train-target", corpus / "train.target"),
        *("--dev-source", corpus / "dev.source", "--dev-target", corpus / "dev.target"),
    ]


@pytest.mark.parametrize("size", ["tiny", "small", "base"])
def test_init_writes_a_recipe_that_loads(capsys: Capture, tmp_path: Path, size: str) -> None:
    corpus = tmp_path / 'a "strange" höuse 😀'
    corpus.mkdir()
    write_corpus(corpus)
    recipe = tmp_path / "mine.toml"
    languages = ["--source-language", "code", "--target-language", "de"]
    answer = call_here(
        capsys, "init", recipe, *init_flags(corpus), *languages, "--order", "blt", "--size", size
    )
    assert answer.stdout.decode() == f"wrote {recipe}; next: anyorder train {recipe}\n"
    read = load_recipe(recipe)
    assert read.data.train.source == corpus / "train.source"
    assert read.data.dev.target == corpus / "dev.target"
    assert read.text.source.split == "spaces"
    assert (read.text.target.split, read.text.target.language) == ("moses", "de")
    assert read.order.name == "blt"
    if size == "base":
        assert read.model == config.Model()


def test_the_comments_of_a_recipe_are_the_meanings_that_are_checked(capsys: Capture, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    recipe = tmp_path / "mine.toml"
    call_here(capsys, "init", recipe, *init_flags(tmp_path))
    section: type[config.Section] = config.Recipe
    commented = 0
    for line in recipe.read_text().splitlines():
        if line.startswith("["):
            section = type(getattr(load_recipe(recipe), line.strip("[]")))
        elif "  # " in line:
            key = line.partition(" = ")[0]
            assert line.partition("  # ")[2] == section.model_fields[key].description
            commented += 1
    assert commented > 15
    assert set(tomllib.loads(recipe.read_text())) == {"data", "text", "order", "model", "train", "decode"}


def init_and_load(capsys: Capture, recipe: Path, *flags: object) -> config.Recipe:
    answer = call_here(capsys, "init", recipe, *flags)
    assert answer.returncode == 0, answer.stderr.decode()
    return load_recipe(recipe)


def write_pairs(path: Path) -> Path:
    return write_lines(path, [json.dumps({"source": "a b", "target": "b a"})])


def test_init_takes_pairs_and_a_test_set(capsys: Capture, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    pairs = write_pairs(tmp_path / "pairs.jsonl")
    test = ["--test-source", tmp_path / "dev.source", "--test-target", tmp_path / "dev.target"]
    data = init_and_load(
        capsys, tmp_path / "a.toml", "--train-jsonl", pairs, "--dev-jsonl", pairs, *test
    ).data
    assert (data.train, data.dev) == (config.SplitFiles(jsonl=pairs), config.SplitFiles(jsonl=pairs))
    assert data.test == config.SplitFiles(source=tmp_path / "dev.source", target=tmp_path / "dev.target")
    flags = init_flags(tmp_path)
    assert init_and_load(capsys, tmp_path / "b.toml", *flags).data.test is None
    tested = init_and_load(capsys, tmp_path / "c.toml", *flags, "--test-jsonl", pairs).data.test
    assert tested == config.SplitFiles(jsonl=pairs)


@pytest.mark.parametrize(
    ("language", "side"),
    [
        ("de", config.Side(split="moses", language="de")),
        ("eo", config.Side(split="moses", language="eo")),  # Moses has no rules of its own for Esperanto
        ("ja", config.Side(split="mecab")),
        ("code", config.Side(split="spaces")),
    ],
)
def test_a_language_decides_how_text_is_split(
    capsys: Capture, tmp_path: Path, language: str, side: config.Side
) -> None:
    write_corpus(tmp_path)
    read = init_and_load(capsys, tmp_path / "mine.toml", *init_flags(tmp_path), "--source-language", language)
    assert read.text.source == side
    assert read.text.target == config.Side()


def test_init_for_trees_writes_a_recipe_that_works(capsys: Capture, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    recipe, flags = tmp_path / "mine.toml", [*init_flags(tmp_path), "--order", "syn"]
    by_parser = init_and_load(capsys, tmp_path / "parser.toml", *flags, "--parser", "some_pipeline").order
    assert by_parser == config.Order(name="syn", parser="some_pipeline")
    trees: list[object] = []
    for split in ("train", "dev"):
        lines = (tmp_path / f"{split}.target").read_text().splitlines()
        trees += [f"--{split}-trees", write_trees(tmp_path / f"{split}.conllu", lines)]
    languages = ["--source-language", "code", "--target-language", "code"]
    init_and_load(capsys, recipe, *flags, *trees, *languages)
    prepared = call_here(capsys, "prepare", recipe, f"data.cache={tmp_path / 'cache'}")
    assert "order: syn" in prepared.stdout.decode(), prepared.stderr.decode()


@pytest.mark.parametrize("size", ["tiny", "small", "base"])
def test_a_recipe_for_searched_orders_comes_to_search(capsys: Capture, tmp_path: Path, size: str) -> None:
    write_corpus(tmp_path)
    flags = [*init_flags(tmp_path), "--order", "sao", "--size", size]
    read = init_and_load(capsys, tmp_path / "mine.toml", *flags)
    assert read.adaptive
    assert read.searches(read.train.steps)
    assert '[search]\nmethod = "drawn"' in (tmp_path / "mine.toml").read_text()


class Terminal(io.StringIO):
    """A person who types these answers."""

    def isatty(self) -> bool:
        return True


def test_init_asks_a_person_for_what_is_not_given(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path)
    files = [str(flag) for flag in init_flags(tmp_path)[1::2]]
    typed = [*files, "code", "", "syn", "some_pipeline", "tiny"]
    monkeypatch.setattr("sys.stdin", Terminal("".join(f"{answer}\n" for answer in typed)))
    read = init_and_load(capsys, tmp_path / "mine.toml")
    assert [str(path) for path in (read.data.train.source, read.data.train.target)] == files[:2]
    assert [str(path) for path in (read.data.dev.source, read.data.dev.target)] == files[2:]
    assert (read.text.source.split, read.text.target) == ("spaces", config.Side())
    assert read.order == config.Order(name="syn", parser="some_pipeline")
    assert read.model.width == 128

    monkeypatch.setattr("sys.stdin", Terminal("\n\n\nhuge\n"))
    answer = call_here(capsys, "init", tmp_path / "huge.toml", *init_flags(tmp_path))
    assert answer.stderr.decode().endswith("anyorder: --size huge: must be one of tiny, small, base\n")


def test_init_replaces_a_recipe_only_if_forced(capsys: Capture, tmp_path: Path) -> None:
    recipe = write_corpus(tmp_path)
    before = recipe.read_text()
    flags = init_flags(tmp_path)
    assert_one_line_refusal(call_here(capsys, "init", recipe, *flags), f"{recipe}: exists already", "--force")
    assert recipe.read_text() == before
    assert call_here(capsys, "init", recipe, *flags, "--force").returncode == 0
    assert recipe.read_text() != before


def test_init_says_what_is_missing(capsys: Capture, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    recipe, flags = tmp_path / "mine.toml", init_flags(tmp_path)
    assert_one_line_refusal(call_here(capsys, "init", recipe, *flags[:6]), "--dev-target is missing")
    assert_one_line_refusal(
        call_here(capsys, "init", recipe, *flags[:7], tmp_path / "nowhere"),
        "--dev-target",
        "nowhere: no such file",
    )
    assert_one_line_refusal(call_here(capsys, "init", recipe, *flags, "--order", "up"), "'up': no such order")
    assert_one_line_refusal(
        call_here(capsys, "init", tmp_path / "nowhere/mine.toml", *flags), "mine.toml: can't be written"
    )
    assert not recipe.exists()


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        (
            ["--order", "syn"],
            "--order syn needs --parser NAME, a spaCy pipeline or python, or --train-trees and",
        ),
        (["--order", "syn", "--train-trees", "TARGET"], "--order syn needs --parser NAME"),
        (["--order", "syn", "--train-trees", "nowhere"], "--train-trees nowhere: no such file"),
        (["--order", "blt", "--parser", "p"], "--parser, --train-trees and --dev-trees are for --order syn"),
        (["--order", "file"], "--order file: init can't write its recipe; set order.name and order.files"),
        (["--source-language", "german"], "--source-language 'german': must be two or three letters"),
        (["--train-jsonl", "TARGET"], "--train-jsonl and --train-source: give one of them"),
        (["--test-source", "TARGET"], "--test-target is missing: targets to test on"),
        (["--size", "huge"], "--size"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_init_refuses_what_would_not_work(
    capsys: Capture, tmp_path: Path, wrong: list[str], part: str
) -> None:
    write_corpus(tmp_path)
    flags = [str(tmp_path / "dev.target") if text == "TARGET" else text for text in wrong]
    assert_one_line_refusal(
        call_here(capsys, "init", tmp_path / "mine.toml", *init_flags(tmp_path), *flags), part
    )
    assert not (tmp_path / "mine.toml").exists()


# prepare, train, average, info


def test_prepare_counts(capsys: Capture) -> None:
    (counts,) = json_lines(call_here(capsys, "prepare", learned().recipe, "--json"))
    assert set(counts) == {"train", "dev"}
    lengths = [len(line.split()) for line in (learned().folder / "train.target").read_text().splitlines()]
    assert counts["train"] == {
        "pairs": PAIRS["train"],
        "skipped": 0,
        "vocabulary": 13,  # five specials and eight words
        "target_vocabulary": 13,
        "mean_source": pytest.approx(np.mean(lengths)),
        "mean_target": pytest.approx(np.mean(lengths)),
        "longest_target": max(lengths),
        "unknown_source": 0,
        "unknown_target": 0,
        "skipped_for": {},
    }
    assert counts["dev"]["pairs"] == PAIRS["dev"]
    drawn = call_here(capsys, "prepare", learned().recipe, "order.name=blt").stdout.decode()
    assert "vocabulary: 13, of which targets use 13; order: blt" in drawn


def test_prepare_counts_what_was_skipped(capsys: Capture, tmp_path: Path) -> None:
    recipe = write_corpus(tmp_path)
    target = tmp_path / "train.target"
    target.write_text(target.read_text().replace("\n", " " + "a " * 300 + "\n", 1))
    assert_one_line_refusal(
        call_here(capsys, "prepare", recipe), f"{target}:1: over-long line", 'data.bad_lines = "skip"'
    )
    (counts,) = json_lines(call_here(capsys, "prepare", recipe, "data.bad_lines=skip", "--json"))
    assert counts["train"]["pairs"] == PAIRS["train"] - 1
    assert counts["train"]["skipped_for"] == {"over-long line": 1}
    drawn = call_here(capsys, "prepare", recipe, "data.bad_lines=skip").stdout.decode()
    assert "skipped in train: 1 over-long\n" in drawn
    assert "skipped in dev" not in drawn


def test_train_tells_where_the_model_is(capsys: Capture, tmp_path: Path) -> None:
    run = tmp_path / "run"
    answer = call_here(capsys, "train", learned().recipe, f"run={run}", "train.steps=2")
    assert answer.returncode == 0
    assert answer.stdout.decode() == f"model: {run}\n"
    assert "step 2/2  word " in answer.stderr.decode()
    assert "step 2  dev: loss " in answer.stderr.decode()


def test_a_path_with_brackets_is_shown_as_it_is(capsys: Capture, tmp_path: Path) -> None:
    run = tmp_path / "a[red]b" / "[/c]"
    answer = call_here(capsys, "train", learned().recipe, f"run={run}", "train.steps=1")
    assert answer.stdout.decode() == f"model: {run}\n"


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("train.stepz=3", "command line: train.stepz = 3: no such key; did you mean steps?"),
        ("steps", "'steps': an override is written key=value"),
        ("data.train.source=nowhere", "nowhere: no such file (data.train.source)"),
        ("train.device=abacus", "device 'abacus' can't be used here"),
        ("order.name=up", "order.name = 'up': no such order"),
        ("order.name=sao\tsearch.bootstrap=up", "search.bootstrap = 'up': no such order"),
        ("train.init=nowhere", "nowhere: no such folder"),
    ],
)
def test_a_training_that_can_not_begin(capsys: Capture, tmp_path: Path, override: str, part: str) -> None:
    answer = call_here(capsys, "train", learned().recipe, f"run={tmp_path / 'run'}", *override.split("\t"))
    assert_one_line_refusal(answer, part)


def test_average_writes_the_mean_of_the_last_checkpoints(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(learned().run, tmp_path / "run")
    answer = call_here(capsys, "average", run, "--last", "2")
    assert answer.stdout.decode() == f"{run}-average: the mean of the checkpoints at steps 40, 60\n"
    kept = [load_file(one.folder / "model.safetensors") for one in checkpoints(run)]
    assert len(kept) == 3
    for name, averaged in load_file(tmp_path / "run-average/model.safetensors").items():
        np.testing.assert_allclose(averaged, (kept[1][name] + kept[2][name]) / 2, rtol=1e-5, atol=1e-7)
    (facts,) = json_lines(call_here(capsys, "info", tmp_path / "run-average", "--json"))
    assert facts["scores"] == {"averaged_steps": [40, 60]}

    assert_one_line_refusal(
        call_here(capsys, "average", run, "--last", "2"), "run-average: is a model already"
    )
    assert_one_line_refusal(
        call_here(capsys, "average", run, "--last", "4"),
        "has 3 checkpoints; --last 4 given, must be at most that",
    )
    monkeypatch.chdir(run)
    shutil.rmtree(tmp_path / "run-average")
    (report,) = json_lines(call_here(capsys, "average", ".", "--last", "1", "--json"))
    assert report == {"folder": str(tmp_path / "run-average"), "steps": [60]}
    assert (tmp_path / "run-average/model.safetensors").exists()


def test_info_tells_what_a_model_is(capsys: Capture) -> None:
    run = learned().run
    (facts,) = json_lines(call_here(capsys, "info", run, "--json"))
    assert facts["run"] == str(run)
    assert (facts["order"], facts["first"], facts["features"]) == ("rnd", "word", 0)
    assert (facts["vocabulary"], facts["target_vocabulary"]) == (13, 13)
    assert facts["parameters"] == sum(weight.size for weight in load_file(run / "model.safetensors").values())
    assert facts["model"]["width"] == 16
    assert facts["data"]["train"] == {"source": "train.source", "target": "train.target"}
    assert facts["checkpoints"] == [20, 40, 60]
    assert facts["scores"]["step"] in facts["checkpoints"]
    assert facts["scores"]["dev_loss"] > 0
    assert "rnd" in call_here(capsys, "info", run).stdout.decode()


# bench


def test_a_benchmark_compares_with_a_named_baseline(capsys: Capture) -> None:
    flags = ["--batch", "2", "--length", "4", "--width", "8", "--heads", "2", "--repeats", "2"]
    (found,) = json_lines(call_here(capsys, "bench", "attention", *flags, "--json"))
    rows = found["rows"]
    assert len(rows) >= 3
    names = {row["name"] for row in rows}
    for row in rows:
        assert {"name", "value", "unit", "ratio", "against"} <= set(row)
        assert row["value"] > 0
        if row["ratio"] is not None:
            assert row["against"] in names
            assert row["ratio"] > 0
    baseline = next(row for row in rows if row["name"] == row["against"])
    assert baseline["ratio"] == 1
    assert "ratio" in call_here(capsys, "bench", "attention", *flags).stdout.decode()


def test_tokens_per_second_are_those_of_the_median_time(capsys: Capture) -> None:
    seconds = {"plain": [0.5, 0.25, 2.0], "other": [1.0, 1.0, 1.0]}
    counted = time_rows(seconds, against="plain", tokens=1000)
    assert [row.tokens_per_second for row in counted] == [2000, 1000]
    uncounted = time_rows(seconds, against="plain")
    assert [row.tokens_per_second for row in uncounted] == [None, None]
    show([*counted, *uncounted], as_json=False)
    heading, first, *_, last = capsys.readouterr().out.splitlines()
    assert heading.split()[-3:] == ["tokens", "per", "second"]
    assert first.endswith("2,000")
    assert last.startswith("other")
    show(uncounted, as_json=False)
    assert "tokens" not in capsys.readouterr().out


def test_decoding_is_compared_at_each_length(capsys: Capture) -> None:
    flags = ["--width", "8", "--layers", "1", "--vocabulary", "1000", "--repeats", "1"]
    lengths = ["--length", "2", "--length", "5"]
    (found,) = json_lines(call_here(capsys, "bench", "decoding", *flags, *lengths, "--json"))
    *rows, _ = found["rows"]
    assert [row["against"] for row in rows] == ["2 tokens: InDIGO, cached"] * 3 + [
        "5 tokens: InDIGO, cached"
    ] * 3
    assert [row["ratio"] for row in rows if row["name"] == row["against"]] == [1, 1]
