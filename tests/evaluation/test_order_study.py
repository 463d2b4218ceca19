"""Orders of a trained model: searched ones equal brute force, decoded ones equal `generate`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from corpora import PAIRS, learn, learned, sentences, write_corpus, write_lines, write_picture_corpus

from anyorder.data.readers import Files, split_files
from anyorder.errors import UserError
from anyorder.evaluation.order_study import (
    FoundOrders,
    OrderedSentence,
    decode_orders,
    files_of_pairs,
    frequency_labels,
    search_target_orders,
    training_counts,
)
from anyorder.inference.generator import Generator
from anyorder.inference.loaded_model import LoadedModel
from anyorder.inference.model_folder import Trained, load_trained
from anyorder.orders.statistics import QUARTERS

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def trained() -> Trained:
    return load_trained(learned().run, device=CPU)


def pairs(folder: Path, sources: list[str], targets: list[str]) -> Files:
    return files_of_pairs(
        source=write_lines(folder / "sources", sources), target=write_lines(folder / "targets", targets)
    )


def with_batches_of(trained: Trained, tokens: int) -> Trained:
    train = trained.recipe.train.model_copy(update={"batch_tokens": tokens})
    return replace(trained, recipe=trained.recipe.model_copy(update={"train": train}))


def test_a_wide_search_finds_the_best_of_all_orders(trained: Trained, tmp_path: Path) -> None:
    sources, targets = ["a b c", "d e", "f", "g h a b"], ["c b a", "e d", "f", "b a h g"]
    found = search_target_orders(trained, pairs(tmp_path, sources, targets), beam=24, device=CPU)
    generator = Generator(LoadedModel(trained, device=CPU), name="run")
    for sentence, source, target in zip(found.sentences, sources, targets, strict=True):
        every_order = list(permutations(range(1, len(target.split()) + 1)))
        times = len(every_order)
        scores = {
            score.positions: score.score
            for score in generator.score([source] * times, [target] * times, order=every_order)
        }
        assert sentence.log_prob == pytest.approx(max(scores.values()), abs=1e-4)
        assert scores[sentence.positions] == pytest.approx(sentence.log_prob, abs=1e-4)
        assert sentence.left_to_right_log_prob == pytest.approx(scores[every_order[0]], abs=1e-4)
        assert sentence.tokens == sentence.words == tuple(target.split())


def test_orders_do_not_depend_on_how_lines_are_batched(trained: Trained) -> None:
    files = split_files(trained.recipe, "train")
    together = search_target_orders(with_batches_of(trained, 1000), files, beam=3, device=CPU)
    alone = search_target_orders(with_batches_of(trained, 1), files, beam=3, device=CPU)
    assert [one.line for one in together.sentences] == list(range(1, PAIRS["train"] + 1))
    assert [one.tokens for one in together.sentences] == [one.tokens for one in alone.sentences]
    # Which of two equal words comes first is a tie, which falls as the batch lies, and beams may part there.
    ways = [
        [(one.tokens, one.positions) for one in found.sentences if len(set(one.tokens)) == len(one.tokens)]
        for found in (together, alone)
    ]
    assert len(ways[0]) > 10
    assert ways[0] == ways[1]


def test_the_first_lines_are_the_same_ones(trained: Trained) -> None:
    files = split_files(trained.recipe, "dev")
    progress: list[tuple[int, int]] = []
    first = search_target_orders(
        trained, files, beam=2, lines=3, device=CPU, progress=lambda *call: progress.append(call)
    )
    assert [one.positions for one in first.sentences] == [
        one.positions for one in search_target_orders(trained, files, beam=2, device=CPU).sentences[:3]
    ]
    assert progress == [(3, 3)]


def test_what_is_left_out_is_counted(trained: Trained, tmp_path: Path) -> None:
    long = " ".join("abc" * 40)
    files = pairs(tmp_path, ["a", "b", "", "c"], ["a", long, "c", ""])
    found = search_target_orders(trained, files, beam=2, device=CPU)
    assert [one.line for one in found.sentences] == [1]
    assert found.left_out == {"longer than search.max_length = 64 tokens": 1, "empty line": 2}


def test_decoded_orders_are_those_of_generate(trained: Trained) -> None:
    found = decode_orders(trained, split_files(trained.recipe, "dev"), device=CPU)
    sources = (learned().folder / "dev.source").read_text().splitlines()
    answers = [
        hypotheses[0]
        for hypotheses in Generator(LoadedModel(trained, device=CPU), name="run").generate(sources)
    ]
    finished = {line: hypothesis for line, hypothesis in enumerate(answers, start=1) if hypothesis.finished}
    assert {one.line: one.positions for one in found.sentences} == {
        line: hypothesis.positions for line, hypothesis in finished.items()
    }
    for one in found.sentences:
        assert " ".join(one.tokens) == finished[one.line].text
        assert one.log_prob == pytest.approx(finished[one.line].log_prob)
    cut_off = len(answers) - len(finished)
    assert found.left_out == ({"cut off before the end": cut_off} if cut_off else {})


def words_spelled(found: FoundOrders) -> list[list[str]]:
    """Join the tokens of each word, as many as `pieces` says."""
    spelled = []
    for sentence in found.sentences:
        tokens = iter(sentence.tokens)
        spelled.append(
            ["".join(next(tokens).rstrip("·") for _ in range(pieces)) for pieces in sentence.pieces]
        )
        assert next(tokens, None) is None
    return spelled


def test_pieces_make_up_words(tmp_path: Path) -> None:
    recipe = write_corpus(tmp_path)
    for split in PAIRS:  # words of two and three letters, most of them in two pieces
        lines = [
            " ".join(word * 2 + word.upper() for word in line.split())
            for line in sentences(PAIRS[split], seed=3)
        ]
        write_lines(tmp_path / f"{split}.source", lines)
        write_lines(tmp_path / f"{split}.target", lines)
    learn(recipe, tmp_path / "run", "text.unit=bpe", "text.vocabulary=30", "train.steps=40", "order.name=l2r")
    trained = load_trained(tmp_path / "run", device=CPU)
    files = split_files(trained.recipe, "dev")
    searched = search_target_orders(trained, files, beam=2, device=CPU)
    written = decode_orders(trained, files, device=CPU)
    for found in (searched, written):
        assert words_spelled(found) == [list(sentence.words) for sentence in found.sentences]
        assert any(pieces > 1 for sentence in found.sentences for pieces in sentence.pieces)


def test_words_are_counted_in_the_training_targets(trained: Trained, tmp_path: Path) -> None:
    text = (learned().folder / "train.target").read_text()
    assert training_counts(trained.recipe) == Counter(text.split())
    data = trained.recipe.data.model_copy(update={"root": tmp_path})
    assert training_counts(trained.recipe.model_copy(update={"data": data})) is None


def test_pieces_are_as_frequent_as_their_word() -> None:
    sentence = OrderedSentence(
        line=1,
        tokens=("th·", "e", "cat", "zebra"),
        words=("the", "cat", "zebra"),
        pieces=(2, 1, 1),
        positions=(1, 2, 3, 4),
        log_prob=-1.0,
        left_to_right_log_prob=None,
    )
    assert frequency_labels([sentence], {"the": 5, "a": 5, "cat": 1}) == [
        [QUARTERS[1], QUARTERS[1], QUARTERS[3], QUARTERS[3]]  # zebra was never seen
    ]


def test_pictures_are_sources_too(tmp_path: Path) -> None:
    recipe = write_picture_corpus(tmp_path)
    learn(recipe, tmp_path / "run", "train.steps=2", "train.validate_lines=0")
    trained = load_trained(tmp_path / "run", device=CPU)
    found = search_target_orders(trained, split_files(trained.recipe, "dev"), beam=2, device=CPU)
    assert len(found.sentences) == PAIRS["dev"]
    np.save(tmp_path / "wide.npy", np.zeros((8, 2, 4), dtype=np.float32))
    wide = files_of_pairs(source=tmp_path / "wide.npy", target=tmp_path / "dev.target")
    with pytest.raises(UserError, match=r"contains vectors of width 4, but this model reads .* of width 3$"):
        search_target_orders(trained, wide, beam=2, device=CPU)
    text = files_of_pairs(source=tmp_path / "dev.target", target=tmp_path / "dev.target")
    with pytest.raises(UserError, match=r"reads feature vectors of width 3 \(\.npy\), not text$"):
        search_target_orders(trained, text, beam=2, device=CPU)


def test_targets_alone_have_orders_too(tmp_path: Path) -> None:
    recipe = write_corpus(tmp_path)
    text = recipe.read_text()
    for split in ("train", "dev"):
        text = text.replace(f'source = "{split}.source", ', "")
    recipe.write_text(text)
    learn(recipe, tmp_path / "run", "train.steps=2", "train.validate_lines=0")
    trained = load_trained(tmp_path / "run", device=CPU)
    files = split_files(trained.recipe, "dev")
    found = search_target_orders(trained, files, beam=2, device=CPU)
    assert len(found.sentences) == PAIRS["dev"]
    assert not found.left_out
    assert decode_orders(trained, files, device=CPU).sentences


def test_a_model_of_text_refuses_pictures(trained: Trained, tmp_path: Path) -> None:
    write_picture_corpus(tmp_path)
    files = files_of_pairs(source=tmp_path / "dev.npy", target=tmp_path / "dev.target")
    with pytest.raises(UserError, match=r"contains vectors of width 3, but this model reads text$"):
        search_target_orders(trained, files, beam=2, device=CPU)
