"""How good written text is."""

from __future__ import annotations

from collections.abc import Sequence

from sacrebleu.metrics import BLEU

from anyorder.config import Side


def bleu(written: Sequence[str], references: Sequence[str], *, side: Side) -> float:
    """Corpus BLEU by sacreBLEU, on the words that this side's text is made of."""
    tokenize = {"moses": "13a", "spaces": "none", "mecab": "ja-mecab"}[side.split]
    metric = BLEU(tokenize=tokenize, lowercase=side.lowercase)
    return float(metric.corpus_score(list(written), [list(references)]).score)


def exact(written: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> float:
    """Share of sentences, in per cent, with exactly the reference's words."""
    equal = sum(list(one) == list(other) for one, other in zip(written, references, strict=True))
    return 100 * equal / len(references) if references else 0.0
