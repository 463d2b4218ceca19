"""Transformer-InDIGO: an encoder, a decoder over tokens in the order they are written, and two heads.

Training runs the decoder over whole sequences (`states`). Decoding runs it step by step with a cache
(`start`, `advance`). Both use the same layers: the relations of written tokens never change, so neither do
their states.
What the next word and gap may be is computed from these states in `models.choices`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anyorder import config
from anyorder.config.model import Shape
from anyorder.insertion import BOUNDARIES, relations
from anyorder.models.attention import Relations
from anyorder.models.decoder_state import DecoderState
from anyorder.models.encoder_decoder import EncoderDecoder, Memory, initialise
from anyorder.models.heads import (
    Copyable,
    CopyHead,
    GapHead,
    GapKeys,
    Pointer,
    WordHead,
    at_least_float,
    first_word,
)
from anyorder.models.kernels.vocabulary import Product, Vocabulary

# B sources, R rows (B × hypotheses), S source vectors, N tokens of a finished canvas, n tokens on the canvas,
# m of them the newest, D width, V words

NOT_SEEN = (
    2**15
)  # stands for a relation to a token that must not be seen: a later one, or another hypothesis's
MARKS = ("given_mark", "required_mark")  # weights that tell given and required tokens apart from others


class Indigo(EncoderDecoder):
    """The network of the paper: relative self-attention (Eq. 7), a word head (Eq. 8) and a pointer (Eq. 9).

    Beyond the paper, settings.steps_back > 1 multiplies the relation of two tokens by how many steps lie
    between them, which never changes either.

    relative: without it, the decoder sees no relations. gap_head: another than the paper's pointer.
    marks_given: given tokens get an embedding of their own, so that a canvas with missing words is not taken
    for the beginning of a sentence. reads_required: the encoder reads the words that must appear.
    """

    def __init__(
        self,
        settings: config.Model,
        shape: Shape,
        *,
        relative: bool = True,
        gap_head: GapHead | None = None,
        marks_given: bool = False,
        reads_required: bool = False,
    ) -> None:
        kinds = 2 * settings.steps_back + 1 if relative else 0
        super().__init__(settings, shape, kinds=kinds, reads_required=reads_required)
        self.relative = relative
        self.position_first = settings.first == "position"
        width = settings.width
        self.word_head = WordHead(width=width, first=first_word(position_first=self.position_first))
        self.gap_head = Pointer(width=width, finish=self.position_first) if gap_head is None else gap_head
        # Position first: the word is predicted from the state and the two keys of its gap.
        self.gap_to_word = nn.Linear(width, width, bias=False) if self.position_first else None
        self.copy_head = CopyHead(width=width) if settings.copying else None
        self.given_mark = nn.Parameter(torch.zeros(width)) if marks_given else None
        self.packed_words: list[Product] | None = None  # the output embedding, once it is packed
        self.apply(initialise)

    # --- training: all steps at once ---

    def states(
        self, memory: Memory, words: Tensor, positions: Tensor, *, given: Tensor | None = None
    ) -> Tensor:
        """Decoder state of each token, which sees itself and the tokens written before it.

        words, positions: (B, N), in the order written, `<s>` and `</s>` first; given: (B, N), bool, which
        tokens are given, None for none; returns (B, N, D).
        """
        length = words.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=words.device).triu(diagonal=1)
        states = self._with_marks(self._embed_words(words, first_step=0), given)
        related = self._relations(self._times_steps_back(relations(positions)), dtype=states.dtype)
        for layer, source in zip(self.decoder, self.source_keys(memory), strict=True):
            states = layer(states, relations=related, blocked=later, source=source)
        return self.decoder_norm(states)

    # --- decoding: step by step ---

    def start(self, memory: Memory) -> DecoderState:
        """Begin to decode; nothing is written yet, not even the boundaries."""
        return DecoderState(self.source_keys(memory), self.copyable(memory), self.vocabulary())

    def advance(
        self, decoder_state: DecoderState, words: Tensor, indices: Tensor, *, given: Tensor | None = None
    ) -> Tensor:
        """Add the newest words to the cache and return the state of the last one.

        words: (R, m), the newest; indices: (R, n), of all tokens on the canvas, the newest last; given:
        (R, m), bool, None for none; returns (R, D).
        """
        rows, newest = words.shape
        hypotheses = rows // decoder_state.sentences
        decoder_state.reserve(hypotheses, newest)
        padding = decoder_state.is_padding
        missing = None if padding is None else decoder_state.padding_of_rows(rows)
        signs = torch.sign(indices[:, -newest:, None] - indices[:, None, :])
        seen = self._times_steps_back(signs, padding=missing)
        # One hypothesis that writes one token sees the whole cache (R, 1, n).
        sees_all = hypotheses == newest == 1 and padding is None
        if not sees_all:
            later = torch.ones_like(seen[0], dtype=torch.bool).triu(diagonal=indices.shape[1] - newest + 1)
            seen = seen.masked_fill(later, NOT_SEEN).unflatten(0, (decoder_state.sentences, hypotheses))
            if padding is not None:
                seen = seen.masked_fill(padding[:, None, None], NOT_SEEN)
            seen = decoder_state.scatter(seen, default=NOT_SEEN)  # (S, K · m, P)

        first_step = indices.shape[1] - newest
        embedded = self._embed_words(words, first_step=first_step, padding=missing)
        states = self._with_marks(embedded, given)
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

    # --- decoder input ---

    def _embed_words(self, words: Tensor, *, first_step: int, padding: Tensor | None = None) -> Tensor:
        """Embed words without positions, which relations stand for. words: (R, m); returns (R, m, D)."""
        return self.dropout(self.scaled_embedding(words))

    def _with_marks(self, embedded: Tensor, given: Tensor | None) -> Tensor:
        """Mark given tokens. embedded: (R, m, D); given: (R, m)."""
        if self.given_mark is None or given is None:
            return embedded
        return embedded + given[..., None].to(embedded.dtype) * self.given_mark

    def _times_steps_back(self, signs: Tensor, *, padding: Tensor | None = None) -> Tensor:
        """Multiply the relations of the newest m tokens by how many steps ago the others were written.

        signs: (R, m, n); the paper's relations are left as they are. padding: (R,), number of tokens between
        the boundaries and the others that nobody wrote; None for none.
        """
        furthest = self.settings.steps_back
        if furthest == 1:  # the paper's
            return signs
        steps = torch.arange(signs.shape[2], device=signs.device)
        ago = steps[-signs.shape[1] :, None] - steps  # (m, n)
        if padding is not None:
            ago = ago - padding[:, None, None] * (steps < BOUNDARIES)  # (R, m, n)
        return signs * ago.clamp(1, furthest)

    def _relations(self, signed: Tensor, *, dtype: torch.dtype) -> Relations | None:
        """signed: (R, m, n)."""
        if not self.relative:
            return None
        return Relations.signed(signed, reach=self.settings.steps_back, dtype=dtype)

    # --- decoder output ---

    def word_query(self, states: Tensor, gap: Tensor | None = None) -> Tensor:
        """Query of the word head. states: (..., D); gap: (..., D), `gap_vector`, position first only."""
        if self.gap_to_word is None:
            return self.word_head.query(states)
        assert gap is not None
        return self.word_head.query(states, hint=self.gap_to_word(gap))

    def word_logits(self, query: Tensor) -> Tensor:
        """Logits of generated words, in single precision at least. query: (..., D); returns (..., V)."""
        if self.packed_words is not None:
            return torch.cat([product(query) for product in self.packed_words], dim=-1)
        return at_least_float(self.word_head(query, self.output_embedding))

    def vocabulary(self) -> Vocabulary:
        """All words that can be generated, to find the best of them quickly."""
        return Vocabulary(self.output_embedding[self.word_head.first :], packed=self.packed_words)

    def copyable(self, memory: Memory) -> Copyable | None:
        """What can be copied from the sources, computed once; None for a model that doesn't copy."""
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
        """Query of the gap head. states: broadcast to (..., D); words: (...), ids, word first only."""
        return self.gap_head.query(states, None if words is None else self.scaled_embedding(words))

    @staticmethod
    def gap_vector(keys: GapKeys, *, left: Tensor, right: Tensor) -> Tensor:
        """Describe gaps by the sum of their two keys.

        keys: (R, n, D) each; left, right: (R, G), neighbours of each gap; returns (R, G, D).
        """
        width = keys.left.shape[-1]
        left, right = (side[..., None].expand(-1, -1, width) for side in (left, right))
        return keys.right.gather(1, left) + keys.left.gather(1, right)
