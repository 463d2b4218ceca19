"""Decoding with an Insertion Transformer: against loops, enumeration, and a model that knows the answer."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from canvases import WORDS, ByHand, by_torch, tiny
from conftest import FIRST_WORD, random_sources
from torch import Tensor

from anyorder import config
from anyorder.decoding.beam import TokenHypothesis
from anyorder.decoding.insertion_transformer import choose, decode_insertions
from anyorder.insertion import NEG_INF
from anyorder.models.insertion_transformer import Insertions, InsertionTransformer, gap_scores, gaps_of
from anyorder.text.tokenizer import EOD

CONFIDENCES = ("probability", "margin", "entropy")


@dataclass(frozen=True)
class Written:
    """What a slow decoder has written."""

    canvas: list[int]
    finished: bool
    log_prob: float
    iterations: int


def write_slowly(
    model: InsertionTransformer,
    source: Tensor,
    *,
    limit: int,
    parallel: bool,
    eos_penalty: float,
    confidence: str,
) -> Written:
    """One sentence in plain Python, by the paper's rules; where room is short, the likeliest go first."""
    canvas: list[int] = []
    log_prob, iterations = 0.0, 0
    by_sentence = model.insertion.ends_by == "sequence"
    while True:
        found = by_torch(model, source, canvas)
        joint = found.joint
        words = joint - joint.logsumexp(dim=1, keepdim=True)
        penalised = joint.clone()
        penalised[:, 0] -= eos_penalty
        best = penalised.argmax(dim=1).tolist()
        unfilled = [gap for gap, word in enumerate(best) if word != 0]
        competing = range(len(best)) if by_sentence else unfilled
        chosen = max(competing, key=lambda gap: preference(penalised, joint, gap, confidence), default=0)
        if found.stop is not None:
            ends, end = found.stop > eos_penalty, -math.log1p(math.exp(-found.stop))
            log_prob -= 0.0 if ends or len(canvas) == limit else math.log1p(math.exp(found.stop))
        else:
            ends = not unfilled or (by_sentence and best[chosen] == 0)
            end = float(words[:, 0].sum() if parallel else joint[:, 0].logsumexp(dim=0))
        if ends:
            return Written(canvas, True, log_prob + end, iterations)
        if len(canvas) == limit:
            return Written(canvas, False, log_prob, iterations)
        if parallel:
            room = limit - len(canvas)
            likely = sorted(unfilled, key=lambda gap: -float(words[gap, best[gap]]))[:room]
            log_prob += sum(float(words[gap, best[gap]]) for gap in likely)
            for gap in sorted(likely, reverse=True):
                canvas.insert(gap, best[gap] + EOD)
        else:
            log_prob += float(joint[chosen, best[chosen]])
            canvas.insert(chosen, best[chosen] + EOD)
        iterations += 1


def preference(penalised: Tensor, joint: Tensor, gap: int, confidence: str) -> float:
    """How much a gap is preferred, from log p of its words."""
    of_gap = float(joint[gap].logsumexp(dim=0))
    falling = sorted((math.exp(score - of_gap) for score in penalised[gap].tolist()), reverse=True)
    if confidence == "probability":
        return of_gap + math.log(falling[0])
    if confidence == "margin":
        return of_gap + math.log(falling[0] - falling[1])
    return of_gap + sum(p * math.log(p) for p in falling if p > 0)


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


@pytest.mark.parametrize(
    ("termination", "parallel", "confidence"),
    [
        ("gap", True, "probability"),
        *(
            (termination, False, confidence)
            for termination in ("gap", "sequence", "classifier")
            for confidence in CONFIDENCES
        ),
    ],
)
@pytest.mark.parametrize("eos_penalty", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("seed", range(4))
def test_decoding_follows_the_rules(
    termination: str, parallel: bool, confidence: str, eos_penalty: float, seed: int
) -> None:
    """Some together, as each one alone."""
    model = tiny(seed=seed, termination=termination)
    source, mask = random_sources(lengths=[3, 5, 1, 4], words=WORDS, seed=seed)
    rules = {"parallel": parallel, "eos_penalty": eos_penalty, "confidence": confidence}
    found = decode(model, source, mask, **rules)
    for row, one in enumerate(found):
        alone = source[row : row + 1, mask[row]]
        slow = write_slowly(model, alone, limit=4 + row, **rules)
        assert list(one.sentence) == slow.canvas
        assert (one.finished, one.iterations) == (slow.finished, slow.iterations)
        assert one.log_prob == pytest.approx(slow.log_prob, abs=1e-4)
        assert one.score == pytest.approx(one.log_prob / max(1, len(one.tokens) + one.finished), abs=1e-4)


def test_each_kind_of_confidence_chooses_by_its_formula() -> None:
    """Of gaps that are as likely as random logits make them, where the three seldom agree."""
    logits = 2 * torch.randn(30, 5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits[..., 0] = NEG_INF
    found = insertions_of(logits, stop=torch.full((30,), -9.0))
    chosen = []
    for confidence in CONFIDENCES:
        settings = config.Decode.model_validate({"confidence": confidence})
        choices = choose(found, ends_by="classifier", settings=settings)
        chosen.append([choice.filled for choice in choices])
        for joint, choice in zip(logits.flatten(1).log_softmax(dim=1).view_as(logits), choices, strict=True):
            best = max(range(5), key=lambda gap: preference(joint, joint, gap, confidence))
            assert choice.filled == [best]
            assert choice.words[best] == int(joint[best].argmax()) + EOD
    assert chosen[0] != chosen[1] != chosen[2] != chosen[0]


def insertions_of(logits: Tensor, *, stop: Tensor) -> Insertions:
    """All gaps are real. logits: (S, G, V)."""
    normaliser = logits.logsumexp(dim=-1)
    return Insertions(logits, normaliser, gap=normaliser.log_softmax(dim=-1), stop=stop)


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


# --- sampling ---


@dataclass(frozen=True)
class Way:
    """A way to write a sentence."""

    steps: tuple[tuple[int, int], ...]  # the gap and the word of each step
    finished: bool


def ways(model: InsertionTransformer, source: Tensor, *, limit: int) -> Iterator[tuple[Way, float]]:
    """Every way to write at most so many tokens, and its probability."""
    under_way: list[tuple[tuple[tuple[int, int], ...], list[int], float]] = [((), [], 0.0)]
    while under_way:
        steps, canvas, log_prob = under_way.pop()
        found = by_torch(model, source, canvas)
        end, going_on = end_and_rest(found)
        yield Way(steps, finished=True), math.exp(log_prob + end)
        if len(canvas) == limit:
            yield Way(steps, finished=False), math.exp(log_prob + math.log1p(-math.exp(end)))
            continue
        for gap in range(len(found.joint)):
            for word in range(FIRST_WORD, FIRST_WORD + WORDS):
                grown = [*canvas[:gap], word, *canvas[gap:]]
                score = log_prob + going_on + float(found.joint[gap, word - EOD])
                under_way.append(((*steps, (gap, word)), grown, score))


def end_and_rest(found: ByHand) -> tuple[float, float]:
    """log p of ending, and what is added to the log p of an insertion."""
    if found.stop is None:
        return float(found.joint[:, 0].logsumexp(dim=0)), 0.0
    return -math.log1p(math.exp(-found.stop)), -math.log1p(math.exp(found.stop))


def way_of(one: TokenHypothesis) -> Way:
    gaps = [
        sum(before < position for before in one.positions[:step])
        for step, position in enumerate(one.positions)
    ]
    return Way(tuple(zip(gaps, one.tokens, strict=True)), one.finished)


@pytest.mark.parametrize("termination", ["sequence", "classifier"])
def test_all_ways_to_write_sum_to_one_and_are_drawn_as_often_as_they_are_likely(termination: str) -> None:
    model = tiny(termination=termination, seed=3)
    source, mask = random_sources(lengths=[3], words=WORDS)
    likely = dict(ways(model, source, limit=2))
    assert sum(likely.values()) == pytest.approx(1)
    draws = 4000
    drawn = decode_insertions(
        model,
        source.expand(draws // 20, -1),
        mask.expand(draws // 20, -1),
        settings=config.Decode(search="sample", n_best=20),
        limits=torch.full((draws // 20,), 2),
    )
    counts: Counter[Way] = Counter()
    for one in (one for found in drawn for one in found):
        counts[way_of(one)] += 1
        assert one.log_prob == pytest.approx(
            math.log(likely[way_of(one)] if one.finished else cut_off(model, source, one)), abs=1e-4
        )
    for way, probability in likely.items():
        spread = math.sqrt(probability / draws)
        assert counts[way] / draws == pytest.approx(probability, abs=5 * spread + 1 / draws)


def cut_off(model: InsertionTransformer, source: Tensor, one: TokenHypothesis) -> float:
    """The probability of the insertions of a sentence that was not ended."""
    log_prob, canvas = 0.0, []
    for gap, word in way_of(one).steps:
        found = by_torch(model, source, canvas)
        log_prob += end_and_rest(found)[1] + float(found.joint[gap, word - EOD])
        canvas.insert(gap, word)
    return math.exp(log_prob)


def test_what_is_drawn_depends_on_the_seed_and_the_line_alone() -> None:
    model = tiny(termination="classifier")
    source, mask = random_sources(lengths=[4, 4, 4], words=WORDS)
    settings = config.Decode(search="sample", n_best=12, seed=7, eos_penalty=2.0)
    limits = torch.full((3,), 5)
    together = decode_insertions(model, source, mask, settings=settings, limits=limits)
    (alone,) = decode_insertions(
        model, source[1:2], mask[1:2], settings=settings, limits=limits[1:2], lines=[1]
    )
    assert [way_of(one) for one in alone] == [way_of(one) for one in together[1]]
    assert len({way_of(one) for one in alone}) > 3


def test_sampling_without_heat_is_greedy() -> None:
    """First the likeliest gap, then the likeliest word of the gap."""
    model = tiny(termination="classifier", seed=1)
    source, mask = random_sources(lengths=[4, 2], words=WORDS)
    found = decode(model, source, mask, search="sample", temperature=1e-6, eos_penalty=100.0)
    assert all(one.tokens for one in found)
    for row, one in enumerate(found):
        canvas: list[int] = []
        for gap, word in way_of(one).steps:
            joint = by_torch(model, source[row : row + 1, mask[row]], canvas).joint
            assert gap == int(joint.logsumexp(dim=1).argmax())
            assert word == int(joint[gap].argmax()) + EOD
            canvas.insert(gap, word)


# --- models that know the answer ---

PLACES, MODULUS = 7, 5


@dataclass(frozen=True)
class Pivot:
    """A row of numbers: the marked one is copied, each other is added to its neighbour on that side."""

    numbers: tuple[int, ...]
    marked: int

    def answer(self) -> list[int]:
        sums = list(self.numbers)
        for place in reversed(range(self.marked)):
            sums[place] = (sums[place] + sums[place + 1]) % MODULUS
        for place in range(self.marked + 1, PLACES):
            sums[place] = (sums[place] + sums[place - 1]) % MODULUS
        return [word_for(place, number) for place, number in enumerate(sums)]


def word_for(place: int, number: int) -> int:
    return FIRST_WORD + place * MODULUS + number


class KnowsSums:
    """Stands in for a trained model: it can add one number to another, and must guess all else.

    As the insertion language model's loss teaches, each missing word is as likely as the others, and one that
    can't be known yet is split among all its values.
    """

    def __init__(self, tasks: Sequence[Pivot], *, ends_by: str) -> None:
        loss = "ilm" if ends_by != "gap" else "uniform"
        self.insertion = config.Insertion.model_validate({"loss": loss, "termination": ends_by})
        self.tasks = tasks

    def encode_sorted(self, source: Tensor, mask: Tensor) -> Tensor:
        return source

    def source_keys(self, memory: Tensor) -> list[RowsOfTasks]:
        return [RowsOfTasks(memory[:, 0])]

    def insertions(self, sources: list[RowsOfTasks], words: Tensor, lengths: Tensor) -> Insertions:
        gaps = words.shape[1] - 1
        weights = torch.zeros(len(words), gaps, FIRST_WORD - EOD + PLACES * MODULUS)
        stop = torch.full((len(words),), -9.0)
        for row, task in enumerate(sources[0].key.tolist()):
            written = words[row, 1 : lengths[row] - 1].tolist()
            missing = self.weigh(weights[row], self.tasks[task], written)
            stop[row] = 9.0 if missing == 0 else -9.0
            if self.insertion.ends_by == "gap":
                weights[row, (weights[row].sum(dim=1) == 0), 0] = 1.0
            elif missing == 0:
                weights[row, : len(written) + 1, 0] = 1.0
        logits = (weights + 1e-9).log()
        if self.insertion.ends_by == "classifier":
            logits[..., 0] = NEG_INF
        normaliser = logits.logsumexp(dim=-1)
        gap = gap_scores(normaliser, gaps_of(words, lengths))
        classified = stop if self.insertion.ends_by == "classifier" else None
        return Insertions(logits=logits, normaliser=normaliser, gap=gap, stop=classified)

    @staticmethod
    def weigh(weights: Tensor, task: Pivot, written: list[int]) -> int:
        """Weights of what is missing, (gaps, V), and how much is missing."""
        places = [(word - FIRST_WORD) // MODULUS for word in written]
        there = dict(zip(places, ((word - FIRST_WORD) % MODULUS for word in written), strict=True))
        for place in set(range(PLACES)) - set(places):
            inner = place + (place < task.marked) - (place > task.marked)
            values = list(range(MODULUS))
            if place == task.marked:
                values = [task.numbers[place]]
            elif inner in there:
                values = [(task.numbers[place] + there[inner]) % MODULUS]
            gap = sum(other < place for other in places)
            for value in values:
                weights[gap, word_for(place, value) - EOD] += 1 / len(values)
        return PLACES - len(set(places))


@dataclass(frozen=True)
class RowsOfTasks:
    """Stands in for an encoded source: which tasks these are."""

    key: Tensor

    def keep(self, rows: Tensor) -> RowsOfTasks:
        return RowsOfTasks(self.key[rows])


def pivots() -> list[Pivot]:
    chance = random.Random(1)
    return [
        Pivot(tuple(chance.choices(range(MODULUS), k=PLACES)), marked)
        for marked in range(PLACES)
        for _ in range(3)
    ]


def answers(tasks: Sequence[Pivot], *, ends_by: str, **settings: object) -> list[TokenHypothesis]:
    model = KnowsSums(tasks, ends_by=ends_by)
    found = decode_insertions(
        model,  # type: ignore[arg-type]
        torch.arange(len(tasks))[:, None],
        torch.ones(len(tasks), 1, dtype=torch.bool),
        settings=config.Decode.model_validate(settings),
        limits=torch.full((len(tasks),), 2 * PLACES),
    )
    return [best for (best,) in found]


@pytest.mark.parametrize("ends_by", ["gap", "sequence", "classifier"])
def test_a_model_that_can_add_two_numbers_writes_from_the_mark_outwards(ends_by: str) -> None:
    """One insertion a step, where the model is surest: nothing is written before it can be known."""
    tasks = pivots()
    for task, found in zip(tasks, answers(tasks, ends_by=ends_by), strict=True):
        assert found.finished
        assert list(found.sentence) == task.answer()
        steps = {position - 1: step for step, position in enumerate(found.positions)}
        sides = [range(task.marked, -1, -1), range(task.marked, PLACES)]
        assert all(steps[near] < steps[far] for side in sides for near, far in pairwise(side))


def test_all_gaps_at_once_write_both_sides_of_the_mark_together() -> None:
    tasks = pivots()
    for task, found in zip(tasks, answers(tasks, ends_by="gap", parallel=True), strict=True):
        assert list(found.sentence) == task.answer()
        assert found.iterations == 1 + max(task.marked, PLACES - 1 - task.marked)
