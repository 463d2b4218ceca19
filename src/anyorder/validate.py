"""How a model does on the dev set: its loss, and what it writes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from anyorder import config
from anyorder.batch import collate, collate_sources, plan_epoch
from anyorder.beam import Hypothesis
from anyorder.decode import decode
from anyorder.loss import batch_loss
from anyorder.metrics import bleu, exact
from anyorder.model import Indigo
from anyorder.prepare import Dataset
from anyorder.reading import raw_pairs
from anyorder.searched import learn_from, search_batch
from anyorder.tokens import Tokenizer

DECODED_AT_ONCE = 64  # sentences


class Validation:
    """The dev set, held ready to be gone through again and again."""

    def __init__(self, recipe: config.Recipe, dev: Dataset, tokenizer: Tokenizer) -> None:
        self.recipe = recipe
        self.dev = dev
        self.tokenizer = tokenizer
        lines = dev.corpus.lines[: recipe.train.validate_lines].tolist()
        self.references = [pair.target for pair in raw_pairs(recipe, "dev", lines=lines)] if lines else []

    def scores(self, model: Indigo, *, device: torch.device) -> dict[str, Any]:
        """Losses a step, words and gaps apart; BLEU and exact match of the decoded lines.

        A model whose loss isn't finite writes nothing, so then there is only the loss.
        """
        model.eval()
        scores = self._losses(model, device)
        if self.references and math.isfinite(scores["dev_loss"]):
            scores |= self._decoded(model, device)
        return scores

    @torch.inference_mode()
    def _losses(self, model: Indigo, device: torch.device) -> dict[str, Any]:
        train = self.recipe.train
        word = gap = words = gaps = 0.0
        for batch in plan_epoch(self.dev.sizes(), batch_tokens=train.batch_tokens, seed=0, epoch=0):
            examples = [self.dev.example(int(index), seed=0, epoch=0) for index in batch]
            part = collate(examples).to(device)
            if self.recipe.adaptive:
                best = self.recipe.search.model_copy(update={"weights": "best", "learn_from": "all"})
                part = learn_from(part, search_batch(model, part, best), best)
            loss = batch_loss(model, part)
            word, gap = word + float(loss.word), gap + float(loss.gap)
            words, gaps = words + loss.words, gaps + loss.gaps
        # A step is a word and a gap, `<eod>` a step of its own: the joint loss is over all steps.
        return {
            "dev_loss": (word + gap) / max(words, gaps),
            "dev_word_loss": word / words,
            "dev_gap_loss": gap / max(1, gaps),
        }

    def _decoded(self, model: Indigo, device: torch.device) -> dict[str, Any]:
        sources = [self.dev.corpus.source[index] for index in range(len(self.references))]
        best = [
            hypotheses[0]
            for hypotheses in decode_all(model, sources, settings=self.recipe.decode, device=device)
        ]
        written = [self.tokenizer.decode(hypothesis.sentence) for hypothesis in best]
        words = [self.tokenizer.words(hypothesis.sentence) for hypothesis in best]
        wanted = [tokens.words for tokens in self.tokenizer.encode_all(self.references, "target")]
        side = self.recipe.text.target
        return {
            "dev_bleu": bleu(written, self.references, side=side),
            "dev_exact": exact(words, wanted),
        }


def decode_all(
    model: Indigo,
    sources: Sequence[NDArray[np.generic]],
    *,
    settings: config.Decode,
    device: torch.device,
    lines: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """Decode sources of any length: like with like, answers in the order given.

    lines: the number of each, which sampling depends on.
    """
    found: list[list[Hypothesis]] = [[] for _ in sources]
    for chosen in _like_with_like(sources):
        source, mask = collate_sources([sources[index] for index in chosen])
        answers = decode(
            model,
            source.to(device),
            mask.to(device),
            settings=settings,
            limits=_limits([sources[index] for index in chosen], settings),
            lines=[index if lines is None else lines[index] for index in chosen],
        )
        for index, answer in zip(chosen, answers, strict=True):
            found[index] = answer
    return found


def _like_with_like(sources: Sequence[NDArray[np.generic]]) -> Iterator[list[int]]:
    by_length = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    for start in range(0, len(by_length), DECODED_AT_ONCE):
        yield by_length[start : start + DECODED_AT_ONCE]


def _limits(sources: Sequence[NDArray[np.generic]], settings: config.Decode) -> torch.Tensor:
    """Most tokens to write for each; the ratio is of tokens, so it says nothing about pictures."""
    relative = settings.max_ratio > 0 and sources[0].ndim == 1
    longest = [
        min(settings.max_length, int(settings.max_ratio * len(source)) + settings.max_extra)
        if relative
        else settings.max_length
        for source in sources
    ]
    return torch.tensor(longest)
