"""Significance tests, against those of sacreBLEU and against the enumeration of all permutations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric as SacreMetric
from sacrebleu.significance import PairedTest
from sacrebleu.significance import Result as SacreResult

from anyorder.evaluation.significance import (
    SEED,
    PairedTests,
    bootstrap_interval,
    paired_tests,
    paired_tests_of_means,
    permutation_p_value,
)
from anyorder.metrics import METRICS, Options, Result, evaluate

LINES, SAMPLES = 60, 200
OFFLINE = [
    name for name in METRICS if name not in ("ribes", "meteor", "cider", "gleu", "edits", "errant")
]  # no extra, no Java, no drafts


def corpus(*, lines: int = LINES, seed: int = 1) -> list[str]:
    random = Random(seed)
    return [" ".join(random.choices("abcdefghij", k=random.randint(5, 12))) for _ in range(lines)]


def with_mistakes(text: list[str], *, share: float, seed: int) -> list[str]:
    random = Random(seed)
    return [
        " ".join(random.choice("klm") if random.random() < share else word for word in line.split())
        for line in text
    ]


REFERENCE = corpus()
SYSTEM = with_mistakes(REFERENCE, share=0.18, seed=2)
BASELINE = with_mistakes(REFERENCE, share=0.22, seed=3)
SACRE: dict[str, SacreMetric] = {"bleu": BLEU(force=True), "chrf": CHRF(), "ter": TER()}


def result(name: str, written: list[str], reference: list[str] = REFERENCE) -> Result:
    return evaluate(written, [reference], metrics=[name], options=Options(tokenize="13a"))[name]


def by_sacrebleu(name: str, test_type: str, *, samples: int) -> tuple[SacreResult, SacreResult]:
    """Return the results of sacreBLEU for the baseline and the system."""
    named = [("baseline", BASELINE), ("system", SYSTEM)]
    test = PairedTest(
        named, {name: SACRE[name]}, references=[REFERENCE], test_type=test_type, n_samples=samples
    )
    _, columns = test()
    (found,) = [column for title, column in columns.items() if title != "System"]
    return found[0], found[1]


@pytest.mark.parametrize("seed", [SEED, 7])
@pytest.mark.parametrize("name", SACRE)
def test_results_equal_those_of_sacrebleu(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", str(seed))
    compared = paired_tests(result(name, SYSTEM), result(name, BASELINE), samples=SAMPLES, seed=seed)
    baseline, system = by_sacrebleu(name, "bs", samples=SAMPLES)
    _, shuffled = by_sacrebleu(name, "ar", samples=SAMPLES)
    assert compared.bootstrap_p == pytest.approx(system.p_value)
    assert compared.randomisation_p == pytest.approx(shuffled.p_value)
    # sacreBLEU computes with half as many digits.
    for ours, reference in [(compared.system, system), (compared.baseline, baseline)]:
        assert ours.score == pytest.approx(reference.score)
        assert ours.mean == pytest.approx(reference.mean, abs=1e-4)
        assert ours.half_width == pytest.approx(reference.ci, abs=1e-4)
    assert bootstrap_interval(result(name, SYSTEM), samples=SAMPLES, seed=seed) == compared.system


def test_randomisation_is_close_to_the_enumeration_of_all_swaps() -> None:
    reference = corpus(lines=10, seed=4)
    system = [*reference[:8], "x", "x"]
    baseline = ["y", "y", "y", *reference[3:9], "y"]
    gains = np.array(
        [1, 1, 1, 0, 0, 0, 0, 0, -1, 0]
    )  # lines that only the system, or only the baseline, has right
    swapped = np.array([np.dot(signs, gains) for signs in product([1, -1], repeat=10)])
    wanted = np.mean(np.abs(swapped) >= abs(gains.sum()))
    compared = paired_tests(
        result("exact", system, reference), result("exact", baseline, reference), samples=10_000
    )
    assert compared.randomisation_p == pytest.approx(wanted, abs=0.02)


@pytest.mark.parametrize("name", OFFLINE)
def test_a_system_does_not_differ_from_itself(name: str) -> None:
    compared = paired_tests(result(name, SYSTEM), result(name, SYSTEM), samples=SAMPLES)
    assert compared.bootstrap_p == compared.randomisation_p == 1
    assert (compared.difference.low, compared.difference.score, compared.difference.high) == (0, 0, 0)


def test_a_single_line_is_not_significant() -> None:
    one_wrong = ["x", *REFERENCE[1:]]
    assert (
        paired_tests(result("exact", REFERENCE), result("exact", one_wrong), samples=SAMPLES).randomisation_p
        == 1
    )


@pytest.mark.parametrize("name", OFFLINE)
def test_a_large_difference_is_significant(name: str) -> None:
    compared = paired_tests(result(name, REFERENCE), result(name, BASELINE), samples=SAMPLES)
    assert compared.bootstrap_p == compared.randomisation_p == 1 / (SAMPLES + 1)
    assert not compared.difference.low <= 0 <= compared.difference.high


@pytest.mark.parametrize("name", OFFLINE)
def test_either_system_may_be_the_baseline(name: str) -> None:
    one, other = result(name, SYSTEM), result(name, BASELINE)
    forth, back = paired_tests(one, other, samples=SAMPLES), paired_tests(other, one, samples=SAMPLES)
    assert forth.system == back.baseline
    assert forth.bootstrap_p == back.bootstrap_p
    assert forth.randomisation_p == back.randomisation_p
    assert forth.difference.low == pytest.approx(-back.difference.high)


def test_seeds_make_tests_repeatable() -> None:
    def test(seed: int) -> PairedTests:
        return paired_tests(result("exact", SYSTEM), result("exact", BASELINE), samples=SAMPLES, seed=seed)

    assert test(0) == test(0)
    assert test(0) != test(1)


@pytest.mark.parametrize("name", OFFLINE)
def test_most_samples_lie_around_the_score(name: str) -> None:
    system = paired_tests(result(name, SYSTEM), result(name, BASELINE), samples=SAMPLES).system
    assert system.low < system.mean < system.high
    assert system.low < system.score < system.high


# Several trainings of a system


@pytest.mark.parametrize("name", ["bleu", "exact"])
@pytest.mark.parametrize(("systems", "baselines"), [(1, 1), (3, 3), (2, 3), (1, 4)])
def test_the_same_training_again_adds_nothing(name: str, systems: int, baselines: int) -> None:
    one, other = result(name, SYSTEM), result(name, BASELINE)
    repeated = paired_tests_of_means([one] * systems, [other] * baselines, samples=SAMPLES)
    wanted = paired_tests(one, other, samples=SAMPLES)
    assert repeated.bootstrap_p == wanted.bootstrap_p
    assert repeated.randomisation_p == wanted.randomisation_p
    for estimate, single in [(repeated.system, wanted.system), (repeated.difference, wanted.difference)]:
        assert vars(estimate) == pytest.approx(vars(single))


def test_all_hypotheses_of_a_line_are_swapped_together() -> None:
    reference = corpus(lines=8, seed=5)
    right = {  # lines that each training has right
        "systems": [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 6, 7]],
        "baselines": [[0, 4], [1, 4, 5]],
    }
    groups = {
        group: [
            result(
                "exact",
                [line if number in lines else "x" for number, line in enumerate(reference)],
                reference,
            )
            for lines in trainings
        ]
        for group, trainings in right.items()
    }
    gains = np.array(
        [
            sum(number in lines for lines in right["systems"])
            - sum(number in lines for lines in right["baselines"])
            for number in range(8)
        ]
    )
    swapped = np.array([np.dot(signs, gains) for signs in product([1, -1], repeat=8)])
    wanted = np.mean(np.abs(swapped) >= abs(gains.sum()))
    compared = paired_tests_of_means(groups["systems"], groups["baselines"], samples=10_000)
    assert compared.randomisation_p == pytest.approx(wanted, abs=0.02)
    assert compared.difference.score == pytest.approx(100 * gains.sum() / 2 / 8)


@pytest.mark.parametrize(
    ("scores", "baseline_scores", "wanted"),
    [
        ([3, 4], [1, 2], 2 / 6),
        ([4, 5, 6], [1, 2, 3], 2 / 20),
        ([6, 7, 8, 9, 10], [1, 2, 3, 4, 5], 2 / 252),
        ([1, 1], [1, 1], 1),
        ([9], [1, 2, 3], None),
        (range(20), range(20), None),
    ],
)
def test_permutation_p_values(
    scores: list[float], baseline_scores: list[float], wanted: float | None
) -> None:
    assert permutation_p_value(scores, baseline_scores) == (None if wanted is None else pytest.approx(wanted))


@given(
    scores=st.lists(st.integers(0, 9), min_size=2, max_size=3),
    others=st.lists(st.integers(0, 9), min_size=2, max_size=3),
)
def test_the_permutation_test_equals_the_enumeration_of_permutations(
    scores: list[int], others: list[int]
) -> None:
    def difference(dealt: Sequence[int]) -> float:
        return abs(np.mean(dealt[: len(scores)]) - np.mean(dealt[len(scores) :]))

    real = difference([*scores, *others])
    shuffled = [difference(dealt) >= real - 1e-9 for dealt in permutations([*scores, *others])]
    assert permutation_p_value(scores, others) == pytest.approx(np.mean(shuffled))
