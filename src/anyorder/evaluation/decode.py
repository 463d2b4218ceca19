"""Decode a split, and store the hypotheses so that no beam size is decoded twice."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import ValidationError

from anyorder.config.decode import Decode
from anyorder.data.readers import File, content_digest, in_chunks
from anyorder.evaluation.results import FORMAT, StoredRecord, as_json, results_folder
from anyorder.evaluation.split import EvaluationSplit
from anyorder.inference.generator import Generator
from anyorder.inference.model_folder import MODEL_FILE
from anyorder.pretrained import located
from anyorder.system.files import make_folder, write_file
from anyorder.system.progress import ProgressListener
from anyorder.version import __version__

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


def decoded_file(run: Path, *, name: str, beam: int) -> Path:
    """Return the file that stores the hypotheses of a split with a beam size."""
    return results_folder(run) / "decoded" / f"{name}-beam-{beam}.json"


def weights_digest(run: Path) -> str:
    """Return a digest of the weights of a model."""
    return content_digest(File(located(run) / MODEL_FILE))


def _load(path: Path, inputs: DecodingInputs) -> DecodedSplit | None:
    """Return the stored hypotheses if they were decoded from exactly these inputs, else None."""
    try:
        stored = DecodedSplit.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    return stored if (stored.format, stored.inputs) == (FORMAT, inputs) else None
