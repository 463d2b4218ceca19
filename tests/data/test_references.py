"""Captions that share an image: one row of features, one output, all captions as references."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import Watcher, write_lines
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU

from anyorder.config.recipe import Recipe
from anyorder.data.batches import collate_sources
from anyorder.data.corpus import Corpus, load_split, train_tokenizer
from anyorder.data.dataset import prepare
from anyorder.data.readers import Features
from anyorder.data.references import pairs_by_source, reference_texts
from anyorder.errors import UserError
from anyorder.evaluation.evaluate import Evaluator, ScoringSettings
from anyorder.evaluation.results import load_results
from anyorder.text.tokenizer import UNK
from anyorder.training.trainer import train
from anyorder.training.validation import Validation

IMAGES = ("cat.jpg", "dog.jpg", "owl.jpg")
# Captions of an image need not lie together, nor be as many.
CAPTIONS = [
    ("dog.jpg", "a dog runs"),
    ("cat.jpg", "a cat sits"),
    ("dog.jpg", "the dog is fast"),
    ("cat.jpg", "the cat"),
    ("dog.jpg", "it runs"),
]
SMALL = {"width": 8, "hidden": 8, "heads": 1, "encoder_layers": 1, "decoder_layers": 1}


def write_images(folder: Path) -> np.ndarray:
    """Features of the images, as whole numbers; returns their values."""
    numbers = np.random.default_rng(1).integers(0, 256, (len(IMAGES), 2, 2, 3)).astype(np.uint8)
    np.savez(folder / "images.npz", names=IMAGES, grid=numbers, scale=np.float32(0.5), zero_point=np.int32(7))
    return (numbers.reshape(len(IMAGES), 4, 3) - 7.0) * 0.5


def captions_recipe(folder: Path, captions: list[tuple[str, str]], **data: Any) -> Recipe:  # noqa: ANN401
    write_lines(folder / "captions.tsv", [f"{image}\t{caption}" for image, caption in captions])
    split = {"features": "images.npz", "captions": "captions.tsv"}
    values = {"root": folder, "cache": "cache", "train": split, "dev": split, "test": split} | data
    return Recipe.model_validate(
        {
            "run": folder / "run",
            "data": values,
            "text": {"unit": "words", "target": {"split": "spaces"}},
            "model": SMALL,
            "train": {"steps": 2, "validate_every": 2, "batch_tokens": 30, "device": "cpu"},
        }
    )


def corpus_of(recipe: Recipe) -> Corpus:
    return load_split(recipe, "train", train_tokenizer(recipe))


# Laws


@given(st.lists(st.sampled_from(IMAGES), min_size=1, max_size=8))
def test_every_caption_finds_its_image_and_every_image_its_captions(chosen: list[str]) -> None:
    captions = [(image, f"caption {number}") for number, image in enumerate(chosen)]
    with tempfile.TemporaryDirectory() as name:
        values = write_images(Path(name))
        recipe = captions_recipe(Path(name), captions)
        corpus = corpus_of(recipe)
        assert isinstance(corpus.source, Features)
        for pair, image in enumerate(chosen):
            assert np.allclose(corpus.source[pair], values[IMAGES.index(image)])
        by_source = pairs_by_source(corpus)
        assert [[chosen[pair] for pair in pairs] for pairs in by_source] == [
            [image] * chosen.count(image) for image in dict.fromkeys(chosen)
        ]
        references = reference_texts(recipe, "train", corpus, by_source)
        for number, image in enumerate(dict.fromkeys(chosen)):
            own = [caption for given_image, caption in captions if given_image == image]
            assert {reference[number] for reference in references} == set(own)
            assert [reference[number] for reference in references][: len(own)] == own


def test_a_batch_holds_values_not_numbers(tmp_path: Path) -> None:
    values = write_images(tmp_path)
    corpus = corpus_of(captions_recipe(tmp_path, CAPTIONS))
    assert isinstance(corpus.source, Features)
    assert corpus.source.grid.numbers.dtype == np.uint8
    batch, _ = collate_sources([corpus.source[0], corpus.source[1]])
    assert np.allclose(batch.numpy(), values[[1, 0]])
    assert corpus.source.lengths().tolist() == [4] * len(CAPTIONS)


# Tables


def test_references_are_as_many_as_an_image_has_at_most(tmp_path: Path) -> None:
    write_images(tmp_path)
    recipe = captions_recipe(tmp_path, CAPTIONS)
    corpus = corpus_of(recipe)
    assert pairs_by_source(corpus) == [[0, 2, 4], [1, 3]]
    assert reference_texts(recipe, "train", corpus, pairs_by_source(corpus)) == [
        ["a dog runs", "a cat sits"],
        ["the dog is fast", "the cat"],
        ["it runs", "a cat sits"],
    ]
    assert reference_texts(recipe, "train", corpus, []) == []


def test_text_has_a_source_a_line_even_where_lines_are_equal(tmp_path: Path) -> None:
    write_lines(tmp_path / "source", ["same", "same"])
    write_lines(tmp_path / "target", ["one", "two"])
    split = {"source": "source", "target": "target"}
    recipe = captions_recipe(tmp_path, [], train=split, dev=split, test=split)
    corpus = corpus_of(recipe)
    assert pairs_by_source(corpus) == [[0], [1]]
    assert reference_texts(recipe, "train", corpus, [[0], [1]]) == [["one", "two"]]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("no tab here", "captions.tsv:2: no tab (allowed: image<TAB>caption)"),
        ("emu.jpg\ta bird", "captions.tsv:2: image without features (emu.jpg)"),
        ("cat.jpg\t", "captions.tsv:2: empty line"),
    ],
)
def test_a_bad_line_of_captions_is_refused_or_skipped(tmp_path: Path, line: str, complaint: str) -> None:
    write_images(tmp_path)
    recipe = captions_recipe(tmp_path, CAPTIONS[:1], bad_lines="skip")
    with (tmp_path / "captions.tsv").open("a") as captions:
        captions.write(f"{line}\ncat.jpg\ta cat\n")
    assert corpus_of(recipe).lines.tolist() == [1, 3]
    with pytest.raises(UserError) as raised:
        corpus_of(recipe.model_copy(update={"data": recipe.data.model_copy(update={"bad_lines": "refuse"})}))
    assert complaint in str(raised.value)


def test_captions_need_images_with_names(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", np.ones((2, 1, 3)))
    split = {"features": "images.npy", "captions": "captions.tsv"}
    recipe = captions_recipe(tmp_path, CAPTIONS, train=split)
    with pytest.raises(
        UserError, match=r"images\.npy: its images have no names; .* \(data\.train\.features\)"
    ):
        corpus_of(recipe)


@pytest.mark.parametrize("other", ["source", "target", "jsonl"])
def test_captions_go_with_features_alone(tmp_path: Path, other: str) -> None:
    split = {"features": "images.npz", "captions": "captions.tsv"}
    for given_files in (split | {other: "file"}, {"captions": "captions.tsv"}):
        with pytest.raises(ValueError, match=r"captions go with features|give either jsonl or"):
            captions_recipe(tmp_path, CAPTIONS, train=given_files)


# From training to scores


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_images(tmp_path)
    recipe = captions_recipe(tmp_path, CAPTIONS)
    train(recipe, listener=Watcher())
    return recipe.run


def evaluator(run: Path, **how: Any) -> Evaluator:  # noqa: ANN401 (as load has it)
    return Evaluator.load(run, listener=Watcher(), device="cpu", **how)


def test_an_image_is_decoded_once_and_scored_by_all_its_captions(run: Path) -> None:
    evaluated = evaluator(run).evaluate("test", scoring=ScoringSettings(metrics=["bleu", "exact"]))
    results = load_results(run, "test")
    assert evaluated.report.lines == len(results.hypotheses) == 2
    assert results.references[0] == ["a dog runs", "a cat sits"]
    assert "nrefs:3" in evaluated.report.scores["bleu"].signature
    by_sacrebleu = BLEU(tokenize="none").corpus_score(results.hypotheses, results.references).score
    assert evaluated.report.scores["bleu"].score == pytest.approx(by_sacrebleu)


def test_the_first_images_may_be_a_trial(run: Path) -> None:
    evaluated = evaluator(run, first_lines=1).evaluate("test")
    assert evaluated.report.lines == 1
    assert load_results(run, "test", first_lines=1).references == [
        *(["a dog runs"], ["the dog is fast"], ["it runs"])
    ]


def test_references_of_ones_own_have_a_line_an_image(run: Path) -> None:
    own = ScoringSettings(references=[["dog", "cat"]])
    evaluator(run).evaluate("test", scoring=own)
    assert load_results(run, "test").references == [["dog", "cat"]]
    with pytest.raises(UserError, match="reference 1 has 5 lines, but test has 2"):
        evaluator(run).evaluate("test", scoring=ScoringSettings(references=[["x"] * 5]))


def test_validation_counts_images_and_knows_all_captions(tmp_path: Path) -> None:
    write_images(tmp_path)
    recipe = captions_recipe(tmp_path, CAPTIONS)
    prepared = prepare(recipe)
    validation = Validation(recipe, prepared.dev, prepared.tokenizer)
    assert validation.decoded_pairs == [0, 1]
    assert len(validation.references) == 3


def test_the_vocabulary_does_not_depend_on_images_that_were_there(tmp_path: Path) -> None:
    """What the cache keeps of the captions alone must hold whatever images come later."""
    write_images(tmp_path)
    captions = [*CAPTIONS, ("emu.jpg", "an emu")]
    few = train_tokenizer(captions_recipe(tmp_path, captions, bad_lines="skip"))
    numbers = np.zeros((4, 2, 2, 3), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", names=[*IMAGES, "emu.jpg"], grid=numbers, scale=1.0, zero_point=0)
    many = train_tokenizer(captions_recipe(tmp_path, captions, bad_lines="skip"))
    anew = train_tokenizer(captions_recipe(tmp_path, captions, bad_lines="skip", cache="another"))
    assert few.size == many.size == anew.size
    assert UNK not in many.encode("an emu", "target").ids
