"""What required words and blanks do to a translation: BLEU, constraints kept, time against free decoding."""

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
from anyorder.bench.requests import Request, kept_share
from anyorder.data.batches import collate_sources
from anyorder.errors import UserError
from anyorder.evaluation.significance import paired_tests
from anyorder.inference.generator import Generator
from anyorder.metrics import Options, Result, evaluate
from anyorder.models.indigo import Indigo
from anyorder.models.registry import ordered
from anyorder.text.tokenizer import Tokenizer

FREE = "free"
REQUIRED = (1, 2, 4)  # words of the reference, each set within the next
AT_ONCE = 500  # sentences of a turn, about as many as `complete` sorts by length
REPEATS = 3  # of a turn, to time it; once by the grid beam, which is slow
LONGEST = 60  # tokens, by the grid beam search
SEED = 1
Write = Callable[[Sequence[str], Sequence[Request]], list[str]]  # of sources and what is asked for


@dataclass(frozen=True)
class Line:
    """One setting, over all sentences."""

    name: str
    bleu: float
    exact: float  # percent
    kept: float | None  # share of constraints, in percent; None: there are none
    tokens: float  # written a sentence
    milliseconds: float  # of the processor, a sentence
    ratio: float  # to free decoding, for as many tokens: the median of all turns
    p: float | None = None  # that BLEU differs by chance alone from the line's baseline
    against: str | None = None


@dataclass(frozen=True)
class _Turn:
    """Some sentences, written once or several times."""

    tokens: int
    costs: list[float]  # milliseconds, of each time


@dataclass(frozen=True)
class _Setting:
    """A way to write all sentences."""

    name: str
    requests: Sequence[Request]  # one a sentence
    write: Write
    against: str | None  # the setting that its BLEU is compared with
    repeats: int = REPEATS
    written: list[str] = field(default_factory=list)
    turns: list[_Turn] = field(default_factory=list)


def bench_completing(
    generator: Generator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    baseline: Generator | None = None,
    beam: int,
    names: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Line]:
    """Free decoding, every kind of request, and for a baseline a grid beam search.

    names: require the identifiers of code instead of words drawn by chance; progress: told how many
    sentences of how many are done.
    """
    settings = [_Setting(FREE, [{}] * len(sources), _free(generator, beam=beam), None)]
    complete = _complete(generator, beam=beam)
    if names:
        settings += _with_names(references, complete)
    else:
        settings += _with_words(references, generator, complete)
        settings += _with_text(references, complete)
    if baseline is not None:
        settings = [*settings, *_by_baseline(settings, baseline, beam=beam)]
    # The settings take turns, so that what else the machine does falls on them alike.
    for first in range(0, len(sources), AT_ONCE):
        chosen = slice(first, first + AT_ONCE)
        for repeat in range(REPEATS):
            for setting in settings:
                if repeat < setting.repeats:
                    _take_turn(setting, sources, chosen, generator.tokenizer, again=repeat > 0)
        progress(min(first + AT_ONCE, len(sources)), len(sources))
    return list(_lines(settings, references, Options.for_side(generator.trained.recipe.text.target)))


def _take_turn(
    setting: _Setting, sources: Sequence[str], chosen: slice, tokenizer: Tokenizer, *, again: bool
) -> None:
    """Write some sentences; again: they were written before, and only the time counts."""
    began = time.process_time()
    written = setting.write(sources[chosen], setting.requests[chosen])
    cost = 1000 * (time.process_time() - began)
    if again:
        setting.turns[-1].costs.append(cost)
        return
    tokens = sum(len(tokens.ids) for tokens in tokenizer.encode_all(written, "target"))
    if not tokens:
        raise UserError(f"{setting.name}: the model writes no token, so there is no time of a token")
    setting.turns.append(_Turn(tokens, [cost]))
    setting.written.extend(written)


def _with_words(references: Sequence[str], generator: Generator, complete: Write) -> Iterator[_Setting]:
    """Some words of the reference must appear, or may not; nested sets of them."""
    chance = np.random.default_rng(SEED)
    words = [requests.drawn_words(reference, chance, most=max(REQUIRED)) for reference in references]
    before = FREE
    for number in REQUIRED:
        name = f"{number} required"
        yield _Setting(name, [{"must": some[:number]} for some in words], complete, before)
        before = name
    two = [
        requests.in_order_of(reference, some[:2]) for reference, some in zip(references, words, strict=True)
    ]
    yield _Setting("2 required, in order", list(map(_in_order, two)), complete, "2 required")
    four = [{"must": some} for some in words]
    yield _Setting("4 required, greedy", four, _complete(generator, beam=1), "4 required")
    yield _Setting("4 required, sampled", four, _complete(generator, search="sample"), "4 required")
    yield _Setting("2 forbidden", [{"forbid": some[:2]} for some in words], complete, FREE)


def _with_text(references: Sequence[str], complete: Write) -> Iterator[_Setting]:
    """A part of the reference is given as it stands."""
    chance = np.random.default_rng(SEED)
    yield _Setting(
        "first third given", [{"prefix": requests.first_third(one)} for one in references], complete, FREE
    )
    yield _Setting(
        "last third given", [{"suffix": requests.last_third(one)} for one in references], complete, FREE
    )
    yield _Setting(
        "a third blanked out",
        [{"template": requests.blanked(one, chance)} for one in references],
        complete,
        "first third given",
    )
    yield _Setting(
        "two words blanked out",
        [{"template": requests.twice_blanked(one, chance)} for one in references],
        complete,
        "a third blanked out",
    )
    yield _Setting(
        "half as a draft", [{"draft": requests.thinned(one, chance)} for one in references], complete, FREE
    )


def _with_names(references: Sequence[str], complete: Write) -> Iterator[_Setting]:
    names = [requests.identifiers(reference) for reference in references]
    yield _Setting("identifiers required", [{"must": some} for some in names], complete, FREE)
    yield _Setting("identifiers, in order", list(map(_in_order, names)), complete, "identifiers required")


def _in_order(must: Sequence[str]) -> Request:
    return {"must": must, "in_order": len(must) > 1}


def _by_baseline(settings: Sequence[_Setting], baseline: Generator, *, beam: int) -> Iterator[_Setting]:
    """What left-to-right models have for required words."""
    model = ordered(baseline.trained.model, purpose="bench complete")
    check_searchable(model)
    yield _Setting("baseline, free", settings[0].requests, _free(baseline, beam=beam), FREE)
    required = {f"{number} required" for number in REQUIRED} | {"identifiers required"}
    grid = partial(_by_grid, model, baseline.tokenizer, beam=beam)
    for setting in settings:
        if setting.name in required:
            by_grid = f"grid beam, {setting.name}"
            yield _Setting(by_grid, setting.requests, grid, setting.name, repeats=1)
            if model.settings.kind == "indigo":  # the same model by our search
                complete = _complete(baseline, beam=beam)
                yield _Setting(f"baseline, {setting.name}", setting.requests, complete, by_grid)


def _free(generator: Generator, *, beam: int) -> Write:
    return lambda sources, _: [outputs[0].text for outputs in generator.generate(sources, beam=beam)]


def _complete(generator: Generator, **options: Any) -> Write:  # noqa: ANN401
    return lambda sources, requests: [
        outputs[0].text for outputs in generator.complete(sources, requests, **options)
    ]


def _by_grid(
    model: Indigo, tokenizer: Tokenizer, sources: Sequence[str], requests: Sequence[Request], *, beam: int
) -> list[str]:
    """By grid beam search over a model that writes from left to right."""
    device = model.embed_target.weight.device
    ends_word = torch.from_numpy(tokenizer.ends_word[: tokenizer.target_size]).to(device)
    written = []
    for source, request in zip(sources, requests, strict=True):
        ids, mask = collate_sources([np.array(tokenizer.encode(source, "source").ids, dtype=np.int32)])
        tokens = grid_beam(
            model,
            ids.to(device),
            mask.to(device),
            required=[tuple(tokenizer.encode(word, "target").ids) for word in request["must"]],
            ends_word=ends_word,
            width=beam,
            limit=LONGEST,
        )
        written.append(tokenizer.decode(tokens))
    return written


def _lines(settings: Sequence[_Setting], references: Sequence[str], options: Options) -> Iterator[Line]:
    scores: dict[str, Result] = {}
    for setting in settings:
        results = evaluate(setting.written, [references], metrics=["bleu", "exact"], options=options)
        scores[setting.name] = results["bleu"]
        other = None if setting.against is None else scores[setting.against]
        yield Line(
            name=setting.name,
            bleu=results["bleu"].score,
            exact=results["exact"].score,
            kept=kept_share(setting.written, setting.requests),
            tokens=sum(turn.tokens for turn in setting.turns) / len(references),
            milliseconds=sum(statistics.median(turn.costs) for turn in setting.turns) / len(references),
            ratio=statistics.median(_ratios(setting, settings[0])),
            p=None if other is None else paired_tests(results["bleu"], other).randomisation_p,
            against=setting.against,
        )


def _ratios(setting: _Setting, free: _Setting) -> Iterator[float]:
    """The time of a token to that by free decoding, each time that both wrote the same sentences."""
    for turn, base in zip(setting.turns, free.turns, strict=True):
        for cost, free_cost in zip(turn.costs, base.costs, strict=False):
            yield (cost / turn.tokens) / (free_cost / base.tokens)
