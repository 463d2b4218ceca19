"""Steps as people want to see them: what a model could have written, and what the beam did.

A watched sentence may begin with steps that somebody else has chosen; the model goes on from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anyorder.decoding.beam import Extension
from anyorder.decoding.beam_search import Expansion, make_extension
from anyorder.decoding.step_scorer import StepScorer
from anyorder.errors import UserError
from anyorder.insertion import NEG_INF, reading_order
from anyorder.models.choices import first_and_second
from anyorder.text.pairs import SourceTokens
from anyorder.text.tokenizer import UNK, Tokenizer

# S sentences under way, K hypotheses of each, B of them to go on with, C words looked at, G gaps

MOST_ALTERNATIVES = 10
DIGITS = 5


@dataclass(frozen=True)
class WordOption:
    """A word that might be written next."""

    token: str
    p: float
    gaps: tuple[float, ...]  # p of each gap, left to right, if this word is written


@dataclass(frozen=True)
class Options:
    """What a hypothesis might do next."""

    end: float  # p of ending
    words: tuple[WordOption, ...]  # the likeliest


@dataclass(frozen=True)
class BeamEntry:
    """A hypothesis under way, after a step."""

    parent: int  # the hypothesis before the step that it continues, from 0
    token: str
    gap: int
    word_score: float
    gap_score: float
    log_prob: float  # of all its steps
    canvas: tuple[str, ...]


@dataclass(frozen=True)
class EndedEntry:
    """A hypothesis that ends with a step."""

    parent: int
    end_score: float
    log_prob: float
    canvas: tuple[str, ...]


@dataclass(frozen=True)
class WatchedStep:
    """One step of a sentence: the options before it, and the beam after it, best first."""

    step: int
    token: str | None  # of the best hypothesis; None where all have ended
    gap: int | None
    p: float | None
    canvas: tuple[str, ...]
    alternatives: tuple[WordOption, ...]  # of the best hypothesis, before the step
    options: tuple[Options, ...]  # of each hypothesis, before the step; empty if none were asked for
    beam: tuple[BeamEntry, ...]
    ended: tuple[EndedEntry, ...]


@dataclass(frozen=True)
class Watched:
    """A sentence that is watched."""

    alternatives: int  # words to list
    begin: tuple[tuple[int, int], ...]  # token and gap of the steps that are taken first
    own_words: tuple[str, ...]
    tell: Callable[[WatchedStep], None]


class StepWatcher:
    """Describes the steps of watched sentences as they are taken, and takes the first ones as it is told."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def watch(self, sentences: Sequence[Watched], scorer: StepScorer, expansion: Expansion) -> Expansion:
        """Look at a step. sentences: those under way."""
        most = max(one.alternatives for one in sentences)
        options = None
        if most:
            options = _options(scorer, most)
        expansion = _with_given_steps(sentences, scorer, expansion)
        for row, sentence in enumerate(sentences):
            sentence.tell(self._step(row, sentence, scorer, expansion, options))
        return expansion

    def _step(
        self,
        row: int,
        sentence: Watched,
        scorer: StepScorer,
        expansion: Expansion,
        found: _TopOptions | None,
    ) -> WatchedStep:
        beam = scorer.beam
        written = beam.each_length[row]
        options: tuple[Options, ...] = ()
        if found is not None and sentence.alternatives:
            options = tuple(
                self._options_of(found, row, hypothesis, sentence, gaps=written + 1)
                for hypothesis in range(beam.log_prob.shape[1])
            )
        canvases = self._canvases(row, scorer, written, sentence)
        entries = self._entries(row, expansion.extension, canvases, sentence)
        ends = expansion.ends[row].nonzero().flatten().tolist()
        ended = tuple(
            EndedEntry(
                parent=parent,
                end_score=float(expansion.end_scores[row, parent]),
                log_prob=float(beam.log_prob[row, parent] + expansion.end_scores[row, parent]),
                canvas=tuple(canvases[parent]),
            )
            for parent in ends
        )
        best = entries[0] if entries else None
        return WatchedStep(
            step=written + 1,
            token=best.token if best else None,
            gap=best.gap if best else None,
            p=_p(best.word_score + best.gap_score) if best else None,
            canvas=best.canvas if best else (ended[0].canvas if ended else ()),
            alternatives=options[best.parent if best else 0].words if options else (),
            options=options,
            beam=entries,
            ended=ended,
        )

    def _canvases(self, row: int, scorer: StepScorer, written: int, sentence: Watched) -> list[list[str]]:
        """The tokens on the canvas of each hypothesis, before the step."""
        beam = scorer.beam
        read = beam.words[row].gather(1, reading_order(beam.indices[row]))  # (K, n)
        return [
            [self._tokenizer.piece(token, own=sentence.own_words) for token in tokens]
            for tokens in read[:, 1 : 1 + written].tolist()
        ]

    def _entries(
        self, row: int, extension: Extension, canvases: Sequence[Sequence[str]], sentence: Watched
    ) -> tuple[BeamEntry, ...]:
        entries = []
        columns = (
            extension.parent,
            extension.word,
            extension.gap,
            extension.word_score,
            extension.gap_score,
            extension.log_prob,
        )
        for parent, word, gap, word_score, gap_score, log_prob in zip(
            *(column[row].tolist() for column in columns), strict=True
        ):
            if log_prob == NEG_INF:
                continue
            token = self._tokenizer.piece(word, own=sentence.own_words)
            before = canvases[parent]
            canvas = (*before[:gap], token, *before[gap:])
            entries.append(BeamEntry(parent, token, gap, word_score, gap_score, log_prob, canvas))
        return tuple(entries)

    def _options_of(
        self, found: _TopOptions, row: int, hypothesis: int, sentence: Watched, *, gaps: int
    ) -> Options:
        words = zip(
            found.words[row, hypothesis].tolist(),
            found.word_scores[row, hypothesis].tolist(),
            found.gap_scores[row, hypothesis, :, :gaps].tolist(),
            strict=True,
        )
        return Options(
            end=_p(float(found.end[row, hypothesis])),
            words=tuple(
                WordOption(
                    token=self._tokenizer.piece(word, own=sentence.own_words),
                    p=_p(score),
                    gaps=tuple(map(_p, of_gaps)),
                )
                for word, score, of_gaps in list(words)[: sentence.alternatives]
                if score > NEG_INF
            ),
        )


def _p(log_prob: float) -> float:
    return round(math.exp(log_prob), DIGITS)


@dataclass(frozen=True)
class _TopOptions:
    end: Tensor  # (S, K), log p
    words: Tensor  # (S, K, C), ids
    word_scores: Tensor  # (S, K, C), log p
    gap_scores: Tensor  # (S, K, C, G), log p


def _options(scorer: StepScorer, count: int) -> _TopOptions:
    """The likeliest words of each hypothesis and their gaps; position first, those of the likeliest gap."""
    model, first = scorer.model, scorer.first_scores().log_probs
    end, others = first[..., 0], first[..., 1:]
    if model.position_first:
        gap = others.argmax(dim=2, keepdim=True) + 1  # (S, K, 1)
        words = scorer.second_scores(gap, end_score=scorer.end_score).log_probs.squeeze(2)
        scores, chosen = words.topk(min(count, words.shape[2]), dim=2)
        gaps = others[:, :, None].expand(-1, -1, chosen.shape[2], -1)
        return _TopOptions(end, chosen + model.word_head.first, scores, gaps)
    scores, chosen = others.topk(min(count, others.shape[2]), dim=2)
    gaps = scorer.second_scores(chosen + 1, end_score=scorer.end_score).log_probs
    return _TopOptions(end, chosen + 1 + model.word_head.first, scores, gaps)


def _with_given_steps(sentences: Sequence[Watched], scorer: StepScorer, expansion: Expansion) -> Expansion:
    """Replace the steps of sentences that are still to take given ones."""
    written = scorer.beam.each_length
    given = {
        row: sentence.begin[length]
        for row, (sentence, length) in enumerate(zip(sentences, written, strict=True))
        if length < len(sentence.begin)
    }
    if not given:
        return expansion
    beam, extension = scorer.beam, expansion.extension
    word, gap = (torch.zeros_like(beam.log_prob, dtype=torch.long) for _ in range(2))
    for row, (token, chosen_gap) in given.items():
        word[row], gap[row] = token, chosen_gap
    rows = torch.tensor([row in given for row in range(len(sentences))], device=word.device)[:, None]
    word = torch.where(rows, word, scorer.model.word_head.first + 1)  # any will do where none is given
    first, second = first_and_second(scorer.model, word, gap)
    first_score = scorer.first_scores().log_probs.gather(2, first[..., None]).squeeze(2)
    second_scores = scorer.second_scores(first[..., None], end_score=scorer.end_score).log_probs
    second_score = second_scores.squeeze(2).gather(2, second[..., None]).squeeze(2)
    wide = extension.parent.shape[1]

    def of_best(values: Tensor) -> Tensor:
        return values[:, :1].expand(-1, wide)

    others = torch.arange(wide, device=word.device) > 0
    taken = make_extension(
        scorer.model,
        (of_best(first), of_best(second)),
        (of_best(first_score), of_best(second_score)),
        parent=torch.zeros_like(extension.parent),
        log_prob=of_best(beam.log_prob + first_score + second_score).masked_fill(others, NEG_INF),
    )
    names = ("parent", "word", "gap", "word_score", "gap_score", "log_prob")
    mixed = {name: torch.where(rows, getattr(taken, name), getattr(extension, name)) for name in names}
    return replace(expansion, ends=expansion.ends & ~rows, extension=Extension(**mixed))


def given_steps(
    steps: Sequence[tuple[str, int]], tokenizer: Tokenizer, source: SourceTokens | None
) -> tuple[tuple[int, int], ...]:
    """Tokens and gaps of steps that are given as words or pieces with their gaps.

    A word of several pieces takes as many steps. Gaps are those of the canvas of whole steps as given.
    """
    source = source or SourceTokens(ids=[])
    taken: list[tuple[int, int]] = []
    sizes: list[int] = []  # tokens of each given step, by where it stands
    for number, (text, gap) in enumerate(steps, start=1):
        where = f"begin: step {number}"
        if not 0 <= gap <= len(sizes):
            raise UserError(f"{where}: gap = {gap}: must be from 0 to {len(sizes)}")
        tokens = _tokens_of(text, tokenizer, source, where=where)
        first = sum(sizes[:gap])
        taken += [(token, first + offset) for offset, token in enumerate(tokens)]
        sizes.insert(gap, len(tokens))
    return tuple(taken)


def _tokens_of(text: str, tokenizer: Tokenizer, source: SourceTokens, *, where: str) -> list[int]:
    if text in tokenizer.by_name:
        return [tokenizer.by_name[text]]
    if text in source.own:
        return [tokenizer.size + source.own.index(text)]
    encoded = source.copied(tokenizer.encode(text, "target")).ids
    if not encoded or UNK in encoded:
        raise UserError(f"{where}: token = {text!r}: the model does not know this word")
    return encoded
