"""The beam's bookkeeping: who comes from whom, and which hypotheses are one and the same."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from conftest import FIRST_WORD, indices_after
from hypothesis import given
from hypothesis import strategies as st

from anyorder.decoding.beam import Beam, Extension, TokenHypothesis
from anyorder.insertion import NEG_INF
from anyorder.text.tokenizer import BOS, EOS

CPU = torch.device("cpu")
A, B = FIRST_WORD, FIRST_WORD + 1


def grow(beam: Beam, *, parent: list[int], word: list[int], gap: list[int], log_p: list[float]) -> Beam:
    """One sentence's hypotheses, one token later; word and gap bear half of log p each."""
    halves = torch.tensor([log_p]) / 2
    parents = torch.tensor([parent])
    extension = Extension(
        parent=parents,
        word=torch.tensor([word]),
        gap=torch.tensor([gap]),
        word_score=halves,
        gap_score=halves,
        log_prob=beam.log_prob.gather(1, parents) + 2 * halves,
    )
    return beam.grow(extension)


def as_they_stand(beam: Beam, *, end: float = NEG_INF, end_is_word: bool = True) -> list[TokenHypothesis]:
    """All hypotheses, with the same end."""
    chosen = torch.ones_like(beam.log_prob, dtype=torch.bool)
    ends = torch.full_like(beam.log_prob, end)
    return list(beam.hypotheses(chosen, ends=ends, end_is_word=end_is_word))


def test_a_beam_starts_with_the_boundaries_alone() -> None:
    beam = Beam.start(2, hypotheses=3, device=CPU)
    assert beam.length == 0
    assert beam.words.tolist() == [[[BOS, EOS]] * 3] * 2
    assert beam.indices.tolist() == [[[0, 1]] * 3] * 2
    assert beam.log_prob.tolist() == [[0.0] * 3] * 2
    assert beam.sentences.tolist() == [0, 1]


@st.composite
def histories(draw: st.DrawFn) -> list[list[tuple[int, int, int]]]:
    """For some steps and three hypotheses: the parent of each, its word and its gap."""
    steps = draw(st.integers(1, 5))
    return [
        [
            (draw(st.integers(0, 2)), draw(st.sampled_from([A, B])), draw(st.integers(0, written)))
            for _ in range(3)
        ]
        for written in range(steps)
    ]


@given(histories())
def test_a_hypothesis_inherits_all_that_its_parent_wrote(history: list[list[tuple[int, int, int]]]) -> None:
    beam = Beam.start(1, hypotheses=3, device=CPU)
    plain: list[list[tuple[int, int]]] = [[], [], []]
    for choices in history:
        parents, words, gaps = (list(column) for column in zip(*choices, strict=True))
        beam = grow(beam, parent=parents, word=words, gap=gaps, log_p=[-1.0, -2.0, -3.0])
        plain = [[*plain[parent], (word, gap)] for parent, word, gap in choices]
    for row, steps in enumerate(plain):
        indices = indices_after([gap for _, gap in steps])
        one = as_they_stand(beam)[row]
        assert one.tokens == tuple(word for word, _ in steps)
        assert one.positions == tuple(indices[2:])
        assert one.log_prob == pytest.approx(float(beam.log_prob[0, row]))
        by_position = dict(zip(one.positions, one.tokens, strict=True))
        assert one.sentence == tuple(by_position[position] for position in range(1, len(steps) + 1))
        assert not one.finished
        assert one.merged_log_prob == one.score == float(beam.log_prob[0, row])


def test_the_end_has_a_word_or_a_gap_score() -> None:
    beam = grow(Beam.start(1, device=CPU), parent=[0], word=[A], gap=[0], log_p=[-2.0])
    as_word, as_gap = (as_they_stand(beam, end=-3.0, end_is_word=is_word)[0] for is_word in (True, False))
    assert (as_word.word_scores, as_word.gap_scores) == ((-1.0, -3.0), (-1.0,))
    assert (as_gap.word_scores, as_gap.gap_scores) == ((-1.0,), (-1.0, -3.0))
    for one in (as_word, as_gap):
        assert one.finished
        assert one.log_prob == one.merged_log_prob == -5.0


def test_a_certain_end_is_an_end() -> None:
    beam = Beam.start(1, device=CPU)
    assert as_they_stand(beam, end=0.0, end_is_word=True)[0].finished
    assert as_they_stand(beam, end=0.0, end_is_word=False)[0].finished


def test_only_those_that_are_chosen_leave() -> None:
    start = Beam.start(1, hypotheses=3, device=CPU)
    beam = grow(start, parent=[0, 1, 2], word=[A, B, A], gap=[0, 0, 0], log_p=[-2.0, -4.0, -6.0])
    ends = torch.tensor([[-1.0, NEG_INF, -3.0]])
    cut, ended = beam.hypotheses(torch.tensor([[False, True, True]]), ends=ends, end_is_word=True)
    assert (cut.tokens, cut.finished, cut.merged_log_prob) == ((B,), False, -4.0)
    assert (ended.tokens, ended.finished, ended.merged_log_prob) == ((A,), True, -9.0)


def test_a_sentence_is_read_by_position() -> None:
    one = TokenHypothesis(
        tokens=(13, 10, 12, 11),
        positions=(4, 1, 3, 2),
        word_scores=(),
        gap_scores=(),
        finished=True,
        merged_log_prob=0.0,
        score=0.0,
        iterations=4,
    )
    assert one.sentence == (10, 11, 12, 13)


def test_sentences_keep_their_numbers_when_others_leave() -> None:
    beam = Beam.start(4, hypotheses=2, device=CPU)
    beam = replace(beam, log_prob=torch.arange(8.0).reshape(4, 2))
    kept = beam.keep(torch.tensor([1, 3])).keep(torch.tensor([1]))
    assert kept.sentences.tolist() == [3]
    assert kept.log_prob.tolist() == [[6.0, 7.0]]
    assert kept.words.shape == (1, 2, 2)


# --- merging ---


def beam_of_two_steps(*written: tuple[int, int, int], masses: list[float]) -> Beam:
    """Hypotheses given as first word, second word and the second's gap."""
    firsts, seconds, gaps = (list(column) for column in zip(*written, strict=True))
    parents = list(range(len(written)))
    beam = Beam.start(1, hypotheses=len(written), device=CPU)
    beam = grow(beam, parent=parents, word=firsts, gap=[0] * len(written), log_p=[-1.0] * len(written))
    beam = grow(beam, parent=parents, word=seconds, gap=gaps, log_p=[-1.0] * len(written))
    return replace(beam, log_prob=torch.tensor([masses]))


def test_of_equal_canvases_the_best_goes_on_with_the_probability_of_all() -> None:
    beam = beam_of_two_steps(
        (A, B, 1),  # A B
        (B, A, 0),  # A B too, and likelier
        (A, B, 0),  # B A
        (A, A, 0),
        (A, A, 1),  # A A, as likely as the one before: the first goes on
        masses=[math.log(p) for p in (0.1, 0.2, 0.3, 0.04, 0.04)],
    )
    mass = beam.merged().log_prob[0].exp()
    torch.testing.assert_close(mass, torch.tensor([0.0, 0.3, 0.3, 0.08, 0.0]))


def test_merging_changes_nothing_but_log_prob() -> None:
    beam = beam_of_two_steps((A, B, 1), (B, A, 0), masses=[-1.0, -2.0])
    merged = beam.merged()
    for name in ("sentences", "words", "indices", "word_scores", "gap_scores"):
        assert torch.equal(getattr(merged, name), getattr(beam, name))


def test_the_dead_stay_dead_and_add_nothing() -> None:
    beam = beam_of_two_steps(
        (A, B, 1), (B, A, 0), (B, B, 0), (B, B, 1), masses=[NEG_INF, -2.0, NEG_INF, NEG_INF]
    )
    assert beam.merged().log_prob[0].tolist() == [NEG_INF, -2.0, NEG_INF, NEG_INF]


@given(
    st.lists(
        st.tuples(st.sampled_from([A, B]), st.sampled_from([A, B]), st.sampled_from([0, 1])),
        min_size=1,
        max_size=8,
    )
)
def test_merging_keeps_the_total_and_leaves_one_of_each(written: list[tuple[int, int, int]]) -> None:
    beam = beam_of_two_steps(*written, masses=[-1.0 - 0.1 * row for row in range(len(written))])
    merged = beam.merged()
    torch.testing.assert_close(merged.log_prob.logsumexp(dim=1), beam.log_prob.logsumexp(dim=1))
    alive = [row for row in range(len(written)) if merged.log_prob[0, row] > NEG_INF]
    sentences = [one.sentence for one in as_they_stand(beam)]
    assert sorted(sentences[row] for row in alive) == sorted(set(sentences))
    assert all(sentences.index(sentences[row]) == row for row in alive)  # masses fall with the row
