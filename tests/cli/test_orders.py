"""The command `orders`: what it prints, draws and refuses."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from corpora import PAIRS, assert_one_line_refusal, call_here, json_lines, learn, learned, write_lines
from hypothesis import given
from hypothesis import strategies as st

from anyorder.cli.order_tables import numbered
from anyorder.evaluation.order_study import OrderedSentence
from anyorder.orders.statistics import Compared, compare_orders, order_statistics
from anyorder.viz.orders import order_chart

Capture = pytest.CaptureFixture[str]


def orders(capsys: Capture, *arguments: object) -> dict[str, Any]:
    """What `anyorder orders` tells of the test's model as JSON."""
    (report,) = json_lines(call_here(capsys, "orders", learned().run, *arguments, "--json"))
    return report


def ordered(tokens: list[str], positions: list[int]) -> OrderedSentence:
    return OrderedSentence(
        line=1,
        tokens=tuple(tokens),
        words=tuple(tokens),
        pieces=(1,) * len(tokens),
        positions=tuple(positions),
        log_prob=-1.0,
    )


# JSON and text


def test_json_tells_all(capsys: Capture) -> None:
    report = orders(capsys, "--beam", "3")
    assert report["title"] == f"{learned().run}, dev: the best orders found, beam 3"
    assert report["left_out"] == {}
    assert report["counted_in"] == "the training targets"
    targets = (learned().folder / "dev.target").read_text().splitlines()
    assert [" ".join(one["tokens"]) for one in report["sentences"]] == targets
    found = order_statistics(
        [one["positions"] for one in report["sentences"]], [one["tokens"] for one in report["sentences"]]
    )
    assert found is not None
    assert report["found"]["figures"] == pytest.approx(vars(found.figures))
    assert report["left_to_right"]["figures"]["kendall"] == 1
    assert report["by_chance"]["figures"]["kendall"] == 0
    tokens = sum(group["tokens"] for group in report["found"]["groups"]["frequency"].values())
    assert tokens == report["found"]["tokens"]


def test_lines_splits_and_other_files(capsys: Capture) -> None:
    folder = learned().folder
    flags = ["--source", folder / "train.source", "--target", folder / "train.target"]
    of_split, of_files = orders(capsys, "--split", "train"), orders(capsys, *flags)
    assert len(of_split["sentences"]) == PAIRS["train"]
    assert of_files["sentences"] == of_split["sentences"]
    assert of_files["title"].startswith(f"{learned().run}, {folder / 'train.target'}: ")
    first = orders(capsys, *flags, "--lines", "5")["sentences"]
    assert [one["positions"] for one in first] == [one["positions"] for one in of_split["sentences"][:5]]


def test_written_orders_are_those_of_the_hypotheses(capsys: Capture) -> None:
    report = orders(capsys, "--written")
    assert report["title"] == f"{learned().run}, dev: how it writes its own hypotheses"
    answer = call_here(capsys, "generate", learned().run, learned().folder / "dev.source", "--json")
    answers = [row["hypotheses"][0] for row in json_lines(answer)]
    assert [one["positions"] for one in report["sentences"]] == [
        one["positions"] for one in answers if one["finished"]
    ]


@pytest.fixture(scope="module")
def searched_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has searched orders and goes on learning from them."""
    run = tmp_path_factory.mktemp("searched") / "run"
    settings = ["search.bootstrap_steps=2", "search.refresh=100", "search.beam=3", "search.max_length=4"]
    learn(
        learned().recipe,
        run,
        "order.name=sao",
        "search.method=guided",
        *settings,
        "train.steps=4",
        "train.validate_every=3",
    )
    return run


def test_stored_orders_are_those_that_training_learns_from(
    capsys: Capture, searched_run: Path, tmp_path: Path
) -> None:
    """As another command, which looks at them in another way, writes them to a file."""
    (report,) = json_lines(call_here(capsys, "orders", searched_run, "--stored", "--json"))
    assert report["title"] == f"{searched_run}, train: the best orders found before update 3, beam 3"
    run, output = shutil.copytree(searched_run, tmp_path / "copy"), tmp_path / "orders.jsonl"
    shutil.copytree(run / "orders" / "step-3", run / "orders" / "step-5")  # so that nothing is searched anew
    assert call_here(capsys, "search-orders", run, "--output", output).returncode == 0
    wanted = [record for record in map(json.loads, output.open()) if len(record["tokens"]) <= 4]
    assert [(one["line"], one["tokens"]) for one in report["sentences"]] == [
        (record["line"], record["tokens"]) for record in wanted
    ]
    for one, record in zip(report["sentences"], wanted, strict=True):
        best, *others = record["orders"]
        assert (one["positions"], one["log_prob"]) == (best["positions"], best["log_prob"])
        assert one["second_log_prob"] == (others[0]["log_prob"] if others else None)
    assert report["left_out"] == {"longer than search.max_length = 4 tokens": PAIRS["train"] - len(wanted)}


def test_how_clearly_the_best_order_stands_out_is_shown(capsys: Capture, searched_run: Path) -> None:
    (report,) = json_lines(call_here(capsys, "orders", searched_run, "--stored", "--lines", "9", "--json"))
    gains = [
        one["log_prob"] - one["second_log_prob"]
        for one in report["sentences"]
        if one["second_log_prob"] is not None
    ]
    assert min(gains) >= 0
    shown = call_here(capsys, "orders", searched_run, "--stored", "--lines", "9").stdout.decode()
    wanted = f"second best order: e^{median(gains):.1f} times less likely (median of {len(gains)})"
    assert wanted in shown.splitlines()


def test_stored_orders_have_words_that_the_vocabulary_lacks(capsys: Capture, tmp_path: Path) -> None:
    run, settings = tmp_path / "run", ["search.bootstrap_steps=2", "search.refresh=9", "text.min_count=60"]
    learn(learned().recipe, run, "order.name=sao", "search.method=guided", *settings, "train.steps=4")
    (report,) = json_lines(call_here(capsys, "orders", run, "--stored", "--json"))
    targets = (learned().folder / "train.target").read_text().splitlines()
    assert [" ".join(one["words"]) for one in report["sentences"]] == targets
    assert any("<unk>" in one["tokens"] for one in report["sentences"])


def test_stored_orders_need_a_search(capsys: Capture, tmp_path: Path) -> None:
    run, output = shutil.copytree(learned().run, tmp_path / "run"), tmp_path / "orders.jsonl"
    assert (
        call_here(capsys, "search-orders", run, "--output", output).returncode == 0
    )  # nobody learns from it
    answer = call_here(capsys, "orders", run, "--stored")
    assert_one_line_refusal(answer, f'{run}: was not trained on stored orders; with order.name = "sao"')


def test_stored_orders_of_other_pairs_are_refused(
    capsys: Capture, searched_run: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(searched_run, tmp_path / "run")
    search = run / "orders" / "step-3" / "search.json"
    search.write_text(json.dumps({**json.loads(search.read_text()), "data": "other"}))
    answer = call_here(capsys, "orders", run, "--stored")
    assert_one_line_refusal(
        answer, f"{search.parent}: not the orders of {run}, its training pairs and [search]"
    )


def test_text_shows_figures_baselines_and_examples(capsys: Capture) -> None:
    report = orders(capsys, "--beam", "2")
    answer = call_here(capsys, "orders", learned().run, "--beam", "2", "--examples", "2")
    shown = answer.stdout.decode()
    assert f"Kendall's tau {report['found']['figures']['kendall']:.3f} 1.000 0.000" in " ".join(shown.split())
    assert "Words were counted in the training targets." in shown
    assert shown.count("\nline ") == 2
    first = report["sentences"][0]
    lines = shown.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("line 1, log p "))
    assert lines[start + 1].split() == first["tokens"]
    written_at = {position: str(step) for step, position in enumerate(first["positions"], start=1)}
    assert lines[start + 2].split() == [written_at[position] for position in sorted(written_at)]


def test_missing_training_targets_are_reported(capsys: Capture, tmp_path: Path) -> None:
    run = shutil.copytree(learned().run, tmp_path / "run")
    config = run / "config.json"
    config.write_text(config.read_text().replace('"target": "train.target"', '"target": "gone"'))
    (report,) = json_lines(call_here(capsys, "orders", run, "--json"))
    assert report["counted_in"] == "these sentences, because the training targets are missing"


def test_parts_of_speech_from_a_file(capsys: Capture, tmp_path: Path) -> None:
    trees = tmp_path / "dev.conllu"
    rows = []
    for target in (learned().folder / "dev.target").read_text().splitlines():
        for number, word in enumerate(target.split(), start=1):
            tag = "VOWEL" if word in "ae" else "CONSONANT"
            rows.append(f"{number}\t{word}\t_\t{tag}\t_\t_\t{number - 1}\t_\t_\t_")
        rows.append("")
    write_lines(trees, rows)
    report = orders(capsys, "--conllu", trees)
    groups = report["found"]["groups"]["part of speech"]
    steps = [
        one["positions"].index(position) / (len(one["positions"]) - 1)
        for one in report["sentences"]
        for position, token in enumerate(one["tokens"], start=1)
        if token in "ae"
    ]
    assert groups["VOWEL"]["tokens"] == len(steps)
    assert groups["VOWEL"]["step"] == pytest.approx(sum(steps) / len(steps))
    assert set(groups) == {"VOWEL", "CONSONANT"}


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--source", "a"], "--source and --target go together: give both or neither"),
        (
            ["--split", "dev", "--source", "a", "--target", "b"],
            "--split dev and --source a: give one of them",
        ),
        (["--source", "nowhere", "--target", "nowhere"], "nowhere: no such file (--source)"),
        (["--split", "test"], "data.test: missing"),
        (
            ["--written", "--beam", "3"],
            "--beam 3: is for searched orders; with --written the recipe's [decode]",
        ),
        (["--parser", "p", "--conllu", "c"], "--parser p and --conllu c: give one of them, not both"),
        (["--written", "--conllu", "c"], "--conllu c: is of the targets; for --written give --parser"),
        (["--stored", "--written"], "--stored and --written: give one of them, not both"),
        (["--stored", "--beam", "3"], "--stored and --beam: give one of them, not both"),
        (["--stored", "--split", "dev"], "--stored and --split: give one of them, not both"),
        (["--conllu", "nowhere"], "--conllu nowhere: no such file"),
        (["--svg", "nowhere/orders.svg"], "--svg nowhere/orders.svg: there is no folder nowhere"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_flags_are_answered_in_one_line(capsys: Capture, arguments: list[str], part: str) -> None:
    assert_one_line_refusal(call_here(capsys, "orders", learned().run, *arguments), part)


def test_an_absent_pipeline_is_named(capsys: Capture) -> None:
    pytest.importorskip("spacy")
    answer = call_here(capsys, "orders", learned().run, "--parser", "xx_nowhere")
    assert_one_line_refusal(answer, "--parser 'xx_nowhere': no such spaCy pipeline is installed")


def test_targets_of_one_token_have_no_order(capsys: Capture, tmp_path: Path) -> None:
    line = write_lines(tmp_path / "line", ["a"])
    answer = call_here(capsys, "orders", learned().run, "--source", line, "--target", line)
    assert_one_line_refusal(answer, "no sentence has two tokens or more, so there is no order to study")


def test_lines_that_can_not_be_read_are_reported_where_none_is_left(capsys: Capture, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "source", ["a b"])
    target = tmp_path / "target"
    target.write_bytes(b"a \xff\n")
    answer = call_here(capsys, "orders", learned().run, "--source", source, "--target", target)
    assert_one_line_refusal(answer, "no order to study; left out: 1 (not valid UTF-8")


# Sentences with their steps


def test_steps_stand_below_their_tokens() -> None:
    drawn = numbered(ordered(["a", "brown", "dog", "[x]"], [3, 2, 1, 4]), width=80)
    assert drawn.plain == "a brown dog [x]\n3 2     1   4\n"


def test_wide_characters_take_two_columns() -> None:
    assert numbered(ordered(["犬", "が"], [2, 1]), width=80).plain == "犬 が\n2  1\n"


@given(
    words=st.lists(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=30), width=st.integers(10, 40)
)
def test_long_sentences_wrap(words: list[str], width: int) -> None:
    positions = list(range(len(words), 0, -1))
    lines = numbered(ordered(words, positions), width=width).plain.splitlines()
    assert all(len(line) <= width for line in lines)
    assert " ".join(lines[0::2]).split() == words
    assert [int(step) for step in " ".join(lines[1::2]).split()] == positions


# The picture


def compared() -> Compared:
    kinds = {"kind": ["XYX", "<&"]}
    found = compare_orders([[2, 1, 3], [2, 1]], ["abc", "de"], labels=kinds)
    assert found is not None
    return found


def test_the_chart_shows_the_heat_map_and_the_groups() -> None:
    figure = order_chart(compared(), title="a <run>")
    assert figure.get_suptitle() == "a <run>"
    heat, *bars = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
    assert heat.collections[0].get_array().tolist() == compared().found.heat
    assert [axes.get_title(loc="left") for axes in bars] == ["mean step by kind"]
    assert [tick.get_text() for tick in bars[0].get_yticklabels()] == list(compared().found.groups["kind"])


def test_bars_are_as_long_as_steps_are_late() -> None:
    figure = order_chart(compared(), title="t")
    bars = next(axes for axes in figure.axes if axes.containers)
    groups = compared().found.groups["kind"]
    steps = [group.step for group in groups.values()]
    assert [bar.get_width() for bar in bars.patches] == pytest.approx(steps)
    reading = [compared().left_to_right.groups["kind"][label].step for label in groups]
    assert bars.collections[0].get_offsets()[:, 0].tolist() == pytest.approx(reading)


def test_the_command_draws_what_it_found(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "orders.svg"
    report = orders(capsys, "--svg", path)
    root = ElementTree.parse(path).getroot()
    assert root.find("{*}title").text == report["title"]
    assert f"{report['found']['sentences']} sentences" in " ".join(
        text.text for text in root.findall(".//{*}text")
    )
