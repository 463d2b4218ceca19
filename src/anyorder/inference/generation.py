"""Hypotheses for sources: decode token ids, then make text of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from anyorder import config
from anyorder.decoding.beam import TokenHypothesis
from anyorder.decoding.decode import decode_all
from anyorder.inference.hypothesis import Hypothesis
from anyorder.inference.inputs import EncodedSource
from anyorder.inference.model_folder import Trained
from anyorder.text.tokenizer import Tokenizer

# The answer to a blank source: nothing to read, nothing to write.
EMPTY = TokenHypothesis(
    tokens=(),
    positions=(),
    word_scores=(),
    gap_scores=(),
    finished=True,
    merged_log_prob=0.0,
    score=0.0,
    iterations=0,
)
# Takes the line numbers of some sources, from 0, and returns the hypotheses of each.
DecodeLines = Callable[[list[int]], list[list[TokenHypothesis]]]


def generate_batch(
    trained: Trained,
    sources: Sequence[EncodedSource],
    *,
    settings: config.Decode,
    device: torch.device,
    first_line: int,
) -> list[list[Hypothesis]]:
    """The best hypotheses for each source, best first.

    first_line: how many sources came before these; what is sampled for a source depends on its line.
    """

    def decode(lines: list[int]) -> list[list[TokenHypothesis]]:
        return decode_all(
            trained.model,
            [sources[line].array for line in lines],
            settings=settings,
            device=device,
            lines=[first_line + line for line in lines],
        )

    found = decode_readable(sources, decode, sourceless=trained.recipe.sourceless)
    return [
        [with_text(hypothesis, trained.tokenizer, own_words=source.own_words) for hypothesis in hypotheses]
        for source, hypotheses in zip(sources, found, strict=True)
    ]


def decode_readable(
    sources: Sequence[EncodedSource], decode: DecodeLines, *, sourceless: bool
) -> list[list[TokenHypothesis]]:
    """Decode all sources but blank ones, whose answer is empty.

    sourceless: the model reads no source at all, so that blank ones are decoded too.
    """
    lines = [line for line, source in enumerate(sources) if sourceless or not source.is_blank]
    found = [[EMPTY] for _ in sources]
    for line, hypotheses in zip(lines, decode(lines), strict=True):
        found[line] = hypotheses
    return found


def with_text(
    hypothesis: TokenHypothesis, tokenizer: Tokenizer, *, own_words: Sequence[str], text: str | None = None
) -> Hypothesis:
    """A hypothesis with strings in place of token ids.

    own_words: what ids beyond the vocabulary stand for; text: the whole text, where it is known already.
    """
    return Hypothesis(
        text=tokenizer.decode(hypothesis.sentence, own=own_words) if text is None else text,
        score=hypothesis.score,
        log_prob=float(hypothesis.log_prob),
        finished=hypothesis.finished,
        tokens=tuple(tokenizer.piece(token, own=own_words) for token in hypothesis.tokens),
        positions=hypothesis.positions,
        word_scores=hypothesis.word_scores,
        gap_scores=hypothesis.gap_scores,
        iterations=hypothesis.iterations,
    )
