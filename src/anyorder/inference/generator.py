"""The public face of a trained model: generate, complete and score, from text to text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, overload

import torch

from anyorder import config
from anyorder.errors import UserError
from anyorder.inference.canvas_text import CanvasText, canvas_text
from anyorder.inference.completion import check_completes, compile_canvases, complete_batch
from anyorder.inference.generation import generate_batch
from anyorder.inference.hypothesis import Completion, Hypothesis
from anyorder.inference.inputs import InputEncoder, Source
from anyorder.inference.model_folder import Trained, load_trained
from anyorder.inference.reranking import AnyHypothesis, rerank_with_models
from anyorder.inference.scoring import MarginalScore, TargetScore, score_targets
from anyorder.inference.target_orders import TargetOrder
from anyorder.models.kernels.packed import PRECISIONS, pack
from anyorder.models.registry import ordered
from anyorder.system.devices import pick_device
from anyorder.text.tokenizer import Tokenizer

__all__ = ["Generator", "Source"]

STREAM_CHUNK = 64  # sources that `stream` waits for
BATCH_CHUNK = 512  # sources of a list: those of similar length are decoded together
SHOWN = 40  # characters of a wrong value in messages


class Generator:
    """A trained model that generates, completes and scores text."""

    def __init__(self, trained: Trained, *, device: torch.device) -> None:
        self.trained = trained
        self.device = device
        self._encoder = InputEncoder(trained, device=device)
        self._other_models: dict[Path, Generator] = {}

    @classmethod
    def load(
        cls, folder: str | Path, *, device: str | None = None, precision: str = PRECISIONS[0]
    ) -> Generator:
        """Load a model from the folder of a run; `anyorder.load` documents the arguments."""
        picked = pick_device(device or "auto")
        _check_precision(precision, picked)
        trained = load_trained(Path(folder), device=picked)
        pack(trained.model, precision=precision)
        return cls(trained, device=picked)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's text rules and its vocabulary."""
        return self.trained.tokenizer

    # --- generate ---

    def generate(self, sources: Iterable[Source], **options: Any) -> list[list[Hypothesis]]:  # noqa: ANN401
        """The best hypotheses for each source, best first; none for a blank line.

        sources: lines of text, photos (pathlib.Path) or feature vectors, whichever the model reads.
        options: keys of the recipe's [decode], e.g. beam=5, n_best=5, search="sample"; the recipe's own
        settings hold for the others.
        """
        return list(self.stream(sources, at_once=BATCH_CHUNK, **options))

    def stream(
        self,
        sources: Iterable[Source],
        *,
        at_once: int = STREAM_CHUNK,
        **options: Any,  # noqa: ANN401
    ) -> Iterator[list[Hypothesis]]:
        """Like `generate`, but source by source, as they come."""
        _refuse_bare_text(sources, name="sources")
        settings = self.settings(**options)
        waiting, line = iter(sources), 0
        while chunk := list(islice(waiting, at_once)):
            yield from self.answer(chunk, settings=settings, first_line=line)
            line += len(chunk)

    def answer(
        self, sources: Sequence[Source], *, settings: config.Decode, first_line: int = 0
    ) -> list[list[Hypothesis]]:
        """Decode some sources together, with checked settings.

        first_line: how many sources came before these; what is sampled for a source depends on its line.
        """
        own = generate_batch(
            self.trained,
            self._encoder.encode_sources(sources),
            settings=settings.alone,
            device=self.device,
            first_line=first_line,
        )
        of_partners = [
            partner.answer(sources, settings=settings.alone, first_line=first_line)
            for partner in self._partners(settings)
        ]
        return self._reranked(sources, [own, *of_partners], settings=settings)

    def settings(self, **options: Any) -> config.Decode:  # noqa: ANN401
        """The recipe's [decode] with some keys changed; None leaves a key as it is.

        A beam that is not given is at least as wide as n_best. Models that rerank are loaded here, so that a
        wrong one is refused before the work begins.
        """
        recipe = self.trained.recipe.decode
        given = {key: value for key, value in options.items() if value is not None}
        values = {**recipe.model_dump(), **given}
        if "n_best" in given and "beam" not in given:
            # n_best must be checked before it can be compared; the widest beam fits any n_best.
            n_best = config.checked(
                config.Decode, {**values, "beam": config.WIDEST_BEAM}, origin="decode"
            ).n_best
            values["beam"] = max(n_best, recipe.beam)
        settings = config.checked(config.Decode, values, origin="decode")
        misfit = self.trained.recipe.misfit(settings) or settings.nothing_to_choose
        if misfit is not None:
            raise UserError(misfit)
        self.load_other_models(settings)
        return settings

    # --- several models ---

    def load_other_models(self, settings: config.Decode) -> None:
        """Load the partners and the reverse model, so that a wrong one is refused before the work begins."""
        for folder in settings.others:
            self._other_model(folder)

    def _other_model(self, folder: Path) -> Generator:
        """A partner or the reverse model, loaded once."""
        if folder not in self._other_models:
            loaded = Generator.load(folder, device=str(self.device))
            ordered(loaded.trained.model, purpose=str(folder))
            self._other_models[folder] = loaded
        return self._other_models[folder]

    def _partners(self, settings: config.Decode) -> list[Generator]:
        return [self._other_model(folder) for folder in settings.partners]

    def _reranked(
        self, sources: Sequence[Source], found: list[list[list[AnyHypothesis]]], *, settings: config.Decode
    ) -> list[list[AnyHypothesis]]:
        """The best hypotheses for each source; found: by model, this one's first, and source."""
        if not settings.others:
            return found[0]
        return rerank_with_models(
            sources,
            found,
            [self, *self._partners(settings)],
            reverse=None if settings.reverse is None else self._other_model(settings.reverse),
            settings=settings,
        )

    def scores_by_length(
        self, sources: Sequence[Source], targets: Sequence[str], *, penalty: float
    ) -> list[float]:
        """log p of each target in the model's own order / steps ** penalty, as hypotheses are ranked."""
        return [
            one.score / (len(one.positions) + 1) ** penalty  # each token is a step, and so is the end
            for one in self.score(sources, targets, order="own")
        ]

    # --- complete ---

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
        encoded = self._encoder.encode_sources(sources)
        canvases = compile_canvases(self.trained, encoded, texts, names=names)
        own: list[list[Completion]] = []
        for first in range(0, len(sources), BATCH_CHUNK):
            chunk = slice(first, first + BATCH_CHUNK)
            own += complete_batch(
                self.trained,
                encoded[chunk],
                canvases[chunk],
                settings=settings.alone,
                device=self.device,
                first_line=first,
            )
        of_partners = [
            partner._complete(sources, texts, names=names, settings=settings.alone)
            for partner in self._partners(settings)
        ]
        return self._reranked(sources, [own, *of_partners], settings=settings)

    # --- score ---

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
        return score_targets(
            self.trained,
            self._encoder,
            sources,
            targets,
            order=order,
            beam=beam,
            samples=samples,
            seed=seed,
            device=self.device,
        )


def _check_precision(precision: str, device: torch.device) -> None:
    if precision not in PRECISIONS:
        raise UserError(f"precision = {precision!r}: must be {' or '.join(PRECISIONS)}")
    if precision == "int8" and device.type != "cpu":
        raise UserError(f'precision = "int8" is for a CPU, not for {device}')


def _refuse_bare_text(texts: object, *, name: str) -> None:
    """A string is a sequence of its characters, and that is never what is meant."""
    if isinstance(texts, Path):
        raise UserError(f"{name}: one path given, must be a list of them")
    if isinstance(texts, str):
        raise UserError(f"{name}: one string given, must be a list of them, e.g. [{texts[:SHOWN]!r}]")
