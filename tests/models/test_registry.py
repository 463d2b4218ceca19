"""Every kind of model, trained and used by the same commands; what one can't do is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from corpora import (
    assert_one_line_refusal,
    call_here,
    json_lines,
    last_weights,
    learn,
    learned,
    metrics,
    write_corpus,
)

from anyorder import config
from anyorder.errors import UserError
from anyorder.inference.generator import Generator
from anyorder.models.registry import FAMILIES

KINDS = ("indigo", "transformer", "insertion")
INSERTION = ("model.kind=insertion", "model.dropout=0.1", "train.accumulate=2", "train.label_smoothing=0.1")
kinds = pytest.mark.parametrize("kind", KINDS)

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def insertion(corpus: Path) -> Path:
    """The run of an Insertion Transformer."""
    run = corpus.parent / "insertion"
    learn(corpus, run, *INSERTION)
    return run


def test_these_are_all_kinds_that_a_recipe_may_ask_for(corpus: Path) -> None:
    assert tuple(FAMILIES) == tuple(config.KINDS) == (*KINDS, "editor")
    with pytest.raises(UserError, match="must be 'indigo', 'transformer', 'insertion' or 'editor'"):
        learn(corpus, corpus.parent / "other", "model.kind=other")


@kinds
def test_the_kind_is_kept_with_the_model(corpus: Path, tmp_path: Path, kind: str, capsys: Capture) -> None:
    learn(corpus, tmp_path / "run", f"model.kind={kind}", "train.steps=4")
    model = Generator.load(tmp_path / "run").trained.model
    assert model.settings.kind == kind
    (facts,) = json_lines(call_here(capsys, "info", tmp_path / "run", "--json"))
    assert (facts["kind"], facts["order"]) == (kind, "none" if kind == "insertion" else "l2r")
    assert f"- {config.KINDS[kind].name}, which" in (tmp_path / "run/README.md").read_text()


@kinds
def test_learning_lowers_the_loss(corpus: Path, tmp_path: Path, kind: str) -> None:
    learn(corpus, tmp_path / "run", f"model.kind={kind}", "model.dropout=0", "train.steps=40")
    dev = [line["dev_loss"] for line in metrics(tmp_path / "run") if "dev_loss" in line]
    assert dev[-1] < 0.9 * dev[0]


# --- from before there were kinds ---


def test_a_model_from_before_is_an_indigo(corpus: Path, tmp_path: Path) -> None:
    learn(corpus, tmp_path / "run", "train.steps=4")
    path = tmp_path / "run/config.json"
    configuration = json.loads(path.read_text())
    forget(configuration["recipe"])
    path.write_text(json.dumps(configuration))
    assert Generator.load(tmp_path / "run").trained.model.settings.kind == "indigo"


def test_a_run_from_before_goes_on(corpus: Path, tmp_path: Path) -> None:
    learn(corpus, tmp_path / "run", "train.steps=4")
    path = tmp_path / "run/recipe.json"
    recipe = json.loads(path.read_text())
    forget(recipe)
    path.write_text(json.dumps(recipe))
    watcher = learn(corpus, tmp_path / "run", "train.steps=8", resume=True)
    assert "going on from step 4" in watcher.notes[0]


def forget(recipe: dict[str, dict[str, object]]) -> None:
    """Keys that recipes once did not have."""
    del recipe["insertion"], recipe["model"]["kind"], recipe["decode"]["parallel"]
    del recipe["decode"]["eos_penalty"]


# --- an Insertion Transformer ---


def test_a_stopped_insertion_transformer_goes_on_as_if_it_never_was(
    corpus: Path, insertion: Path, tmp_path: Path
) -> None:
    learn(corpus, tmp_path / "run", *INSERTION, "train.steps=6")
    learn(corpus, tmp_path / "run", *INSERTION, resume=True)
    assert last_weights(tmp_path / "run") == last_weights(insertion)
    one, other = (
        [line["dev_loss"] for line in metrics(run) if line["step"] == 12 and "dev_loss" in line]
        for run in (tmp_path / "run", insertion)
    )
    assert one == other


def test_all_its_words_are_told_with_their_positions_and_rounds(insertion: Path) -> None:
    generator = Generator.load(insertion)
    for options in ({}, {"parallel": True}, {"parallel": True, "eos_penalty": 5.0}):
        (outputs,) = generator.generate(["a b c d"], **options)
        (output,) = outputs
        assert sorted(output.positions) == list(range(1, len(output.tokens) + 1))
        assert output.iterations <= len(output.tokens)
        assert [step.token for step in output.steps] == list(output.tokens)
        assert output.log_prob == pytest.approx(sum(output.word_scores) + sum(output.gap_scores))


def test_the_command_writes_and_draws(insertion: Path, corpus: Path, capsys: Capture) -> None:
    source = corpus.parent / "dev.source"
    flags = ("--parallel", "--eos-penalty", "4", "--max-length", "6")
    told = json_lines(call_here(capsys, "generate", insertion, source, *flags, "--json"))
    written = [line["hypotheses"][0] for line in told]
    assert any(one["iterations"] < len(one["tokens"]) for one in written)
    drawn = call_here(capsys, "generate", insertion, source, *flags, "--trace").stdout.decode()
    assert all(token in drawn for one in written for token in one["tokens"])


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ({"beam": 4}, 'decode.beam = 4: must be 1 for model.kind = "insertion"'),
        ({"n_best": 4}, 'decode.n_best = 4: must be 1 for model.kind = "insertion"'),
        (
            {"search": "joint"},
            'decode.search = "joint": must be "two-step" or "sample" for model.kind = "insertion"',
        ),
        (
            {"search": "sample"},
            'decode.search = "sample": needs insertion.termination = "classifier" or "sequence"',
        ),
        ({"merge": True}, 'decode.merge = true: must be false for model.kind = "insertion"'),
    ],
)
def test_it_knows_no_beams_nor_samples(insertion: Path, options: dict[str, object], answer: str) -> None:
    with pytest.raises(UserError) as refused:
        Generator.load(insertion).generate(["a"], **options)
    assert str(refused.value).startswith(answer)


@pytest.mark.parametrize(
    ("key", "value"), [("parallel", True), ("eos_penalty", 1.0), ("confidence", "margin")]
)
def test_others_know_nothing_of_rounds(key: str, value: object) -> None:
    with pytest.raises(UserError, match=f'^decode.{key} = .* must be .* for model.kind = "indigo"'):
        Generator.load(learned().run).generate(["a"], **{key: value})


# --- with the loss of the insertion language model ---


@pytest.fixture(scope="module")
def ilm(corpus: Path) -> Path:
    """The run of an Insertion Transformer with that loss, a stop classifier and distances on its canvas."""
    run = corpus.parent / "ilm"
    learn(
        corpus,
        run,
        "model.kind=insertion",
        "insertion.loss=ilm",
        "insertion.canvases=2",
        "insertion.positions=relative",
        "model.dropout=0.1",
    )
    return run


def test_it_samples_and_the_same_text_is_merged(ilm: Path) -> None:
    generator = Generator.load(ilm)
    options = {"search": "sample", "n_best": 6, "max_length": 2, "eos_penalty": 3.0, "temperature": 2.0}
    drawn, again = (generator.generate(["a b c d"], **options)[0] for _ in range(2))
    assert [one.text for one in drawn] == [one.text for one in again]
    assert len(drawn) == 6
    assert len({one.text for one in drawn}) > 1
    for one in drawn:
        assert one.log_prob == pytest.approx(sum(one.word_scores) + sum(one.gap_scores))
        assert len(one.gap_scores) == len(one.tokens) + one.finished, "the classifier's score comes last"
    merged = generator.generate(["a b c d"], **options, merge=True)[0]
    assert len({(one.text, one.finished) for one in merged}) == len(merged) <= 6


@pytest.mark.parametrize("confidence", ["probability", "margin", "entropy"])
def test_the_command_knows_how_to_be_confident(
    ilm: Path, corpus: Path, confidence: str, capsys: Capture
) -> None:
    source = corpus.parent / "dev.source"
    told = json_lines(
        call_here(capsys, "generate", ilm, source, "--confidence", confidence, "--max-length", "4", "--json")
    )
    assert all(len(line["hypotheses"]) == 1 for line in told)
    assert told


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ({"parallel": True}, 'decode.parallel = true: needs insertion.termination = "gap"'),
        (
            {"search": "sample", "parallel": True},
            'decode: parallel is greedy; search = "sample" draws one insertion a step',
        ),
        (
            {"search": "sample", "confidence": "margin"},
            'decode: confidence = "margin" is for one greedy insertion a step: search = "sample" draws a gap',
        ),
        ({"search": "sample", "beam": 3}, 'decode.beam = 3: must be 1 for model.kind = "insertion"'),
    ],
)
def test_options_that_do_not_fit_are_refused(ilm: Path, options: dict[str, object], answer: str) -> None:
    with pytest.raises(UserError) as refused:
        Generator.load(ilm).generate(["a"], **options)
    assert str(refused.value).startswith(answer)


def test_what_needs_an_order_is_refused(insertion: Path, corpus: Path, capsys: Capture) -> None:
    source, target = (corpus.parent / f"dev.{side}" for side in ("source", "target"))
    scored = call_here(capsys, "score", insertion, "--source", source, "--target", target)
    assert_one_line_refusal(scored, 'score: model.kind = "insertion" has no log p of a target in an order')
    searched = call_here(capsys, "orders", insertion)
    assert_one_line_refusal(searched, 'search of orders: model.kind = "insertion" has no log p')
    beams = call_here(capsys, "evaluate", insertion, "--split", "dev", "--beam", "1-3")
    assert_one_line_refusal(beams, "--beam 2: decode.beam = 2: must be 1 for model.kind")
    again = call_here(capsys, "search-orders", insertion)
    assert_one_line_refusal(again, 'search-orders: model.kind = "insertion" has no log p')
