"""How a model does on the dev set: its loss, and what it writes."""

from __future__ import annotations

import math
from typing import Any

import torch

from anyorder import config
from anyorder.batch import collate, plan_epoch
from anyorder.decode import decode_all
from anyorder.loss import batch_loss
from anyorder.metrics import bleu, exact
from anyorder.model import Indigo
from anyorder.prepare import Dataset
from anyorder.reading import raw_pairs
from anyorder.searched import learn_from, search_batch
from anyorder.tokens import Tokenizer


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
