"""Model cards tell what a run's files tell, and no more."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from corpora import (
    PAIRS,
    assert_one_line_refusal,
    call_here,
    full_disk,
    json_lines,
    learn,
    learned,
    metrics,
)
from sacrebleu.metrics import BLEU

from anyorder.config.recipe import load_recipe
from anyorder.evaluation.cards import model_card
from anyorder.training.checkpoint import save_average
from anyorder.training.run_folder import recipe_of_run

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A trained model that nobody has evaluated."""
    return shutil.copytree(learned().run, tmp_path / "run", ignore=shutil.ignore_patterns("last"))


@pytest.fixture
def evaluated(capsys: Capture, run: Path) -> Path:
    json_lines(call_here(capsys, "evaluate", run, "--split", "dev", "--beam", "1,2", "--json"))
    return run


def fenced(card: str, language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", card, re.DOTALL)
    assert found is not None
    return found[1]


def change_recipe(run: Path, **data: str) -> None:
    config = json.loads((run / "config.json").read_text())
    config["recipe"]["data"] |= data
    (run / "config.json").write_text(json.dumps(config))


# What it tells


def test_scores_have_sacrebleus_signature_and_interval(evaluated: Path) -> None:
    outputs, reference = (
        (evaluated / "results" / name).read_text().splitlines() for name in ("dev.txt", "dev.ref1.txt")
    )
    metric = BLEU(tokenize="none", force=True)
    theirs = metric.corpus_score(outputs, [reference], n_bootstrap=1000)
    row = next(line for line in model_card(evaluated).splitlines() if line.startswith("| BLEU"))
    score, low, high = map(float, re.findall(r"\d+\.\d\d(?= [|t]| to)", row))
    assert score == pytest.approx(theirs.score, abs=0.01)
    assert (high - low) / 2 == pytest.approx(theirs._ci, abs=0.01)
    for part in ("nrefs:1", "case:mixed", "tok:none"):
        assert part in row


def test_the_recipe_on_it_is_the_runs(run: Path, tmp_path: Path) -> None:
    written = tmp_path / "recipe.toml"
    written.write_text(fenced(model_card(run), "toml"))
    recipe = recipe_of_run(run)
    given = [f"run={run}", f"data.root={recipe.data.root}", f"data.cache={recipe.data.cache}"]
    assert load_recipe(written, given) == recipe


def test_its_command_makes_the_same_results(
    capsys: Capture, evaluated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = json.loads((evaluated / "results/dev.json").read_text())
    command = fenced(model_card(evaluated), "sh").splitlines()[-1]
    shutil.rmtree(evaluated / "results")
    monkeypatch.chdir(evaluated.parent)
    assert command.startswith("anyorder evaluate run --split dev --beam 1,2 ")
    (after,) = json_lines(call_here(capsys, *command.split()[1:], "--json"))
    for same in ("scores", "decode", "sweep", "hypotheses"):
        assert after[same] == before[same]


def test_an_average_is_made_again_by_both_its_commands(tmp_path: Path) -> None:
    save_average(learned().run, last=2, folder=tmp_path / "mean")
    card = model_card(tmp_path / "mean")
    assert "\nanyorder train recipe.toml data.root=FOLDER run=mean-trained\n" in card
    assert "\nanyorder average mean-trained --last 2 --output mean\n" in card


def test_data_training_and_licence(run: Path) -> None:
    assert "The recipe names no licence for the data." in model_card(run)
    change_recipe(run, name="Words in reverse", licence="CC0")
    card = model_card(run)
    assert f"| train | {PAIRS['train']} | 0 |" in card
    assert f"| dev | {PAIRS['dev']} | 0 |" in card
    assert "- 60 updates of at most 160 tokens" in card
    assert "Words in reverse. It reads a line of text" in card
    assert "Licence of the data: CC0." in card


def test_what_the_files_do_not_tell_is_left_out(run: Path) -> None:
    for name in ("data.json", "metrics.jsonl"):
        (run / name).unlink()
    card = model_card(run)
    assert "| train |" not in card
    assert "updates of" not in card
    assert "- these weights: step " in card


def test_what_searches_found_is_told(tmp_path: Path) -> None:
    sao = [
        "order.name=sao",
        "search.method=guided",
        "search.bootstrap=r2l",
        "search.bootstrap_steps=4",
        "search.beam=2",
    ]
    learn(learned().recipe, tmp_path / "run", *sao, "search.refresh=1", "train.steps=14")
    logged = [line for line in metrics(tmp_path / "run") if "searched_targets" in line]
    counts = [
        f"{line['searched_in_bootstrap_order']} of {line['searched_targets']} before update {line['step']}"
        for line in logged
    ]
    assert len(counts) > 1
    stay = f"- training targets whose best order is `r2l`: {', '.join(counts)}\n"
    assert stay in model_card(tmp_path / "run")


def test_fixed_orders_have_no_searches_to_tell_of(run: Path) -> None:
    assert "whose best order" not in model_card(run)


def test_a_line_that_a_stopped_training_left_half_written_tells_nothing(run: Path) -> None:
    before = model_card(run)
    with (run / "metrics.jsonl").open("a") as log:
        log.write('{"step": 61, "epoch": 9, "sec')
    assert model_card(run) == before


def test_a_run_without_results_says_how_to_get_them(capsys: Capture, run: Path) -> None:
    answer = call_here(capsys, "card", run)
    assert answer.returncode == 0
    assert (
        "There are no results yet: `anyorder evaluate run --split test` makes them." in answer.stdout.decode()
    )
    assert f"{run}: has no results yet" in answer.stderr.decode()


# What is refused, and how it is written


def test_results_of_other_weights_are_refused(capsys: Capture, evaluated: Path) -> None:
    report = evaluated / "results/dev.json"
    report.write_text(report.read_text().replace('"model": "', '"model": "0'))
    assert_one_line_refusal(
        call_here(capsys, "card", evaluated), "its model has changed", "anyorder evaluate"
    )


def test_broken_sizes_are_refused(capsys: Capture, run: Path) -> None:
    (run / "data.json").write_text('{"train": {"pairs": 3}}')
    assert_one_line_refusal(call_here(capsys, "card", run), "data.json: broken")


def test_a_folder_that_is_no_model_is_refused(capsys: Capture, tmp_path: Path) -> None:
    assert_one_line_refusal(call_here(capsys, "card", tmp_path), str(tmp_path), "no trained model")


def test_it_is_written_whole_or_not_at_all(capsys: Capture, run: Path) -> None:
    page = run / "README.md"
    before = page.read_bytes()
    with full_disk():
        refused = call_here(capsys, "card", run, "--output", page)
    assert_one_line_refusal_after_a_remark(refused.stderr.decode(), page)
    assert page.read_bytes() == before
    assert call_here(capsys, "card", run, "--output", page).returncode == 0
    assert page.read_text(encoding="utf-8") == model_card(run)


def assert_one_line_refusal_after_a_remark(said: str, page: Path) -> None:
    remark, refusal = said.splitlines()
    assert "has no results yet" in remark
    assert refusal.startswith(f"anyorder: {page}: can't be written")
