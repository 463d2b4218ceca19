"""Searches, against the same searches written slowly in plain Python and against all sentences there are."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from conftest import (
    FIRST_WORD,
    Steps,
    indices_after,
    next_step,
    random_examples,
    random_sources,
    tiny_model,
)
from torch import Tensor

from anyorder import config
from anyorder.data.batches import Example, collate
from anyorder.decoding.beam import TokenHypothesis, rank
from anyorder.decoding.decode import DECODED_AT_ONCE, decode, decode_all
from anyorder.decoding.sampling import draw, truncate
from anyorder.models.encoder_decoder import Memory
from anyorder.models.indigo import Indigo
from anyorder.models.loss import score_steps

WORDS = 2
# Wider than there are ways to write three of two words.
EVERYTHING = {"search": "joint", "beam": 500, "n_best": 500, "length_penalty": 0}

firsts = pytest.mark.parametrize("first", ["word", "position"])
seeds = pytest.mark.parametrize("seed", range(5))
searches = pytest.mark.parametrize("search", ["two-step", "joint", "sample"])


@dataclass(frozen=True)
class Case:
    """A model and one source."""

    model: Indigo
    source: Tensor
    mask: Tensor
    memory: Memory

    def decode(self, *, limit: int, **settings: object) -> list[TokenHypothesis]:
        return decode(
            self.model,
            self.source,
            self.mask,
            settings=config.Decode.model_validate(settings),
            limits=torch.tensor([limit]),
        )[0]


def case(*, first: str, seed: int, words: int = WORDS) -> Case:
    model = tiny_model(words=words, first=first, seed=seed)
    source, mask = random_sources(lengths=[3], words=words, seed=seed)
    with torch.no_grad():
        return Case(model, source, mask, model.encode(source, mask))


# --- in plain Python ---


@dataclass(frozen=True)
class Written:
    """A sentence under way, finished or cut."""

    steps: Steps
    log_p: float
    finished: bool = False

    def ranks_by(self, penalty: float) -> tuple[bool, float]:
        return not self.finished, -self.log_p / max(1, len(self.steps) + self.finished) ** penalty


@dataclass(frozen=True)
class Candidate:
    """One way to go on."""

    written: Written
    first: tuple[Steps, int | None]  # the hypothesis and its first choice, None being the end
    first_log_p: float  # of the hypothesis and its first choice


def candidates(given: Case, one: Written) -> Iterable[Candidate]:
    """Ending, and every word in every gap."""
    after = next_step(given.model, given.memory, one.steps)
    ended = one.log_p + after.end
    yield Candidate(Written(one.steps, ended, finished=True), (one.steps, None), ended)
    for word, gap in itertools.product(*(range(size) for size in after.word.shape)):
        word_score, gap_score = float(after.word[word, gap]), float(after.gap[word, gap])
        first, first_score = (gap, gap_score) if given.model.position_first else (word, word_score)
        steps = (*one.steps, (FIRST_WORD + word, gap))
        yield Candidate(
            Written(steps, one.log_p + word_score + gap_score), (one.steps, first), one.log_p + first_score
        )


Choice = tuple[list[Written], list[Written]]  # those that end, and those that go on
Description = tuple[tuple[int, ...], tuple[int, ...], bool]  # tokens as written, their positions, finished


def best(ways: Iterable[Candidate], width: int) -> list[Candidate]:
    return sorted(ways, key=lambda one: -one.written.log_p)[:width]


def parted(chosen: list[Candidate], going_on: list[Candidate]) -> Choice:
    return [one.written for one in chosen if one.written.finished], [one.written for one in going_on]


def choose_two_step(everything: list[Candidate], width: int) -> Choice:
    """The best first choices overall, ending among them; then the best pairs of those that go on."""
    first_choices = {one.first: one.first_log_p for one in everything}
    kept = sorted(first_choices, key=lambda first: -first_choices[first])[:width]
    chosen = [one for one in everything if one.first in kept]
    return parted(chosen, best((one for one in chosen if not one.written.finished), width))


def choose_joint(everything: list[Candidate], width: int) -> Choice:
    """The best pairs overall, ending among them; what ends makes room for another."""
    return parted(
        best(everything, width), best((one for one in everything if not one.written.finished), width)
    )


def search_slowly(
    given: Case,
    choose: Callable[[list[Candidate], int], Choice],
    *,
    width: int,
    limit: int,
    penalty: float = 0.0,
    to_the_end: bool = False,
) -> list[Written]:
    """Until as many as the beam is wide have ended that rank before all that is under way, or to_the_end."""
    under_way, found = [Written((), 0.0)], []
    for length in range(limit + 1):
        everything = [way for one in under_way for way in candidates(given, one)]
        ended, going_on = choose(everything, width)
        found += ended
        if length == limit:
            done = {one.steps for one in ended}
            found += [one for one in under_way if one.steps not in done]
        ranks = sorted(one.ranks_by(penalty)[1] for one in found)
        # Whoever ends now, has one step more.
        open_ranks = [-one.log_p / (len(one.steps) + 1) ** penalty for one in going_on]
        if len(ranks) >= width and not to_the_end and ranks[width - 1] <= min(open_ranks, default=math.inf):
            break
        under_way = going_on
    return found


def described(hypotheses: Iterable[TokenHypothesis]) -> list[Description]:
    return [(one.tokens, one.positions, one.finished) for one in hypotheses]


def described_slowly(written: Iterable[Written]) -> list[Description]:
    return [
        (
            tuple(word for word, _ in one.steps),
            tuple(indices_after([gap for _, gap in one.steps])[2:]),
            one.finished,
        )
        for one in written
    ]


def every_sentence(given: Case, *, limit: int) -> list[Written]:
    """All that may be written within the limit, in every order; the longest both ended and cut."""
    return [
        way.written
        for length in range(limit + 1)
        for one in unfinished(given, length=length)
        for way in candidates(given, one)
        if way.written.finished
    ] + unfinished(given, length=limit)


def unfinished(given: Case, *, length: int) -> list[Written]:
    under_way = [Written((), 0.0)]
    for _ in range(length):
        under_way = [
            way.written for one in under_way for way in candidates(given, one) if not way.written.finished
        ]
    return under_way


# --- beam search ---


@firsts
@seeds
def test_greedy_takes_the_best_choice_each_time(first: str, seed: int) -> None:
    given = case(first=first, seed=seed)
    steps: Steps = ()
    while True:
        after = next_step(given.model, given.memory, steps)
        if first == "word":
            word = int(after.word[:, 0].argmax())
            gap = int(after.gap[word].argmax())
            finished = after.end > float(after.word[word, 0])
        else:
            gap = int(after.gap[0].argmax())
            word = int(after.word[:, gap].argmax())
            finished = after.end > float(after.gap[0, gap])
        if finished or len(steps) == 4:
            break
        steps = (*steps, (FIRST_WORD + word, gap))
    found = given.decode(limit=4, beam=1)
    assert described(found) == described_slowly([Written(steps, 0.0, finished)])


@firsts
@seeds
@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("search", "choose"), [("two-step", choose_two_step), ("joint", choose_joint)], ids=["two-step", "joint"]
)
def test_search_equals_itself_written_slowly(
    first: str,
    seed: int,
    width: int,
    search: str,
    choose: Callable[[list[Candidate], int], Choice],
) -> None:
    given = case(first=first, seed=seed, words=5)
    for penalty in (0.0, 1.0):
        everything = search_slowly(given, choose, width=width, limit=4, penalty=penalty)
        slowly = sorted(everything, key=lambda one: one.ranks_by(penalty))[:width]
        found = given.decode(search=search, beam=width, n_best=width, limit=4, length_penalty=penalty)
        assert described(found) == described_slowly(slowly)
        assert [one.log_prob for one in found] == pytest.approx([one.log_p for one in slowly], abs=1e-4)
        assert [-one.score for one in found] == pytest.approx(
            [one.ranks_by(penalty)[1] for one in slowly], abs=1e-4
        )


@firsts
@seeds
@pytest.mark.parametrize("width", [2, 4])
def test_the_best_is_not_given_up_for_those_that_end_before_it(first: str, seed: int, width: int) -> None:
    """A search that never stops early has the same best, for log p only falls."""
    given = case(first=first, seed=seed, words=5)
    everything = search_slowly(given, choose_two_step, width=width, limit=4, to_the_end=True)
    best = min(everything, key=lambda one: one.ranks_by(0.0))
    (found,) = given.decode(search="two-step", beam=width, n_best=1, limit=4, length_penalty=0)
    assert described([found]) == described_slowly([best])


@firsts
@seeds
def test_joint_search_prunes_nothing_that_it_needs(first: str, seed: int) -> None:
    """So many words that a narrow beam looks at few of them, and looks again when that wasn't enough."""
    given = case(first=first, seed=seed, words=20)
    slowly = search_slowly(given, choose_joint, width=2, limit=3)
    slowly = sorted(slowly, key=lambda one: one.ranks_by(0))[:2]
    found = given.decode(search="joint", beam=2, n_best=2, limit=3, length_penalty=0)
    assert described(found) == described_slowly(slowly)


@firsts
@seeds
def test_a_wide_joint_search_finds_every_sentence(first: str, seed: int) -> None:
    given = case(first=first, seed=seed)
    everything = every_sentence(given, limit=3)
    by_description = dict(zip(described_slowly(everything), everything, strict=True))
    found = given.decode(limit=3, **EVERYTHING)
    best_there_is = max((one for one in everything if one.finished), key=lambda one: one.log_p)
    assert described(found)[0] == described_slowly([best_there_is])[0]
    assert len({(one.tokens, one.positions) for one in found}) == len(found) == 1 + 2 + 8 + 48
    assert all(one.finished for one in found)
    for one, description in zip(found, described(found), strict=True):
        assert one.log_prob == pytest.approx(by_description[description].log_p, abs=1e-4)
        assert one.score == one.merged_log_prob == pytest.approx(one.log_prob, abs=1e-5)
    shorter = [one for one in found if len(one.tokens) < 3]
    cut = unfinished(given, length=3)
    total = sum(math.exp(one.log_prob) for one in shorter) + sum(math.exp(one.log_p) for one in cut)
    assert total == pytest.approx(1, abs=1e-4)


@firsts
@seeds
def test_merging_adds_the_probabilities_of_all_orders(first: str, seed: int) -> None:
    given = case(first=first, seed=seed)
    by_sentence: dict[tuple[int, ...], list[TokenHypothesis]] = {}
    for one in given.decode(limit=3, **EVERYTHING):
        by_sentence.setdefault(one.sentence, []).append(one)
    merged = given.decode(limit=3, **EVERYTHING, merge=True)
    assert len(merged) == len(by_sentence) == 1 + 2 + 4 + 8
    assert [one.score for one in merged] == sorted((one.score for one in merged), reverse=True)
    for one in merged:
        orders = by_sentence[one.sentence]
        assert len(orders) == math.factorial(len(one.tokens))
        assert math.exp(one.merged_log_prob) == pytest.approx(
            sum(math.exp(each.log_prob) for each in orders), rel=1e-4
        )
        likeliest = max(orders, key=lambda each: each.log_prob)
        assert (one.positions, one.log_prob) == (likeliest.positions, likeliest.log_prob)


@firsts
def test_merging_under_way_leaves_one_hypothesis_a_sentence(first: str) -> None:
    """Each with the mass of those given up for it: never less than its own, and no more than one together."""
    given = case(first=first, seed=0)
    merged = given.decode(limit=3, **EVERYTHING, merge_partial=True)
    sentences = [one.sentence for one in merged]
    assert len(sentences) == len(set(sentences)) == 1 + 2 + 4 + 8
    assert all(one.merged_log_prob >= one.log_prob - 1e-5 for one in merged)
    assert any(one.merged_log_prob > one.log_prob + 0.1 for one in merged)
    assert sum(math.exp(one.merged_log_prob) for one in merged if one.finished) <= 1 + 1e-5
    exact = {one.sentence: one.merged_log_prob for one in given.decode(limit=3, **EVERYTHING, merge=True)}
    for one in merged:
        if len(one.tokens) <= 1:  # one order only: nothing was given up
            assert one.merged_log_prob == pytest.approx(exact[one.sentence], abs=1e-5)


# --- what is reported ---


@firsts
@seeds
@searches
def test_scores_are_those_of_the_loss(first: str, seed: int, search: str) -> None:
    given = case(first=first, seed=seed)
    found = given.decode(search=search, beam=4, n_best=4, limit=3)
    assert len(found) == 4
    for one in found:
        batch = collate(
            [
                Example(
                    source=given.source[0, :-1].numpy(),
                    target=np.array(one.sentence, dtype=np.int32),
                    order=np.array(one.positions, dtype=np.int32),
                )
            ]
        )
        with torch.no_grad():
            scores = score_steps(given.model, given.memory, batch)
        steps = len(one.tokens)
        with_end = steps + one.finished
        words, gaps = (steps, with_end) if first == "position" else (with_end, steps)
        assert one.word_scores == pytest.approx(scores.word[0, :words].tolist(), abs=1e-4)
        assert one.gap_scores == pytest.approx(scores.gap[0, :gaps].tolist(), abs=1e-4)
        assert one.merged_log_prob == pytest.approx(one.log_prob, abs=1e-4)
        assert one.score == pytest.approx(one.log_prob / max(1, with_end), abs=1e-4)


def hypothesis(*, tokens: int, log_p: float, finished: bool = True) -> TokenHypothesis:
    return TokenHypothesis(
        tokens=tuple(range(tokens)),
        positions=tuple(range(1, tokens + 1)),
        word_scores=(log_p,),
        gap_scores=(),
        finished=finished,
        merged_log_prob=log_p,
        score=log_p,
        iterations=tokens,
    )


@pytest.mark.parametrize(
    ("penalty", "lengths"),
    [
        (0.0, [1, 3, 0, 9]),  # log p: -2.0, -2.2, -3.0, and what was cut comes last
        (1.0, [3, 1, 0, 9]),  # -2.2 / 4, -2.0 / 2, -3.0 / 1
    ],
)
def test_ranks_by_log_p_over_steps(penalty: float, lengths: list[int]) -> None:
    found = [
        hypothesis(tokens=9, log_p=-0.1, finished=False),
        hypothesis(tokens=0, log_p=-3.0),
        hypothesis(tokens=1, log_p=-2.0),
        hypothesis(tokens=3, log_p=-2.2),
    ]
    ordered = rank(found, config.Decode(beam=4, n_best=4, length_penalty=penalty))
    assert [len(one.tokens) for one in ordered] == lengths
    assert ordered == rank(found[::-1], config.Decode(beam=4, n_best=4, length_penalty=penalty))
    assert rank(found, config.Decode(beam=4, n_best=2, length_penalty=penalty)) == ordered[:2]


def test_scores_divide_by_the_steps_with_the_end() -> None:
    settings = config.Decode(beam=2, n_best=2, length_penalty=0.5)
    ended, cut = rank(
        [hypothesis(tokens=3, log_p=-6.0), hypothesis(tokens=4, log_p=-6.0, finished=False)], settings
    )
    assert ended.score == cut.score == pytest.approx(-3.0)


def test_what_was_cut_is_not_merged_with_what_ended() -> None:
    ended, cut = hypothesis(tokens=2, log_p=-1.0), hypothesis(tokens=2, log_p=-1.0, finished=False)
    merged = rank([ended, cut, cut], config.Decode(beam=3, n_best=3, length_penalty=0, merge=True))
    assert [one.finished for one in merged] == [True, False]
    assert merged[0].merged_log_prob == -1.0


# --- limits ---


@firsts
@searches
@pytest.mark.parametrize("limit", [0, 1, 3])
def test_limits_are_kept_and_what_is_cut_says_so(first: str, search: str, limit: int) -> None:
    width = 10 if search == "sample" else 1
    found = [
        one
        for seed in range(8)
        for one in case(first=first, seed=seed).decode(search=search, beam=width, n_best=width, limit=limit)
    ]
    assert max(len(one.tokens) for one in found) == limit
    for one in found:
        ends = len(one.gap_scores if first == "position" else one.word_scores) - len(one.tokens)
        assert ends == int(one.finished)
        if not one.finished:
            assert len(one.tokens) == limit
    assert {one.finished for one in found} == {True, False}


# --- batches ---


@firsts
@searches
@pytest.mark.parametrize("width", [1, 3])
def test_a_batch_is_its_sentences_one_by_one(first: str, search: str, width: int) -> None:
    """With their own lengths and limits: sentences leave the batch at different steps."""
    model = tiny_model(first=first, seed=2)
    source, mask = random_sources(lengths=[5, 1, 3, 2, 4], seed=1)
    limits = torch.tensor([6, 2, 0, 18, 4])
    settings = config.Decode(search=search, beam=width, n_best=width)
    lines = [3, 1, 4, 15, 9]
    together = decode(model, source, mask, settings=settings, limits=limits, lines=lines)
    for row, line in enumerate(lines):
        real = mask[row]
        alone = decode(
            model,
            source[row : row + 1, real],
            mask[row : row + 1, real],
            settings=settings,
            limits=limits[row : row + 1],
            lines=[line],
        )[0]
        assert described(together[row]) == described(alone)
        assert [one.score for one in together[row]] == pytest.approx([one.score for one in alone], abs=1e-4)


@pytest.mark.parametrize("memory", [1, 20_000])
def test_answers_do_not_depend_on_how_many_fit_into_the_memory(
    memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where not one source fits, they are decoded one by one."""
    model = tiny_model(seed=2)
    sources = [example.target for example in random_examples(lengths=[5, 1, 3, 3, 2], seed=1)]
    settings, cpu = config.Decode(beam=2, max_length=4), torch.device("cpu")
    together = decode_all(model, sources, settings=settings, device=cpu)
    monkeypatch.setattr("anyorder.decoding.decode.DECODING_MEMORY", memory)
    in_parts = decode_all(model, sources, settings=settings, device=cpu)
    assert [described(each) for each in in_parts] == [described(each) for each in together]


@searches
def test_many_sources_are_answered_in_the_order_given(search: str) -> None:
    """Whatever their lengths, and however many are decoded together."""
    model = tiny_model(seed=2)
    lengths = np.random.default_rng(1).integers(1, 6, size=DECODED_AT_ONCE + 6)
    sources = [example.target for example in random_examples(lengths=lengths.tolist(), seed=1)]
    settings = config.Decode(search=search, beam=2, n_best=2, max_length=4)
    cpu = torch.device("cpu")
    lines = list(range(100, 100 + len(sources)))
    together = decode_all(model, sources, settings=settings, device=cpu, lines=lines)
    assert len(together) == len(sources)
    for number in range(0, len(sources), 5):
        (alone,) = decode_all(model, [sources[number]], settings=settings, device=cpu, lines=[lines[number]])
        assert described(together[number]) == described(alone)


def longest_written(model: Indigo, sources: list[np.ndarray], **limits: float) -> list[int]:
    """Most words in a hundred samples of each source: enough for some to be cut."""
    settings = config.Decode.model_validate({"search": "sample", "n_best": 100, "temperature": 3, **limits})
    found = decode_all(model, sources, settings=settings, device=torch.device("cpu"))
    return [max(len(one.tokens) for one in outputs) for outputs in found]


@pytest.mark.parametrize(
    ("limits", "longest"),
    [
        ({"max_ratio": 1, "max_extra": 0}, [1, 4]),
        ({"max_ratio": 1, "max_extra": 1}, [2, 5]),
        ({"max_ratio": 0.5, "max_extra": 0}, [0, 2]),
        ({"max_ratio": 2, "max_extra": 1, "max_length": 4}, [3, 4]),
        ({"max_ratio": 0, "max_extra": 1, "max_length": 3}, [3, 3]),
    ],
)
def test_limits_go_by_the_length_of_the_source(limits: dict[str, float], longest: list[int]) -> None:
    sources = [np.full(length, FIRST_WORD, dtype=np.int32) for length in (1, 4)]
    assert longest_written(tiny_model(seed=3), sources, **limits) == longest


def test_limits_of_pictures_do_not_go_by_the_number_of_vectors() -> None:
    sources = [np.ones((vectors, 3), dtype=np.float32) for vectors in (1, 4)]
    model = tiny_model(features=3, seed=3, dtype=torch.float32)
    assert longest_written(model, sources, max_ratio=1, max_extra=0, max_length=3) == [3, 3]


# --- sampling ---


@firsts
def test_samples_follow_the_distribution(first: str) -> None:
    given = case(first=first, seed=0)
    draws = 1500
    found = given.decode(search="sample", n_best=draws, limit=2)
    counts = Counter(described(found))
    outcomes = every_outcome(given, limit=2)
    expected = {
        description: draws * math.exp(one.log_p)
        for one, description in zip(outcomes, described_slowly(outcomes), strict=True)
    }
    assert len(found) == draws
    assert counts.keys() <= expected.keys()
    assert sum(expected.values()) == pytest.approx(draws, rel=1e-5)
    chi_square = sum((counts[way] - often) ** 2 / often for way, often in expected.items())
    freedom = len(expected) - 1
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom)  # four standard deviations


def every_outcome(given: Case, *, limit: int) -> list[Written]:
    """All that a sample may be: ended, or cut because the end wasn't drawn at the limit."""
    outcomes = [one for one in every_sentence(given, limit=limit) if one.finished]
    for one in unfinished(given, length=limit):
        end = next_step(given.model, given.memory, one.steps).end
        outcomes.append(replace(one, log_p=one.log_p + math.log1p(-math.exp(end))))
    return outcomes


@firsts
@seeds
def test_cold_samples_are_greedy(first: str, seed: int) -> None:
    given = case(first=first, seed=seed)
    greedy = given.decode(limit=4, beam=1)
    cold = given.decode(limit=4, search="sample", n_best=3, temperature=1e-4, seed=seed)
    assert cold == given.decode(limit=4, search="sample", n_best=3, temperature=1e-300, seed=seed)
    assert described(cold) == described(greedy) * 3


@firsts
@pytest.mark.parametrize("shortlist", [{"top_k": 1}, {"top_p": 1e-6}], ids=["top_k", "top_p"])
def test_the_shortest_shortlist_leaves_the_best_word(first: str, shortlist: dict[str, float]) -> None:
    """Gaps are still drawn."""
    given = case(first=first, seed=5)
    found = given.decode(limit=4, search="sample", n_best=40, **shortlist)
    assert len({(one.tokens, one.positions) for one in found}) > 1
    for one in found:
        steps: Steps = ()
        for step, (word, position) in enumerate(zip(one.tokens, one.positions, strict=True)):
            after = next_step(given.model, given.memory, steps)
            gap = sum(earlier < position for earlier in one.positions[:step])
            assert word - FIRST_WORD == int(after.word[:, gap].argmax())
            if first == "word":
                assert after.end < float(after.word[:, gap].max())
            steps = (*steps, (word, gap))


@firsts
def test_samples_depend_on_seed_and_line_alone(first: str) -> None:
    given = case(first=first, seed=0)
    settings = config.Decode(search="sample", n_best=8)

    def sampled(*, seed: int, line: int) -> list[Description]:
        return described(
            decode(
                given.model,
                given.source,
                given.mask,
                settings=settings.model_copy(update={"seed": seed}),
                limits=torch.tensor([4]),
                lines=[line],
            )[0]
        )

    assert sampled(seed=1, line=0) == sampled(seed=1, line=0)
    assert sampled(seed=1, line=0) == described(given.decode(search="sample", n_best=8, limit=4))
    assert sampled(seed=1, line=0) != sampled(seed=2, line=0)
    assert sampled(seed=1, line=0) != sampled(seed=1, line=1)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_cut_the_unit_interval_by_probability(temperature: float) -> None:
    probabilities = torch.tensor([0.1, 0.0, 0.6, 0.3, 0.0])
    chances = (torch.arange(1000) + 0.5) / 1000
    drawn = draw(probabilities.log().expand(1000, -1), chances, temperature=temperature)
    sharpened = probabilities ** (1 / temperature)
    shares = torch.bincount(drawn, minlength=5) / 1000
    torch.testing.assert_close(shares, sharpened / sharpened.sum(), rtol=0, atol=0.0011)
    assert drawn.tolist() == sorted(drawn.tolist())


def test_draws_never_hit_the_impossible() -> None:
    scores = torch.tensor([0.0, 0.7, 0.3, 0.0]).log().expand(2, -1)
    largest_below_one = np.nextafter(np.float32(1), np.float32(0))
    extremes = torch.tensor([0.0, float(largest_below_one)])
    assert draw(scores, extremes, temperature=1.0).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({}, [0, 1, 2, 3]),
        ({"top_k": 2}, [1, 3]),
        ({"top_k": 9}, [0, 1, 2, 3]),
        ({"top_p": 0.39}, [1]),
        ({"top_p": 0.41}, [1, 3]),  # 0.4 isn't enough: the word that crosses p counts
        ({"top_p": 0.95}, [0, 1, 2, 3]),
        ({"top_k": 2, "top_p": 0.55}, [1]),  # of the two best, 0.4 of 0.7
        ({"top_p": 0.41, "temperature": 0.5}, [1]),  # 0.16 of 0.30
    ],
)
def test_shortlists(settings: dict[str, float], left: list[int]) -> None:
    scores = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()
    short = truncate(scores, config.Decode.model_validate({"search": "sample", **settings}))
    assert short.isfinite()[0].nonzero().flatten().tolist() == left
    assert torch.equal(short[0, left], scores[0, left])


@firsts
def test_equal_samples_are_one_order_when_merged(first: str) -> None:
    """The mass of a sentence can't exceed one however often it was drawn."""
    given = case(first=first, seed=0)
    merged = given.decode(search="sample", n_best=50, limit=2, merge=True)
    assert sum(math.exp(one.merged_log_prob) for one in merged if one.finished) <= 1 + 1e-5
