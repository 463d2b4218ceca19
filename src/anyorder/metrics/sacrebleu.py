"""BLEU, chrF and TER by sacreBLEU, and its tokenisers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from anyorder.errors import UserError
from anyorder.metrics.metric import Metric, Numbers, Options, References

# sacreBLEU is imported where it is used: help texts list METRICS, and should not wait for it.
if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU
    from sacrebleu.metrics.base import Metric as SacreMetric

# TER splits these by character; otherwise a sentence without spaces would be a single word.
_SPLIT_BY_CHARACTER = ("ja-mecab", "zh")


class Sacre(Metric):
    """A metric of sacreBLEU, based on the statistics that its own significance tests use."""

    # As in sacreBLEU's tests, for the same p-values.
    ties_are_chance = False

    def __init__(
        self,
        name: str,
        *,
        whole: SacreMetric,
        sentence: SacreMetric | None = None,
        higher_is_better: bool = True,
    ) -> None:
        self.name = name
        self.higher_is_better = higher_is_better
        self._whole = whole
        self._sentence = sentence or whole

    def statistics(self, written: Sequence[str], references: References) -> Numbers:
        """Matches and lengths, or edits and lengths."""
        counts = self._whole._extract_corpus_statistics(list(written), [list(lines) for lines in references])
        return np.array(counts, dtype=np.float64)

    def scores(self, sums: Numbers) -> Numbers:
        """Apply sacreBLEU's formula for a whole text."""
        return _scores(self._whole, sums)

    def sentence_scores(self, statistics: Numbers) -> Numbers:
        """Apply sacreBLEU's formula for a single sentence."""
        return _scores(self._sentence, statistics)

    def signature(self, *, references: int) -> str:
        """sacreBLEU's signature of the whole text's score."""
        return _signature(self._whole, references)

    def sentence_signature(self, *, references: int) -> str:
        """sacreBLEU's signature of the sentences' scores."""
        return _signature(self._sentence, references)


def bleu_metric(options: Options) -> Metric:
    """BLEU; for a single sentence, n-grams that are longer than it are left out."""
    return Sacre("BLEU", whole=_bleu(options), sentence=_bleu(options, effective_order=True))


def chrf_metric(options: Options) -> Metric:
    """ChrF2, in which recall counts twice as much as precision."""
    from sacrebleu.metrics import CHRF

    return Sacre("chrF2", whole=CHRF(lowercase=options.lowercase))


def ter_metric(options: Options) -> Metric:
    """TER: edits divided by the length of the references; case is ignored, as in sacreBLEU."""
    from sacrebleu.metrics import TER

    by_character = options.tokenize in _SPLIT_BY_CHARACTER
    metric = TER(normalized=by_character, asian_support=by_character)
    return Sacre("TER", whole=metric, higher_is_better=False)


@dataclass(frozen=True)
class WordSplitter:
    """Splits text into the words that a metric compares."""

    split: Callable[[str], list[str]]
    name: str  # for signatures


def word_splitter(options: Options) -> WordSplitter:
    """Split text into words as BLEU does."""
    bleu = _bleu(options)

    def split(text: str) -> list[str]:
        words: str = bleu.tokenizer((text.lower() if options.lowercase else text).rstrip())
        return words.split()

    return WordSplitter(split=split, name=bleu.tokenizer_signature)


def _bleu(options: Options, *, effective_order: bool = False) -> BLEU:
    from sacrebleu.metrics import BLEU

    name = options.tokenize
    if name not in BLEU.TOKENIZERS:
        raise UserError(f"tokenize {name!r}: allowed: {', '.join(BLEU.TOKENIZERS)}")
    try:
        return BLEU(
            tokenize=name,
            lowercase=options.lowercase,
            effective_order=effective_order,
            force=name == "none",  # no warning about tokenised text, which `none` is for
        )
    except (ImportError, RuntimeError, OSError) as error:
        if name == "ja-mecab":
            needs = "needs MeCab and ipadic: pip install 'anyorder[japanese]'"
        else:
            needs = f"sacreBLEU can't use it: {' '.join(str(error).split())}"
        raise UserError(f"tokenize {name!r}: {needs}") from None


def _scores(metric: SacreMetric, sums: Numbers) -> Numbers:
    return np.array([metric._compute_score_from_stats(row).score for row in sums.tolist()], dtype=np.float64)


def _signature(metric: SacreMetric, references: int) -> str:
    metric.num_refs = references
    return str(metric.get_signature())
