"""Completion under constraints: BLEU, satisfied constraints, and time against unconstrained decoding."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from anyorder.bench import requests
from anyorder.bench.grid_beam import check_searchable, grid_beam
from anyorder.bench.requests import CompletionRequest, percent_satisfied
from anyorder.data.batches import collate_sources
from anyorder.errors import UserError
from anyorder.evaluation.significance import paired_tests
from anyorder.inference.generator import Generator
from anyorder.metrics import Options, Result, evaluate
from anyorder.models.indigo import Indigo
from anyorder.models.registry import ordered
from anyorder.text.tokenizer import Tokenizer

FREE = "free"
REQUIRED = (1, 2, 4)  # numbers of required words; each set contains the previous one
CHUNK_SENTENCES = 500  # sentences of a turn, about as many as `complete` sorts by length
REPEATS = 3  # repetitions of a turn; one for the grid beam search, which is slow
GRID_BEAM_LIMIT = 60  # maximum number of tokens that the grid beam search writes
SEED = 1
Complete = Callable[
    [Sequence[str], Sequence[CompletionRequest]], list[str]
]  # takes sources and a request for each


@dataclass(frozen=True)
class ConditionResult:
    """Quality and speed under one condition, over all sentences."""

    name: str
    bleu: float
    exact: float  # percentage of exact matches
    satisfied: float | None  # percentage of satisfied constraints; None if there are none
    tokens: float  # tokens per sentence
    milliseconds: float  # processor time per sentence
    ratio: float  # time per token divided by that of unconstrained decoding: the median of all turns
    p: float | None = None  # p-value of the difference in BLEU to the condition `against`
    against: str | None = None


@dataclass(frozen=True)
class _Turn:
    """The cost of completing a chunk of the sentences, once or several times."""

    tokens: int
    milliseconds: list[float]  # one value per repetition


@dataclass(frozen=True)
class _Condition:
    """A kind of request, and what answers it."""

    name: str
    requests: Sequence[CompletionRequest]  # one per sentence
    complete: Complete
    against: str | None  # name of the condition that its BLEU is compared with
    repeats: int = REPEATS
    hypotheses: list[str] = field(default_factory=list)
    turns: list[_Turn] = field(default_factory=list)


def bench_completion(
    generator: Generator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    baseline: Generator | None = None,
    beam: int,
    names: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[ConditionResult]:
    """Measure unconstrained decoding, every kind of request, and grid beam search with a baseline model.

    names: require the identifiers of code instead of random words.
    progress: called with the number of sentences done and their total.
    """
    conditions = [_Condition(FREE, [{}] * len(sources), _unconstrained(generator, beam=beam), None)]
    complete = _constrained(generator, beam=beam)
    if names:
        conditions += _identifier_conditions(references, complete)
    else:
        conditions += _word_conditions(references, generator, complete)
        conditions += _text_conditions(references, complete)
    if baseline is not None:
        conditions = [*conditions, *_baseline_conditions(conditions, baseline, beam=beam)]
    # The conditions take turns, so that other load on the machine affects them alike.
    for first in range(0, len(sources), CHUNK_SENTENCES):
        chunk = slice(first, first + CHUNK_SENTENCES)
        for repeat in range(REPEATS):
            for condition in conditions:
                if repeat < condition.repeats:
                    _take_turn(condition, sources, chunk, generator.tokenizer, repeated=repeat > 0)
        progress(min(first + CHUNK_SENTENCES, len(sources)), len(sources))
    options = Options.for_side(generator.trained.recipe.text.target)
    return list(_results(conditions, references, options))


def _take_turn(
    condition: _Condition, sources: Sequence[str], chunk: slice, tokenizer: Tokenizer, *, repeated: bool
) -> None:
    """Complete a chunk of the sentences. repeated: the hypotheses are known, and only the time counts."""
    began = time.process_time()
    hypotheses = condition.complete(sources[chunk], condition.requests[chunk])
    milliseconds = 1000 * (time.process_time() - began)
    if repeated:
        condition.turns[-1].milliseconds.append(milliseconds)
        return
    tokens = sum(len(tokens.ids) for tokens in tokenizer.encode_all(hypotheses, "target"))
    if not tokens:
        raise UserError(f"{condition.name}: the model writes no token, so there is no time per token")
    condition.turns.append(_Turn(tokens, [milliseconds]))
    condition.hypotheses.extend(hypotheses)


def _word_conditions(
    references: Sequence[str], generator: Generator, complete: Complete
) -> Iterator[_Condition]:
    """Require or forbid words of the reference."""
    random = np.random.default_rng(SEED)
    words = [requests.random_words(reference, random, most=max(REQUIRED)) for reference in references]
    previous = FREE
    for number in REQUIRED:
        name = f"{number} required"
        yield _Condition(name, [{"must": some[:number]} for some in words], complete, previous)
        previous = name
    two = [
        requests.in_order_of(reference, some[:2]) for reference, some in zip(references, words, strict=True)
    ]
    yield _Condition("2 required, in order", list(map(_in_order, two)), complete, "2 required")
    four = [{"must": some} for some in words]
    yield _Condition("4 required, greedy", four, _constrained(generator, beam=1), "4 required")
    yield _Condition("4 required, sampled", four, _constrained(generator, search="sample"), "4 required")
    yield _Condition("2 forbidden", [{"forbid": some[:2]} for some in words], complete, FREE)


def _text_conditions(references: Sequence[str], complete: Complete) -> Iterator[_Condition]:
    """Give a part of the reference."""
    random = np.random.default_rng(SEED)
    third, blank = "first third given", "a third blanked out"
    prefixes = [{"prefix": requests.first_third(one)} for one in references]
    yield _Condition(third, prefixes, complete, FREE)
    suffixes = [{"suffix": requests.last_third(one)} for one in references]
    yield _Condition("last third given", suffixes, complete, FREE)
    templates = [{"template": requests.blanked(one, random)} for one in references]
    yield _Condition(blank, templates, complete, third)
    templates = [{"template": requests.twice_blanked(one, random)} for one in references]
    yield _Condition("two words blanked out", templates, complete, blank)
    drafts = [{"draft": requests.thinned(one, random)} for one in references]
    yield _Condition("half as a draft", drafts, complete, FREE)


def _identifier_conditions(references: Sequence[str], complete: Complete) -> Iterator[_Condition]:
    """Require the identifiers of a line of code."""
    names = [requests.identifiers(reference) for reference in references]
    yield _Condition("identifiers required", [{"must": some} for some in names], complete, FREE)
    yield _Condition("identifiers, in order", list(map(_in_order, names)), complete, "identifiers required")


def _in_order(must: Sequence[str]) -> CompletionRequest:
    return {"must": must, "in_order": len(must) > 1}


def _baseline_conditions(
    conditions: Sequence[_Condition], baseline: Generator, *, beam: int
) -> Iterator[_Condition]:
    """Answer the requests for required words with a left-to-right model and grid beam search."""
    model = ordered(baseline.trained.model, purpose="bench complete")
    check_searchable(model)
    yield _Condition("baseline, free", conditions[0].requests, _unconstrained(baseline, beam=beam), FREE)
    required = {f"{number} required" for number in REQUIRED} | {"identifiers required"}
    grid = partial(_complete_by_grid_beam, model, baseline.tokenizer, beam=beam)
    for condition in conditions:
        if condition.name in required:
            name = f"grid beam, {condition.name}"
            yield _Condition(name, condition.requests, grid, condition.name, repeats=1)
            if model.settings.kind == "indigo":  # the same model with our search
                complete = _constrained(baseline, beam=beam)
                yield _Condition(f"baseline, {condition.name}", condition.requests, complete, name)


def _unconstrained(generator: Generator, *, beam: int) -> Complete:
    return lambda sources, _: [hypotheses[0].text for hypotheses in generator.generate(sources, beam=beam)]


def _constrained(generator: Generator, **options: Any) -> Complete:  # noqa: ANN401
    return lambda sources, requests: [
        hypotheses[0].text for hypotheses in generator.complete(sources, requests, **options)
    ]


def _complete_by_grid_beam(
    model: Indigo,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    requests: Sequence[CompletionRequest],
    *,
    beam: int,
) -> list[str]:
    device = model.embed_target.weight.device
    ends_word = torch.from_numpy(tokenizer.ends_word[: tokenizer.target_size]).to(device)
    hypotheses = []
    for source, request in zip(sources, requests, strict=True):
        ids, mask = collate_sources([np.array(tokenizer.encode(source, "source").ids, dtype=np.int32)])
        tokens = grid_beam(
            model,
            ids.to(device),
            mask.to(device),
            required=[tuple(tokenizer.encode(word, "target").ids) for word in request["must"]],
            ends_word=ends_word,
            width=beam,
            limit=GRID_BEAM_LIMIT,
        )
        hypotheses.append(tokenizer.decode(tokens))
    return hypotheses


def _results(
    conditions: Sequence[_Condition], references: Sequence[str], options: Options
) -> Iterator[ConditionResult]:
    bleu: dict[str, Result] = {}
    for condition in conditions:
        scores = evaluate(condition.hypotheses, [references], metrics=["bleu", "exact"], options=options)
        bleu[condition.name] = scores["bleu"]
        other = None if condition.against is None else bleu[condition.against]
        milliseconds = sum(statistics.median(turn.milliseconds) for turn in condition.turns)
        yield ConditionResult(
            name=condition.name,
            bleu=scores["bleu"].score,
            exact=scores["exact"].score,
            satisfied=percent_satisfied(condition.hypotheses, condition.requests),
            tokens=sum(turn.tokens for turn in condition.turns) / len(references),
            milliseconds=milliseconds / len(references),
            ratio=statistics.median(_ratios(condition, conditions[0])),
            p=None if other is None else paired_tests(scores["bleu"], other).randomisation_p,
            against=condition.against,
        )


def _ratios(condition: _Condition, free: _Condition) -> Iterator[float]:
    """Yield the time per token relative to unconstrained decoding, for each turn that both repeated."""
    for turn, base in zip(condition.turns, free.turns, strict=True):
        for time_taken, free_time in zip(turn.milliseconds, base.milliseconds, strict=False):
            yield (time_taken / turn.tokens) / (free_time / base.tokens)
