"""What a run has written and how good it is, as files in the run's folder.

    RUN/results/test.json test.txt test.ref1.txt     scores with all that led to them, outputs, references
    RUN/results/decoded/test-beam-5.json             outputs that need not be decoded again

Each file is written whole or not at all. The scores come last and name the content of the files beside them,
so that what a stopped evaluation leaves is never taken for a result.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from anyorder.config.data import SPLITS, Splits
from anyorder.config.decode import Decode
from anyorder.config.recipe import Recipe
from anyorder.config.section import Section, checked
from anyorder.data.readers import File, content_digest
from anyorder.errors import UserError
from anyorder.inference.model_folder import MODEL_FILE
from anyorder.metrics import Options
from anyorder.pretrained import refuse_results
from anyorder.system.files import make_folder, read_versioned, write_file
from anyorder.version import __version__

FORMAT = 1  # of all files here
TUNED_ON: Splits = "dev"  # what beams are picked on


class MetricScore(Section):
    """One figure, and what another needs to know to get the same."""

    metric: str  # as people know it
    score: float
    higher_is_better: bool
    signature: str

    @property
    def label(self) -> str:
        """The metric, with an arrow where less is better."""
        return self.metric if self.higher_is_better else f"{self.metric} ↓"


class Sweep(Section):
    """How the beam was picked."""

    by: str  # one of METRICS
    metric: str  # as people know it
    signature: str
    beam: int  # the best on dev, the smallest of equals
    scores: dict[Splits, dict[int, float]]  # by split and beam


class Unseen(Section):
    """The lines whose pair, source and target, does not stand in the training text."""

    lines: int
    scores: dict[str, float]  # of these lines alone, by the names of METRICS; none: there is no such line


class Report(Section):
    """What is known of one evaluation of a run on a split."""

    format: int = FORMAT
    anyorder: str = __version__  # the version that wrote it
    versions: dict[str, str]  # of what decoding and scoring rest on
    finished_at: str  # ISO 8601, UTC
    decoding_seconds: float
    split: Splits
    lines: int  # scored
    unfinished: int  # outputs cut off at the longest length allowed
    unknown: int  # outputs with a word that the vocabulary doesn't have
    scores: dict[str, MetricScore]  # by the names of METRICS
    # Per cent of the lines with a target that the model has words for, from its vocabulary or to be copied:
    # exact match can't be more. None: the references are a person's own.
    writable: float | None = None
    unseen: Unseen | None = None  # None: images, the training text itself, or it isn't there any more
    options: Options
    decode: Decode
    sweep: Sweep | None
    model: str  # digest of the weights
    outputs: str  # digest, and so are these
    references: list[str]
    recipe: Recipe

    @property
    def remarks(self) -> list[str]:
        """What a reader of the scores should know, a line each."""
        remarks = []
        if self.unseen is not None and self.unseen.lines < self.lines:
            seen = self.lines - self.unseen.lines
            scores = [f"{self.scores[name].label} {score:.2f}" for name, score in self.unseen.scores.items()]
            left = ", ".join(scores) or "none is left"
            remarks.append(f"without the {seen} lines that stand in train: {left}")
        if self.writable is not None and self.writable < 100:
            remarks.append(f"exact match at most, by the words that the model can write: {self.writable:.2f}")
        return remarks


class Work(Section):
    """All that outputs depend on."""

    anyorder: str = __version__
    model: str  # digest of the weights
    sources: str  # changes with the lines and with how they are split
    lines: int  # the first so many
    decode: Decode
    others: tuple[str, ...] = ()  # digests of the weights of decode.partners and decode.reverse


class Decoded(Section):
    """What a model has written for the sources of a split, a line each."""

    format: int = FORMAT
    work: Work
    seconds: float
    texts: list[str]
    unfinished: int


@dataclass(frozen=True)
class RunResults:
    """A report with the text that it is about."""

    run: Path
    report: Report
    outputs: list[str]
    references: list[list[str]]


def results_folder(run: Path) -> Path:
    """Where a run's results lie."""
    return run / "results"


def results_name(split: Splits, *, first_lines: int | None) -> str:
    """What results are called: those of a split's beginning are never taken for those of all of it."""
    return split if first_lines is None else f"{split}-first-{first_lines}"


def digest(lines: Sequence[str]) -> str:
    """A name for some lines of text."""
    return hashlib.sha256(_as_text(lines)).hexdigest()


# --- reports ---


def save_results(results: RunResults, *, name: str) -> Path:
    """Write a report and its text, in place of an earlier one; returns the path of the report."""
    folder = results_folder(results.run)
    make_folder(folder)
    write_file(folder / f"{name}.txt", _as_text(results.outputs))
    for number, lines in enumerate(results.references, start=1):
        write_file(_reference_file(folder, name, number), _as_text(lines))
    beyond = len(results.references) + 1
    while (old := _reference_file(folder, name, beyond)).exists():  # of an evaluation by more references
        old.unlink()
        beyond += 1
    path = folder / f"{name}.json"
    write_file(path, _as_json(results.report))
    return path


def load_results(run: Path, split: Splits, *, first_lines: int | None = None) -> RunResults:
    """Read a report and its text; where there is none, say which command makes it."""
    name, folder = results_name(split, first_lines=first_lines), results_folder(run)
    limit = "" if first_lines is None else f" --lines {first_lines}"
    remedy = f"`anyorder evaluate {run} --split {split}{limit}` makes them"
    refuse_results(run)
    if not run.is_dir():
        raise UserError(f"{run}: no such folder; give the folder of a run")
    path = folder / f"{name}.json"
    if not path.exists():
        raise UserError(f"{run}: has no results of {name}; {remedy}")
    report = read_report(path)
    weights = File(run / MODEL_FILE)
    if weights.path.exists() and content_digest(weights) != report.model:
        raise UserError(f"{run}: its model has changed since the results of {name} were made; {remedy}")
    texts = {folder / f"{name}.txt": report.outputs}
    for number, wanted in enumerate(report.references, start=1):
        texts[_reference_file(folder, name, number)] = wanted
    outputs, *references = (_read_text(file, wanted, remedy=remedy) for file, wanted in texts.items())
    return RunResults(run=run, report=report, outputs=outputs, references=references)


def evaluated_splits(run: Path) -> list[Splits]:
    """Those that a run has results of, all lines of them."""
    return [
        split
        for split in SPLITS
        if (results_folder(run) / f"{results_name(split, first_lines=None)}.json").exists()
    ]


def _reference_file(folder: Path, name: str, number: int) -> Path:
    return folder / f"{name}.ref{number}.txt"


def read_report(path: Path) -> Report:
    """One evaluation, without the text that was scored."""
    values = read_versioned(path, newest=FORMAT, what="the results of an evaluation")
    return checked(Report, values, origin=str(path))


def _read_text(path: Path, wanted: str, *, remedy: str) -> list[str]:
    content = path.read_bytes() if path.exists() else b""
    if hashlib.sha256(content).hexdigest() != wanted:
        raise UserError(f"{path}: isn't the text that was scored, so there are no results; {remedy}")
    return content.decode("utf-8").split("\n")[:-1]


# --- decoded text ---


def decoded_file(run: Path, *, name: str, beam: int) -> Path:
    """Where the outputs with a beam are kept."""
    return results_folder(run) / "decoded" / f"{name}-beam-{beam}.json"


def save_decoded(path: Path, decoded: Decoded) -> None:
    """Keep outputs, in place of others of that name."""
    make_folder(path.parent)
    write_file(path, _as_json(decoded))


def load_decoded(path: Path, work: Work) -> Decoded | None:
    """Outputs kept of exactly this work, if there are any."""
    try:
        kept = Decoded.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    return kept if (kept.format, kept.work) == (FORMAT, work) else None


def _as_text(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _as_json(section: Section) -> bytes:
    return (json.dumps(section.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n").encode()
