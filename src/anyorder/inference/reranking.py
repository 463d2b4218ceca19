"""Reranking: several models together choose the best of the hypotheses that they found.

Partners do the same task, each in its own order and with its own vocabulary. All of them look for hypotheses,
and the score of a hypothesis is the mean of their scores. A reverse model writes sources from targets; it
gives a low score to a hypothesis that leaves out a part of the source or makes one up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple, Protocol

from anyorder import config
from anyorder.inference.generation import Source, as_text
from anyorder.inference.hypothesis import AnyHypothesis


class Candidate(NamedTuple):
    """A text that may be the answer to a source."""

    line: int  # number of the source, from 0
    text: str


Scorer = Callable[[Sequence[Candidate]], Sequence[float]]  # scores of candidates, in their order


class ScoringModel(Protocol):
    """A model that tells how likely given targets are."""

    def scores_by_length(
        self, sources: Sequence[Source], targets: Sequence[str], *, penalty: float
    ) -> list[float]:
        """log p of each target in the model's own order / steps ** penalty."""


def rerank_with_models(
    sources: Sequence[Source],
    found: Sequence[Sequence[Sequence[AnyHypothesis]]],
    models: Sequence[ScoringModel],
    *,
    reverse: ScoringModel | None,
    settings: config.Decode,
) -> list[list[AnyHypothesis]]:
    """The best hypotheses for each source, best first, as all models together see it.

    found: by model and source, what each of the models found; reverse: the model that writes sources.
    """
    penalty = settings.length_penalty

    def forward_scorer(model: ScoringModel) -> Scorer:
        return lambda candidates: model.scores_by_length(
            [sources[candidate.line] for candidate in candidates],
            [candidate.text for candidate in candidates],
            penalty=penalty,
        )

    def reverse_scorer(model: ScoringModel) -> Scorer:
        return lambda candidates: model.scores_by_length(
            [candidate.text for candidate in candidates],
            [as_text(sources[candidate.line]) for candidate in candidates],
            penalty=penalty,
        )

    return rerank(
        found,
        [forward_scorer(model) for model in models],
        reverse=None if reverse is None else reverse_scorer(reverse),
        reverse_weight=settings.reverse_weight,
        n_best=settings.n_best,
    )


def rerank(
    found: Sequence[Sequence[Sequence[AnyHypothesis]]],
    scorers: Sequence[Scorer],
    *,
    reverse: Scorer | None = None,
    reverse_weight: float = 0.0,
    n_best: int,
) -> list[list[AnyHypothesis]]:
    """The best hypotheses for each source, best first; equal texts count once, as the first model wrote it.

    found: by model and source. scorers: one a model, for texts that this model did not find itself. reverse:
    scores of the source given a text, added with reverse_weight. Blank texts are no candidates; a source
    that has only those keeps the first.
    """
    distinct = [_distinct(lists) for lists in zip(*found, strict=True)]
    candidates = [
        Candidate(line, text) for line, texts in enumerate(distinct) for text in texts if text.strip()
    ]
    by_model = [_model_scores(candidates, own, scorer) for own, scorer in zip(found, scorers, strict=True)]
    total = {candidate: fmean(scores[candidate] for scores in by_model) for candidate in candidates}
    if reverse is not None:
        for candidate, score in zip(candidates, reverse(candidates), strict=True):
            total[candidate] += reverse_weight * score
    return [_best_first(line, texts, total)[:n_best] for line, texts in enumerate(distinct)]


def _distinct(lists: Sequence[Sequence[AnyHypothesis]]) -> dict[str, AnyHypothesis]:
    """All hypotheses for one source by their text, the first of equal ones."""
    distinct: dict[str, AnyHypothesis] = {}
    for hypotheses in lists:
        for hypothesis in hypotheses:
            distinct.setdefault(hypothesis.text, hypothesis)
    return distinct


def _model_scores(
    candidates: Sequence[Candidate], own: Sequence[Sequence[AnyHypothesis]], scorer: Scorer
) -> dict[Candidate, float]:
    """One model's scores of all candidates; own: what the model found itself, which has its score."""
    scores: dict[Candidate, float] = {}
    for line, hypotheses in enumerate(own):
        for hypothesis in hypotheses:
            scores.setdefault(Candidate(line, hypothesis.text), hypothesis.score)
    others = [candidate for candidate in candidates if candidate not in scores]
    return {**scores, **dict(zip(others, scorer(others), strict=True))}


def _best_first(
    line: int, texts: dict[str, AnyHypothesis], total: dict[Candidate, float]
) -> list[AnyHypothesis]:
    scored = [
        replace(hypothesis, score=total[Candidate(line, text)])
        for text, hypothesis in texts.items()
        if Candidate(line, text) in total
    ]
    return sorted(scored, key=lambda hypothesis: hypothesis.score, reverse=True) or list(texts.values())
