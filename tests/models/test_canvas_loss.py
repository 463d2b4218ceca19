"""Canvases to learn from, and their loss, against loops from the papers' formulas."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations, product

import pytest
import torch
from canvases import WORDS, by_torch, joint_by_torch, tiny
from conftest import FIRST_WORD, random_examples
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from anyorder import config
from anyorder.data.batches import Batch, collate
from anyorder.models.canvas_loss import TrainingCanvas, canvas_of, draw_canvases, insertion_loss, word_weights
from anyorder.models.canvas_loss import canvas_loss as loss_of_canvas
from anyorder.models.insertion_transformer import InsertionTransformer
from anyorder.models.loss import Loss
from anyorder.text.tokenizer import BOS, EOD, EOS

LOSSES = ("uniform", "binary", "ilm")
losses = pytest.mark.parametrize("loss", LOSSES)
ways = pytest.mark.parametrize(
    ("loss", "termination"),
    [
        (loss, termination)
        for loss in LOSSES
        for termination in ("gap", "sequence", "classifier")
        if (loss, termination) != ("ilm", "gap")
    ],
)
# A target as whether each of its tokens is on the canvas.
kept_tokens = st.lists(st.booleans(), min_size=1, max_size=9)


def canvas_loss(
    model: InsertionTransformer, batch: Batch, canvas: TrainingCanvas, *, label_smoothing: float = 0.0
) -> Loss:
    sources = model.source_keys(model.encode(batch.source, batch.source_mask))
    return loss_of_canvas(model, sources, batch, canvas, label_smoothing=label_smoothing)


def batch_of(*lengths: int, seed: int = 0) -> Batch:
    return collate(random_examples(lengths=lengths, words=WORDS, seed=seed))


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


@pytest.mark.parametrize("canvases", [1, 2, 3])
def test_each_size_of_a_canvas_is_as_likely_and_each_choice_of_so_many(canvases: int) -> None:
    """Of all canvases of a target together, however many there are."""
    draws, length = 8000, 3
    targets = torch.arange(5).expand(draws, 5)
    counts: Counter[tuple[bool, ...]] = Counter()
    for drawn in draw_canvases(
        targets,
        torch.full((draws,), length),
        canvases=canvases,
        generator=torch.Generator().manual_seed(0),
    ):
        assert not drawn.missing[:, length:].any()
        counts.update(tuple(row) for row in (~drawn.missing[:, :length]).tolist())
    assert len(counts) == 2**length
    for kept, count in counts.items():
        share = 1 / (length + 1) / math.comb(length, sum(kept))
        assert count / draws / canvases == pytest.approx(share, abs=4 * math.sqrt(share / draws))


def test_the_canvases_of_a_target_are_of_rising_size() -> None:
    targets, lengths = torch.zeros(50, 8, dtype=torch.long), torch.full((50,), 8)
    drawn = draw_canvases(targets, lengths, canvases=9)
    for size, canvas in enumerate(drawn):
        assert canvas.lengths.tolist() == [2 + size] * 50
        assert canvas.words.shape[1] == 2 + size, "nothing is padded"


# --- the loss ---


def weights_by_hand(span: list[int], insertion: config.Insertion) -> list[float]:
    """Of the positions of one gap's missing tokens."""
    if insertion.loss != "binary":
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
    found = by_torch(model, source, words)
    spans, insertion = spans_by_hand(kept), model.insertion
    of_gaps = []  # share of the gap, before they are divided by their sum, and its loss
    for gap, span in enumerate(spans):
        if span:
            weights = weights_by_hand(span, insertion)
            scores = [float(found.joint[gap, target[position] - EOD]) for position in span]
            loss = -sum(weight * score for weight, score in zip(weights, scores, strict=True))
            of_gaps.append((len(span) if insertion.loss == "ilm" else 1, loss))
        elif insertion.ends_by == "gap" or (insertion.ends_by == "sequence" and all(kept)):
            of_gaps.append((1, -float(found.joint[gap, 0])))
    total = sum(share * loss for share, loss in of_gaps) / max(1, sum(share for share, _ in of_gaps))
    if found.stop is not None:
        total += math.log1p(math.exp(-found.stop if all(kept) else found.stop))
    return (len(target) + 1) * total


@ways
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


@pytest.mark.parametrize("termination", ["sequence", "classifier"])
def test_the_ilm_loss_is_what_random_orders_cost_on_average(termination: str) -> None:
    """Minus log p of a target in each of its orders, and the loss of each of its canvases, by its chance.

    Where all gaps predict the end together, the loss asks every gap for it, which costs more than their sum.
    """
    model, batch = tiny(loss="ilm", termination=termination), batch_of(4, seed=2)
    source = batch.source[:, batch.source_mask[0]]
    target = batch.targets[0].tolist()
    of_orders = []
    for order in permutations(range(4)):
        cost = 0.0
        for step in range(5):
            written = sorted(order[:step])
            found = by_torch(model, source, [target[position] for position in written])
            if step < 4:
                gap = sum(position < order[step] for position in written)
                cost -= float(found.joint[gap, target[order[step]] - EOD])
            elif found.stop is None:
                cost -= float(found.joint[:, 0].mean())
            if found.stop is not None:
                cost += math.log1p(math.exp(found.stop if step < 4 else -found.stop))
        of_orders.append(cost)
    of_canvases = 0.0
    for kept in product([False, True], repeat=4):
        canvas = canvas_of(batch.targets, batch.lengths, torch.tensor([kept]))
        with torch.no_grad():
            loss = canvas_loss(model, batch, canvas).objective
        of_canvases += float(loss) / 5 / math.comb(4, sum(kept))
    assert of_canvases == pytest.approx(sum(of_orders) / len(of_orders), rel=1e-6)


def test_several_canvases_of_a_target_count_as_one() -> None:
    model, batch = tiny(loss="ilm", canvases=3), batch_of(6, 4, 3)
    with torch.no_grad():
        torch.manual_seed(5)
        found = insertion_loss(model, batch)
        torch.manual_seed(5)
        canvases = draw_canvases(batch.targets, batch.lengths, canvases=3)
        losses = [canvas_loss(model, batch, canvas) for canvas in canvases]
    assert len(losses) == 3
    assert float(found.objective) == pytest.approx(sum(float(one.objective) for one in losses) / 3)
    assert found.words == losses[0].words == 7 + 5 + 4


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


@pytest.mark.parametrize("loss", ["binary", "ilm"])
def test_the_gradient_is_the_slope_of_the_loss(loss: str) -> None:
    """Words' part of it is made by hand: a small step any way must change the loss by so much."""
    model, batch = tiny(loss=loss), batch_of(6, 4, 3)
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


@pytest.mark.parametrize("insertion", [{}, {"loss": "ilm", "positions": "relative", "canvases": 3}])
def test_every_weight_is_learned(insertion: dict[str, object]) -> None:
    model, batch = tiny(**insertion).train(), batch_of(5, 3)
    insertion_loss(model, batch).objective.backward()
    assert [name for name, weight in model.named_parameters() if not weight.grad.abs().sum()] == []
