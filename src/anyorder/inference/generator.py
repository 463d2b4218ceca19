"""The public face of a trained model: generate, complete and score, from text to text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeGuard, cast, overload

import torch

from anyorder import config
from anyorder.errors import UserError
from anyorder.inference.canvas_text import CanvasText, canvas_text
from anyorder.inference.completion import CompletionRequest
from anyorder.inference.drafts import DraftEditor
from anyorder.inference.generation import Source, is_one_source
from anyorder.inference.hypothesis import Answer, Completion, Hypothesis
from anyorder.inference.loaded_model import BATCH_CHUNK, LoadedModel
from anyorder.inference.model_folder import Trained
from anyorder.inference.scoring import MarginalScore, TargetOrder, TargetScore
from anyorder.models.kernels.packed import PRECISIONS
from anyorder.text.tokenizer import Tokenizer

__all__ = ["Generator", "Source"]

STREAM_CHUNK = 64  # sources that `stream` waits for
SHOWN = 40  # characters of a wrong value in messages

# Text with blanks, or the keys of a `CanvasText`.
CanvasInput = str | Mapping[str, Any] | CanvasText


class Generator(DraftEditor):
    """A trained model that generates, completes, edits and scores text; `anyorder.load` makes one.

    Each method takes one source and returns its answer, or takes several and returns a list of answers.

    >>> import anyorder
    >>> anyorder.load("django-small", device="cpu")
    <Generator django-small: indigo, order l2r, 4,327,681 parameters, cpu>
    """

    def __init__(self, model: LoadedModel, *, name: str) -> None:
        self._model = model
        self.name = name

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        device: str | None = None,
        precision: str = PRECISIONS[0],
        trust_code: bool = False,
    ) -> Generator:
        """Load a model from the folder of a run; `anyorder.load` documents the arguments."""
        loaded = LoadedModel.load(Path(folder), device=device, precision=precision, trust_code=trust_code)
        return cls(loaded, name=Path(os.path.realpath(folder)).name)

    def __repr__(self) -> str:
        """Name, kind, order, size and device."""
        recipe, size = self.trained.recipe, f"{self._model.parameters:,} parameters"
        order = f"order {recipe.order_label}"
        return f"<Generator {self.name}: {recipe.model.kind}, {order}, {size}, {self.device}>"

    @property
    def trained(self) -> Trained:
        """The network, its recipe and its scores."""
        return self._model.trained

    @property
    def loaded(self) -> LoadedModel:
        """The model behind this face, for a server or another loop that steps through sentences."""
        return self._model

    @property
    def device(self) -> torch.device:
        """Where the model runs."""
        return self._model.device

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's text rules and its vocabulary."""
        return self.trained.tokenizer

    # --- generate ---

    # In all overloads a string counts as one source, though it is an iterable of strings too.
    @overload
    def generate(self, sources: Source, **options: Any) -> Answer[Hypothesis]: ...  # noqa: ANN401

    @overload
    def generate(self, sources: Iterable[Source], **options: Any) -> list[Answer[Hypothesis]]: ...  # noqa: ANN401

    def generate(
        self,
        sources: Source | Iterable[Source],
        **options: Any,
    ) -> Answer[Hypothesis] | list[Answer[Hypothesis]]:
        """Write the answer to one source, or a list of answers to several.

        sources: one source or an iterable of them: lines of text, photos (pathlib.Path) or feature vectors of
        shape (S, W), whichever the model reads.
        options: keys of the recipe's [decode], such as beam=5, n_best=5 or search="sample"; keys that are not
        given have the recipe's values.

        Returns an `Answer` for one source: its hypotheses, best first, as many as n_best. The answer to a
        blank source is one empty hypothesis. For several sources, returns a list of answers.

        >>> import anyorder
        >>> model = anyorder.load("django-small")
        >>> model.generate("params is an empty list .").text
        'params = [ ]'
        >>> [answer.best.text for answer in model.generate(["x is None .", "return y ."], beam=3)]
        ['x = None', 'return y']
        """
        if is_one_source(sources):
            return next(self.stream([sources], **options))
        return list(self.stream(cast(Iterable[Source], sources), at_once=BATCH_CHUNK, **options))

    def stream(
        self,
        sources: Iterable[Source],
        *,
        at_once: int = STREAM_CHUNK,
        **options: Any,  # noqa: ANN401
    ) -> Iterator[Answer[Hypothesis]]:
        """Yield the answers to sources one by one, while the sources may still be coming.

        at_once: how many sources to read and decode together; sources and options: as for `generate`.

        >>> import anyorder
        >>> model = anyorder.load("django-small")
        >>> for answer in model.stream(iter(["x is None .", "return y ."])):
        ...     print(answer.text)
        x = None
        return y
        """
        _refuse_one(sources, name="sources")
        settings = self.settings(**options)
        waiting, line = iter(sources), 0
        while chunk := list(islice(waiting, at_once)):
            yield from self._model.generate(chunk, settings=settings, first_line=line)
            line += len(chunk)

    def answer(
        self, sources: Sequence[Source], *, settings: config.Decode, first_line: int = 0
    ) -> list[Answer[Hypothesis]]:
        """Answer sources that are decoded together, with settings that `settings` returned.

        first_line: how many sources came before these; what is sampled for a source depends on its line.
        """
        return self._model.generate(sources, settings=settings, first_line=first_line)

    def settings(self, **options: Any) -> config.Decode:  # noqa: ANN401
        """The recipe's [decode] with some keys changed and checked; None leaves a key as it is.

        >>> import anyorder
        >>> anyorder.load("django-small").settings(n_best=4).beam
        4
        """
        return self._model.settings(**options)

    def load_other_models(self, settings: config.Decode) -> None:
        """Load the partners and the reverse model, so that a wrong one is refused before the work begins."""
        self._model.load_other_models(settings)

    # --- complete ---

    @overload
    def complete(
        self,
        sources: Source | None,
        canvases: CanvasInput,
        *,
        names: Sequence[str] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> Answer[Completion]: ...

    @overload
    def complete(
        self,
        sources: Sequence[Source] | None,
        canvases: Sequence[CanvasInput],
        *,
        names: Sequence[str] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> list[Answer[Completion]]: ...

    def complete(
        self,
        sources: Source | Sequence[Source] | None,
        canvases: CanvasInput | Sequence[CanvasInput],
        *,
        names: Sequence[str] | None = None,
        **options: Any,
    ) -> Answer[Completion] | list[Answer[Completion]]:
        """Write around what is given of a target: blanks, required words, a prefix, a draft.

        sources: one source for one canvas, or as many as there are canvases; None for a model that reads no
        source.
        canvases: one canvas or a list of them. A canvas is a template, such as "a ___ runs ___ the beach", or
        a dict with the keys of `CanvasText`, such as {"must": ["dog"], "forbid": ["cat"]}.
        names: what error messages call each canvas; by default "canvas 1" and so on.
        options: as for `generate`.

        Returns an `Answer` of completions for one canvas, or a list of them.

        >>> import anyorder
        >>> model = anyorder.load("django-small")
        >>> best = model.complete("params is an empty list .", "params = ___", beam=4).best
        >>> best.text, [fill.text for fill in best.fills]
        ('params = [ ]', ['[ ]'])
        >>> model.complete("call foo with x .", {"must": ["self"]}, beam=4).text
        'self . foo ( x )'
        """
        if _is_one_canvas(canvases):
            if sources is not None and not is_one_source(sources):
                raise UserError(
                    "sources: a list given for one canvas; give one source, or a list of canvases"
                )
            one = None if sources is None else [sources]
            return self.complete(one, [canvases], names=names, **options)[0]
        if is_one_source(sources):
            raise UserError("sources: one source given for a list of canvases; give a list of sources")
        canvases = cast(Sequence[CanvasInput], canvases)
        sources = [""] * len(canvases) if sources is None else cast(Sequence[Source], sources)
        if len(sources) != len(canvases):
            raise UserError(f"{len(sources)} sources but {len(canvases)} canvases: they go in pairs")
        answers: list[Answer[Completion]] = []
        for answer in self.complete_or_refuse(sources, canvases, names=names, **options):
            if isinstance(answer, UserError):
                raise answer
            answers.append(answer)
        return answers

    def complete_or_refuse(
        self,
        sources: Sequence[Source],
        canvases: Sequence[CanvasInput],
        *,
        names: Sequence[str] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> list[Answer[Completion] | UserError]:
        """Complete every canvas that can be completed; the others get the error that says why not.

        The arguments are those of `complete`, in lists. An answer does not depend on the other canvases.

        >>> import anyorder
        >>> model = anyorder.load("django-small")
        >>> sources = ["x is None .", "x is None ."]
        >>> for answer in model.complete_or_refuse(sources, ["x = ___", "x = ____"]):
        ...     print(answer.text if isinstance(answer, list) else answer)
        x = None
        canvas 2: template = 'x = ____': has 4 underscores in a row; a blank is three: ___
        """
        settings = self.settings(**options)
        where = names or [f"canvas {number}" for number in range(1, len(canvases) + 1)]
        results: dict[int, Answer[Completion] | UserError] = {}
        requests: list[CompletionRequest] = []
        for line, (source, canvas, name) in enumerate(zip(sources, canvases, where, strict=True)):
            try:
                requests.append(CompletionRequest(line, name, source, canvas_text(canvas, where=name)))
            except UserError as error:
                results[line] = error
        answers = self._model.complete(requests, settings=settings)
        results.update((request.line, answer) for request, answer in zip(requests, answers, strict=True))
        return [results[line] for line in range(len(canvases))]

    # --- score ---

    @overload
    def score(  # type: ignore[overload-overlap]
        self,
        sources: Source,
        targets: str,
        *,
        order: Literal["marginal"],
        beam: int = 8,
        samples: int | None = None,
        seed: int = 1,
        **bounds: int | bool | None,
    ) -> MarginalScore: ...

    @overload
    def score(  # type: ignore[overload-overlap]
        self,
        sources: Source,
        targets: str,
        *,
        order: str | config.Order | Sequence[int] = "own",
        beam: int = 8,
        seed: int = 1,
        **bounds: int | bool | None,
    ) -> TargetScore: ...

    @overload
    def score(  # type: ignore[overload-overlap]
        self,
        sources: Sequence[Source],
        targets: Sequence[str],
        *,
        order: Literal["marginal"],
        beam: int = 8,
        samples: int | None = None,
        seed: int = 1,
        **bounds: int | bool | None,
    ) -> list[MarginalScore]: ...

    @overload
    def score(
        self,
        sources: Sequence[Source],
        targets: Sequence[str],
        *,
        order: TargetOrder = "own",
        beam: int = 8,
        seed: int = 1,
        **bounds: int | bool | None,
    ) -> list[TargetScore]: ...

    def score(
        self,
        sources: Source | Sequence[Source],
        targets: str | Sequence[str],
        *,
        order: TargetOrder | Sequence[int] = "own",
        beam: int = 8,
        samples: int | None = None,
        seed: int = 1,
        **bounds: int | bool | None,
    ) -> TargetScore | MarginalScore | list[TargetScore] | list[MarginalScore]:
        """log p of a target given its source, or a list of them for several pairs.

        sources, targets: one of each, or two lists of the same length.
        order: the order in which the target is written.
            "own": the order that the model was trained in; for adaptive orders that of the bootstrap, and
            left to right if it was random or can't be made here.
            Another name of `anyorder.ORDERS`, or a recipe's [order] section.
            "sao": the likeliest order that a search finds.
            "marginal": any order: a lower bound of log p, which adds up the model's own order and those that
            a search finds.
            Positions of the target's words, counted from 1, in the order written; a list of them for several
            targets.
        beam: how many orders the search keeps, for "sao" and "marginal".
        samples: for "marginal", how many orders to sample, to estimate log p in place of a lower bound.
        seed: for the order "rnd" and for samples.
        bounds: max_source, max_target and cut, in place of the recipe's [decode].

        Returns a `TargetScore`, or for "marginal" a `MarginalScore`.

        >>> import anyorder
        >>> model = anyorder.load("django-small")
        >>> found = model.score("params is an empty list .", "params = [ ]")
        >>> round(found.score, 2), found.positions
        (-0.19, (1, 2, 3, 4))
        >>> backwards = model.score("params is an empty list .", "params = [ ]", order=[4, 3, 2, 1])
        >>> backwards.score < found.score
        True
        """
        if is_one_source(sources) and isinstance(targets, str):
            given = order if isinstance(order, str | config.Order) else [cast(Sequence[int], order)]
            search: dict[str, Any] = {"beam": beam, "samples": samples, "seed": seed, **bounds}
            return self._model.score([sources], [targets], order=given, **search)[0]
        _refuse_one(sources, name="sources")
        _refuse_one(targets, name="targets")
        return self._model.score(
            cast(Sequence[Source], sources),
            targets,
            order=cast(TargetOrder, order),
            beam=beam,
            samples=samples,
            seed=seed,
            **bounds,
        )


def _is_one_canvas(canvases: object) -> TypeGuard[CanvasInput]:
    return isinstance(canvases, str | Mapping | CanvasText)


def _refuse_one(given: object, *, name: str) -> None:
    """Refuse one source or target where a list is needed; a string would count as its characters."""
    if isinstance(given, str):
        raise UserError(f"{name}: one string given, must be a list of them, e.g. [{given[:SHOWN]!r}]")
    if is_one_source(given):
        raise UserError(f"{name}: one {type(given).__name__} given, must be a list of them")
