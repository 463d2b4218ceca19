"""CIDEr-D, which weights n-grams by how rare they are in the references (Vedantam et al., 2015)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version

from anyorder.errors import UserError
from anyorder.metrics.meteor import find_jar, run_java
from anyorder.metrics.metric import Mean, Metric, Options, References, case_of
from anyorder.metrics.sacrebleu import word_splitter

AS_PUBLISHED = "ptb"  # Stanford's tokeniser for the Penn Treebank, in lower case and without punctuation


def cider_metric(options: Options) -> Metric:
    """CIDEr-D by pycocoevalcap, times 100 as usual; a text that equals its only reference scores 1000."""
    try:
        from pycocoevalcap.cider.cider import Cider
    except ImportError:
        raise UserError("cider needs pycocoevalcap: pip install 'anyorder[metrics]'") from None
    if options.cider_tokenize == AS_PUBLISHED:
        split_all, case, words_name = _penn_treebank(), "lc", AS_PUBLISHED
    else:
        try:
            words = word_splitter(replace(options, tokenize=options.cider_tokenize))
        except UserError as error:
            raise UserError(f"cider: {error}; or {AS_PUBLISHED}") from None
        split_all, case, words_name = _each(words.split), case_of(lowercase=options.lowercase), words.name

    def judge(written: Sequence[str], references: References) -> list[float]:
        texts, *wanted = _split_together(split_all, [written, *references])
        if not any(any(lines) for lines in wanted):
            raise UserError("cider: no reference has a word")
        _, scores = Cider().compute_score(
            {line: list(choices) for line, choices in enumerate(zip(*wanted, strict=True))},
            {line: [text] for line, text in enumerate(texts)},
        )
        return [float(score) for score in scores]

    details = f"case:{case}|tok:{words_name}|n:4|sigma:6.0|version:pycocoevalcap-{version('pycocoevalcap')}"
    return Mean(name="CIDEr-D", details=details, judge=judge)


SplitAll = Callable[[Sequence[str]], list[str]]  # lines → lines whose words are separated by spaces


def _each(split: Callable[[str], list[str]]) -> SplitAll:
    return lambda lines: [" ".join(split(line)) for line in lines]


def _penn_treebank() -> SplitAll:
    """Like pycocoevalcap's PTBTokenizer, but for any locale and without files in the package's folder."""
    from pycocoevalcap.tokenizer.ptbtokenizer import PUNCTUATIONS, STANFORD_CORENLP_3_4_1_JAR

    needed_by = f"cider with the tokeniser {AS_PUBLISHED} (not with others)"
    program = find_jar("tokenizer", STANFORD_CORENLP_3_4_1_JAR, needed_by=needed_by)
    how = ["-preserveLines", "-lowerCase", "-charset", "UTF-8"]

    def split_all(lines: Sequence[str]) -> list[str]:
        # Remove characters inside a line that Java takes for line ends.
        given = [" ".join(line.split()) for line in lines]
        split = run_java(
            ["-cp", program, "edu.stanford.nlp.process.PTBTokenizer", *how], lines=given, needed_by=needed_by
        )
        assert len(split) == len(lines)
        return [" ".join(word for word in line.split(" ") if word not in PUNCTUATIONS) for line in split]

    return split_all


def _split_together(split_all: SplitAll, texts: Sequence[Sequence[str]]) -> list[list[str]]:
    """Split several texts of equally many lines in one run."""
    lines = len(texts[0])
    split = split_all([line for text in texts for line in text])
    return [split[start : start + lines] for start in range(0, len(split), lines)]
