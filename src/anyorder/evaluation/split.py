"""The part of a dataset that is evaluated: sources, references, and how to find them in the files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anyorder.config.data import Splits
from anyorder.config.recipe import Recipe
from anyorder.data.corpus import Corpus, load_split
from anyorder.data.dataset import check_width
from anyorder.data.readers import Features, count_pairs, raw_pairs, split_files
from anyorder.data.references import PairsOfSource, pairs_by_source, reference_texts
from anyorder.errors import UserError
from anyorder.evaluation.results import results_name
from anyorder.inference.inputs import Source
from anyorder.text.tokenizer import UNK, Tokenizer


@dataclass(frozen=True)
class EvaluationSplit:
    """The sources of a split with their references."""

    split: Splits
    name: str  # file name of its results, without suffix
    key: str  # digest that changes with the sources and with their tokenisation
    sources: Sequence[Source] | Features
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
    line_numbers = None
    if isinstance(corpus.source, Features):
        check_width(recipe, split, corpus, width=feature_width)
        sources = corpus.source.chosen(first_pairs)
    else:
        line_numbers = corpus.lines[first_pairs].tolist()
        sources = [pair.source or "" for pair in raw_pairs(recipe, split, lines=line_numbers)]
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
