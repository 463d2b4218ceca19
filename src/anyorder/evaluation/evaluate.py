"""Evaluate a run on a split of its data: pick the beam size on dev, decode, score, and store a report."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

from anyorder.config.data import Splits
from anyorder.config.recipe import Recipe, recipe_with
from anyorder.data.references import seen_in_training
from anyorder.errors import UserError
from anyorder.evaluation.results import (
    TUNED_ON,
    BeamSweep,
    EvaluationReport,
    ReportedScore,
    RunResults,
    UnseenScores,
    digest,
    results_folder,
    results_name,
    save_results,
)
from anyorder.evaluation.split import (
    DecodedSplit,
    EvaluationSplit,
    SplitDecoder,
    decoded_file,
    read_split,
    remove_unfinished_results,
    weights_digest,
)
from anyorder.inference.generator import Generator
from anyorder.metrics import DEFAULT, METRICS, Options, Result, check_drafts
from anyorder.metrics import evaluate as score
from anyorder.pretrained import refuse_results
from anyorder.system.locks import LOCK_FILE, locked
from anyorder.system.progress import ProgressListener
from anyorder.text.tokenizer import SPECIALS, UNK

CHANGEABLE_SECTIONS = ("data.", "decode.")  # sections of the recipe that don't change the model
_UNKNOWN = SPECIALS[UNK]
_UNKNOWN_ALTERNATIVE = "<unknown>"  # replaces <unk> in hypotheses if a reference contains <unk> as text
_VERSIONED_PACKAGES = ("torch", "sacrebleu")


@dataclass(frozen=True)
class ScoringSettings:
    """How hypotheses are scored."""

    metrics: Sequence[str] = DEFAULT
    options: Options | None = None  # None: derived from the target side of the recipe
    references: Sequence[Sequence[str]] | None = None  # a line for each line of the split; None: its targets
    drafts: Sequence[str] | None = None  # a line for each line that is scored; None: an editor's own


@dataclass(frozen=True)
class Evaluated:
    """A report and the path that it was written to."""

    report: EvaluationReport
    path: Path


@dataclass(frozen=True)
class Evaluator:
    """Evaluates a run; hypotheses are decoded once and then stored in the run's folder."""

    run: Path
    generator: Generator
    recipe: Recipe  # the run's recipe, with the changes for this evaluation
    model: str  # digest of the weights
    listener: ProgressListener
    first_lines: int | None = None  # number of lines to evaluate of each split; None for all

    @classmethod
    def load(
        cls,
        run: Path,
        *,
        listener: ProgressListener,
        overrides: Sequence[str] = (),
        first_lines: int | None = None,
        device: str | None = None,
    ) -> Evaluator:
        """Load the model of a run. overrides: `key=value` for keys of [data] and [decode]."""
        refuse_results(run)
        generator = Generator.load(run, device=device)
        return cls(
            run=run,
            generator=generator,
            recipe=_with_overrides(generator.trained.recipe, overrides),
            model=weights_digest(run),
            listener=listener,
            first_lines=first_lines,
        )

    def evaluate(
        self,
        split: Splits,
        *,
        beams: Sequence[int] = (),
        by: str | None = None,
        all_beams: bool = False,
        again: bool = False,
        scoring: ScoringSettings | None = None,
    ) -> Evaluated:
        """Decode and score a split, and write the report into the run's folder.

        beams: beam sizes to try; empty for the recipe's. Of several, the best on dev is used.
        by: metric that picks the beam; None for the metric that selected the checkpoint.
        all_beams: score the split itself with every beam as well, for a chart.
        again: decode even if stored hypotheses exist.
        """
        scoring = scoring or ScoringSettings()
        options = scoring.options or Options.for_side(self.recipe.text.target)
        by = by or self._default_metric
        # Complain about anything wrong before hours of decoding.
        given = scoring.drafts or ([] if self.recipe.editing else None)
        _check_metrics([*scoring.metrics, by], options, drafts=given)
        self._check_beams(beams)
        read = self._read(split, references=scoring.references)
        written = {read.name}
        if len(beams) > 1:
            written.add(results_name(TUNED_ON, first_lines=self.first_lines))
        with ExitStack() as held:
            for name in sorted(written):
                held.enter_context(locked(results_folder(self.run), name=f".{name}{LOCK_FILE}"))
                remove_unfinished_results(self.run, name=name)
            return self._evaluate(read, beams=beams, by=by, all_beams=all_beams, again=again, scoring=scoring)

    def _evaluate(
        self,
        read: EvaluationSplit,
        *,
        beams: Sequence[int],
        by: str,
        all_beams: bool,
        again: bool,
        scoring: ScoringSettings,
    ) -> Evaluated:
        options = scoring.options or Options.for_side(self.recipe.text.target)
        if again:
            self._delete_decoded(read, beams)
        sweep = None
        if len(beams) > 1:
            sweep = self._sweep(read, beams, by=by, options=options, all_beams=all_beams)
        beam = sweep.beam if sweep else next(iter(beams), None)
        decoded = self._decoder.decode(read, beam=beam)
        hypotheses = distinct_unknowns(decoded.hypotheses, read.references)
        drafts = read.drafts if scoring.drafts is None else list(scoring.drafts)[: self.first_lines]
        scores = score(hypotheses, read.references, metrics=scoring.metrics, options=options, drafts=drafts)
        report = self._report(read, decoded, hypotheses, scores=scores, options=options, sweep=sweep)
        if drafts is not None:
            report = report.model_copy(update={"drafts": digest(drafts)})
        results = RunResults(
            run=self.run, report=report, hypotheses=hypotheses, references=read.references, drafts=drafts
        )
        return Evaluated(report=report, path=save_results(results, name=read.name))

    @property
    def _decoder(self) -> SplitDecoder:
        return SplitDecoder(
            run=self.run,
            generator=self.generator,
            settings=self.recipe.decode,
            model=self.model,
            listener=self.listener,
        )

    @property
    def _default_metric(self) -> str:
        """The metric that selected the checkpoint, or BLEU if that was not a metric of text."""
        selected = self.recipe.train.select
        return selected if selected in METRICS else "bleu"

    def _read(self, split: Splits, *, references: Sequence[Sequence[str]] | None = None) -> EvaluationSplit:
        return read_split(
            self.recipe,
            split,
            tokenizer=self.generator.tokenizer,
            feature_width=self.generator.trained.model.shape.features,
            first_lines=self.first_lines,
            references=references,
        )

    def _check_beams(self, beams: Sequence[int]) -> None:
        decode = self.recipe.decode
        if beams and decode.search == "sample":
            given = ", ".join(map(str, beams))
            raise UserError(f'--beam {given}: decode.search = "sample" has no beam; allowed: two-step, joint')
        widest = decode.model_copy(update={"beam": max(beams or [decode.beam])})
        if widest.nothing_to_choose is not None:
            raise UserError(widest.nothing_to_choose)
        self.generator.load_other_models(widest)
        for beam in beams:
            misfit = self.recipe.misfit(decode.model_copy(update={"beam": beam}))
            if misfit is not None:
                raise UserError(f"--beam {beam}: {misfit}")

    def _delete_decoded(self, split: EvaluationSplit, beams: Sequence[int]) -> None:
        """Delete the stored hypotheses that this evaluation would use."""
        names = {split.name}
        if len(beams) > 1:
            names.add(results_name(TUNED_ON, first_lines=self.first_lines))
        for name, beam in product(names, beams or [self.recipe.decode.beam]):
            decoded_file(self.run, name=name, beam=beam).unlink(missing_ok=True)

    def _sweep(
        self, split: EvaluationSplit, beams: Sequence[int], *, by: str, options: Options, all_beams: bool
    ) -> BeamSweep:
        """Score dev with every beam and pick the best."""
        tuning = split if split.split == TUNED_ON else self._read(TUNED_ON)
        results = self._score_beams(tuning, beams, by=by, options=options)
        scores = {TUNED_ON: {beam: result.score for beam, result in results.items()}}
        if all_beams and split.split != TUNED_ON:
            others = self._score_beams(split, beams, by=by, options=options)
            scores[split.split] = {beam: result.score for beam, result in others.items()}
        first = results[beams[0]]
        sign = 1 if first.metric.higher_is_better else -1
        best = max(sorted(beams), key=lambda beam: sign * results[beam].score)
        return BeamSweep(by=by, metric=first.metric.name, signature=first.signature, beam=best, scores=scores)

    def _score_beams(
        self, split: EvaluationSplit, beams: Sequence[int], *, by: str, options: Options
    ) -> dict[int, Result]:
        results = {}
        for beam in beams:
            decoded = self._decoder.decode(split, beam=beam)
            hypotheses = distinct_unknowns(decoded.hypotheses, split.references)
            result = score(hypotheses, split.references, metrics=[by], options=options, drafts=split.drafts)[
                by
            ]
            self.listener.note(f"{split.name}, beam {beam}: {result.metric.name} {result.score:.2f}")
            results[beam] = result
        return results

    def _report(
        self,
        split: EvaluationSplit,
        decoded: DecodedSplit,
        hypotheses: Sequence[str],
        *,
        scores: Mapping[str, Result],
        options: Options,
        sweep: BeamSweep | None,
    ) -> EvaluationReport:
        # If case is ignored, a word that is unknown in one case may still match in the other.
        bounded = self.recipe.text.target.lowercase or not options.lowercase
        return EvaluationReport(
            versions=_versions(),
            finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
            decoding_seconds=decoded.seconds,
            split=split.split,
            lines=len(hypotheses),
            unfinished=decoded.unfinished,
            unknown=sum(_UNKNOWN in text for text in decoded.hypotheses),
            scores={name: _reported(result) for name, result in scores.items()},
            reachable=split.reachable if bounded else None,
            unseen=self._unseen_scores(split, scores),
            options=options,
            decode=decoded.inputs.decode,
            sweep=sweep,
            model=self.model,
            hypotheses=digest(hypotheses),
            references=[digest(lines) for lines in split.references],
            recipe=self.recipe,
        )

    def _unseen_scores(self, split: EvaluationSplit, scores: Mapping[str, Result]) -> UnseenScores | None:
        """Score the lines that training has not seen, which the model can't have memorised."""
        if split.line_numbers is None or split.split == "train":
            return None
        try:
            unseen = ~seen_in_training(self.recipe, split.split, split.line_numbers)
        except UserError as error:  # missing training data is no reason to lose what was decoded
            self.listener.note(f"can't find out which lines training has seen: {error}")
            return None
        alone = {name: result.score_of(unseen) for name, result in scores.items()} if unseen.any() else {}
        return UnseenScores(lines=int(unseen.sum()), scores=alone)


def distinct_unknowns(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[str]:
    """Return the hypotheses such that an unknown word never equals a word of a reference.

    Unknown words are written as `<unk>`, and differently if a reference contains `<unk>` as text.
    """
    if not any(_UNKNOWN in line for lines in references for line in lines):
        return list(hypotheses)
    return [text.replace(_UNKNOWN, _UNKNOWN_ALTERNATIVE) for text in hypotheses]


def _with_overrides(recipe: Recipe, overrides: Sequence[str]) -> Recipe:
    for text in overrides:
        if not text.strip().startswith(CHANGEABLE_SECTIONS):
            raise UserError(
                f"{text!r}: of a trained model only keys of [data] and [decode] can be changed, "
                "e.g. decode.length_penalty=0.6"
            )
    values = recipe.model_dump(mode="json", exclude_none=True)
    return recipe_with(values, overrides, origin="the run's recipe")


def _check_metrics(names: Sequence[str], options: Options, *, drafts: Sequence[str] | None) -> None:
    """Refuse unknown metrics, and metrics with a dependency that is not installed."""
    for name in names:
        if name not in METRICS:
            raise UserError(f"metric {name!r}: no such metric; allowed: {', '.join(METRICS)}")
        check_drafts({name: METRICS[name](options)}, drafts)


def _reported(result: Result) -> ReportedScore:
    return ReportedScore(
        metric=result.metric.name,
        score=result.score,
        higher_is_better=result.metric.higher_is_better,
        signature=result.signature,
    )


def _versions() -> dict[str, str]:
    packages = {name: importlib.metadata.version(name) for name in _VERSIONED_PACKAGES}
    return {"python": platform.python_version(), **packages}
