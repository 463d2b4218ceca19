"""Copying from the source: probabilities by hand, the cache against none, unknown words taken over whole."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import FIRST_WORD, tiny_model
from corpora import Watcher, write_lines
from torch import Tensor

from anyorder.adaptive.beam import search_orders
from anyorder.config.decode import Decode
from anyorder.config.model import Shape
from anyorder.config.recipe import recipe_with
from anyorder.data.batches import Batch, Example, collate
from anyorder.decoding.decode import decode
from anyorder.errors import UserError
from anyorder.evaluation.evaluate import Evaluator
from anyorder.inference.generator import Generator
from anyorder.models.indigo import Indigo
from anyorder.models.loss import batch_loss, score_steps
from anyorder.models.transformer import LeftToRight
from anyorder.text.pairs import WordDropout
from anyorder.text.tokenizer import EOD, EOS, UNK
from anyorder.training.trainer import train

WORDS = 3
A, B, C = range(FIRST_WORD, FIRST_WORD + WORDS)
OWN = C + 1  # the first id that the vocabulary doesn't have
firsts = pytest.mark.parametrize("first", ["word", "position"])


def copying_model(first: str, *, seed: int = 0) -> Indigo:
    return tiny_model(words=WORDS, first=first, seed=seed, copying=True)


def pair(source: list[int], target: list[int], order: list[int] | None = None) -> Example:
    positions = order or list(range(1, len(target) + 1))
    return Example(*(np.array(side, dtype=np.int32) for side in (source, target, positions)))


# The second word stands twice in the source, one is its own and is written twice, one is not in it at all.
PAIR = pair([B, OWN, B, OWN + 1], [OWN, C, B, OWN], order=[3, 1, 4, 2])


def step_scores(model: Indigo, batch: Batch) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        scores = score_steps(model, model.encode(batch.source, batch.source_mask), batch)
    return scores.word, scores.gap


# --- by hand ---


def words_by_hand(model: Indigo, example: Example) -> list[float]:
    """log p of each step's word: (1 - g) generated + g copied, token by token of the source."""
    batch = collate([example])
    memory = model.encode(batch.source, batch.source_mask)
    states = model.states(memory, batch.words, batch.supervision.positions)[0]
    steps = [*batch.words[0, 2:].tolist(), *([] if model.position_first else [EOD])]
    vectors = model.gap_vector(
        model.gap_head.keys_of(states[None]), left=batch.supervision.left, right=batch.supervision.right
    )[0]
    copy_head = model.copy_head
    assert copy_head is not None
    found = []
    for number, word in enumerate(steps):
        query = model.word_head.project.weight @ states[number + 1]
        if model.gap_to_word is not None:
            query = query + model.gap_to_word.weight @ vectors[number]
        first = FIRST_WORD if model.position_first else EOD
        by_word = (model.embed_output.weight[first : C + 1] @ query).softmax(dim=0)
        generated = float(by_word[word - first]) if word <= C else 0.0
        share = 1 / (1 + math.exp(-float(copy_head.gate.weight[0] @ query + copy_head.gate.bias)))
        asked = copy_head.query.weight @ query
        logits = {
            index: float(asked @ (copy_head.keys.weight @ memory.states[0, index])) / math.sqrt(len(query))
            for index, token in enumerate(batch.source[0].tolist())
            if token != EOS
        }
        total = sum(math.exp(logit) for logit in logits.values())
        copied = sum(
            math.exp(logit) / total for index, logit in logits.items() if int(batch.source[0, index]) == word
        )
        found.append(math.log((1 - share) * generated + share * copied))
    return found


@firsts
@pytest.mark.parametrize("seed", range(3))
def test_a_word_is_generated_or_copied(first: str, seed: int) -> None:
    model = copying_model(first, seed=seed)
    with torch.no_grad():
        by_hand = words_by_hand(model, PAIR)
    word, _ = step_scores(model, collate([PAIR]))
    assert word[0, : len(by_hand)].tolist() == pytest.approx(by_hand, abs=1e-5)


@firsts
@pytest.mark.parametrize(
    "source",
    [
        [OWN + 1, B, OWN + 1],  # the id before it can't be written beside this source
        [EOS],  # a blank one: nothing to copy
    ],
)
def test_what_can_be_written_sums_to_one(first: str, source: list[int]) -> None:
    """All sentences of two tokens in both orders, and the shorter ones that end."""
    model = copying_model(first, seed=1)
    ids = [A, B, C, OWN, OWN + 1]
    ended = [
        pair(source, list(target)) for length in (0, 1) for target in itertools.product(ids, repeat=length)
    ]
    cut = [
        pair(source, list(target), order)
        for target in itertools.product(ids, repeat=2)
        for order in ([1, 2], [2, 1])
    ]
    batch = collate([*ended, *cut])
    word, gap = step_scores(model, batch)
    steps = word + gap
    total = steps[: len(ended)].sum(dim=1).exp().sum() + steps[len(ended) :, :2].sum(dim=1).exp().sum()
    assert float(total) == pytest.approx(1, abs=1e-5)
    nowhere = [index for index, example in enumerate([*ended, *cut]) if OWN in example.target]
    assert float(steps[nowhere].sum(dim=1).exp().sum()) < 1e-9


# --- searching and decoding see the same probabilities ---


@firsts
@pytest.mark.parametrize("search", ["two-step", "joint", "sample"])
def test_decoding_scores_as_the_loss_does(first: str, search: str) -> None:
    model = copying_model(first, seed=2)
    examples = [PAIR, pair([A], [A])]
    batch = collate(examples)
    settings = Decode(search=search, beam=20, n_best=20, length_penalty=0)
    found = decode(model, batch.source, batch.source_mask, settings=settings, limits=torch.tensor([4, 4]))
    own_words = 0
    for example, hypotheses in zip(examples, found, strict=True):
        for one in hypotheses:
            if not one.finished:
                continue
            rewritten = pair(example.source.tolist(), list(one.sentence), list(one.positions))
            word, gap = step_scores(model, collate([rewritten]))
            assert one.log_prob == pytest.approx(float(word.sum() + gap.sum()), abs=1e-4)
            own_words += sum(token >= OWN for token in one.sentence)
    assert own_words


@firsts
def test_searched_orders_score_as_the_loss_does(first: str) -> None:
    """Also in several orders side by side, whose source is there only once."""
    model = copying_model(first)
    batch = collate([PAIR, pair([C, OWN], [OWN, A, C])])
    memory = model.encode(batch.source, batch.source_mask)
    found = search_orders(model, memory, batch.targets, batch.lengths, width=6)
    together = batch.reordered(found.positions, torch.ones(2, 6))
    word, gap = step_scores(model, together)
    assert found.log_probs.flatten().tolist() == pytest.approx((word + gap).sum(dim=1).tolist(), abs=1e-4)
    assert len({tuple(positions) for positions in found.positions[0].tolist()}) == 6


@firsts
def test_pairs_do_not_depend_on_their_company(first: str) -> None:
    model = copying_model(first)
    company = pair([A, OWN, OWN + 1, B, C, A, OWN + 2], [OWN + 2, A, A, B, C])
    alone, together = (step_scores(model, collate(pairs)) for pairs in ([PAIR], [company, PAIR]))
    for side_alone, side_together in zip(alone, together, strict=True):
        torch.testing.assert_close(side_together[1, :5], side_alone[0])


@firsts
def test_all_weights_learn_and_no_gradient_is_lost(first: str) -> None:
    model = copying_model(first)
    loss = batch_loss(model, collate([PAIR, pair([A], [B, C])]), label_smoothing=0.1)
    loss.objective.backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert torch.isfinite(weight.grad).all(), name
        assert weight.grad.abs().sum() > 0, name


def test_an_ordinary_transformer_copies_too() -> None:
    settings = copying_model("word").settings.model_copy(update={"kind": "transformer"})
    torch.manual_seed(0)
    model = LeftToRight(settings, Shape(vocabulary=OWN, target_vocabulary=OWN)).eval()
    word, _ = step_scores(model, collate([pair([OWN], [OWN, A])]))
    assert -20 < float(word.sum()) < 0


def test_own_words_beyond_the_last_kind_look_alike_but_are_copied_apart() -> None:
    model = copying_model("word")
    many = list(range(OWN, OWN + 40))
    states = [
        model.encode(batch.source, batch.source_mask).states
        for batch in (collate([pair(source, [A])]) for source in (many, [*many[:-1], OWN + 20]))
    ]
    torch.testing.assert_close(*states)
    word, _ = step_scores(model, collate([pair(many, [OWN + 39]), pair(many, [OWN + 40])]))
    assert float(word[0, 0]) > -20 > float(word[1, 0])


# --- from text to text ---


def test_words_never_seen_are_taken_over(tmp_path: Path) -> None:
    """`set X to Y` becomes `X = Y`, with names that no two lines share."""
    chance = random.Random(0)

    def lines(number: int) -> tuple[list[str], list[str]]:
        names = [["".join(chance.choices("abcdefghij", k=6)) for _ in range(2)] for _ in range(number)]
        return [f"set {x} to {y}" for x, y in names], [f"{x} = {y}" for x, y in names]

    for split, number in {"train": 400, "dev": 20}.items():
        for side, text in zip(("source", "target"), lines(number), strict=True):
            write_lines(tmp_path / f"{split}.{side}", text)
    recipe = recipe_with(
        {
            "run": tmp_path / "run",
            "data": {
                "root": tmp_path,
                "cache": "cache",
                "train": {"source": "train.source", "target": "train.target"},
                "dev": {"source": "dev.source", "target": "dev.target"},
            },
            "text": {
                "unit": "words",
                "min_count": 3,  # each name stands on both sides of its pair
                "source": {"split": "spaces"},
                "target": {"split": "spaces"},
            },
            "order": {"name": "rf"},
            "model": {
                "width": 32,
                "hidden": 64,
                "heads": 2,
                "encoder_layers": 1,
                "decoder_layers": 1,
                "copying": True,
            },
            "train": {
                "steps": 120,
                "batch_tokens": 400,
                "lr": 1e-2,
                "warmup": 20,
                "validate_every": 120,
                "device": "cpu",
            },
        },
        [],
        origin="here",
    )
    train(recipe, listener=Watcher())
    generator = Generator.load(tmp_path / "run")
    sources, targets = lines(50)
    outputs = [best for best, *_ in generator.generate(sources, beam=1)]
    right = sum(output.text == target for output, target in zip(outputs, targets, strict=True))
    assert right >= 48
    assert generator.tokenizer.size < 12  # of all those names, none is in the vocabulary
    evaluated = Evaluator.load(tmp_path / "run", listener=Watcher()).evaluate("dev")
    assert evaluated.report.reachable == 100.0  # and yet it has words for all
    wrong = generator.score(sources[:1], [targets[1]])[0].score
    assert generator.score(sources[:1], targets[:1])[0].score > wrong + 10
    # Words that only the source knows can be asked for and forbidden too.
    ((asked,), (without,)) = generator.complete(
        ["set zzzzzz to aaaaaa"] * 2, [{"must": ["aaaaaa"]}, {"forbid": ["zzzzzz"]}], beam=1
    )
    assert asked.text == "zzzzzz = aaaaaa"
    assert "zzzzzz" not in without.text.split()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            "model.kind=insertion",
            'copying = true is for kind = "indigo" or "transformer" or "editor", not "insertion"',
        ),
        ("text.unit=bpe train.hide_words=0.2", "train.hide_words = 0.2: needs model.copying = true and"),
        ("data.train={features='a.npy', target='b'}", "model.copying = true: the source must be text"),
    ],
)
def test_copying_has_limits(change: str, complaint: str) -> None:
    files = {"source": "a", "target": "b"}
    values = {"run": "run", "data": {"train": files, "dev": files}, "model": {"copying": True}}
    with pytest.raises(UserError, match=r"copying = true") as caught:
        recipe_with(values, change.split(" ") if "hide" in change else [change], origin="here")
    assert complaint in str(caught.value)


# --- practice: words that are hidden ---


def test_hidden_words_are_renamed_alike_on_both_sides() -> None:
    vocabulary = 12
    # Of the running words, 5 and 6 make up the more frequent half.
    targets = np.array([5] * 6 + [6] * 4 + [7, 8, 9, 10] * 2, dtype=np.int32)
    hiding = WordDropout.of(targets, vocabulary=vocabulary, share=0.999)
    assert np.flatnonzero(hiding.rare).tolist() == [7, 8, 9, 10, 11]
    source = np.array([8, 5, vocabulary, 7, 8, 11], dtype=np.int32)
    target = np.array([5, 7, 8, vocabulary, 9], dtype=np.int32)
    hidden_source, hidden_target = hiding.hidden(source, target, generator=np.random.default_rng(0))
    # 11 is not in the target and 9 not in the source: nothing to copy; the others go by their first place.
    assert hidden_source.tolist() == [12, 5, 13, 14, 12, 11]
    assert hidden_target.tolist() == [5, 14, 12, 13, 9]
    never = WordDropout.of(targets, vocabulary=vocabulary, share=0.0)
    same_source, same_target = never.hidden(source, target, generator=np.random.default_rng(0))
    assert (same_source.tolist(), same_target.tolist()) == (source.tolist(), target.tolist())


def test_about_the_share_asked_for_is_hidden() -> None:
    words = np.arange(5, 1005, dtype=np.int32)
    hiding = WordDropout(rare=np.ones(1005, dtype=np.bool_), share=0.3)
    source, target = hiding.hidden(words, words[::-1], generator=np.random.default_rng(0))
    assert 250 < np.count_nonzero(source >= 1005) < 350
    assert sorted(source.tolist()) == sorted(target.tolist())


@firsts
@pytest.mark.parametrize("search", ["two-step", "joint", "sample"])
def test_unknown_words_may_be_forbidden(first: str, search: str) -> None:
    """What is written instead keeps its probability: nothing is normalised anew."""
    model = tiny_model(words=2, first=first, seed=4)
    batch = collate([pair([A, B], [A]) for _ in range(4)])
    written = {}
    for unknown in (True, False):
        settings = Decode(search=search, beam=8, n_best=8, length_penalty=0, unknown=unknown)
        found = decode(model, batch.source, batch.source_mask, settings=settings, limits=torch.full((4,), 3))
        written[unknown] = [one for hypotheses in found for one in hypotheses]
    assert any(UNK in one.tokens for one in written[True])
    assert not any(UNK in one.tokens for one in written[False])
    for one in written[False]:
        if one.finished:
            rewritten = pair([A, B], list(one.sentence), list(one.positions))
            word, gap = step_scores(model, collate([rewritten]))
            assert one.log_prob == pytest.approx(float(word.sum() + gap.sum()), abs=1e-4)
