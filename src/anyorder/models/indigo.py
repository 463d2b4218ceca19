"""Transformer-InDIGO: an encoder, a decoder over the tokens in the order they were written, and two heads.

Learning runs the decoder over whole sequences (`states`), writing step by step with a cache (`start`,
`advance`). Both go through the same layers: the relations of written tokens never change, so neither do
their states.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anyorder import config
from anyorder.config.model import Shape
from anyorder.insertion import gap_neighbours, relations
from anyorder.models.attention import Relations
from anyorder.models.copying import Copyable, CopyHead
from anyorder.models.decoder_state import DecoderState
from anyorder.models.encoder_decoder import EncoderDecoder, Memory, initialise
from anyorder.models.heads import GapHead, GapKeys, Pointer, WordHead, at_least_float, first_word
from anyorder.models.kernels.vocabulary import Best, Product, Vocabulary, top_choices

# B sources, R rows (B × beams), S source vectors, N tokens written, D width, V words, C choices asked for

NOT_SEEN = 2**15  # instead of a relation: another hypothesis's token, or a later one
MARKS = ("given_mark", "required_mark")  # names of the weights that mark what is given and what is required
END = 0  # the first choice that ends a sentence: `<eod>`, or finishing instead of a gap


class Indigo(EncoderDecoder):
    """The network of the paper; see DESIGN and the formulas named in `layers` and `heads`.

    Written tokens relate as left of, itself, right of; with settings.steps_back above 1, times how many steps
    ago the other was written. Neither ever changes, so states are still computed once.

    related: without, they don't relate at all; gap_head: another than the paper's pointer. marks_given: what
    is given looks different from what it wrote itself, so that it never takes a canvas with words missing for
    a beginning of its own.
    """

    def __init__(
        self,
        settings: config.Model,
        shape: Shape,
        *,
        related: bool = True,
        gap_head: GapHead | None = None,
        marks_given: bool = False,
        reads_required: bool = False,
    ) -> None:
        kinds = 2 * settings.steps_back + 1 if related else 0
        super().__init__(settings, shape, kinds=kinds, reads_required=reads_required)
        self.related = related
        self.position_first = settings.first == "position"
        width = settings.width
        self.word_head = WordHead(width=width, first=first_word(position_first=self.position_first))
        self.gap_head = Pointer(width=width, finish=self.position_first) if gap_head is None else gap_head
        # Position first: what the word knows of the gap, from the gap's two keys.
        self.gap_to_word = nn.Linear(width, width, bias=False) if self.position_first else None
        self.copy_head = CopyHead(width=width) if settings.copying else None
        self.given_mark = nn.Parameter(torch.zeros(width)) if marks_given else None
        self.packed_words: list[Product] | None = None  # the output embedding, once it is packed
        self.apply(initialise)

    # --- learning: all steps at once ---

    def states(
        self, memory: Memory, words: Tensor, positions: Tensor, *, given: Tensor | None = None
    ) -> Tensor:
        """State of each token as it was written, knowing itself and the earlier ones.

        words, positions: (B, N), in the order written, `<s>` and `</s>` first; given: (B, N), bool, None: not
        one is; returns (B, N, D).
        """
        length = words.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=words.device).triu(diagonal=1)
        states = self._marked(self._embed_words(words, first_step=0), given)
        related = self._relations(self._steps_back(relations(positions)), dtype=states.dtype)
        for layer, source in zip(self.decoder, self.source_keys(memory), strict=True):
            states = layer(states, relations=related, blocked=later, source=source)
        return self.decoder_norm(states)

    # --- writing: step by step ---

    def start(self, memory: Memory) -> DecoderState:
        """Nothing written yet, not even the boundaries."""
        return DecoderState(self.source_keys(memory), self.copyable(memory), self.vocabulary())

    def advance(
        self, decoder_state: DecoderState, words: Tensor, indices: Tensor, *, given: Tensor | None = None
    ) -> Tensor:
        """Add the newest words and return the state of the last one.

        words: (R, m), the newest; places: (R, n), of all tokens including them; given: (R, m), bool, None:
        not one is; returns (R, D).
        """
        rows, newest = words.shape
        hypotheses = rows // decoder_state.sentences
        decoder_state.add(hypotheses, newest)
        seen = self._steps_back(torch.sign(indices[:, -newest:, None] - indices[:, None, :]))  # (R, m, n)
        # One hypothesis that writes one token sees the whole pool, which is its own.
        sees_all = hypotheses == newest == 1
        if not sees_all:
            later = torch.ones_like(seen[0], dtype=torch.bool).triu(diagonal=indices.shape[1] - newest + 1)
            seen = seen.masked_fill(later, NOT_SEEN).unflatten(0, (decoder_state.sentences, hypotheses))
            seen = decoder_state.in_pool(seen, elsewhere=NOT_SEEN)  # (S, K · m, P)

        states = self._marked(self._embed_words(words, first_step=indices.shape[1] - newest), given)
        states = states.reshape(decoder_state.sentences, hypotheses * newest, -1)
        related = self._relations(seen, dtype=states.dtype)
        blocked = None if sees_all else (seen == NOT_SEEN)[:, None]
        for layer, source, cache in zip(
            self.decoder, decoder_state.sources, decoder_state.caches, strict=True
        ):
            states = layer(states, relations=related, blocked=blocked, source=source, cache=cache)
        states = self.decoder_norm(states)
        keys = self.gap_head.keys_of(states)
        decoder_state.left_keys.append(keys.left)
        decoder_state.right_keys.append(keys.right)
        return states.reshape(rows, newest, -1)[:, -1]

    # --- what both read ---

    def _embed_words(self, words: Tensor, *, first_step: int) -> Tensor:
        """words: (R, m), from first_step on, which only relations tell of here; returns (R, m, D)."""
        return self.dropout(self.scaled_embedding(words))

    def _marked(self, embedded: Tensor, given: Tensor | None) -> Tensor:
        """embedded: (R, m, D); given: (R, m)."""
        if self.given_mark is None or given is None:
            return embedded
        return embedded + given[..., None].to(embedded.dtype) * self.given_mark

    def _steps_back(self, signs: Tensor) -> Tensor:
        """Signs of the newest m of n tokens, times how many steps ago each other was written. (R, m, n)."""
        furthest = self.settings.steps_back
        if furthest == 1:  # the paper's
            return signs
        steps = torch.arange(signs.shape[2], device=signs.device)
        ago = steps[-signs.shape[1] :, None] - steps  # (m, n)
        return signs * ago.clamp(1, furthest)

    def _relations(self, signed: Tensor, *, dtype: torch.dtype) -> Relations | None:
        """signed: (R, Q, K)."""
        return Relations.signed(signed, reach=self.settings.steps_back, dtype=dtype) if self.related else None

    # --- what comes next ---

    def word_query(self, states: Tensor, gap: Tensor | None = None) -> Tensor:
        """states: (..., D); gap: (..., D), `gap_vector` where the position comes first; returns (..., D)."""
        if self.gap_to_word is None:
            return self.word_head.query(states)
        assert gap is not None
        return self.word_head.query(states, hint=self.gap_to_word(gap))

    def word_logits(self, query: Tensor) -> Tensor:
        """Of generated words. query: (..., D); returns (..., V), single precision at least."""
        if self.packed_words is not None:
            return torch.cat([product(query) for product in self.packed_words], dim=-1)
        return at_least_float(self.word_head(query, self.output_embedding))

    def vocabulary(self) -> Vocabulary:
        """Of all words that can be generated."""
        return Vocabulary(self.output_embedding[self.word_head.first :], packed=self.packed_words)

    def copyable(self, memory: Memory) -> Copyable | None:
        """What may be copied from the sources, computed once; None for a model that doesn't copy."""
        if self.copy_head is None:
            return None
        assert memory.words is not None
        return Copyable(
            keys=self.copy_head.keys(memory.states),
            words=memory.words,
            ids=self.writable_ids(memory.words),
        )

    def writable_ids(self, source: Tensor) -> int:
        """One more than the highest id that can be written beside these sources. source: (B, S)."""
        generated = self.shape.target_vocabulary
        return generated if self.copy_head is None else max(generated, int(source.max()) + 1)

    def gap_query(self, states: Tensor, words: Tensor | None) -> Tensor:
        """states: broadcast to (..., D); words: (...), where the word comes first; returns (..., D)."""
        return self.gap_head.query(states, None if words is None else self.scaled_embedding(words))

    @staticmethod
    def gap_vector(keys: GapKeys, *, left: Tensor, right: Tensor) -> Tensor:
        """What a gap looks like from its neighbours: the sum of its two keys.

        keys: (R, n, D) each; left, right: (R, G), tokens; returns (R, G, D).
        """
        width = keys.left.shape[-1]
        left, right = (side[..., None].expand(-1, -1, width) for side in (left, right))
        return keys.right.gather(1, left) + keys.left.gather(1, right)

    # --- choosing a step: word first or position first, the end always among the first choices ---

    def first_log_probs(self, decoder_state: DecoderState, state: Tensor, indices: Tensor) -> Tensor:
        """log p of each first choice, END the first of them: the words, or finishing and all gaps.

        state: (R, D); places: (R, n); returns (R, V) or (R, 1 + gaps).
        """
        if not self.position_first:
            return self._every_word(decoder_state, self.word_query(state)[:, None]).squeeze(1)
        query = self.gap_query(state[:, None], None)  # (R, 1, D)
        gaps, normaliser = self._every_gap(decoder_state, query, indices)
        finish = self.gap_head.finish_logit(query)
        return torch.cat([finish, gaps[:, 0]], dim=1) - normaliser

    def second_log_probs(
        self, decoder_state: DecoderState, state: Tensor, indices: Tensor, first: Tensor
    ) -> Tensor:
        """log p of each second choice after each of C first ones; meaningless after END.

        first: (R, C), as counted by `first_log_probs`; returns (R, C, gaps) or (R, C, V).
        """
        if self.position_first:
            query = self.word_query(state[:, None], self._gap_vectors(decoder_state, indices, first))
            return self._every_word(decoder_state, query)
        query = self.gap_query(state[:, None], first + self.word_head.first)  # (R, C, D)
        gaps, normaliser = self._every_gap(decoder_state, query, indices)
        return gaps - normaliser[..., None]

    def best_first(self, decoder_state: DecoderState, state: Tensor, indices: Tensor, *, count: int) -> Best:
        """The best of what `first_log_probs` scores; its arguments, and count: C, how many."""
        if not self.lists_best_words:
            return top_choices(self.first_log_probs(decoder_state, state, indices), count)
        return decoder_state.vocabulary.best(self.word_query(state), count=count)

    @property
    def lists_best_words(self) -> bool:
        """Whether the best first choices are found without log p of all."""
        return not self.position_first and self.copy_head is None

    def best_words_and(
        self, decoder_state: DecoderState, state: Tensor, words: Tensor, *, no_end: Tensor, count: int
    ) -> tuple[Best, Tensor]:
        """The best first choices, and log p of some others. words: (R, Q), first choices; returns (R, Q).

        no_end: (R,), bool, where the end is not to be among the best.
        """
        return decoder_state.vocabulary.best_and(self.word_query(state), words, no_end=no_end, count=count)

    def best_second(
        self, decoder_state: DecoderState, state: Tensor, indices: Tensor, first: Tensor, *, count: int
    ) -> Best:
        """The best of what `second_log_probs` scores; its arguments, and count: how many, (R, C, count)."""
        if not self.position_first or self.copy_head is not None:
            return top_choices(self.second_log_probs(decoder_state, state, indices, first), count)
        query = self.word_query(state[:, None], self._gap_vectors(decoder_state, indices, first))  # (R, C, D)
        best = decoder_state.vocabulary.best(query.flatten(0, 1), count=count)
        return Best(*(each.unflatten(0, first.shape) for each in best))

    def log_probs_of_second(
        self, decoder_state: DecoderState, state: Tensor, indices: Tensor, first: Tensor, second: Tensor
    ) -> Tensor:
        """log p of one second choice after each of C first ones. first, second, returns: (R, C)."""
        left, right = gap_neighbours(indices)  # (R, gaps)
        if self.position_first:
            # Many tokens lie in the same gap, where all words are scored at once.
            gaps = torch.arange(1, left.shape[1] + 1, device=first.device).expand(len(first), -1)
            words = self.second_log_probs(decoder_state, state, indices, gaps)  # (R, gaps, V)
            return words.flatten(1).gather(1, (first - 1) * words.shape[2] + second)
        query = self.gap_query(state[:, None], first + self.word_head.first)  # (R, C, D)
        logits = self._key_logits(decoder_state, query)
        chosen = self.gap_head.pick(
            logits,
            left=left.gather(1, second)[..., None],
            right=right.gather(1, second)[..., None],
        )
        return chosen.squeeze(2) - self.gap_head.normaliser(logits, query)

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

    def _gap_vectors(self, decoder_state: DecoderState, indices: Tensor, first: Tensor) -> Tensor:
        """Of the gaps that are first choices, (R, C); returns (R, C, D)."""
        own, gap = decoder_state.own.flatten(0, 1), (first - 1).clamp(min=0)
        left, right = (
            own.gather(1, side.gather(1, gap)).reshape(decoder_state.sentences, -1)
            for side in gap_neighbours(indices)
        )
        vectors = self.gap_vector(decoder_state.gap_keys, left=left, right=right)  # (S, K · C, D)
        return vectors.reshape(*first.shape, self.settings.width)

    def _every_word(self, decoder_state: DecoderState, query: Tensor) -> Tensor:
        """log p of each word that can be generated or copied. query: (R, C, D); returns (R, C, V)."""
        generated = self.word_logits(query).log_softmax(dim=-1)
        if self.copy_head is None:
            return generated
        assert decoder_state.copyable is not None
        by_source = (decoder_state.sentences, -1)
        scores = self.copy_head.mixed_with_all(
            generated.reshape(*by_source, generated.shape[-1]),
            query.reshape(*by_source, query.shape[-1]),
            decoder_state.copyable,
            first=self.word_head.first,
        )
        return scores.reshape(*generated.shape[:2], -1)

    def _every_gap(
        self, decoder_state: DecoderState, query: Tensor, indices: Tensor
    ) -> tuple[Tensor, Tensor]:
        """query: (R, C, D); returns unnormalised log p, (R, C, gaps), and its normaliser, (R, C)."""
        logits = self._key_logits(decoder_state, query)
        left, right = (side[:, None].expand(-1, query.shape[1], -1) for side in gap_neighbours(indices))
        return self.gap_head.pick(logits, left=left, right=right), self.gap_head.normaliser(logits, query)

    def _key_logits(self, decoder_state: DecoderState, query: Tensor) -> Tensor:
        """Of each hypothesis's own keys. query: (R, C, D); returns (R, C, 2, n)."""
        rows, choices, width = query.shape
        everybody = self.gap_head.products(
            query.reshape(decoder_state.sentences, -1, width), decoder_state.gap_keys
        )
        own = decoder_state.own.flatten(0, 1)[:, None, None].expand(-1, choices, 2, -1)
        products = everybody.reshape(rows, choices, 2, decoder_state.size).gather(3, own)
        return self.gap_head.logits(products)
