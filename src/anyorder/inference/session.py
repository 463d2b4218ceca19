"""Answers to questions that come at any time: those that fit together are written together.

A session works on one thread, step by step. Between two steps questions may join or be given up.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import torch

from anyorder import config
from anyorder.decoding.beam import TokenHypothesis, rank
from anyorder.decoding.beam_search import Expansion
from anyorder.decoding.decode import (
    DECODED_AT_ONCE,
    DECODING_MEMORY,
    decoding_memory,
    length_limits,
    limits_around,
)
from anyorder.decoding.open_batch import OpenBatch, Sentence
from anyorder.decoding.sampling import SAMPLED_AT_ONCE
from anyorder.decoding.step_scorer import StepScorer
from anyorder.errors import UserError
from anyorder.inference.canvas_text import CompiledCanvas
from anyorder.inference.completion import (
    NOTHING_GIVEN,
    NOTHING_POSSIBLE,
    CompletionRequest,
    check_completes,
    compile_canvas,
    completion_of,
)
from anyorder.inference.generation import EMPTY, EncodedSource, Source, with_text
from anyorder.inference.hypothesis import Answer, Completion, Hypothesis
from anyorder.inference.loaded_model import LoadedModel
from anyorder.inference.watching import StepWatcher, Watched, WatchedStep, given_steps
from anyorder.models.indigo import Indigo

Written = Answer[Hypothesis] | Answer[Completion] | UserError


@dataclass(frozen=True)
class Watch:
    """Ask for the steps of an answer.

    alternatives: likeliest words to list at each step; begin: words and gaps of the first steps.
    """

    alternatives: int = 0
    begin: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Question:
    """A source, and perhaps a canvas, to be answered."""

    source: Source
    settings: config.Decode  # as `LoadedModel.settings` returned them
    request: CompletionRequest | None = None  # what is given of the target; None to generate
    line: int = 0  # what is sampled depends on it
    watch: Watch | None = None


@dataclass
class _Open:
    """A question that is being answered."""

    question: Question
    source: EncodedSource
    canvas: CompiledCanvas | None = None
    waiting: int = 1  # parts of the answer that are still to come
    ended: dict[int, list[TokenHypothesis]] = field(default_factory=dict)  # by part
    memory: int = 0


@dataclass(frozen=True)
class _Group:
    """What sentences must have in common to be written together."""

    settings: config.Decode
    bound: bool  # whether they keep to canvases
    watched: bool
    part: int  # of the samples


class Session:
    """The questions that one model is answering."""

    def __init__(self, model: LoadedModel, *, most: int = DECODED_AT_ONCE) -> None:
        self._model, self._most = model, most
        self._watcher = StepWatcher(model.trained.tokenizer)
        self._ends_word = torch.from_numpy(model.trained.tokenizer.ends_word)
        self._open: dict[Hashable, _Open] = {}
        self._alone: dict[Hashable, Question] = {}  # answered whole, not step by step
        self._batches: dict[_Group, OpenBatch] = {}
        self._answers: dict[Hashable, Written] = {}
        self._watched: dict[Hashable, Watched] = {}
        self._steps: list[tuple[Hashable, WatchedStep]] = []

    @property
    def size(self) -> int:
        """Number of questions that are being answered."""
        return len(self._open) + len(self._alone)

    @property
    def room(self) -> int:
        """How many more questions may join."""
        taken = sum(one.memory for one in self._open.values())
        return 0 if taken > DECODING_MEMORY else max(0, self._most - self.size)

    def ask(self, questions: Mapping[Hashable, Question]) -> None:
        """Begin to answer some questions. Those that can't be answered get an error as their answer."""
        stepwise: dict[Hashable, Question] = {}
        for key, question in questions.items():
            if isinstance(self._model.trained.model, Indigo) and not question.settings.others:
                stepwise[key] = question
            else:
                self._alone[key] = question
        if not stepwise:
            return
        encoded = self._model.encode_each([question.source for question in stepwise.values()])
        joining: dict[_Group, list[Sentence]] = {}
        for (key, question), source in zip(stepwise.items(), encoded, strict=True):
            try:
                if isinstance(source, UserError):
                    raise source
                for group, sentence in self._opened(key, question, source):
                    joining.setdefault(group, []).append(sentence)
            except UserError as error:
                self._open.pop(key, None)
                self._answers[key] = error
        for group, sentences in joining.items():
            self._batch(group).add(sentences)

    def step(self) -> dict[Hashable, Written]:
        """Take one step; returns the answers that are complete."""
        self._answer_whole()
        for group, batch in list(self._batches.items()):
            for entry, hypotheses in batch.step().items():
                self._end(*_entry(entry), hypotheses)
            if not batch.under_way:
                del self._batches[group]
        answers, self._answers = self._answers, {}
        return answers

    def steps(self) -> list[tuple[Hashable, WatchedStep]]:
        """The steps of watched questions since the last call, in the order taken."""
        steps, self._steps = self._steps, []
        return steps

    def drop(self, keys: Collection[Hashable]) -> None:
        """Give up some questions."""
        gone = {key for key in keys if self._open.pop(key, None) or self._alone.pop(key, None)}
        if gone:
            for key in gone:
                self._watched.pop(key, None)
            for batch in self._batches.values():
                batch.drop({entry for entry in batch.under_way if _entry(entry)[0] in gone})

    # --- how a question becomes sentences ---

    def _opened(
        self, key: Hashable, question: Question, source: EncodedSource
    ) -> list[tuple[_Group, Sentence]]:
        settings, trained = question.settings, self._model.trained
        opened = _Open(question, source)
        if question.request is not None:
            check_completes(trained, settings)
            opened.canvas = compile_canvas(trained, source, question.request, settings=settings)
        self._open[key] = opened
        if source.is_blank and not trained.recipe.sourceless:
            self._end(key, 0, [EMPTY])
            return []
        canvas = None if opened.canvas is None else opened.canvas.canvas
        limit = length_limits([source.array], settings)
        if canvas == NOTHING_GIVEN:  # plain decoding gives the very same answer, bit for bit
            canvas = None
        if canvas is not None:
            limit = limits_around([canvas], limit, settings)
        opened.memory = decoding_memory(
            trained.model, settings, source=len(source.array), target=int(limit[0])
        )
        opened.waiting = _parts(settings)
        if question.watch is not None:
            self._watch_with(key, question.watch, source)
        return [
            (
                _Group(settings, canvas is not None, question.watch is not None, part),
                Sentence((key, part), source.array, int(limit[0]), question.line, canvas),
            )
            for part in range(opened.waiting)
        ]

    def _watch_with(self, key: Hashable, watch: Watch, source: EncodedSource) -> None:
        trained = self._model.trained
        begin = given_steps(watch.begin, trained.tokenizer, source.tokens)
        self._watched[key] = Watched(
            alternatives=watch.alternatives,
            begin=begin,
            own_words=source.own_words,
            tell=lambda step: self._steps.append((key, step)),
        )

    def _batch(self, group: _Group) -> OpenBatch:
        if group not in self._batches:
            model = self._model.trained.model
            assert isinstance(model, Indigo)
            first = group.part * SAMPLED_AT_ONCE
            self._batches[group] = OpenBatch(
                model,
                group.settings,
                device=self._model.device,
                ends_word=self._ends_word if group.bound else None,
                samples=slice(first, first + SAMPLED_AT_ONCE),
                watch=self._look if group.watched else None,
            )
        return self._batches[group]

    def _look(self, keys: Sequence[Hashable], scorer: StepScorer, expansion: Expansion) -> Expansion:
        watched = [self._watched[_entry(key)[0]] for key in keys]
        return self._watcher.watch(watched, scorer, expansion)

    # --- how hypotheses become an answer ---

    def _end(self, key: Hashable, part: int, hypotheses: list[TokenHypothesis]) -> None:
        one = self._open.get(key)
        if one is None:  # given up
            return
        one.ended[part] = hypotheses
        if len(one.ended) == one.waiting:
            del self._open[key]
            self._watched.pop(key, None)
            self._answers[key] = self._answer(one)

    def _answer(self, one: _Open) -> Written:
        trained = self._model.trained
        found = list(chain.from_iterable(one.ended[part] for part in range(one.waiting)))
        ranked = found if found == [EMPTY] else rank(found, one.question.settings)
        if one.canvas is not None:
            completions = [completion_of(trained, each, one.canvas, one.source) for each in ranked]
            return Answer(completions) if completions else one.canvas.refusal(NOTHING_POSSIBLE)
        if not ranked:
            return UserError("begin: no sentence can be written that begins with these steps")
        own = one.source.own_words
        return Answer([with_text(each, trained.tokenizer, own_words=own) for each in ranked])

    def _answer_whole(self) -> None:
        """Answer what can't be written step by step beside others: all that came with the same settings."""
        for _ in range(len(self._alone)):
            if not self._alone:
                return
            settings = next(iter(self._alone.values())).settings
            alike = {key: one for key, one in self._alone.items() if one.settings == settings}
            for key in alike:
                del self._alone[key]
            self._answers.update(self._whole(alike, settings))

    def _whole(
        self, questions: Mapping[Hashable, Question], settings: config.Decode
    ) -> dict[Hashable, Written]:
        answers: dict[Hashable, Written] = {}
        for key, question in questions.items():
            try:
                if question.watch is not None and question.watch.begin:
                    raise UserError("begin: this model can't go on from given steps")
                if question.request is None:
                    answers[key] = self._model.generate(
                        [question.source], settings=settings, first_line=question.line
                    )[0]
                else:
                    request = replace(question.request, line=question.line)
                    answers[key] = self._model.complete([request], settings=settings)[0]
            except UserError as error:
                answers[key] = error
        return answers


def _parts(settings: config.Decode) -> int:
    """Into how many parts the samples of a source are divided."""
    if settings.search != "sample":
        return 1
    return -(-settings.n_best // SAMPLED_AT_ONCE)


def _entry(key: Hashable) -> tuple[Hashable, int]:
    """The question that a sentence belongs to, and its part of the answer."""
    assert isinstance(key, tuple)
    return key[0], key[1]
