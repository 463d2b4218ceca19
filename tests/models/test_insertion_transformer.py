"""The Insertion Transformer: its canvases, loss and decoding, against loops from the paper's formulas."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
from conftest import FIRST_WORD, random_examples, random_sources
from hypothesis import given
from hypothesis import strategies as st
from references import decode_by_torch, encode_by_torch
from torch import Tensor

from anyorder import config
from anyorder.config.model import Shape
from anyorder.data.batches import Batch, collate
from anyorder.decoding.beam import TokenHypothesis
from anyorder.decoding.insertion_transformer import decode_insertions
from anyorder.models.insertion_transformer import (
    InsertionTransformer,
    canvas_loss,
    canvas_of,
    draw_canvas,
    insertion_loss,
    word_weights,
)
from anyorder.text.tokenizer import BOS, EOD, EOS

WORDS = 4
SETTINGS = {
    "kind": "insertion",
    "width": 8,
    "hidden": 12,
    "heads": 2,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_positions": "sinusoidal",
}

terminations = pytest.mark.parametrize("termination", ["gap", "sequence"])
losses = pytest.mark.parametrize("loss", ["uniform", "binary"])
# A target as whether each of its tokens is on the canvas.
kept_tokens = st.lists(st.booleans(), min_size=1, max_size=9)


def tiny(*, seed: int = 0, **insertion: object) -> InsertionTransformer:
    """A random model in which no weight is zero or one."""
    torch.manual_seed(seed)
    shape = Shape(vocabulary=FIRST_WORD + WORDS, target_vocabulary=FIRST_WORD + WORDS)
    model = InsertionTransformer(
        config.Model.model_validate(SETTINGS), config.Insertion.model_validate(insertion), shape
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.4)
    return model.double().eval()


def batch_of(*lengths: int, seed: int = 0) -> Batch:
    return collate(random_examples(lengths=lengths, words=WORDS, seed=seed))


@torch.no_grad()
def joint_by_torch(model: InsertionTransformer, source: Tensor, words: Sequence[int]) -> Tensor:
    """log p of every word in every gap, by torch's own layers. source: (1, S); returns (gaps, V)."""
    canvas = torch.tensor([[BOS, *words, EOS]])
    (states,) = decode_by_torch(model, encode_by_torch(model, source), canvas, causal=False)
    gaps = [model.join(torch.cat([left, right])) for left, right in pairwise(states)]
    logits = torch.stack(gaps) @ model.embed_output.weight[EOD:].T
    return logits.flatten().log_softmax(dim=0).view_as(logits)


# --- the distribution ---


def test_every_insertion_is_as_likely_as_by_torchs_own_layers() -> None:
    """Also on a canvas that is padded in a batch, and all insertions into a canvas sum to one."""
    model = tiny()
    source, mask = random_sources(lengths=[4, 4, 4], words=WORDS)
    canvases = [[], [FIRST_WORD + 2, FIRST_WORD], [FIRST_WORD + 1]]
    words = torch.tensor(
        [[BOS, *canvas, EOS, *[FIRST_WORD] * (2 - len(canvas))] for canvas in canvases]
    )  # padding is not seen, whatever it is
    lengths = torch.tensor([2 + len(canvas) for canvas in canvases])
    with torch.no_grad():
        found = model.insertions(model.source_keys(model.encode(source, mask)), words, lengths)
    joint = (found.gap - found.normaliser)[..., None] + found.logits
    torch.testing.assert_close(joint.exp().sum(dim=(1, 2)), torch.ones(3).double())
    for row, canvas in enumerate(canvases):
        expected = joint_by_torch(model, source[row : row + 1], canvas)
        torch.testing.assert_close(joint[row, : len(expected)], expected, check_dtype=False)


# --- canvases ---


@given(st.lists(kept_tokens, min_size=1, max_size=4))
def test_missing_tokens_put_into_their_gaps_make_the_target(rows: list[list[bool]]) -> None:
    longest = max(map(len, rows))
    targets = FIRST_WORD + torch.arange(len(rows) * longest).view(len(rows), longest)
    lengths = torch.tensor([len(row) for row in rows])
    kept = torch.tensor([row + [False] * (longest - len(row)) for row in rows])
    canvas = canvas_of(targets, lengths, kept)
    for row, length in enumerate(lengths.tolist()):
        read = canvas.words[row, : canvas.lengths[row]].tolist()
        assert (read[0], read[-1]) == (BOS, EOS)
        gaps: list[list[int]] = [[] for _ in read[:-1]]
        for token in canvas.missing[row].nonzero().squeeze(1).tolist():
            gaps[int(canvas.gap[row, token])].append(int(targets[row, token]))
        rebuilt = [word for left, gap in zip(read, gaps, strict=False) for word in (left, *gap)]
        assert rebuilt[1:] == targets[row, :length].tolist()


def test_each_size_of_a_canvas_is_as_likely_and_each_choice_of_so_many() -> None:
    draws, length = 8000, 3
    targets = torch.arange(5).expand(draws, 5)
    drawn = draw_canvas(targets, torch.full((draws,), length), generator=torch.Generator().manual_seed(0))
    assert not drawn.missing[:, length:].any()
    counts = Counter(tuple(row) for row in (~drawn.missing[:, :length]).tolist())
    assert len(counts) == 2**length
    for kept, count in counts.items():
        share = 1 / (length + 1) / math.comb(length, sum(kept))
        assert count / draws == pytest.approx(share, abs=4 * math.sqrt(share / draws))


# --- the loss ---


def weights_by_hand(span: list[int], insertion: config.Insertion) -> list[float]:
    """Of the positions of one gap's missing tokens."""
    if insertion.loss == "uniform":
        return [1 / len(span)] * len(span)
    middle = (span[0] + span[-1]) / 2
    unnormalised = [math.exp(-abs(position - middle) / insertion.temperature) for position in span]
    return [weight / sum(unnormalised) for weight in unnormalised]


def spans_by_hand(kept: Sequence[bool]) -> list[list[int]]:
    """The positions that each gap misses."""
    spans: list[list[int]] = [[]]
    for position, there in enumerate(kept):
        if there:
            spans.append([])
        else:
            spans[-1].append(position)
    return spans


@losses
@given(kept=kept_tokens, temperature=st.sampled_from([0.3, 1.0, 5.0]))
def test_words_count_by_the_formula(loss: str, kept: list[bool], temperature: float) -> None:
    insertion = config.Insertion.model_validate({"loss": loss, "temperature": temperature})
    length = len(kept)
    canvas = canvas_of(torch.full((1, length), FIRST_WORD), torch.tensor([length]), torch.tensor([kept]))
    expected = [0.0] * length
    for span in spans_by_hand(kept):
        for position, weight in zip(span, weights_by_hand(span, insertion) if span else [], strict=True):
            expected[position] = weight
    assert word_weights(canvas, insertion)[0].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("length", "expected"),
    [(1, [1]), (2, [0.5, 0.5]), (3, [0, 1, 0]), (4, [0, 0.5, 0.5, 0]), (5, [0, 0, 1, 0, 0])],
)
def test_a_binary_tree_without_doubt_begins_in_the_middle(length: int, expected: list[float]) -> None:
    cold = config.Insertion(loss="binary", temperature=1e-4)
    nothing = torch.zeros(1, length, dtype=torch.bool)
    canvas = canvas_of(torch.full((1, length), FIRST_WORD), torch.tensor([length]), nothing)
    assert word_weights(canvas, cold)[0].tolist() == pytest.approx(expected)


def loss_by_hand(model: InsertionTransformer, source: Tensor, target: list[int], kept: list[bool]) -> float:
    """Times the T + 1 sizes of a canvas."""
    words = [word for word, there in zip(target, kept, strict=True) if there]
    log_probs = joint_by_torch(model, source, words)
    of_gaps = []
    for gap, span in enumerate(spans_by_hand(kept)):
        if span:
            weights = weights_by_hand(span, model.insertion)
            scores = [float(log_probs[gap, target[position] - EOD]) for position in span]
            of_gaps.append(-sum(weight * score for weight, score in zip(weights, scores, strict=True)))
        elif model.insertion.termination == "gap" or all(kept):
            of_gaps.append(-float(log_probs[gap, 0]))
    return (len(target) + 1) * sum(of_gaps) / len(of_gaps)


@losses
@terminations
@pytest.mark.parametrize("seed", range(3))
def test_the_loss_is_the_formula(loss: str, termination: str, seed: int) -> None:
    """On an empty canvas, a whole one and some in between, with weights."""
    model = tiny(seed=seed, loss=loss, termination=termination, temperature=0.7)
    batch = replace(batch_of(6, 4, 3, 5, seed=seed), weights=torch.tensor([1.0, 0.5, 2.0, 0.0]))
    kept = torch.rand(4, 6, generator=torch.Generator().manual_seed(seed)) < 0.5
    kept[1], kept[2] = False, True
    kept &= torch.arange(6) < batch.lengths[:, None]
    canvas = canvas_of(batch.targets, batch.lengths, kept)
    with torch.no_grad():
        found = canvas_loss(model, batch, canvas)
    expected = 0.0
    for row, (length, weight) in enumerate(zip(batch.lengths.tolist(), batch.weights.tolist(), strict=True)):
        source = batch.source[row : row + 1, batch.source_mask[row]]
        target = batch.targets[row, :length].tolist()
        expected += weight * loss_by_hand(model, source, target, kept[row, :length].tolist())
    assert float(found.objective) == pytest.approx(expected, rel=1e-5)
    assert float(found.word + found.gap) == pytest.approx(expected, rel=1e-5)
    assert found.words == found.gaps == pytest.approx(7 * 1.0 + 5 * 0.5 + 4 * 2.0)


def test_label_smoothing_pulls_up_all_words_of_a_gap() -> None:
    model, batch = tiny(), batch_of(4)
    canvas = canvas_of(batch.targets, batch.lengths, torch.tensor([[False, True, False, False]]))
    with torch.no_grad():
        plain, smooth = (canvas_loss(model, batch, canvas, label_smoothing=amount) for amount in (0.0, 0.25))
    source = batch.source[:, batch.source_mask[0]]
    joint = joint_by_torch(model, source, [int(batch.targets[0, 1])])
    words = joint - joint.logsumexp(dim=1, keepdim=True)
    uniform = -5 * float(words.mean())
    expected = 0.75 * float(plain.word) + 0.25 * uniform + float(plain.gap)
    assert float(smooth.objective) == pytest.approx(expected, rel=1e-5)
    assert float(smooth.word) == float(plain.word)


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    """Words' part of it is made by hand: a small step any way must change the loss by so much."""
    model, batch = tiny(), batch_of(6, 4, 3)
    kept = torch.tensor([[1, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0]], dtype=torch.bool)
    canvas = canvas_of(batch.targets, batch.lengths, kept)
    canvas_loss(model, batch, canvas, label_smoothing=0.2).objective.backward()
    for name in ("embed_source.weight", "join.weight", "decoder_norm.weight"):
        weight = model.get_parameter(name)
        assert weight.grad is not None
        direction = torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)).to(weight)
        losses = []
        with torch.no_grad():
            for step in (1e-5, -2e-5):
                weight.add_(direction, alpha=step)
                losses.append(float(canvas_loss(model, batch, canvas, label_smoothing=0.2).objective))
            weight.add_(direction, alpha=1e-5)
        assert (losses[0] - losses[1]) / 2e-5 == pytest.approx(
            float((weight.grad * direction).sum()), rel=1e-4
        )


def test_every_weight_is_learned() -> None:
    model, batch = tiny().train(), batch_of(5, 3)
    insertion_loss(model, batch).objective.backward()
    assert [name for name, weight in model.named_parameters() if not weight.grad.abs().sum()] == []


# --- decoding ---


@dataclass(frozen=True)
class Written:
    """What a slow decoder has written."""

    canvas: list[int]
    finished: bool
    log_prob: float
    iterations: int


def write_slowly(
    model: InsertionTransformer, source: Tensor, *, limit: int, parallel: bool, eos_penalty: float
) -> Written:
    """One sentence in plain Python, by the paper's rules; where room is short, the likeliest go first."""
    canvas: list[int] = []
    log_prob, iterations = 0.0, 0
    by_sentence = model.insertion.termination == "sequence"
    while True:
        joint = joint_by_torch(model, source, canvas)
        words = joint - joint.logsumexp(dim=1, keepdim=True)
        penalised = joint.clone()
        penalised[:, 0] -= eos_penalty
        best = penalised.argmax(dim=1).tolist()
        unfilled = [gap for gap, word in enumerate(best) if word != 0]
        chosen = divmod(int(penalised.argmax()), joint.shape[1])
        if not unfilled or (by_sentence and chosen[1] == 0):
            end = words[:, 0].sum() if parallel else joint[:, 0].logsumexp(dim=0)
            return Written(canvas, True, log_prob + float(end), iterations)
        if len(canvas) == limit:
            return Written(canvas, False, log_prob, iterations)
        if parallel:
            room = limit - len(canvas)
            likely = sorted(unfilled, key=lambda gap: -float(words[gap, best[gap]]))[:room]
            log_prob += sum(float(words[gap, best[gap]]) for gap in likely)
            for gap in sorted(likely, reverse=True):
                canvas.insert(gap, best[gap] + EOD)
        else:
            gap = chosen[0] if by_sentence else max(unfilled, key=lambda gap: float(joint[gap, best[gap]]))
            log_prob += float(joint[gap, best[gap]])
            canvas.insert(gap, best[gap] + EOD)
        iterations += 1


def decode(
    model: InsertionTransformer, source: Tensor, mask: Tensor, **settings: object
) -> list[TokenHypothesis]:
    found = decode_insertions(
        model,
        source,
        mask,
        settings=config.Decode.model_validate(settings),
        limits=torch.arange(len(source)) + 4,
    )
    return [best for (best,) in found]


@pytest.mark.parametrize(("termination", "parallel"), [("gap", False), ("sequence", False), ("gap", True)])
@pytest.mark.parametrize("eos_penalty", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_decoding_follows_the_rules(termination: str, parallel: bool, eos_penalty: float, seed: int) -> None:
    """Some together, as each one alone."""
    model = tiny(seed=seed, termination=termination)
    source, mask = random_sources(lengths=[3, 5, 1, 4], words=WORDS, seed=seed)
    found = decode(model, source, mask, parallel=parallel, eos_penalty=eos_penalty)
    for row, one in enumerate(found):
        alone = source[row : row + 1, mask[row]]
        slow = write_slowly(model, alone, limit=4 + row, parallel=parallel, eos_penalty=eos_penalty)
        assert list(one.sentence) == slow.canvas
        assert (one.finished, one.iterations) == (slow.finished, slow.iterations)
        assert one.log_prob == pytest.approx(slow.log_prob, abs=1e-4)
        assert one.score == pytest.approx(one.log_prob / max(1, len(one.tokens) + one.finished), abs=1e-4)


def test_the_cases_of_decoding_are_all_met() -> None:
    """Sentences that end and that are cut, and insertions that are not all at one side."""
    found = [
        one
        for seed in range(4)
        for one in decode(
            tiny(seed=seed),
            *random_sources(lengths=[3, 5, 1, 4], words=WORDS, seed=seed),
            parallel=True,
            eos_penalty=1.0,
        )
    ]
    assert {one.finished for one in found} == {True, False}
    assert any(one.iterations < len(one.tokens) for one in found)


def test_insertions_of_one_round_are_written_left_to_right() -> None:
    endless = {"parallel": True, "eos_penalty": 1e9}
    source, mask = random_sources(lengths=[3], words=WORDS)
    (found,) = decode_insertions(
        tiny(), source, mask, settings=config.Decode.model_validate(endless), limits=torch.tensor([7])
    )
    assert found[0].positions == (4, 2, 6, 1, 3, 5, 7)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 8, 15, 16, 31])
def test_a_sentence_that_never_ends_doubles_with_every_round(limit: int) -> None:
    endless = config.Decode(parallel=True, eos_penalty=1e9)
    source, mask = random_sources(lengths=[3], words=WORDS)
    (found,) = decode_insertions(tiny(), source, mask, settings=endless, limits=torch.tensor([limit]))
    assert len(found[0].tokens) == limit
    assert found[0].iterations == math.floor(math.log2(limit)) + 1
    assert not found[0].finished
