"""The ordinary Transformer, against torch's own layers, and in use."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from conftest import FIRST_WORD, random_sources
from corpora import learn, write_corpus
from references import decode_by_torch, encode_by_torch

from anyorder import config
from anyorder.config.model import Shape
from anyorder.data.batches import Batch, Example, collate
from anyorder.decoding.decode import decode
from anyorder.errors import UserError
from anyorder.inference.generator import Generator
from anyorder.models.indigo import Indigo
from anyorder.models.loss import score_steps
from anyorder.models.transformer import LeftToRight
from anyorder.text.tokenizer import BOS, EOD, EOS

WORDS = 3
SETTINGS = {
    "kind": "transformer",
    "width": 8,
    "hidden": 12,
    "heads": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_positions": "sinusoidal",
}


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def tiny(*, seed: int = 0) -> LeftToRight:
    """A random model in which no weight is zero or one."""
    torch.manual_seed(seed)
    shape = Shape(vocabulary=FIRST_WORD + WORDS, target_vocabulary=FIRST_WORD + WORDS)
    model = LeftToRight(config.Model.model_validate(SETTINGS), shape)
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter), alpha=0.4)
    model.word_head.project.weight.mul_(0.4)
    return model.double().eval()


def batch_of(targets: list[tuple[int, ...]], *, backwards: bool = False) -> Batch:
    """These targets, all of one source, written from one of their ends."""

    def order(length: int) -> np.ndarray:
        positions = np.arange(1, length + 1, dtype=np.int32)
        return positions[::-1].copy() if backwards else positions

    source = np.array([FIRST_WORD, FIRST_WORD + 2], dtype=np.int32)
    return collate(
        [Example(source, np.array(target, dtype=np.int32), order(len(target))) for target in targets]
    )


def sentences(longest: int) -> list[tuple[int, ...]]:
    words = range(FIRST_WORD, FIRST_WORD + WORDS)
    return [one for length in range(longest + 1) for one in itertools.product(words, repeat=length)]


# --- its probabilities ---


@pytest.mark.parametrize("seed", range(3))
def test_each_word_is_as_likely_as_by_torchs_own_layers(seed: int) -> None:
    model = tiny(seed=seed)
    chance = np.random.default_rng(seed)
    targets = [tuple(chance.integers(FIRST_WORD, FIRST_WORD + WORDS, size=size)) for size in (5, 1, 3)]
    batch = batch_of(targets)
    scores = score_steps(model, model.encode(batch.source, batch.source_mask), batch)
    memory = encode_by_torch(model, batch.source[:1])
    for row, target in enumerate(targets):
        states = decode_by_torch(model, memory, torch.tensor([[BOS, EOS, *target]]), causal=True)
        queries = states[0, 1:] @ model.word_head.project.weight.T
        log_probs = (queries @ model.embed_output.weight[EOD:].T).log_softmax(dim=1)
        expected = [log_probs[step, word - EOD] for step, word in enumerate([*target, EOD])]
        steps = len(target) + 1
        torch.testing.assert_close(scores.word[row, :steps], torch.stack(expected).to(scores.word))


def test_the_gap_is_never_in_doubt() -> None:
    model, batch = tiny(), batch_of([(FIRST_WORD, FIRST_WORD + 1, FIRST_WORD)])
    scores = score_steps(model, model.encode(batch.source, batch.source_mask), batch)
    assert scores.gap.tolist() == [[0.0] * 4]


def test_another_order_is_impossible() -> None:
    model, batch = tiny(), batch_of([(FIRST_WORD, FIRST_WORD + 1)], backwards=True)
    scores = score_steps(model, model.encode(batch.source, batch.source_mask), batch)
    assert scores.gap[0, :2].tolist() == [0.0, -math.inf]


def test_all_sentences_sum_to_one() -> None:
    """Those of up to three words, and all that begins with three words."""
    model, longest = tiny(), 3
    batch = batch_of(sentences(longest))
    scores = score_steps(model, model.encode(batch.source, batch.source_mask), batch)
    scores.word[batch.lengths == longest, longest] = 0.0  # however these go on
    assert float(scores.word.sum(dim=1).exp().sum()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("search", ["two-step", "joint", "sample"])
def test_what_is_decoded_step_by_step_is_as_likely_as_at_once(search: str) -> None:
    model = tiny(seed=1)
    source, mask = random_sources(lengths=[4, 2], words=WORDS)
    settings = config.Decode.model_validate({"search": search, "beam": 3, "n_best": 3})
    found = decode(model, source, mask, settings=settings, limits=torch.tensor([6, 6]))
    for row, hypotheses in enumerate(found):
        assert len(hypotheses) == 3
        for one in hypotheses:
            assert one.positions == tuple(range(1, len(one.tokens) + 1))
            assert set(one.gap_scores) <= {0.0}
            batch = batch_of([one.tokens])
            memory = model.encode(source[row : row + 1, mask[row]], mask[row : row + 1, mask[row]])
            scores = score_steps(model, memory, batch).word[0].tolist()
            assert one.word_scores == pytest.approx(scores[: len(one.word_scores)], abs=1e-5)


# --- without what it does not need ---


def test_it_has_neither_pointer_nor_relations() -> None:
    shape = Shape(vocabulary=9, target_vocabulary=9)
    indigo = Indigo(config.Model.model_validate(SETTINGS | {"kind": "indigo"}), shape)
    ours = {name for name, _ in tiny().named_parameters()}
    theirs = {name for name, _ in indigo.named_parameters()}
    relations = {f"decoder.{layer}.attention.relation_keys" for layer in range(2)}
    assert theirs - ours == {"gap_head.project.weight", "gap_head.keys.weight", *relations}
    assert ours < theirs


# --- in use ---


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Generator:
    recipe = write_corpus(tmp_path_factory.mktemp("corpus"))
    with torch.enable_grad():
        learn(recipe, recipe.parent / "run", "model.kind=transformer", "train.steps=40", "model.dropout=0")
    return Generator.load(recipe.parent / "run")


def test_it_is_trained_and_used_like_any_other(generator: Generator) -> None:
    (outputs,) = generator.generate(["a b c"], n_best=3)
    assert len(outputs) == 3
    for output in outputs:
        assert output.positions == tuple(range(1, len(output.tokens) + 1))
        assert output.iterations == len(output.tokens)
    finished = [output for output in outputs if output.finished and output.text]
    scores = generator.score(["a b c"] * len(finished), [output.text for output in finished])
    assert [one.score for one in scores] == pytest.approx([one.log_prob for one in finished], abs=1e-4)


@pytest.mark.parametrize("order", ["r2l", "sao", "marginal"])
def test_it_scores_in_no_other_order(generator: Generator, order: str) -> None:
    with pytest.raises(UserError, match=f"^order = '{order}': must be 'l2r' for an ordinary transformer"):
        generator.score(["a b"], ["b a"], order=order)
