"""RIBES, which measures whether words are in the order of the reference (Isozaki et al., 2010).

NLTK's implementation differs from NTT's script 1.03.1 in two points: the choice between two equally good
contexts of a repeated word, which changes a score by about 0.01, and references of one word, which score 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version

from anyorder.errors import UserError
from anyorder.metrics.metric import Mean, Metric, Options, References, case_of
from anyorder.metrics.sacrebleu import word_splitter

ALPHA, BETA = 0.25, 0.10  # exponents of precision and brevity penalty, as in NTT's script
_FIRST_RIGHT = (3, 10, 4)  # earlier versions of NLTK counted only adjacent pairs of words


def ribes_metric(options: Options) -> Metric:
    """RIBES by NLTK, on the same words as BLEU."""
    try:
        from nltk.translate.ribes_score import sentence_ribes
    except ImportError:
        raise UserError("ribes needs NLTK: pip install 'anyorder[metrics]'") from None
    found = version("nltk")
    if tuple(int(number) for number in re.findall(r"\d+", found)[:3]) < _FIRST_RIGHT:
        wanted = ".".join(map(str, _FIRST_RIGHT))
        raise UserError(f"ribes needs NLTK {wanted} or later, and this is {found}, which computes it wrongly")
    words = word_splitter(options)

    def judge(written: Sequence[str], references: References) -> list[float]:
        scores = []
        for line, (text, *choices) in enumerate(zip(written, *references, strict=True), start=1):
            wanted = [words.split(choice) for choice in choices]
            try:
                scores.append(sentence_ribes(wanted, words.split(text), alpha=ALPHA, beta=BETA))
            except ValueError as error:  # thousands of words
                raise UserError(f"ribes: line {line}: {error}") from None
        return scores

    case = case_of(lowercase=options.lowercase)
    details = f"case:{case}|tok:{words.name}|alpha:{ALPHA}|beta:{BETA}|version:nltk-{found}"
    return Mean(name="RIBES", details=details, judge=judge)
