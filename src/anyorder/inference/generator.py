"""A trained model in use: text in, text out, with every step of the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray

from anyorder import config
from anyorder.data.batches import Example
from anyorder.decoding.batching import decode_all
from anyorder.decoding.beam import TokenHypothesis
from anyorder.decoding.constraint_state import NOBODYS
from anyorder.errors import UserError
from anyorder.inference.canvas_text import CanvasText, CompiledCanvas, canvas_text
from anyorder.inference.completion import check_completes, complete_all, filled
from anyorder.inference.hypothesis import Completion, Hypothesis
from anyorder.inference.image_encoder import EXTRACTOR, Extractor
from anyorder.inference.model_folder import Trained, load_trained
from anyorder.inference.reranking import Judge, Place, Written, chosen
from anyorder.inference.scoring import MarginalScore, TargetScore, score_best, score_given, score_in_any_order
from anyorder.models.kernels.packed import PRECISIONS, pack
from anyorder.models.registry import ordered
from anyorder.models.transformer import LeftToRight
from anyorder.orders.custom import checked_positions
from anyorder.orders.fixed import order_rule, spread
from anyorder.orders.orderer import Line, prepare_order
from anyorder.system.devices import pick_device
from anyorder.text.pairs import PairEncoder, SourceTokens
from anyorder.text.tokenizer import Tokenizer

# A line of text, a photo, or feature vectors, (vectors, width).
Source = str | Path | NDArray[np.generic]


# By name, as a recipe's [order], or given: for each target, positions over its words, counted from 1.
TargetOrder = str | config.Order | Sequence[Sequence[int]]
AT_ONCE = 64  # lines that come one after the other
MANY = 512  # lines that are there already: those of like length are decoded together
SHOWN = 40  # characters of a wrong value, in messages


@dataclass(frozen=True)
class _Encoded:
    """A source as the model reads it."""

    vectors: NDArray[np.generic]  # token ids, or feature vectors
    text: SourceTokens | None = None

    @property
    def own(self) -> Sequence[str]:
        """Words that the vocabulary lacks."""
        return () if self.text is None else self.text.own


class Generator:
    """A trained model with its text rules."""

    def __init__(self, trained: Trained, *, device: torch.device) -> None:
        self.trained = trained
        self.device = device
        self._encoder = PairEncoder(trained.tokenizer, copying=trained.recipe.model.copying)
        self._others: dict[Path, Generator] = {}

    @classmethod
    def load(
        cls, folder: str | Path, *, device: str | None = None, precision: str = PRECISIONS[0]
    ) -> Generator:
        """From the folder of a run; precision: of its weights, "fp32" or "int8"."""
        picked = pick_device(device or "auto")
        _check_precision(precision, picked)
        trained = load_trained(Path(folder), device=picked)
        pack(trained.model, precision=precision)
        return cls(trained, device=picked)

    @cached_property
    def extractor(self) -> Extractor:
        """The network that has made the features which this model was trained on, to read photos with."""
        shape = self.trained.model.shape
        if shape.extractor != EXTRACTOR:
            raise UserError(
                "this model can't read photos, for what its features were made by isn't known; "
                f"give .npy feature vectors of width {shape.features}, made as those that it was trained on"
            )
        return Extractor.load(device=self.device)

    @property
    def tokenizer(self) -> Tokenizer:
        """Its text rules and vocabulary."""
        return self.trained.tokenizer

    def generate(self, sources: Iterable[Source], **options: Any) -> list[list[Hypothesis]]:  # noqa: ANN401
        """The best outputs of each source, best first; none for a blank line.

        sources: lines of text, photos (pathlib.Path) or feature vectors, whichever the model reads.
        options: keys of the recipe's [decode], e.g. beam=5, n_best=5, search="sample"; the recipe's own
        settings hold for the others.
        """
        return list(self.stream(sources, at_once=MANY, **options))

    def stream(
        self,
        sources: Iterable[Source],
        *,
        at_once: int = AT_ONCE,
        **options: Any,  # noqa: ANN401
    ) -> Iterator[list[Hypothesis]]:
        """Like `generate`, but source by source, as they come."""
        _refuse_bare_text(sources, name="sources")
        settings = self.settings(**options)
        waiting, line = iter(sources), 0
        while chunk := list(islice(waiting, at_once)):
            yield from self.answer(chunk, settings=settings, first_line=line)
            line += len(chunk)

    def settings(self, **options: Any) -> config.Decode:  # noqa: ANN401
        """The recipe's [decode] with some keys changed; more outputs asked for than beams widen the beam."""
        recipe = self.trained.recipe.decode
        given = {key: value for key, value in options.items() if value is not None}
        values = {**recipe.model_dump(), **given}
        if "n_best" in given and "beam" not in given:
            # Only what has been checked can be compared, and a beam this wide finds no fault with any number.
            n_best = config.checked(
                config.Decode, {**values, "beam": config.WIDEST_BEAM}, origin="decode"
            ).n_best
            values["beam"] = max(n_best, recipe.beam)
        settings = config.checked(config.Decode, values, origin="decode")
        misfit = self.trained.recipe.misfit(settings) or settings.nothing_to_choose
        if misfit is not None:
            raise UserError(misfit)
        self.meet_others(settings)
        return settings

    def meet_others(self, settings: config.Decode) -> None:
        """Load all that have a say, so that whatever is wrong with them is known before the work."""
        for folder in settings.others:
            self._other(folder)

    def _other(self, folder: Path) -> Generator:
        """A model that has a say in which answer is the best, loaded once."""
        if folder not in self._others:
            loaded = Generator.load(folder, device=str(self.device))
            ordered(loaded.trained.model, purpose=str(folder))
            self._others[folder] = loaded
        return self._others[folder]

    def answer(
        self, sources: Sequence[Source], *, settings: config.Decode, first_line: int = 0
    ) -> list[list[Hypothesis]]:
        """Decode some sources together; first_line: how many came before, which sampling depends on."""
        encoded, alone = self._encoded(sources), settings.alone

        def decode(lines: list[int]) -> list[list[TokenHypothesis]]:
            return decode_all(
                self.trained.model,
                [encoded[line].vectors for line in lines],
                settings=alone,
                device=self.device,
                lines=[first_line + line for line in lines],
            )

        outputs = [
            [self._output(hypothesis, source.own) for hypothesis in hypotheses]
            for source, hypotheses in zip(encoded, self._where_read(encoded, decode), strict=True)
        ]
        return self._chosen(
            sources,
            outputs,
            [
                self._other(folder).answer(sources, settings=alone, first_line=first_line)
                for folder in settings.partners
            ],
            settings=settings,
        )

    def _chosen(
        self,
        sources: Sequence[Source],
        own: list[list[Written]],
        of_partners: list[list[list[Written]]],
        *,
        settings: config.Decode,
    ) -> list[list[Written]]:
        """The best outputs of each source, by all models that have a say."""
        if not settings.others:
            return own
        partners = [self._other(folder) for folder in settings.partners]
        penalty = settings.length_penalty

        def judge(generator: Generator) -> Judge:
            return lambda places: generator.scores_by_length(
                [sources[line] for line, _ in places], [text for _, text in places], penalty=penalty
            )

        def back(places: Sequence[Place]) -> list[float]:
            assert settings.reverse is not None
            return self._other(settings.reverse).scores_by_length(
                [text for _, text in places], [_text(sources[line]) for line, _ in places], penalty=penalty
            )

        return chosen(
            [own, *of_partners],
            [judge(generator) for generator in [self, *partners]],
            reverse=None if settings.reverse is None else back,
            weight=settings.reverse_weight,
            n_best=settings.n_best,
        )

    def scores_by_length(
        self, sources: Sequence[Source], targets: Sequence[str], *, penalty: float
    ) -> list[float]:
        """log p of each target in the model's own order / steps ** penalty, as outputs are ranked."""
        return [
            one.score / (len(one.positions) + 1) ** penalty  # a step is a token or the end
            for one in self.score(sources, targets, order="own")
        ]

    def complete(
        self,
        sources: Sequence[Source] | None,
        canvases: Sequence[CanvasText | str | Mapping[str, Any]],
        *,
        names: Sequence[str] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> list[list[Completion]]:
        """The best ways to write around what is given of each target, best first.

        None for a blank source of which nothing is asked.

        sources: as many as canvases; None: for a model of targets alone. canvases: their keys, e.g.
        {"must": ["dog", "beach"]}, or templates, e.g. "a ___ runs ___ the beach". options: as for `generate`.
        names: what messages call each canvas; default: canvas 1 and so on.
        """
        sources = [""] * len(canvases) if sources is None else sources
        _refuse_bare_text(sources, name="sources")
        _refuse_bare_text(canvases, name="canvases")
        if len(sources) != len(canvases):
            raise UserError(f"{len(sources)} sources but {len(canvases)} canvases: they go in pairs")
        where = names or [f"canvas {number}" for number in range(1, len(canvases) + 1)]
        texts = [canvas_text(canvas, where=name) for canvas, name in zip(canvases, where, strict=True)]
        return self._complete(sources, texts, names=where, settings=self.settings(**options))

    def _complete(
        self,
        sources: Sequence[Source],
        texts: Sequence[CanvasText],
        *,
        names: Sequence[str],
        settings: config.Decode,
    ) -> list[list[Completion]]:
        check_completes(self.trained, settings)
        encoded, alone = self._encoded(sources), settings.alone
        for text, source, name in zip(texts, encoded, names, strict=True):
            if not (len(source.vectors) or self.trained.recipe.sourceless or text == CanvasText()):
                raise UserError(f"{name}: source: missing or blank; this model needs one")
        compiled = [
            CompiledCanvas(text, self.tokenizer, source=source.text, where=name)
            for text, source, name in zip(texts, encoded, names, strict=True)
        ]
        outputs: list[list[Completion]] = []
        for first in range(0, len(sources), MANY):
            part = slice(first, first + MANY)
            outputs += self._completed(encoded[part], compiled[part], settings=alone, first_line=first)
        of_partners = [
            self._other(folder)._complete(sources, texts, names=names, settings=alone)
            for folder in settings.partners
        ]
        return self._chosen(sources, outputs, of_partners, settings=settings)

    def _completed(
        self,
        sources: Sequence[_Encoded],
        canvases: Sequence[CompiledCanvas],
        *,
        settings: config.Decode,
        first_line: int,
    ) -> list[list[Completion]]:
        def decode(lines: list[int]) -> list[list[TokenHypothesis]]:
            return complete_all(
                self.trained,
                [sources[line].vectors for line in lines],
                [canvases[line] for line in lines],
                settings=settings,
                device=self.device,
                lines=[first_line + line for line in lines],
            )

        found = self._where_read(sources, decode)
        return [
            [self._completion(hypothesis, canvas, source.own) for hypothesis in hypotheses]
            for source, canvas, hypotheses in zip(sources, canvases, found, strict=True)
        ]

    def _where_read(
        self, sources: Sequence[_Encoded], decode: Callable[[list[int]], list[list[TokenHypothesis]]]
    ) -> list[list[TokenHypothesis]]:
        """What is decoded for each source: nothing for a blank one, unless this model reads no source at all.

        decode: takes the lines, from 0, of those that are left.
        """
        sourceless = self.trained.recipe.sourceless
        lines = [line for line, source in enumerate(sources) if len(source.vectors) or sourceless]
        found: list[list[TokenHypothesis]] = [[] for _ in sources]
        for line, hypotheses in zip(lines, decode(lines), strict=True):
            found[line] = hypotheses
        return found

    def _completion(
        self, hypothesis: TokenHypothesis, canvas: CompiledCanvas, own: Sequence[str]
    ) -> Completion:
        given, around = sum(owner != NOBODYS for owner in hypothesis.owners), filled(canvas, hypothesis)
        output = self._output(hypothesis, own, text=around.text if given else None)
        return Completion(**vars(output), fills=around.fills, given=given)

    # They overlap: a variable of type str may hold "marginal" too. Its owner gets what the name promises.
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
    ) -> list[MarginalScore]: ...

    @overload
    def score(
        self,
        sources: Sequence[Source],
        targets: Sequence[str],
        *,
        order: TargetOrder = "l2r",
        beam: int = 8,
        seed: int = 1,
    ) -> list[TargetScore]: ...

    def score(
        self,
        sources: Sequence[Source],
        targets: Sequence[str],
        *,
        order: TargetOrder = "l2r",
        beam: int = 8,
        samples: int | None = None,
        seed: int = 1,
    ) -> list[TargetScore] | list[MarginalScore]:
        """log p of each target: in the given order, in the best one found ("sao") or in any ("marginal").

        order: also "own", the one that the model was trained in; left to right if it was random, or isn't
        known here.
        beam: orders to find for "sao" and "marginal", which adds them up, and the run's own with them.
        samples: orders to draw for "marginal", to estimate what all the others add. seed: for what is drawn.
        Targets may be of any length.
        """
        _refuse_bare_text(sources, name="sources")
        _refuse_bare_text(targets, name="targets")
        if len(sources) != len(targets):
            raise UserError(f"{len(sources)} sources but {len(targets)} targets: they go in pairs")
        name = order.name if isinstance(order, config.Order) else order
        _check_search(beam=beam, samples=samples, marginal=name == "marginal")
        model, device = ordered(self.trained.model, purpose="score"), self.device
        if name == "own":
            # A random order would depend on how many targets come before.
            random = self.trained.recipe.fixed_order.name == "rnd"
            examples = (
                self._examples(sources, targets, order="l2r", seed=seed)
                if random
                else self._examples_in_own_order(sources, targets, seed=seed)
            )
            return score_given(model, examples, device=device)
        if isinstance(model, LeftToRight) and name != "l2r":
            raise UserError(
                f"order = {name!r}: must be 'l2r' for an ordinary transformer, which writes so alone"
            )
        if name == "sao":
            examples = self._examples(sources, targets, order="l2r", seed=seed)
            return score_best(model, examples, beam=beam, device=device)
        if name == "marginal":
            examples = self._examples_in_own_order(sources, targets, seed=seed)
            return score_in_any_order(
                model, examples, beam=beam, samples=samples or 0, seed=seed, device=device
            )
        return score_given(model, self._examples(sources, targets, order=order, seed=seed), device=device)

    def _examples_in_own_order(
        self, sources: Sequence[Source], targets: Sequence[str], *, seed: int
    ) -> list[Example]:
        """In what the model has learned to write in, at first at least; left to right if nobody can tell."""
        own = self.trained.recipe.fixed_order.model_copy(update={"files": {}})  # which are of other targets
        needs = order_rule(own.name).needs
        if needs in ("nothing", "counts", "function") or (needs == "heads" and own.parser):
            try:
                return self._examples(sources, targets, order=own, seed=seed)
            except UserError:  # a function or a parser that is not at hand here
                pass
        return self._examples(sources, targets, order="l2r", seed=seed)

    def _examples(
        self, sources: Sequence[Source], targets: Sequence[str], *, order: TargetOrder, seed: int
    ) -> list[Example]:
        read = self._encoded(sources)
        encoded = self._encoder.targets(targets, [source.text for source in read])
        lines = [Line(number, tokens.words, tokens.pieces) for number, tokens in enumerate(encoded, start=1)]
        if isinstance(order, str | config.Order):
            orders = self._made_orders(lines, order, seed=seed)
        else:
            orders = _given_orders(lines, order)
        return [
            Example(source.vectors, np.array(tokens.ids, dtype=np.int32), np.array(positions, dtype=np.int32))
            for source, tokens, positions in zip(read, encoded, orders, strict=True)
        ]

    def _made_orders(self, lines: list[Line], order: str | config.Order, *, seed: int) -> Iterator[list[int]]:
        orderer = prepare_order(
            config.Order(name=order) if isinstance(order, str) else order,
            split="test",
            common=self.trained.common_words,
            normalise=self.tokenizer.normalised,
        )
        return orderer.positions(lines, generator=np.random.default_rng(seed))

    def _encoded(self, sources: Sequence[Source]) -> list[_Encoded]:
        """Token ids or feature vectors, whichever this model reads."""
        if not self.trained.model.shape.features:
            texts = [_text(source) for source in sources]
            if self.trained.recipe.sourceless and any(text.strip() for text in texts):
                raise UserError("this model was trained on targets alone and reads no source: leave it empty")
            return [
                _Encoded(np.array(text.ids, dtype=np.int32), text) for text in self._encoder.sources(texts)
            ]
        photos = [source for source in sources if isinstance(source, Path)]
        seen = self.extractor.extract(photos) if photos else iter(())
        return [
            _Encoded(next(seen).vectors if isinstance(source, Path) else self._vectors(source))
            for source in sources
        ]

    def _vectors(self, source: str | NDArray[np.generic]) -> NDArray[np.generic]:
        shape = self.trained.model.shape
        if isinstance(source, str):
            photos = "photos (pathlib.Path) or " if shape.extractor else ""
            raise UserError(f"this model reads {photos}feature vectors of width {shape.features}, not text")
        if source.ndim != 2 or source.shape[1] != shape.features:
            raise UserError(
                f"feature vectors of shape {source.shape} given, must be (vectors, {shape.features})"
            )
        return source

    def _output(
        self, hypothesis: TokenHypothesis, own: Sequence[str], *, text: str | None = None
    ) -> Hypothesis:
        """text: where it is known already."""
        return Hypothesis(
            text=self.tokenizer.decode(hypothesis.sentence, own=own) if text is None else text,
            score=hypothesis.score,
            log_prob=hypothesis.log_prob,
            finished=hypothesis.finished,
            tokens=tuple(self.tokenizer.piece(token, own=own) for token in hypothesis.tokens),
            positions=hypothesis.positions,
            word_scores=hypothesis.word_scores,
            gap_scores=hypothesis.gap_scores,
            iterations=hypothesis.iterations,
        )


def _check_precision(precision: str, device: torch.device) -> None:
    if precision not in PRECISIONS:
        raise UserError(f"precision = {precision!r}: must be {' or '.join(PRECISIONS)}")
    if precision == "int8" and device.type != "cpu":
        raise UserError(f'precision = "int8" is for a CPU, not for {device}')


def _check_search(*, beam: int, samples: int | None, marginal: bool) -> None:
    if not 1 <= beam <= config.WIDEST_BEAM:
        raise UserError(f"beam = {beam}: must be from 1 to {config.WIDEST_BEAM}")
    if samples is None:
        return
    if not marginal:
        raise UserError(f"samples = {samples}: is only for order = 'marginal'")
    if samples < 2:
        raise UserError(f"samples = {samples}: must be 2 or more, to know how far they lie apart")


def _given_orders(lines: list[Line], orders: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Token positions from a person's word positions."""
    if len(orders) != len(lines):
        raise UserError(f"{len(orders)} orders but {len(lines)} targets: each target has its own")
    for line, given in zip(lines, orders, strict=True):
        positions = checked_positions(given, length=len(line.words), where=f"order {line.number}")
        yield spread(positions, pieces=line.pieces)


def _refuse_bare_text(texts: object, *, name: str) -> None:
    """A string is a sequence too, of its characters, and that is never what is meant."""
    if isinstance(texts, Path):
        raise UserError(f"{name}: one path given, must be a list of them")
    if isinstance(texts, str):
        raise UserError(f"{name}: one string given, must be a list of them, e.g. [{texts[:SHOWN]!r}]")


def _text(source: Source) -> str:
    if isinstance(source, str):
        return source
    given = f"photos such as {source}" if isinstance(source, Path) else "feature vectors"
    raise UserError(f"this model reads text, not {given}")
