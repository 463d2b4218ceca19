"""GLEU (Napoles et al., 2015, 2016): n-grams shared with a reference, minus those left over from the draft.

With several references, each of 500 iterations picks one reference for each line at random, and the score is
their mean, as in the reference program, whose seeds these are.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from anyorder.metrics.metric import Metric, Numbers, Options, References, case_of
from anyorder.version import __version__

ORDER = 4  # longest n-grams
COUNTS = 2 + 2 * ORDER  # both lengths, then matches and n-grams of each order
ITERATIONS, SEED_STEP = 500, 101
Ngrams = Counter[tuple[str, ...]]


@dataclass(frozen=True)
class Gleu(Metric):
    """GLEU on words between spaces. A line's score has 1 in place of counts of zero."""

    lowercase: bool
    drafts: Sequence[str] = ()
    name: str = "GLEU"
    needs_drafts: bool = True

    def for_drafts(self, drafts: Sequence[str]) -> Metric:
        """The metric of texts that were made from these drafts."""
        return replace(self, drafts=drafts)

    def statistics(self, written: Sequence[str], references: References) -> Numbers:
        """The counts of each line in each iteration, side by side."""
        chosen = _chosen_references(len(written), references=len(references))
        rows = [
            [_counts(self._words(text), self._words(draft), self._words(reference)) for reference in choices]
            for text, draft, *choices in zip(written, self.drafts, *references, strict=True)
        ]
        by_reference = np.array(rows, dtype=np.float64)  # (L, references, COUNTS)
        lines = np.arange(len(written))[:, None]
        return by_reference[lines, chosen].reshape(len(written), -1)

    def scores(self, sums: Numbers) -> Numbers:
        """The mean over the iterations."""
        return _gleu(sums.reshape(len(sums), -1, COUNTS)).mean(axis=1)

    def sentence_scores(self, statistics: Numbers) -> Numbers:
        """The mean over the iterations, with 1 for counts of zero."""
        counts = statistics.reshape(len(statistics), -1, COUNTS)
        return _gleu(np.where(counts == 0, 1.0, counts)).mean(axis=1)

    def signature(self, *, references: int) -> str:
        """In the form of sacreBLEU: key:value, separated by bars."""
        iterations = ITERATIONS if references > 1 else 1
        case = case_of(lowercase=self.lowercase)
        return f"nrefs:{references}|case:{case}|tok:none|iter:{iterations}|version:anyorder-{__version__}"

    def _words(self, text: str) -> list[str]:
        return (text.lower() if self.lowercase else text).split()


def gleu_metric(options: Options) -> Metric:
    """GLEU, which needs the drafts that were edited."""
    return Gleu(lowercase=options.lowercase)


def _chosen_references(lines: int, *, references: int) -> np.ndarray:
    """Which reference each iteration compares each line with, (L, iterations)."""
    if references == 1:
        return np.zeros((lines, 1), dtype=np.int64)
    chosen = []
    for iteration in range(ITERATIONS):
        chance = random.Random(iteration * SEED_STEP)
        chosen.append([chance.randint(0, references - 1) for _ in range(lines)])
    return np.array(chosen, dtype=np.int64).reshape(ITERATIONS, lines).T


def _counts(text: Sequence[str], draft: Sequence[str], reference: Sequence[str]) -> list[int]:
    counts = [len(text), len(reference)]
    for size in range(1, ORDER + 1):
        of_text, of_draft, of_reference = (_ngrams(words, size) for words in (text, draft, reference))
        left_over = Counter({ngram: n for ngram, n in of_draft.items() if ngram not in of_reference})
        matches = (of_text & of_reference).total() - (of_text & left_over).total()
        counts += [max(0, matches), max(0, len(text) + 1 - size)]
    return counts


def _ngrams(words: Sequence[str], size: int) -> Ngrams:
    return Counter(tuple(words[first : first + size]) for first in range(len(words) + 1 - size))


def _gleu(counts: Numbers) -> Numbers:
    """The score, from 0 to 100, of counts (..., COUNTS)."""
    possible = np.asarray((counts > 0).all(axis=-1))
    safe = np.where(possible[..., None], counts, 1.0)
    written, reference = safe[..., 0], safe[..., 1]
    precision = np.log(safe[..., 2::2] / safe[..., 3::2]).mean(axis=-1)
    score: Numbers = np.where(possible, np.exp(np.minimum(0.0, 1 - reference / written) + precision), 0.0)
    return 100 * score
