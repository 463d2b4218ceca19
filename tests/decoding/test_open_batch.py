"""Whoever else joins or leaves, a sentence is written as if it were alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from conftest import FIRST_WORD, random_examples, tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st

from anyorder import config
from anyorder.config.model import Shape
from anyorder.decoding.beam import TokenHypothesis, rank
from anyorder.decoding.constraints import CLOSED, Blank, Canvas, ForbiddenWord, Way
from anyorder.decoding.decode import CanvasBatch, decode_all
from anyorder.decoding.open_batch import OpenBatch, Sentence
from anyorder.models.indigo import Indigo
from anyorder.models.transformer import LeftToRight

A, B, C = FIRST_WORD, FIRST_WORD + 1, FIRST_WORD + 2
CPU = torch.device("cpu")
LIMIT = 7
SEARCHES = {
    "greedy": {},
    "beam": {"beam": 3, "n_best": 2},
    "joint": {"search": "joint", "beam": 3, "n_best": 3, "length_penalty": 0.0},
    "merging": {"beam": 4, "merge_partial": True},
    "sampling": {"search": "sample", "n_best": 3},
}
MODELS = {
    "word first": {},
    "position first": {"first": "position"},
    "steps back": {"steps_back": 3},
    "copying": {"copying": True},
}
CANVASES = (
    Canvas(),
    Canvas(items=((Way((A,), (True,), 1),),)),
    Canvas(items=((Way((B, A), (False, True), 1),), (Way((C,), (True,), 1),))),
    Canvas(blanks=(Blank(least=1, most=2),), before=CLOSED, template=((A, 0), (C, CLOSED))),
    Canvas(blanks=(Blank(), Blank(least=2)), before=0, template=((B, CLOSED), (A, 1))),
    Canvas(forbidden=(ForbiddenWord.of_token(A),)),
)
PIECES = torch.tensor([True] * (FIRST_WORD + 3))
PIECES[B] = False


@dataclass(frozen=True)
class Arrival:
    """A sentence that comes before a certain step."""

    sentence: Sentence
    at: int


def arrivals(times: Sequence[int], *, canvases: Sequence[Canvas] | None = None) -> list[Arrival]:
    lengths = [1 + (3 * number) % 5 for number in range(len(times))]
    sources = [example.target for example in random_examples(lengths=lengths, seed=len(times))]
    return [
        Arrival(
            Sentence(
                key=number,
                source=source,
                limit=2 + (number * 5) % LIMIT,
                line=number,
                canvas=None if canvases is None else canvases[number],
            ),
            at,
        )
        for number, (source, at) in enumerate(zip(sources, times, strict=True))
    ]


def alone(
    model: Indigo, sentence: Sentence, decode: config.Decode, *, pieces: torch.Tensor | None
) -> list[TokenHypothesis]:
    around = None
    if sentence.canvas is not None:
        assert pieces is not None
        around = CanvasBatch([sentence.canvas], ends_word=pieces)
    # The limit is the one thing that decode_all works out for itself.
    bounded = decode.model_copy(update={"max_length": sentence.limit, "max_ratio": 0.0, "max_extra": 0})
    (found,) = decode_all(
        model, [sentence.source], settings=bounded, device=CPU, lines=[sentence.line], around=around
    )
    return found


def together(
    model: Indigo,
    coming: Sequence[Arrival],
    decode: config.Decode,
    *,
    pieces: torch.Tensor | None = None,
    leaving: dict[int, int] | None = None,
) -> dict[object, list[TokenHypothesis]]:
    """leaving: by key, the step before which somebody gives it up."""
    batch = OpenBatch(model, decode, device=CPU, ends_word=pieces)
    found: dict[object, list[TokenHypothesis]] = {}
    for time in range(100):
        batch.add([one.sentence for one in coming if one.at == time])
        batch.drop({key for key, at in (leaving or {}).items() if at == time})
        found.update({key: rank(ended, decode) for key, ended in batch.step().items()})
        if not batch.under_way and time > max(one.at for one in coming):
            return found
    raise AssertionError("never ended")


def assert_alike(found: list[TokenHypothesis], expected: list[TokenHypothesis]) -> None:
    def shape(hypotheses: list[TokenHypothesis]) -> list[TokenHypothesis]:
        return [
            replace(one, word_scores=(), gap_scores=(), merged_log_prob=0.0, score=0.0) for one in hypotheses
        ]

    assert shape(found) == shape(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.score == pytest.approx(other.score)
        assert one.word_scores == pytest.approx(other.word_scores)
        assert one.gap_scores == pytest.approx(other.gap_scores)


@settings(max_examples=3)
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("kind", MODELS)
@given(times=st.lists(st.integers(0, 6), min_size=2, max_size=6), seed=st.integers(0, 3))
def test_free_sentences(kind: str, search: str, times: list[int], seed: int) -> None:
    model = tiny_model(seed=seed, **MODELS[kind])
    decode = config.Decode.model_validate(SEARCHES[search])
    coming = arrivals(times)
    found = together(model, coming, decode)
    for one in coming:
        assert_alike(found[one.sentence.key], alone(model, one.sentence, decode, pieces=None))


@settings(max_examples=3)
@pytest.mark.parametrize("pieces", [torch.ones_like(PIECES), PIECES], ids=["words", "pieces"])
@pytest.mark.parametrize("search", ["greedy", "beam", "joint", "sampling"])
@pytest.mark.parametrize("first", ["word", "position"])
@given(
    given_=st.lists(st.tuples(st.integers(0, 6), st.sampled_from(CANVASES)), min_size=2, max_size=6),
    seed=st.integers(0, 3),
)
def test_sentences_around_canvases(
    first: str, search: str, pieces: torch.Tensor, given_: list[tuple[int, Canvas]], seed: int
) -> None:
    model = tiny_model(seed=seed, first=first, marks_given=True, reads_required=True)
    decode = config.Decode.model_validate(SEARCHES[search])
    coming = [
        replace(one, sentence=replace(one.sentence, limit=6 + one.sentence.limit))
        for one in arrivals([at for at, _ in given_], canvases=[canvas for _, canvas in given_])
    ]
    found = together(model, coming, decode, pieces=pieces)
    for one in coming:
        assert_alike(found[one.sentence.key], alone(model, one.sentence, decode, pieces=pieces))


@settings(max_examples=6)
@given(times=st.lists(st.integers(0, 5), min_size=2, max_size=5), seed=st.integers(0, 3))
def test_left_to_right(times: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    small = {"width": 8, "hidden": 12, "heads": 2, "encoder_layers": 1, "decoder_layers": 2}
    ids = FIRST_WORD + 3
    shape = Shape(vocabulary=ids, target_vocabulary=ids)
    model = LeftToRight(config.Model.model_validate({"kind": "transformer", **small}), shape).double().eval()
    decode = config.Decode(beam=2)
    coming = arrivals(times)
    found = together(model, coming, decode)
    for one in coming:
        assert_alike(found[one.sentence.key], alone(model, one.sentence, decode, pieces=None))


@settings(max_examples=8)
@given(times=st.lists(st.integers(0, 5), min_size=3, max_size=6), leaves=st.integers(1, 6))
def test_who_leaves_changes_nothing_for_the_others(times: list[int], leaves: int) -> None:
    model, decode = tiny_model(seed=1), config.Decode(beam=2)
    coming = arrivals(times)
    gone = {coming[0].sentence.key: times[0] + leaves}
    found = together(model, coming, decode, leaving=gone)
    for one in coming[1:]:
        assert_alike(found[one.sentence.key], alone(model, one.sentence, decode, pieces=None))


def test_a_batch_that_never_empties_needs_no_more_room_after_a_while() -> None:
    """Sentences come for a long time, and the caches stay as short as the sentences under way."""
    model, decode = tiny_model(seed=2), config.Decode(beam=2)
    batch = OpenBatch(model, decode, device=CPU)
    chance = np.random.default_rng(0)
    sizes = []
    for time in range(40):
        source = chance.integers(FIRST_WORD, FIRST_WORD + 3, size=3).astype(np.int32)
        batch.add([Sentence(key=time, source=source, limit=5)])
        batch.step()
        assert batch._part is not None
        sizes.append(batch._part.writing.decoder_state.size)
    assert max(sizes) <= 2 + 2 * 6
