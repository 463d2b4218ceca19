"""A loaded model with the models that rerank for it: lists of sources in, lists of answers out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from anyorder import config
from anyorder.decoding.decode import decoding_memory
from anyorder.errors import UserError
from anyorder.inference.bounds import check_fits, encoding_bytes
from anyorder.inference.canvas_text import CompiledCanvas
from anyorder.inference.completion import (
    CompletionRequest,
    check_completes,
    compile_canvas,
    complete_batch,
)
from anyorder.inference.draft_text import CompiledDraft
from anyorder.inference.edited import Edited
from anyorder.inference.editing import (
    EditRequest,
    compile_draft,
    edit_drafts,
    editor_of,
)
from anyorder.inference.generation import (
    EncodedSource,
    InputEncoder,
    RefusedInput,
    Source,
    generate_batch,
    within_bounds,
)
from anyorder.inference.hypothesis import Answer, AnyHypothesis, Completion, Hypothesis
from anyorder.inference.model_folder import Trained, load_trained
from anyorder.inference.reranking import rerank_with_models
from anyorder.inference.scoring import (
    MarginalScore,
    TargetOrder,
    TargetScore,
    examples_in_own_order,
    score_given,
    score_targets,
)
from anyorder.inference.trust import check_paths
from anyorder.models.kernels.packed import PRECISIONS, pack
from anyorder.models.registry import ordered
from anyorder.system.devices import pick_device

BATCH_CHUNK = 512  # sources to encode and decode together; those of similar length share a batch


class LoadedModel:
    """A trained model on a device; partners and reverse models are loaded when settings ask for them."""

    def __init__(self, trained: Trained, *, device: torch.device) -> None:
        self.trained = trained
        self.device = device
        self.parameters = trained.parameters
        self._encoder = InputEncoder(trained, device=device)
        self._other_models: dict[Path, LoadedModel] = {}

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        device: str | None = None,
        precision: str = PRECISIONS[0],
        trust_code: bool = False,
    ) -> LoadedModel:
        """Load a model from its folder; `anyorder.load` documents the arguments."""
        picked = pick_device(device or "auto")
        _check_precision(precision, picked)
        trained = load_trained(folder, device=picked, trust_code=trust_code)
        loaded = cls(trained, device=picked)  # counts the parameters, which packed int8 weights no longer are
        pack(trained.model, precision=precision)
        return loaded

    def settings(self, **options: Any) -> config.Decode:  # noqa: ANN401
        """The recipe's [decode] with some keys changed; None leaves a key as it is.

        A beam that is not given is at least as wide as n_best, but samples need no beam. Models that rerank
        are loaded here, so that a wrong one is refused before the work begins.
        """
        recipe = self.trained.recipe.decode
        given = {key: value for key, value in options.items() if value is not None}
        values = {**recipe.model_dump(), **given}
        if "n_best" in given and "beam" not in given and values["search"] != "sample":
            # n_best must be checked before it can be compared; the widest beam fits any n_best.
            n_best = config.checked(
                config.Decode, {**values, "beam": config.WIDEST_BEAM}, origin="decode"
            ).n_best
            values["beam"] = max(n_best, recipe.beam)
        settings = config.checked(config.Decode, values, origin="decode")
        of_recipe = {key: values[key] for key in ("partners", "reverse") if key not in given}
        check_paths(
            config.Decode().model_copy(update=of_recipe),
            folder=self.trained.folder,
            trust_code=self.trained.trust_code,
        )
        misfit = self.trained.recipe.misfit(settings) or settings.nothing_to_choose
        if misfit is not None:
            raise UserError(misfit)
        self.load_other_models(settings)
        return settings

    def generate(
        self, sources: Sequence[Source], *, settings: config.Decode, first_line: int = 0
    ) -> list[Answer[Hypothesis]]:
        """Decode some sources together, with checked settings.

        first_line: how many sources came before these; what is sampled for a source depends on its line.
        """
        if self.trained.recipe.editing:
            raise UserError('generate: model.kind = "editor" needs a draft to change; use edit')
        encoded = within_bounds(self._encoder.encode_sources(sources), settings)
        self._check_fits(encoded, settings)
        own = generate_batch(
            self.trained,
            encoded,
            settings=settings.alone,
            device=self.device,
            first_line=first_line,
        )
        of_partners: list[Sequence[Sequence[Hypothesis]]] = [
            partner.generate(sources, settings=settings.alone, first_line=first_line)
            for partner in self._partners(settings)
        ]
        return self._reranked(sources, [own, *of_partners], settings=settings)

    def _check_fits(self, sources: Sequence[EncodedSource], settings: config.Decode) -> None:
        """Refuse the longest source if it does not fit into memory alone."""
        model, source = self.trained.model, max((len(one.array) for one in sources), default=0)
        target = settings.max_length
        if settings.max_ratio and not model.shape.features:
            target = min(target, int(settings.max_ratio * source) + settings.max_extra)
        needed = encoding_bytes(model.settings, source=source)
        needed = max(needed, decoding_memory(model, settings, source=source, target=target))
        check_fits(needed, source=source, target=target, device=self.device)

    def complete(
        self, requests: Sequence[CompletionRequest], *, settings: config.Decode
    ) -> list[Answer[Completion] | UserError]:
        """Write around the canvas of each request; one that can't be completed gets the error instead."""
        check_completes(self.trained, settings)
        found: list[Sequence[Sequence[Completion] | UserError]] = [
            self._complete_alone(requests, settings=settings.alone),
            *(partner.complete(requests, settings=settings.alone) for partner in self._partners(settings)),
        ]
        errors = {
            index: one for results in found for index, one in enumerate(results) if isinstance(one, UserError)
        }
        completed = [index for index in range(len(requests)) if index not in errors]
        answers = self._reranked(
            [requests[index].source for index in completed],
            [[_hypotheses(results[index]) for index in completed] for results in found],
            settings=settings,
        )
        answered: dict[int, Answer[Completion] | UserError] = {**errors}
        answered.update(zip(completed, answers, strict=True))
        return [answered[index] for index in range(len(requests))]

    def _complete_alone(
        self, requests: Sequence[CompletionRequest], *, settings: config.Decode
    ) -> list[list[Completion] | UserError]:
        """What this model finds without others."""
        results: dict[int, list[Completion] | UserError] = {}
        compiled: list[tuple[int, EncodedSource, CompiledCanvas]] = []
        for index, (source, request) in enumerate(
            zip(self.encode_each([request.source for request in requests]), requests, strict=True)
        ):
            try:
                if isinstance(source, UserError):
                    raise source
                (source,) = within_bounds([source], settings)
                canvas = compile_canvas(self.trained, source, request, settings=settings)
                compiled.append((index, source, canvas))
            except RefusedInput as error:
                results[index] = UserError(f"{request.name}: source: {error.reason}")
            except UserError as error:
                results[index] = error
        self._check_fits([source for _, source, _ in compiled], settings)
        for first in range(0, len(compiled), BATCH_CHUNK):
            indices, sources, canvases = zip(*compiled[first : first + BATCH_CHUNK], strict=True)
            answers = complete_batch(
                self.trained,
                sources,
                canvases,
                settings=settings,
                device=self.device,
                lines=[requests[index].line for index in indices],
            )
            results.update(zip(indices, answers, strict=True))
        return [results[index] for index in range(len(requests))]

    def edit(self, requests: Sequence[EditRequest], *, settings: config.Decode) -> list[Edited | UserError]:
        """Edit the draft of each request; one that can't be edited gets the error instead."""
        editor_of(self.trained)
        results: dict[int, Edited | UserError] = {}
        compiled: list[tuple[int, EncodedSource, CompiledDraft]] = []
        for index, (source, request) in enumerate(
            zip(self.encode_each([request.source or "" for request in requests]), requests, strict=True)
        ):
            try:
                if isinstance(source, UserError):
                    raise source
                (source,) = within_bounds([source], settings)
                compiled.append((index, source, compile_draft(self.trained, request)))
            except UserError as error:
                results[index] = error
        for first in range(0, len(compiled), BATCH_CHUNK):
            indices, sources, drafts = zip(*compiled[first : first + BATCH_CHUNK], strict=True)
            answers = edit_drafts(self.trained, sources, drafts, settings=settings, device=self.device)
            results.update(zip(indices, answers, strict=True))
        return [results[index] for index in range(len(requests))]

    def encode_each(self, sources: Sequence[Source]) -> Sequence[EncodedSource | UserError]:
        """Encode all sources at once, or, if one is refused, one by one to find out which."""
        try:
            return self._encoder.encode_sources(sources)
        except UserError as error:
            if len(sources) == 1:
                return [error]
            middle = len(sources) // 2
            return [one for half in (sources[:middle], sources[middle:]) for one in self.encode_each(half)]

    def score(
        self,
        sources: Sequence[Source],
        targets: Sequence[str],
        *,
        order: TargetOrder,
        beam: int = 8,
        samples: int | None = None,
        seed: int = 1,
        **bounds: int | bool | None,
    ) -> list[TargetScore] | list[MarginalScore]:
        """Score each target given its source; `Generator.score` documents the arguments."""
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
            bounds=self.bounds(**bounds),
            device=self.device,
        )

    def bounds(self, **changed: int | bool | None) -> config.Decode:
        """The recipe's [decode] with other maximum lengths; None leaves a key as it is."""
        given = {key: value for key, value in changed.items() if value is not None}
        values = {**self.trained.recipe.decode.model_dump(), **given}
        return config.checked(config.Decode, values, origin="decode")

    # --- several models ---

    def load_other_models(self, settings: config.Decode) -> None:
        """Load the partners and the reverse model, so that a wrong one is refused before the work begins."""
        for folder in settings.others:
            self._other_model(folder)

    def _other_model(self, folder: Path) -> LoadedModel:
        """A partner or the reverse model, loaded once."""
        if folder not in self._other_models:
            loaded = LoadedModel.load(folder, device=str(self.device), trust_code=self.trained.trust_code)
            ordered(loaded.trained.model, purpose=str(folder))
            self._other_models[folder] = loaded
        return self._other_models[folder]

    def _partners(self, settings: config.Decode) -> list[LoadedModel]:
        return [self._other_model(folder) for folder in settings.partners]

    def _reranked(
        self,
        sources: Sequence[Source],
        found: Sequence[Sequence[Sequence[AnyHypothesis]]],
        *,
        settings: config.Decode,
    ) -> list[Answer[AnyHypothesis]]:
        """The best hypotheses for each source; found: by model, this one first, and by source."""
        best = found[0]
        if settings.others:
            best = rerank_with_models(
                sources,
                found,
                [self, *self._partners(settings)],
                reverse=None if settings.reverse is None else self._other_model(settings.reverse),
                settings=settings,
            )
        return [Answer(hypotheses) for hypotheses in best]

    def scores_by_length(
        self, sources: Sequence[Source], targets: Sequence[str], *, penalty: float
    ) -> list[float]:
        """log p of each target in the model's own order / steps ** penalty, as hypotheses are ranked."""
        pairs = self._encoder.encode_pairs(sources, targets)
        scores = score_given(
            ordered(self.trained.model, purpose="rerank"),
            examples_in_own_order(self.trained, pairs),
            device=self.device,
        )
        return [
            one.score / (len(one.positions) + 1) ** penalty  # each token is a step, and so is the end
            for one in scores
        ]


def _hypotheses(result: Sequence[Completion] | UserError) -> Sequence[Completion]:
    assert not isinstance(result, UserError), "refused requests are not reranked"
    return result


def _check_precision(precision: str, device: torch.device) -> None:
    if precision not in PRECISIONS:
        raise UserError(f"precision = {precision!r}: must be {' or '.join(PRECISIONS)}")
    if precision == "int8" and device.type != "cpu":
        raise UserError(f'precision = "int8" is for a CPU, not for {device}')
