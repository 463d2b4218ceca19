"""Grid beam search against brute force, and the benchmark that uses it."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import FIRST_WORD, random_sources, tiny_model
from corpora import assert_one_line_refusal, call_here, json_lines, learned, write_lines

from anyorder.bench.grid_beam import grid_beam
from anyorder.data.batches import Example, collate
from anyorder.errors import UserError
from anyorder.models.loss import score_steps

WORDS = (FIRST_WORD, FIRST_WORD + 1, FIRST_WORD + 2)
LIMIT = 3


def holds(sentence: tuple[int, ...], words: list[tuple[int, ...]]) -> bool:
    """Tell whether the sentence contains all words, without overlaps."""
    if not words:
        return True
    first, *others = words
    return any(
        sentence[start : start + len(first)] == first
        # What is used can't be used again.
        and holds((*sentence[:start], -1, *sentence[start + len(first) :]), others)
        for start in range(len(sentence))
    )


@pytest.mark.parametrize("required", [[], [(WORDS[0],)], [(WORDS[1], WORDS[2])], [(WORDS[2],), (WORDS[0],)]])
def test_a_wide_grid_finds_the_best_of_all_sentences(required: list[tuple[int, ...]]) -> None:
    """Compare with the scores of all sentences, as the training loss computes them."""
    for seed in range(3):
        model = tiny_model(seed=seed)
        source, mask = random_sources(lengths=[3], seed=seed)
        memory = model.encode(source, mask)
        best = {}
        for length in range(1, LIMIT + 1):
            for sentence in itertools.product(WORDS, repeat=length):
                if not holds(sentence, required):
                    continue
                target = np.array(sentence, dtype=np.int32)
                order = np.arange(1, length + 1, dtype=np.int32)
                batch = collate([Example(source=source[0].numpy(), target=target, order=order)])
                word_scores = score_steps(model, memory, batch).word.sum()
                best[sentence] = word_scores.item() / (length + 1)
        found = grid_beam(
            model,
            source,
            mask,
            required=required,
            ends_word=torch.ones(FIRST_WORD + 3, dtype=torch.bool),
            width=100,
            limit=LIMIT,
        )
        if found or required:  # the empty sentence may be the best of all where nothing is required
            assert found == max(best, key=best.__getitem__)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"first": "position"}, 'grid beam: the model has model.first = "position"; must be "word"'),
        ({"copying": True}, "grid beam: the model has model.copying = true; must be false"),
    ],
)
def test_unsupported_models_are_refused(settings: dict[str, object], complaint: str) -> None:
    source, mask = random_sources(lengths=[3])
    with pytest.raises(UserError, match=complaint):
        grid_beam(
            tiny_model(**settings),
            source,
            mask,
            required=[],
            ends_word=torch.ones(9, dtype=torch.bool),
            width=1,
            limit=2,
        )


@pytest.mark.parametrize(
    ("sources", "targets", "complaint"),
    [
        ([], [], "source: empty; allowed: a line or more"),
        (["a b", " "], ["a b", "b"], "source:2: blank line; allowed: one sentence per line"),
        (["a b"], [""], "target:1: blank line; allowed: one sentence per line"),
    ],
)
def test_blank_lines_and_empty_files_are_refused(
    sources: list[str],
    targets: list[str],
    complaint: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    source = write_lines(tmp_path / "source", sources)
    target = write_lines(tmp_path / "target", targets)
    answer = call_here(capsys, "bench", "complete", learned().run, "--source", source, "--target", target)
    assert_one_line_refusal(answer, complaint)


def test_the_benchmark_compares_conditions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder, run = learned().folder, learned().run
    answer = call_here(
        capsys,
        *("bench", "complete", run, "--against", run, "--beam", "2", "--lines", "4", "--json"),
        *("--source", folder / "dev.source", "--target", folder / "dev.target"),
    )
    ((rows,),) = [line.values() for line in json_lines(answer)]
    by_name = {row["name"]: row for row in rows}
    assert by_name["free"]["ratio"] == 1
    assert {row["satisfied"] for name, row in by_name.items() if "free" not in name} == {100}
    assert len(by_name) == 20
