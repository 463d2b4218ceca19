"""Transformer-InDIGO: an encoder, a decoder over the tokens in the order they were written, and two heads.

Learning runs the decoder over whole sequences (`states`), writing step by step with a cache (`start`,
`advance`). Both go through the same layers: the relations of written tokens never change, so neither do
their states.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from anyorder import config
from anyorder.heads import GapHead, GapKeys, WordHead, at_least_float, first_word
from anyorder.insertion import anchors, relations
from anyorder.layers import DecoderLayer, Dropout, EncoderLayer, Past, Pool, Relations, SourceKeys
from anyorder.tokens import PAD

# B sources, R rows (B × beams), S source vectors, N tokens written, D width, V words, C words asked for

TERNARY = 3  # left of, itself, right of
NOT_SEEN = 2  # instead of a relation: another hypothesis's token, or a later one
END = 0  # the first choice that ends a sentence: `<eod>`, or finishing instead of a gap


@dataclass(frozen=True)
class Shape:
    """What the data decides about a model's size."""

    vocabulary: int  # ids of source and target
    target_vocabulary: int  # the first of them, which targets use
    features: int = 0  # width of the source's feature vectors; 0: sources are tokens


@dataclass(frozen=True)
class Memory:
    """An encoded source."""

    states: Tensor  # (B, S, D)
    mask: Tensor  # (B, S), bool: real, not padding


class Writing:
    """Everything known of the sentences under way, to write one more token at little cost.

    All hypotheses of a sentence put what they write into one pool, (S, P) tokens, and remember where their
    own tokens are in it. So a beam goes on with other hypotheses by changing a few indices.
    """

    def __init__(self, sources: list[SourceKeys]) -> None:
        self.sources = sources  # one a layer
        self.pasts = [Past() for _ in sources]
        self.left_keys, self.right_keys = Pool(), Pool()  # (S, P, D)
        self.own = sources[0].key.new_zeros(self.sentences, 1, 0, dtype=torch.long)  # (S, K, n), in the pool
        self.size = 0  # P

    @property
    def sentences(self) -> int:
        """How many are under way."""
        return len(self.sources[0].key)

    @property
    def gap_keys(self) -> GapKeys:
        """Of the whole pool, (S, P, D) each."""
        return GapKeys(self.left_keys.vectors, self.right_keys.vectors)

    def add(self, hypotheses: int, newest: int) -> None:
        """Make the next tokens of all hypotheses their own; the layers then put them into the pool."""
        if self.size == 0:
            self.own = self.own.expand(-1, hypotheses, -1)
        places = torch.arange(self.size, self.size + hypotheses * newest, device=self.own.device)
        added = places.view(1, hypotheses, newest).expand(self.sentences, -1, -1)
        self.own = torch.cat([self.own, added], dim=2)
        self.size += hypotheses * newest

    def in_pool(self, values: Tensor, *, elsewhere: int) -> Tensor:
        """Spread values of a hypothesis's own tokens over the pool.

        values: (S, K, m, n); returns (S, K · m, P).
        """
        shape = (*values.shape[:3], self.size)
        spread = values.new_full(shape, elsewhere)
        spread.scatter_(3, self.own[:, :, None].expand_as(values), values)
        return spread.flatten(1, 2)

    def follow(self, parent: Tensor, staying: Tensor) -> None:
        """Go on with some sentences, each of their hypotheses where its parent stood.

        parent: (S, B), among the hypotheses so far; staying: (S',), sentences, rising.
        """
        self.own = self.own.gather(1, parent[..., None].expand(-1, -1, self.own.shape[2]))
        if len(staying) == len(parent):
            return
        self.own = self.own[staying]
        self.sources = [source.keep(staying) for source in self.sources]
        for past in self.pasts:
            past.keep(staying)
        self.left_keys.keep(staying)
        self.right_keys.keep(staying)


class Indigo(nn.Module):
    """The network of the paper; see DESIGN and the formulas named in `layers` and `heads`."""

    def __init__(self, settings: config.Model, shape: Shape) -> None:
        super().__init__()
        self.settings = settings
        self.shape = shape
        self.position_first = settings.first == "position"
        width = settings.width
        self.embed_target = _embedding(
            shape.vocabulary if settings.share == "all" and not shape.features else shape.target_vocabulary,
            width,
        )
        self.embed_source: nn.Module
        if shape.features:
            self.embed_source = nn.Linear(shape.features, width)
        elif settings.share == "all":
            self.embed_source = self.embed_target
        else:
            self.embed_source = _embedding(shape.vocabulary, width)
        self.embed_output = (
            _embedding(shape.target_vocabulary, width) if settings.share == "none" else self.embed_target
        )
        kinds = 2 * settings.clip + 1 if settings.encoder_positions == "relative" else 0
        sizes = {"width": width, "hidden": settings.hidden, "heads": settings.heads}
        self.encoder = nn.ModuleList(
            EncoderLayer(**sizes, kinds=kinds, dropout=settings.dropout)
            for _ in range(settings.encoder_layers)
        )
        self.encoder_norm = nn.LayerNorm(width)
        self.decoder = nn.ModuleList(
            DecoderLayer(**sizes, kinds=TERNARY, dropout=settings.dropout)
            for _ in range(settings.decoder_layers)
        )
        self.decoder_norm = nn.LayerNorm(width)
        self.dropout = Dropout(settings.dropout)
        self.word_head = WordHead(width=width, first=first_word(position_first=self.position_first))
        self.gap_head = GapHead(width=width, finish=self.position_first)
        # Position first: what the word knows of the gap, from the gap's two keys.
        self.gap_to_word = nn.Linear(width, width, bias=False) if self.position_first else None
        self.apply(_initialise)

    # --- source ---

    def encode(self, source: Tensor, mask: Tensor) -> Memory:
        """source: (B, S), token ids, or (B, S, features); mask: (B, S), bool, True where real."""
        states = self.embed_source(source)
        if not self.shape.features:
            states = states * math.sqrt(self.settings.width)
        if self.settings.encoder_positions == "sinusoidal":
            states = states + sinusoids(source.shape[1], self.settings.width).to(states)
        distances = None
        if self.settings.encoder_positions == "relative":
            distances = Relations.distances(
                source.shape[1], clip=self.settings.clip, device=source.device, dtype=states.dtype
            )
        states = self.dropout(states)
        blocked = ~mask[:, None, None, :]
        for layer in self.encoder:
            states = layer(states, relations=distances, blocked=blocked)
        return Memory(states=self.encoder_norm(states), mask=mask)

    def _source_keys(self, memory: Memory) -> list[SourceKeys]:
        visible = memory.mask[:, None, None, :]
        layers = cast("Sequence[DecoderLayer]", self.decoder)
        pairs = (layer.cross.keys_values(memory.states) for layer in layers)
        return [SourceKeys(key, value, visible) for key, value in pairs]

    # --- learning: all steps at once ---

    def states(self, memory: Memory, words: Tensor, slots: Tensor) -> Tensor:
        """State of each token as it was written, knowing itself and the earlier ones.

        words, slots: (B, N), in the order written, `<s>` and `</s>` first; returns (B, N, D).
        """
        length = words.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=words.device).triu(diagonal=1)
        states = self._embed_words(words)
        ternary = Relations.ternary(relations(slots), dtype=states.dtype)
        for layer, source in zip(self.decoder, self._source_keys(memory), strict=True):
            states = layer(states, relations=ternary, blocked=later, source=source)
        return self.decoder_norm(states)

    # --- writing: step by step ---

    def start(self, memory: Memory) -> Writing:
        """Nothing written yet, not even the boundaries."""
        return Writing(self._source_keys(memory))

    def advance(self, writing: Writing, words: Tensor, places: Tensor) -> Tensor:
        """Add the newest words and return the state of the last one.

        words: (R, m), the newest; places: (R, n), of all tokens including them; returns (R, D).
        """
        rows, newest = words.shape
        hypotheses = rows // writing.sentences
        writing.add(hypotheses, newest)
        own = torch.sign(places[:, -newest:, None] - places[:, None, :])  # (R, m, n)
        later = torch.ones_like(own[0], dtype=torch.bool).triu(diagonal=places.shape[1] - newest + 1)
        own = own.masked_fill(later, NOT_SEEN).unflatten(0, (writing.sentences, hypotheses))
        seen = writing.in_pool(own, elsewhere=NOT_SEEN)  # (S, K · m, P)

        states = self._embed_words(words).reshape(writing.sentences, hypotheses * newest, -1)
        ternary = Relations.ternary(seen, dtype=states.dtype)
        blocked = (seen == NOT_SEEN)[:, None]
        for layer, source, past in zip(self.decoder, writing.sources, writing.pasts, strict=True):
            states = layer(states, relations=ternary, blocked=blocked, source=source, past=past)
        states = self.decoder_norm(states)
        keys = self.gap_head.keys_of(states)
        writing.left_keys.append(keys.left)
        writing.right_keys.append(keys.right)
        return states.reshape(rows, newest, -1)[:, -1]

    # --- what comes next ---

    def word_logits(self, states: Tensor, gap: Tensor | None = None) -> Tensor:
        """states: (..., D); gap: (..., D), `gap_vector` where the position comes first; returns (..., V)."""
        if self.gap_to_word is None:
            return self.word_head(states, self._output_embedding)
        assert gap is not None
        return self.word_head(states, self._output_embedding, hint=self.gap_to_word(gap))

    def gap_query(self, states: Tensor, words: Tensor | None) -> Tensor:
        """states: broadcast to (..., D); words: (...), where the word comes first; returns (..., D)."""
        query: Tensor = self.gap_head.project(states)
        if self.position_first:
            return query
        assert words is not None
        return query + self._scaled_embedding(words)

    @staticmethod
    def gap_vector(keys: GapKeys, *, left: Tensor, right: Tensor) -> Tensor:
        """What a gap looks like from its neighbours: the sum of its two keys.

        keys: (R, n, D) each; left, right: (R, G), tokens; returns (R, G, D).
        """
        width = keys.left.shape[-1]
        left, right = (side[..., None].expand(-1, -1, width) for side in (left, right))
        return keys.right.gather(1, left) + keys.left.gather(1, right)

    # --- choosing a step: word first or position first, the end always among the first choices ---

    def first_log_probs(self, writing: Writing, state: Tensor, places: Tensor) -> Tensor:
        """log p of each first choice, END the first of them: the words, or finishing and all gaps.

        state: (R, D); places: (R, n); returns (R, V) or (R, 1 + gaps).
        """
        if not self.position_first:
            return at_least_float(self.word_logits(state)).log_softmax(dim=-1)
        query = self.gap_query(state[:, None], None)  # (R, 1, D)
        gaps, normaliser = self._every_gap(writing, query, places)
        finish = self.gap_head.finish_logit(query)
        return torch.cat([finish, gaps[:, 0]], dim=1) - normaliser

    def second_log_probs(self, writing: Writing, state: Tensor, places: Tensor, first: Tensor) -> Tensor:
        """log p of each second choice after each of C first ones; meaningless after END.

        first: (R, C), as counted by `first_log_probs`; returns (R, C, gaps) or (R, C, V).
        """
        if self.position_first:
            own, gap = writing.own.flatten(0, 1), (first - 1).clamp(min=0)
            left, right = (
                own.gather(1, side.gather(1, gap)).reshape(writing.sentences, -1) for side in anchors(places)
            )
            vectors = self.gap_vector(writing.gap_keys, left=left, right=right)  # (S, K · C, D)
            vectors = vectors.reshape(*first.shape, self.settings.width)
            return at_least_float(self.word_logits(state[:, None], vectors)).log_softmax(dim=-1)
        query = self.gap_query(state[:, None], first + self.word_head.first)  # (R, C, D)
        gaps, normaliser = self._every_gap(writing, query, places)
        return gaps - normaliser[..., None]

    def word_and_gap(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """What a first and a second choice mean: a word's id and a gap."""
        if self.position_first:
            return second + self.word_head.first, first - 1
        return first + self.word_head.first, second

    def first_and_second(self, word: Tensor, gap: Tensor) -> tuple[Tensor, Tensor]:
        """The choices that mean a word and a gap."""
        if self.position_first:
            return gap + 1, word - self.word_head.first
        return word - self.word_head.first, gap

    def _every_gap(self, writing: Writing, query: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """query: (R, C, D); returns unnormalised log p, (R, C, gaps), and its normaliser, (R, C)."""
        rows, choices, width = query.shape
        everybody = self.gap_head.products(query.reshape(writing.sentences, -1, width), writing.gap_keys)
        own = writing.own.flatten(0, 1)[:, None, None].expand(-1, choices, 2, -1)
        products = everybody.reshape(rows, choices, 2, writing.size).gather(3, own)  # (R, C, 2, n)
        logits = self.gap_head.logits(products)
        left, right = (side[:, None].expand(-1, query.shape[1], -1) for side in anchors(places))
        return self.gap_head.pick(logits, left=left, right=right), self.gap_head.normaliser(logits, query)

    # --- words in and out ---

    @property
    def _output_embedding(self) -> Tensor:
        """Of what a target may have: a shared embedding holds words of the source too."""
        return self.embed_output.weight[: self.shape.target_vocabulary]

    def _embed_words(self, words: Tensor) -> Tensor:
        return self.dropout(self._scaled_embedding(words))

    def _scaled_embedding(self, words: Tensor) -> Tensor:
        return self.embed_target(words) * math.sqrt(self.settings.width)


def sinusoids(length: int, width: int) -> Tensor:
    """Absolute positions as sines and cosines of falling frequency, (length, width)."""
    place = torch.arange(length, dtype=torch.float32)[:, None]
    frequency = torch.exp(torch.arange(0, width, 2, dtype=torch.float32) * (-math.log(10_000.0) / width))
    return torch.stack([(place * frequency).sin(), (place * frequency).cos()], dim=2).flatten(1)


def _embedding(size: int, width: int) -> nn.Embedding:
    return nn.Embedding(size, width, padding_idx=PAD)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        with torch.no_grad():
            module.weight[PAD].zero_()
