"""The results of an evaluation, stored as files in the run's folder.

    RUN/results/test.json test.txt test.ref1.txt     the report, the hypotheses and the references
    RUN/results/decoded/test-beam-5.json             hypotheses that need not be decoded again (see decode.py)

Each file is written completely or not at all. The report is written last and holds digests of the other
files, so that the remains of an interrupted evaluation are never mistaken for a result.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import model_validator

from anyorder.config.data import SPLITS, Splits
from anyorder.config.decode import Decode
from anyorder.config.recipe import Recipe
from anyorder.config.section import Section, checked
from anyorder.data.readers import File, content_digest
from anyorder.errors import UserError
from anyorder.inference.model_folder import MODEL_FILE
from anyorder.metrics import Options
from anyorder.pretrained import refuse_results
from anyorder.system.files import make_folder, read_versioned, reading, write_file
from anyorder.version import __version__

FORMAT = 1  # version of all files described here
TUNED_ON: Splits = "dev"  # the split that beams are picked on


class StoredRecord(Section):
    """A JSON object on disk; files with earlier names of its keys are still read."""

    earlier_names: ClassVar[Mapping[str, str]] = {}  # earlier name → name

    @model_validator(mode="before")
    @classmethod
    def _accept_earlier_names(cls, values: Any) -> Any:  # noqa: ANN401 (anything may be in a file)
        if not isinstance(values, dict):
            return values
        return {cls.earlier_names.get(name, name): value for name, value in values.items()}


class ReportedScore(Section):
    """The score by one metric, with the signature that makes it reproducible."""

    metric: str  # display name, e.g. BLEU
    score: float
    higher_is_better: bool
    signature: str

    @property
    def label(self) -> str:
        """Display name of the metric, with an arrow if lower is better."""
        return self.metric if self.higher_is_better else f"{self.metric} ↓"


class BeamSweep(Section):
    """The scores of several beam sizes, and the size that was picked on dev."""

    by: str  # key of METRICS
    metric: str  # display name, e.g. BLEU
    signature: str
    beam: int  # the best on dev; the smallest of equally good ones
    scores: dict[Splits, dict[int, float]]  # split → beam → score


class UnseenScores(Section):
    """Scores of the lines whose pair of source and target does not occur in the training data."""

    lines: int
    scores: dict[str, float]  # key of METRICS → score; empty if there is no such line


class EvaluationReport(StoredRecord):
    """The outcome of evaluating a run on a split, with everything needed to reproduce it."""

    earlier_names: ClassVar[Mapping[str, str]] = {"writable": "reachable", "outputs": "hypotheses"}

    format: int = FORMAT
    anyorder: str = __version__  # version of the package that wrote the report
    versions: dict[str, str]  # versions of the packages that decoding and scoring depend on
    finished_at: str  # ISO 8601, UTC
    decoding_seconds: float
    split: Splits
    lines: int  # number of scored lines
    unfinished: int  # number of hypotheses that were cut off at the maximum length
    unknown: int  # number of hypotheses that contain <unk>
    scores: dict[str, ReportedScore]  # by key of METRICS
    # Percentage of the lines with a reference that the model can produce, from its vocabulary or by copying:
    # an upper bound on exact match. None if the user supplied the references.
    reachable: float | None = None
    unseen: UnseenScores | None = None  # None for images, for train, and if the training data is missing
    options: Options
    decode: Decode
    sweep: BeamSweep | None
    model: str  # digest of the weights
    hypotheses: str  # digest of the text
    references: list[str]  # digests of the text
    drafts: str | None = None  # digest of what was edited, where it is known
    recipe: Recipe

    @property
    def remarks(self) -> list[str]:
        """Caveats that belong beside the scores, one line each."""
        remarks = []
        if self.unseen is not None and self.unseen.lines < self.lines:
            seen = self.lines - self.unseen.lines
            scores = [f"{self.scores[name].label} {score:.2f}" for name, score in self.unseen.scores.items()]
            remaining = ", ".join(scores) or "no line remains"
            remarks.append(f"without the {seen} lines that also occur in train: {remaining}")
        if self.reachable is not None and self.reachable < 100:
            remarks.append(f"upper bound on exact match, given the model's vocabulary: {self.reachable:.2f}")
        return remarks


@dataclass(frozen=True)
class RunResults:
    """A report together with the text that was scored."""

    run: Path
    report: EvaluationReport
    hypotheses: list[str]
    references: list[list[str]]
    drafts: list[str] | None = None  # what was edited, if metrics compare with it


def results_folder(run: Path) -> Path:
    """Return the folder that holds the results of a run."""
    return run / "results"


def results_name(split: Splits, *, first_lines: int | None) -> str:
    """Return the file name, without suffix, of the results on a split or on its first lines."""
    return split if first_lines is None else f"{split}-first-{first_lines}"


def digest(lines: Sequence[str]) -> str:
    """Return the SHA-256 digest of lines of text."""
    return hashlib.sha256(_as_text(lines)).hexdigest()


def save_results(results: RunResults, *, name: str) -> Path:
    """Write a report with its text, replacing any earlier one, and return the path of the report."""
    folder = results_folder(results.run)
    make_folder(folder)
    write_file(folder / f"{name}.txt", _as_text(results.hypotheses))
    for number, lines in enumerate(results.references, start=1):
        write_file(_reference_file(folder, name, number), _as_text(lines))
    # An earlier evaluation may have had more references.
    surplus = len(results.references) + 1
    while (old := _reference_file(folder, name, surplus)).exists():
        old.unlink()
        surplus += 1
    drafts = _drafts_file(folder, name)
    drafts.unlink(missing_ok=True)
    if results.drafts is not None:
        write_file(drafts, _as_text(results.drafts))
    path = folder / f"{name}.json"
    write_file(path, as_json(results.report))
    return path


def load_results(run: Path, split: Splits, *, first_lines: int | None = None) -> RunResults:
    """Read a report with its text; if it is missing or outdated, name the command that creates it."""
    name, folder = results_name(split, first_lines=first_lines), results_folder(run)
    limit = "" if first_lines is None else f" --lines {first_lines}"
    remedy = f"`anyorder evaluate {run} --split {split}{limit}` creates them"
    refuse_results(run)
    if not run.is_dir():
        raise UserError(f"{run}: no such folder; give the folder of a run")
    path = folder / f"{name}.json"
    if not path.exists():
        raise UserError(f"{run}: has no results of {name}; {remedy}")
    report = read_report(path)
    weights = File(run / MODEL_FILE)
    if weights.path.exists() and content_digest(weights) != report.model:
        raise UserError(f"{run}: its model has changed since it was evaluated on {name}; {remedy}")
    digests = {folder / f"{name}.txt": report.hypotheses}
    for number, wanted in enumerate(report.references, start=1):
        digests[_reference_file(folder, name, number)] = wanted
    hypotheses, *references = (_read_text(file, wanted, remedy=remedy) for file, wanted in digests.items())
    drafts = None
    if report.drafts is not None:
        drafts = _read_text(_drafts_file(folder, name), report.drafts, remedy=remedy)
    return RunResults(run=run, report=report, hypotheses=hypotheses, references=references, drafts=drafts)


def read_report(path: Path) -> EvaluationReport:
    """Read a report without the text that was scored."""
    values = read_versioned(path, newest=FORMAT, what="the results of an evaluation")
    return checked(EvaluationReport, values, origin=str(path))


def evaluated_splits(run: Path, *, first_lines: int | None = None) -> list[Splits]:
    """List the splits that a run was evaluated on. first_lines: on this many lines of them; None: on all."""
    return [
        split
        for split in SPLITS
        if (results_folder(run) / f"{results_name(split, first_lines=first_lines)}.json").exists()
    ]


def as_json(record: Section) -> bytes:
    """Return the content of the JSON file that stores a record."""
    return (json.dumps(record.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n").encode()


def _reference_file(folder: Path, name: str, number: int) -> Path:
    return folder / f"{name}.ref{number}.txt"


def _drafts_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.drafts.txt"


def _read_text(path: Path, wanted: str, *, remedy: str) -> list[str]:
    with reading(path):
        content = path.read_bytes() if path.exists() else b""
    if hashlib.sha256(content).hexdigest() != wanted:
        raise UserError(f"{path}: is not the text that was scored, so the results are invalid; {remedy}")
    return content.decode("utf-8").split("\n")[:-1]


def _as_text(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
