"""Metrics of edits: laws, values worked out by hand, and those of the reference programs."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from anyorder.errors import UserError
from anyorder.metrics import Options, evaluate
from anyorder.metrics.edits import word_edits

DRAFTS = ["the cat sat at mat", "he go to school", "I am here", "she like the dogs"]
WRITTEN = ["the cat sat on the mat", "he go to the school", "I am here", "she likes dog"]
REFERENCES = [
    ["the cat sat on the mat", "he goes to school", "I am here", "she likes the dogs"],
    ["a cat sat on a mat", "he went to school", "I am here", "she likes dogs"],
]
needs_errant = pytest.mark.skipif(find_spec("errant") is None, reason="without the extra `errant`")
EVERY = ["gleu", "edits", pytest.param("errant", marks=needs_errant)]


def score(name: str, written: list[str], *references: list[str], lowercase: bool = False) -> float:
    options = Options(lowercase=lowercase)
    return evaluate(written, references, metrics=[name], options=options, drafts=DRAFTS)[name].score


@pytest.mark.parametrize("name", EVERY)
def test_the_reference_is_best_and_the_draft_is_worse(name: str) -> None:
    assert score(name, REFERENCES[0], REFERENCES[0]) == pytest.approx(100)
    assert score(name, DRAFTS, REFERENCES[0]) < score(name, WRITTEN, REFERENCES[0]) < 100


@pytest.mark.parametrize("name", EVERY)
def test_statistics_add_up_and_capitals_count_unless_ignored(name: str) -> None:
    result = evaluate(WRITTEN, REFERENCES[:1], metrics=[name], drafts=DRAFTS)[name]
    assert result.metric.score(result.statistics) == result.score
    assert len(result.sentence_scores()) == len(WRITTEN)
    shouted = [text.upper() for text in WRITTEN]
    assert score(name, shouted, REFERENCES[0]) < result.score
    lower = score(name, WRITTEN, REFERENCES[0], lowercase=True)
    assert score(name, shouted, REFERENCES[0], lowercase=True) == pytest.approx(lower)


@pytest.mark.parametrize("name", ["gleu", "edits"])
def test_without_drafts_they_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"metric '{name}': compares with drafts"):
        evaluate(WRITTEN, REFERENCES, metrics=[name])
    with pytest.raises(UserError, match="drafts: 1 lines but 4 were written"):
        evaluate(WRITTEN, REFERENCES, metrics=[name], drafts=["a"])


# By the program of its authors, github.com/keisks/jfleg, eval/gleu.py, moved to Python 3 by hand.
@pytest.mark.parametrize(
    ("written", "references", "expected"),
    [
        (WRITTEN, REFERENCES[:1], 62.93322),
        (WRITTEN, REFERENCES, 28.57168),
        (DRAFTS, REFERENCES, 0.0),
    ],
)
def test_gleu_is_that_of_its_authors(
    written: list[str], references: list[list[str]], expected: float
) -> None:
    assert score("gleu", written, *references) == pytest.approx(expected, abs=1e-4)


def test_edits_are_runs_of_changed_words() -> None:
    assert word_edits(["a", "b", "c", "d"], ["a", "x", "y", "d", "e"]) == {(1, 3, "x y"), (4, 4, "e")}
    assert word_edits(["a", "b"], ["a", "b"]) == set()
    assert word_edits(["a", "b"], []) == {(0, 2, "")}


def test_f_of_edits_by_hand() -> None:
    # Line by line: right; wrong and missed; nothing to do; wrong, because all neighbouring words count.
    found = evaluate(WRITTEN, REFERENCES[:1], metrics=["edits"], drafts=DRAFTS)["edits"]
    assert found.statistics.tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 0], [0, 1, 1]]
    precision, recall = 1 / 3, 1 / 3
    assert found.score == pytest.approx(100 * 1.25 * precision * recall / (0.25 * precision + recall))


@needs_errant
def test_errant_is_errant_compare() -> None:
    # `errant_parallel` and `errant_compare` on these lines print TP, FP, FN.
    found = evaluate(WRITTEN, REFERENCES, metrics=["errant"], drafts=DRAFTS)["errant"]
    assert found.statistics.sum(axis=0).tolist() == [4, 2, 1]
