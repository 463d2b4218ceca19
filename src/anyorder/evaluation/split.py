"""A split to evaluate: its sources and references, and the hypotheses of a model, stored on disk."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import ValidationError

from anyorder.config.data import Splits
from anyorder.config.decode import Decode
from anyorder.config.recipe import Recipe
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
from anyorder.data.references import PairsOfSource, pairs_by_source, reference_texts
from anyorder.errors import UserError
from anyorder.evaluation.results import FORMAT, StoredRecord, as_json, results_folder, results_name
from anyorder.inference.edited import Edited
from anyorder.inference.generation import Source
from anyorder.inference.generator import Generator
from anyorder.inference.model_folder import MODEL_FILE
from anyorder.pretrained import located
from anyorder.system.files import UNFINISHED, make_folder, write_file
from anyorder.system.progress import ProgressListener
from anyorder.text.tokenizer import UNK, Tokenizer
from anyorder.version import __version__


@dataclass(frozen=True)
class EvaluationSplit:
    """The sources of a split with their references."""

    split: Splits
    name: str  # file name of its results, without suffix
    key: str  # digest that changes with the sources and with their tokenisation
    sources: Sequence[Source] | Features
    drafts: list[str] | None  # what an editor changes; None for other models
    references: list[list[str]]  # one or more lists, each with a line for each source
    line_numbers: list[int] | None  # line of each source in its file, counted from 1; None for images
    reachable: float | None  # percentage of the sources with a reference that the model can produce


def read_split(
    recipe: Recipe,
    split: Splits,
    *,
    tokenizer: Tokenizer,
    feature_width: int,
    first_lines: int | None = None,
    references: Sequence[Sequence[str]] | None = None,
) -> EvaluationSplit:
    """Read the lines of a split that training would use; of the test split, all lines.

    An image with several captions is one source with several references.
    feature_width: width of the feature vectors that the model reads; 0 for text sources.
    first_lines: number of sources to read; None for all.
    references: lists with a line for each line of the split, to be used instead of its targets.
    """
    corpus = load_split(recipe, split, tokenizer)
    by_source = pairs_by_source(corpus)
    chosen = by_source[:first_lines]
    first_pairs = [pairs[0] for pairs in chosen]
    sources: Sequence[Source] | Features
    line_numbers = drafts = None
    if isinstance(corpus.source, Features):
        check_width(recipe, split, corpus, width=feature_width)
        sources = corpus.source.chosen(first_pairs)
    else:
        line_numbers = corpus.lines[first_pairs].tolist()
        pairs = raw_pairs(recipe, split, lines=line_numbers)
        sources = [pair.source or "" for pair in pairs]
        drafts = [pair.draft or "" for pair in pairs] if recipe.editing else None
    if references is None:
        texts = reference_texts(recipe, split, corpus, chosen)
    else:
        texts = _given_references(
            references, recipe=recipe, split=split, corpus=corpus, images=len(by_source), first=first_lines
        )
    return EvaluationSplit(
        split=split,
        name=results_name(split, first_lines=first_lines),
        key=corpus.key,
        sources=sources,
        drafts=drafts,
        references=texts,
        line_numbers=line_numbers,
        reachable=_reachable(corpus, chosen) if references is None else None,
    )


def _given_references(
    references: Sequence[Sequence[str]],
    *,
    recipe: Recipe,
    split: Splits,
    corpus: Corpus,
    images: int,
    first: int | None,
) -> list[list[str]]:
    """Select the scored lines of references that have a line for each line, or image, of the split."""
    files = split_files(recipe, split)
    if "captions" in files:
        total, line_numbers = images, list(range(1, images + 1))
    else:
        total, line_numbers = count_pairs(files), corpus.lines.tolist()
    for number, lines in enumerate(references, start=1):
        if len(lines) != total:
            raise UserError(
                f"reference {number} has {len(lines)} lines, but {split} has {total}; "
                "the numbers must be equal"
            )
    return [[lines[line - 1] for line in line_numbers[:first]] for lines in references]


def _reachable(corpus: Corpus, sources: Sequence[PairsOfSource]) -> float:
    """Return the percentage of sources with a target that contains no unknown word."""
    reachable = [any(UNK not in corpus.target[pair] for pair in pairs) for pairs in sources]
    return 100 * sum(reachable) / max(1, len(reachable))


CHUNK_LINES = 256  # lines between two progress reports; batches are smaller


class DecodingInputs(StoredRecord):
    """Everything that the hypotheses of a split depend on."""

    anyorder: str = __version__
    model: str  # digest of the weights
    sources: str  # digest that changes with the sources and with their tokenisation
    lines: int  # number of sources, from the first
    decode: Decode
    others: tuple[str, ...] = ()  # digests of the weights of decode.partners and decode.reverse


class DecodedSplit(StoredRecord):
    """The best hypothesis for each source of a split."""

    earlier_names: ClassVar[Mapping[str, str]] = {"work": "inputs", "texts": "hypotheses"}

    format: int = FORMAT
    inputs: DecodingInputs
    seconds: float
    hypotheses: list[str]
    unfinished: int  # number of hypotheses that were cut off at the maximum length


@dataclass(frozen=True)
class SplitDecoder:
    """Decodes splits with the model of a run, or loads what was decoded before."""

    run: Path
    generator: Generator
    settings: Decode
    model: str  # digest of the weights
    listener: ProgressListener

    def decode(self, split: EvaluationSplit, *, beam: int | None = None) -> DecodedSplit:
        """Return the best hypothesis for each source. beam: None for the beam of the settings."""
        settings = self.settings.model_copy(update={"n_best": 1, "beam": beam or self.settings.beam})
        inputs = DecodingInputs(
            model=self.model,
            sources=split.key,
            lines=len(split.sources),
            decode=settings,
            others=tuple(weights_digest(run) for run in settings.others),
        )
        path = decoded_file(self.run, name=split.name, beam=settings.beam)
        stored = _load(path, inputs)
        if stored is not None:
            return stored
        decoded = self._decode_now(split, inputs)
        make_folder(path.parent)
        write_file(path, as_json(decoded))
        return decoded

    def _decode_now(self, split: EvaluationSplit, inputs: DecodingInputs) -> DecodedSplit:
        if split.drafts is not None:
            return self._edit_now(split, split.drafts, inputs)
        what = f"decoding {split.split}, beam {inputs.decode.beam}"
        texts: list[str] = []
        unfinished, seconds = 0, 0.0
        for sources in in_chunks(split.sources, size=CHUNK_LINES):
            self.listener.preparing(what, len(texts), len(split.sources))
            began = time.perf_counter()
            answers = self.generator.answer(sources, settings=inputs.decode, first_line=len(texts))
            seconds += time.perf_counter() - began
            # A blank source has no hypothesis.
            texts += [hypotheses[0].text if hypotheses else "" for hypotheses in answers]
            unfinished += sum(not hypotheses[0].finished for hypotheses in answers if hypotheses)
        self.listener.preparing(what, len(texts), len(split.sources))
        return DecodedSplit(inputs=inputs, seconds=seconds, hypotheses=texts, unfinished=unfinished)

    def _edit_now(
        self, split: EvaluationSplit, drafts: Sequence[str], inputs: DecodingInputs
    ) -> DecodedSplit:
        """Edit all drafts."""
        what = f"editing {split.split}"
        sourceless = self.generator.trained.recipe.sourceless
        edited: list[Edited] = []
        seconds = 0.0
        for numbers in in_chunks(range(len(drafts)), size=CHUNK_LINES):
            self.listener.preparing(what, len(edited), len(drafts))
            began = time.perf_counter()
            edited += self.generator.edit(
                [drafts[number] for number in numbers],
                None if sourceless else [split.sources[number] for number in numbers],
                **inputs.decode.model_dump(),
            )
            seconds += time.perf_counter() - began
        self.listener.preparing(what, len(edited), len(drafts))
        return DecodedSplit(
            inputs=inputs,
            seconds=seconds,
            hypotheses=[one.text for one in edited],
            unfinished=sum(not one.finished for one in edited),
        )


def decoded_file(run: Path, *, name: str, beam: int) -> Path:
    """Return the file that stores the hypotheses of a split with a beam size."""
    return results_folder(run) / "decoded" / f"{name}-beam-{beam}.json"


def remove_unfinished_results(run: Path, *, name: str) -> None:
    """Remove what killed evaluations of a split have left; nothing else may be writing its results."""
    folder = results_folder(run)
    left = [*folder.glob(f".{name}.*{UNFINISHED}"), *(folder / "decoded").glob(f".{name}-beam-*{UNFINISHED}")]
    for path in left:
        path.unlink(missing_ok=True)


def weights_digest(run: Path) -> str:
    """Return a digest of the weights of a model."""
    return content_digest(File(located(run) / MODEL_FILE))


def _load(path: Path, inputs: DecodingInputs) -> DecodedSplit | None:
    """Return the stored hypotheses if they were decoded from exactly these inputs, else None."""
    try:
        stored = DecodedSplit.model_validate_json(path.read_bytes())
    except (OSError, ValidationError, RecursionError):
        return None
    return stored if (stored.format, stored.inputs) == (FORMAT, inputs) else None
