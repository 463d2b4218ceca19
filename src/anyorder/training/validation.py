"""Scores on the dev set: the loss, and BLEU and exact match of decoded sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from anyorder import config
from anyorder.adaptive.candidates import Orders
from anyorder.adaptive.objective import learn_from, search_batch
from anyorder.data.batches import Batch, plan_epoch
from anyorder.data.dataset import Dataset
from anyorder.data.references import pairs_by_source, reference_texts
from anyorder.decoding.decode import decode_all
from anyorder.decoding.editing import DraftToEdit, edit_all
from anyorder.metrics import bleu, exact
from anyorder.models.editor import Editor
from anyorder.models.registry import Model, family_of, ordered
from anyorder.orders.statistics import order_statistics
from anyorder.text.tokenizer import Tokenizer

FIRST_TOKENS = 5  # number of first tokens to log


class Validation:
    """Scores models on the dev set."""

    def __init__(self, recipe: config.Recipe, dev: Dataset, tokenizer: Tokenizer) -> None:
        self.recipe = recipe
        self.dev = dev
        self.tokenizer = tokenizer
        sources = pairs_by_source(dev.corpus)[: recipe.train.validate_lines]
        self.decoded_pairs = [pairs[0] for pairs in sources]
        self.references = reference_texts(recipe, "dev", dev.corpus, sources)

    def scores(self, model: Model, *, device: torch.device) -> dict[str, Any]:
        """Losses per step, per word and per gap, and BLEU and exact match of the decoded lines.

        For searched orders also their rank correlation with left to right, and the tokens that are most often
        written first. A model whose loss is not finite can't decode: it gets losses only.
        """
        model.eval()
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(0)  # losses with random parts are the same each time
            scores = self._losses(model, device)
        if self.references and math.isfinite(scores["dev_loss"]):
            scores |= self._decoded(model, device)
        return scores

    @torch.inference_mode()
    def _losses(self, model: Model, device: torch.device) -> dict[str, Any]:
        train = self.recipe.train
        word = gap = words = gaps = 0.0
        found: list[tuple[list[int], list[str]]] = []  # order and tokens of each target
        for batch in plan_epoch(self.dev.sizes(), batch_tokens=train.batch_tokens, seed=0, epoch=0):
            part = self.dev.batch(batch, seed=0, epoch=0).to(device)
            if self.recipe.adaptive and isinstance(part, Batch):
                best = self.recipe.search.model_copy(update={"weights": "best", "learn_from": "all"})
                searched = ordered(model, purpose="order.name = sao")
                orders = search_batch(searched, part, best, thoroughly=True)
                both = zip(self._best_positions(orders, part), map(self._tokens, batch.tolist()), strict=True)
                # Longer targets were not searched.
                found += [
                    (positions, tokens) for positions, tokens in both if len(positions) <= best.max_length
                ]
                part = learn_from(part, orders, best)
            loss = family_of(model).loss(model, part)
            word, gap = word + float(loss.word), gap + float(loss.gap)
            words, gaps = words + loss.words, gaps + loss.gaps
        # A step is a word and a gap, and `<eod>` is a step without a gap: the joint loss is per step.
        return {
            "dev_loss": (word + gap) / max(words, gaps),
            "dev_word_loss": word / words,
            "dev_gap_loss": gap / max(1, gaps),
            **_order_scores(found),
        }

    @staticmethod
    def _best_positions(orders: Orders, batch: Batch) -> list[list[int]]:
        rows = zip(orders.positions[:, 0].tolist(), batch.lengths.tolist(), strict=True)
        return [positions[:length] for positions, length in rows]

    def _tokens(self, index: int) -> list[str]:
        corpus = self.dev.corpus
        return [self.tokenizer.piece(token, own=corpus.own(index)) for token in corpus.target[index].tolist()]

    def _sentences(self, model: Model, device: torch.device) -> list[Sequence[int]]:
        """What the model makes of the decoded lines, as token ids."""
        corpus, settings = self.dev.corpus, self.recipe.decode
        sources = [corpus.source[pair] for pair in self.decoded_pairs]
        if isinstance(model, Editor):
            assert corpus.draft is not None
            drafts = [
                DraftToEdit(source, corpus.draft[pair])
                for source, pair in zip(sources, self.decoded_pairs, strict=True)
            ]
            return [one.canvas.read() for one in edit_all(model, drafts, settings=settings, device=device)]
        found = decode_all(model, sources, settings=settings, device=device)
        return [hypotheses[0].sentence for hypotheses in found]

    def _decoded(self, model: Model, device: torch.device) -> dict[str, Any]:
        read = [
            (sentence, self.dev.corpus.own(pair))
            for pair, sentence in zip(self.decoded_pairs, self._sentences(model, device), strict=True)
        ]
        written = [self.tokenizer.decode(ids, own=own) for ids, own in read]
        words = [self.tokenizer.words(ids, own=own) for ids, own in read]
        wanted = [
            [tokens.words for tokens in self.tokenizer.encode_all(reference, "target")]
            for reference in self.references
        ]
        side = self.recipe.text.target
        return {
            "dev_bleu": bleu(written, *self.references, side=side),
            "dev_exact": exact(words, *wanted),
        }


def _order_scores(found: list[tuple[list[int], list[str]]]) -> dict[str, Any]:
    """Statistics of searched orders; empty if none were searched."""
    statistics = order_statistics([positions for positions, _ in found], [tokens for _, tokens in found])
    if statistics is None:
        return {}
    first = list(statistics.first_tokens.items())[:FIRST_TOKENS]
    return {"dev_kendall": statistics.figures.kendall, "dev_first_tokens": dict(first)}
