"""A trained model on the splits of its recipe: decode them, pick the beam, score what was written."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Protocol

from anyorder.config.data import Splits
from anyorder.config.recipe import Recipe, recipe_with
from anyorder.data.corpus import Corpus, load_split
from anyorder.data.dataset import check_width
from anyorder.data.readers import (
    Features,
    File,
    content_digest,
    count_pairs,
    in_chunks,
    raw_pairs,
    split_files,
)
from anyorder.data.references import PairsOfSource, pairs_by_source, reference_texts, seen_in_training
from anyorder.errors import UserError
from anyorder.evaluation.results import (
    TUNED_ON,
    Decoded,
    MetricScore,
    Report,
    RunResults,
    Sweep,
    Unseen,
    Work,
    decoded_file,
    digest,
    load_decoded,
    results_folder,
    results_name,
    save_decoded,
    save_results,
)
from anyorder.inference.generator import Generator, Source
from anyorder.inference.model_folder import MODEL_FILE
from anyorder.metrics import DEFAULT, METRICS, Options, Result
from anyorder.metrics import evaluate as score
from anyorder.pretrained import located, refuse_results
from anyorder.system.files import make_folder
from anyorder.text.tokenizer import SPECIALS, UNK

AT_ONCE = 256  # lines between two signs of life; batches are smaller
MAY_CHANGE = ("data.", "decode.")  # keys that are not the model's
_UNKNOWN = SPECIALS[UNK]
_UNKNOWN_BESIDE_TEXT = "<unknown>"  # where references hold the other one as text
_VERSIONED = ("torch", "sacrebleu")


class Listener(Protocol):
    """Someone who watches an evaluation."""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def preparing(self, what: str, done: int, total: int) -> None:
        """Lines that were dealt with."""


@dataclass(frozen=True)
class Judging:
    """How outputs are scored."""

    metrics: Sequence[str] = DEFAULT
    options: Options | None = None  # None: on the words that the recipe's target side is made of
    references: Sequence[Sequence[str]] | None = None  # a line for each of the split; None: its targets


@dataclass(frozen=True)
class SplitText:
    """The lines of a split that are scored."""

    split: Splits
    name: str  # of its results
    key: str  # changes with the sources, and with how they are split
    sources: Sequence[Source] | Features
    references: list[list[str]]  # one or more, as many as an image has captions; a line for each source
    lines: list[int] | None  # of each source in its file, from 1; None: images
    writable: float | None  # per cent of the sources with a target whose words the model has


@dataclass(frozen=True)
class Evaluated:
    """What came out, and where it is written."""

    report: Report
    path: Path


@dataclass(frozen=True)
class Evaluator:
    """A run whose outputs are decoded once and then kept."""

    run: Path
    generator: Generator
    recipe: Recipe  # the run's, but for what was changed for this evaluation
    model: str  # digest of the weights
    listener: Listener
    first_lines: int | None = None  # of each split; None: all

    @classmethod
    def load(
        cls,
        run: Path,
        *,
        listener: Listener,
        overrides: Sequence[str] = (),
        first_lines: int | None = None,
        device: str | None = None,
    ) -> Evaluator:
        """From a run's folder. overrides: `key=value` of [data] and [decode]."""
        refuse_results(run)
        generator = Generator.load(run, device=device)
        return cls(
            run=run,
            generator=generator,
            recipe=_changed(generator.trained.recipe, overrides),
            model=_weights_of(run),
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
        judging: Judging | None = None,
    ) -> Evaluated:
        """Decode and score a split, and write down what came out.

        beams: none for the recipe's own. Of several, the best on dev is taken, by the metric `by` or else by
        the one that picked the checkpoint. all_beams: score the split with each of them too, to look at.
        again: decode what was decoded before, too.
        """
        judging = judging or Judging()
        options = judging.options or Options.for_side(self.recipe.text.target)
        by = by or self._default_metric
        # Whatever stands in the way should be known before hours of decoding.
        _check_metrics([*judging.metrics, by], options)
        self._check_beams(beams)
        make_folder(results_folder(self.run))
        text = self.read(split, references=judging.references)
        if again:
            self._forget(text, beams)
        sweep = None
        if len(beams) > 1:
            sweep = self._sweep(text, beams, by=by, options=options, all_beams=all_beams)
        picked = sweep.beam if sweep else next(iter(beams), None)
        decoded = self.decode(text, beam=picked)
        outputs = distinct_unknowns(decoded.texts, text.references)
        scored = score(outputs, text.references, metrics=judging.metrics, options=options)
        report = self._report(text, decoded, outputs, scored=scored, options=options, sweep=sweep)
        results = RunResults(run=self.run, report=report, outputs=outputs, references=text.references)
        return Evaluated(report=report, path=save_results(results, name=text.name))

    def read(self, split: Splits, *, references: Sequence[Sequence[str]] | None = None) -> SplitText:
        """The lines of a split: those that training would use; of the test split, all.

        An image with several captions is one line, and they are its references.
        """
        corpus = load_split(self.recipe, split, self.generator.tokenizer)
        by_source = pairs_by_source(corpus)
        kept = by_source[: self.first_lines]
        first_pairs = [pairs[0] for pairs in kept]
        sources: Sequence[Source] | Features
        lines = None
        if isinstance(corpus.source, Features):
            check_width(self.recipe, split, corpus, width=self.generator.trained.model.shape.features)
            sources = corpus.source.chosen(first_pairs)
        else:
            lines = corpus.lines[first_pairs].tolist()
            sources = [pair.source or "" for pair in raw_pairs(self.recipe, split, lines=lines)]
        if references is None:
            chosen = reference_texts(self.recipe, split, corpus, kept)
        else:
            chosen = self._own_references(references, split=split, corpus=corpus, images=len(by_source))
        return SplitText(
            split=split,
            name=results_name(split, first_lines=self.first_lines),
            key=corpus.key,
            sources=sources,
            references=chosen,
            lines=lines,
            writable=_writable(corpus, kept) if references is None else None,
        )

    def _own_references(
        self, references: Sequence[Sequence[str]], *, split: Splits, corpus: Corpus, images: int
    ) -> list[list[str]]:
        """Of a person's own, which have a line for each of the split or for each of its images."""
        files = split_files(self.recipe, split)
        if "captions" in files:
            total, lines = images, list(range(1, images + 1))
        else:
            total, lines = count_pairs(files), corpus.lines.tolist()
        return [
            _chosen(
                given, lines[: self.first_lines], what=f"reference {number} has", total=total, split=split
            )
            for number, given in enumerate(references, start=1)
        ]

    def decode(self, text: SplitText, *, beam: int | None = None) -> Decoded:
        """The best output for each line, decoded now or kept from before. beam: None for the recipe's."""
        settings = self.recipe.decode.model_copy(
            update={"n_best": 1, "beam": beam or self.recipe.decode.beam}
        )
        work = Work(
            model=self.model,
            sources=text.key,
            lines=len(text.sources),
            decode=settings,
            others=tuple(_weights_of(run) for run in settings.others),
        )
        path = decoded_file(self.run, name=text.name, beam=settings.beam)
        kept = load_decoded(path, work)
        if kept is not None:
            return kept
        decoded = self._decoded_now(text, work)
        save_decoded(path, decoded)
        return decoded

    @property
    def _lowercase(self) -> bool:
        return self.recipe.text.target.lowercase

    @property
    def _default_metric(self) -> str:
        """What picks the beam: what picked the checkpoint, if that is a metric of text."""
        selected = self.recipe.train.select
        return selected if selected in METRICS else "bleu"

    def _forget(self, text: SplitText, beams: Sequence[int]) -> None:
        """Let what is about to be used be decoded anew."""
        names = {
            text.name,
            *([results_name(TUNED_ON, first_lines=self.first_lines)] if len(beams) > 1 else []),
        }
        for name, beam in product(names, beams or [self.recipe.decode.beam]):
            decoded_file(self.run, name=name, beam=beam).unlink(missing_ok=True)

    def _check_beams(self, beams: Sequence[int]) -> None:
        if beams and self.recipe.decode.search == "sample":
            given = ", ".join(map(str, beams))
            raise UserError(f'--beam {given}: decode.search = "sample" has none; allowed: two-step, joint')
        widest = self.recipe.decode.model_copy(update={"beam": max(beams or [self.recipe.decode.beam])})
        if widest.nothing_to_choose is not None:
            raise UserError(widest.nothing_to_choose)
        self.generator.meet_others(widest)
        for beam in beams:
            misfit = self.recipe.misfit(self.recipe.decode.model_copy(update={"beam": beam}))
            if misfit is not None:
                raise UserError(f"--beam {beam}: {misfit}")

    def _decoded_now(self, text: SplitText, work: Work) -> Decoded:
        what = f"decoding {text.split}, beam {work.decode.beam}"
        texts: list[str] = []
        unfinished, seconds = 0, 0.0
        for sources in in_chunks(text.sources, size=AT_ONCE):
            self.listener.preparing(what, len(texts), len(text.sources))
            started = time.perf_counter()
            answers = self.generator.answer(sources, settings=work.decode, first_line=len(texts))
            seconds += time.perf_counter() - started
            texts += [outputs[0].text if outputs else "" for outputs in answers]  # a blank source has none
            unfinished += sum(not outputs[0].finished for outputs in answers if outputs)
        self.listener.preparing(what, len(texts), len(text.sources))
        return Decoded(work=work, seconds=seconds, texts=texts, unfinished=unfinished)

    def _sweep(
        self, text: SplitText, beams: Sequence[int], *, by: str, options: Options, all_beams: bool
    ) -> Sweep:
        """Pick the beam on dev."""
        tuning = text if text.split == TUNED_ON else self.read(TUNED_ON)
        results = self._by_beam(tuning, beams, by=by, options=options)
        scores = {tuning.split: {beam: result.score for beam, result in results.items()}}
        if all_beams and text.split != TUNED_ON:
            others = self._by_beam(text, beams, by=by, options=options)
            scores[text.split] = {beam: result.score for beam, result in others.items()}
        one = results[beams[0]]
        sign = 1 if one.metric.higher_is_better else -1
        best = max(sorted(beams), key=lambda beam: sign * results[beam].score)
        return Sweep(by=by, metric=one.metric.name, signature=one.signature, beam=best, scores=scores)

    def _by_beam(
        self, text: SplitText, beams: Sequence[int], *, by: str, options: Options
    ) -> dict[int, Result]:
        results = {}
        for beam in beams:
            outputs = distinct_unknowns(self.decode(text, beam=beam).texts, text.references)
            result = score(outputs, text.references, metrics=[by], options=options)[by]
            self.listener.note(f"{text.name}, beam {beam}: {result.metric.name} {result.score:.2f}")
            results[beam] = result
        return results

    def _report(
        self,
        text: SplitText,
        decoded: Decoded,
        outputs: Sequence[str],
        *,
        scored: Mapping[str, Result],
        options: Options,
        sweep: Sweep | None,
    ) -> Report:
        return Report(
            versions=_versions(),
            finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
            decoding_seconds=decoded.seconds,
            split=text.split,
            lines=len(outputs),
            unfinished=decoded.unfinished,
            unknown=sum(_UNKNOWN in output for output in decoded.texts),
            scores={name: _score(result) for name, result in scored.items()},
            # What is unknown in one case may be known in the other, and count as right.
            writable=None if options.lowercase and not self._lowercase else text.writable,
            unseen=self._unseen(text, scored),
            options=options,
            decode=decoded.work.decode,
            sweep=sweep,
            model=self.model,
            outputs=digest(outputs),
            references=[digest(lines) for lines in text.references],
            recipe=self.recipe,
        )

    def _unseen(self, text: SplitText, scored: Mapping[str, Result]) -> Unseen | None:
        """Scores without what training may have taught by heart."""
        if text.lines is None or text.split == "train":
            return None
        try:
            unseen = ~seen_in_training(self.recipe, text.split, text.lines)
        except UserError as error:  # which is no reason to lose what was decoded
            self.listener.note(f"lines that training has seen are not told from the others: {error}")
            return None
        scores = {name: result.score_of(unseen) for name, result in scored.items()} if unseen.any() else {}
        return Unseen(lines=int(unseen.sum()), scores=scores)


def _weights_of(run: Path) -> str:
    """A digest of the weights."""
    return content_digest(File(located(run) / MODEL_FILE))


def _writable(corpus: Corpus, sources: Sequence[PairsOfSource]) -> float:
    """Per cent of some sources with a target that has no unknown word."""
    known = [any(UNK not in corpus.target[pair] for pair in pairs) for pairs in sources]
    return 100 * sum(known) / max(1, len(known))


def distinct_unknowns(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> list[str]:
    """Outputs in which a word that the model doesn't know never equals one of a reference.

    It shows as `<unk>`, and only where a reference holds just this as text it has to look otherwise.
    """
    if not any(_UNKNOWN in line for lines in references for line in lines):
        return list(outputs)
    return [output.replace(_UNKNOWN, _UNKNOWN_BESIDE_TEXT) for output in outputs]


def _changed(recipe: Recipe, overrides: Sequence[str]) -> Recipe:
    for text in overrides:
        if not text.strip().startswith(MAY_CHANGE):
            raise UserError(
                f"{text!r}: of a trained model only keys of [data] and [decode] can be changed, "
                "e.g. decode.length_penalty=0.6"
            )
    values = recipe.model_dump(mode="json", exclude_none=True)
    return recipe_with(values, overrides, origin="the run's recipe")


def _check_metrics(names: Sequence[str], options: Options) -> None:
    """Refuse what is unknown or lacks something that must be installed."""
    for name in names:
        if name not in METRICS:
            raise UserError(f"metric {name!r}: no such metric; allowed: {', '.join(METRICS)}")
        METRICS[name](options)


def _chosen(given: Sequence[str], lines: Sequence[int], *, what: str, total: int, split: Splits) -> list[str]:
    """The references of some lines, counted from 1."""
    if len(given) != total:
        raise UserError(f"{what} {len(given)} lines, but {split} has {total}; they must be as many")
    return [given[line - 1] for line in lines]


def _score(result: Result) -> MetricScore:
    return MetricScore(
        metric=result.metric.name,
        score=result.score,
        higher_is_better=result.metric.higher_is_better,
        signature=result.signature,
    )


def _versions() -> dict[str, str]:
    packages = {name: importlib.metadata.version(name) for name in _VERSIONED}
    return {"python": platform.python_version(), **packages}
