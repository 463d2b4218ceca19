"""What a decoder remembers between steps: cached keys and values, and the encoded source.

The relations of written tokens never change, so their keys and values are computed once (Algorithm 1).
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.models.heads import Copyable, GapKeys
from anyorder.models.kernels.vocabulary import Vocabulary

# S sentences under way, K hypotheses of each, n tokens on a canvas, P tokens cached for a sentence


class DecoderState:
    """The sentences under way, ready to write one more token.

    All hypotheses of a sentence share one cache of P tokens, and `tokens` says which of them each hypothesis
    has written. A beam that goes on with other hypotheses changes these indices and copies nothing else.
    """

    def __init__(self, sources: list[SourceKeys], copyable: Copyable | None, vocabulary: Vocabulary) -> None:
        self.sources = sources  # one a layer
        self.copyable = copyable
        self.vocabulary = vocabulary
        self.caches = [KVCache() for _ in sources]  # one a layer
        self.left_keys, self.right_keys = VectorBuffer(), VectorBuffer()  # (S, P, D), of the gap head
        self.tokens = sources[0].key.new_zeros(self.sentences, 1, 0, dtype=torch.long)  # (S, K, n)
        self.size = 0  # P

    @property
    def sentences(self) -> int:
        """Number of sentences under way."""
        return len(self.sources[0].key)

    @property
    def gap_keys(self) -> GapKeys:
        """Left and right keys of all cached tokens, (S, P, D) each."""
        return GapKeys(self.left_keys.vectors, self.right_keys.vectors)

    def reserve(self, hypotheses: int, newest: int) -> None:
        """Number the newest tokens of each hypothesis, before the layers append them to their caches."""
        if self.size == 0:
            self.tokens = self.tokens.expand(-1, hypotheses, -1)
        numbers = torch.arange(self.size, self.size + hypotheses * newest, device=self.tokens.device)
        added = numbers.view(1, hypotheses, newest).expand(self.sentences, -1, -1)
        self.tokens = torch.cat([self.tokens, added], dim=2)
        self.size += hypotheses * newest

    def scatter(self, values: Tensor, *, default: int) -> Tensor:
        """Spread values of a hypothesis's tokens over all cached tokens; the others get the default.

        values: (S, K, m, n); returns (S, K · m, P).
        """
        shape = (*values.shape[:3], self.size)
        spread = values.new_full(shape, default)
        spread.scatter_(3, self.tokens[:, :, None].expand_as(values), values)
        return spread.flatten(1, 2)

    def select(self, hypotheses: Tensor) -> DecoderState:
        """View the state of some hypotheses, to score their next step. hypotheses: (S, B)."""
        selected = copy(self)
        selected.tokens = self._tokens_of(hypotheses)
        return selected

    def follow(self, parent: Tensor, staying: Tensor) -> None:
        """Go on with some hypotheses of some sentences.

        parent: (S, B), the hypothesis that each new one continues; staying: (S',), sentences, rising.
        """
        self.tokens = self._tokens_of(parent)
        if len(staying) == len(parent):
            return
        self.tokens = self.tokens[staying]
        self.sources = [source.keep(staying) for source in self.sources]
        self.copyable = None if self.copyable is None else self.copyable.keep(staying)
        for cache in self.caches:
            cache.keep(staying)
        self.left_keys.keep(staying)
        self.right_keys.keep(staying)

    def _tokens_of(self, hypotheses: Tensor) -> Tensor:
        return self.tokens.gather(1, hypotheses[..., None].expand(-1, -1, self.tokens.shape[2]))


@dataclass(frozen=True)
class SourceKeys:
    """Keys and values of the encoded source for one decoder layer, computed once a sentence."""

    key: Tensor  # (B, H, S, d)
    value: Tensor  # (B, H, S, d)
    # (B, 1, 1, S): 0 for real vectors, -inf for padding. A boolean mask would be converted at every step.
    padding: Tensor

    def keep(self, sentences: Tensor) -> SourceKeys:
        """Keep some of the sentences."""
        return SourceKeys(self.key[sentences], self.value[sentences], self.padding[sentences])


class KVCache:
    """Keys and values of one decoder layer for every token that any hypothesis of a sentence has written."""

    def __init__(self) -> None:
        self.key, self.value = VectorBuffer(), VectorBuffer()  # (B, H, P, d)

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add the newest tokens, (B, H, Q, d) each; returns all, (B, H, P, d) each."""
        return self.key.append(key), self.value.append(value)

    def keep(self, sentences: Tensor) -> None:
        """Keep some of the sentences."""
        self.key.keep(sentences)
        self.value.keep(sentences)


class VectorBuffer:
    """A tensor that grows along dimension -2; room is made ahead, by half of what is used."""

    def __init__(self) -> None:
        self._buffer: Tensor | None = None
        self._used = 0

    @property
    def vectors(self) -> Tensor:
        """All vectors so far, (..., used, width)."""
        assert self._buffer is not None
        return self._buffer[..., : self._used, :]

    def append(self, newest: Tensor) -> Tensor:
        """Add vectors at the end; returns all."""
        before, self._used = self._used, self._used + newest.shape[-2]
        if self._buffer is None or self._buffer.shape[-2] < self._used:
            grown = newest.new_empty(
                *newest.shape[:-2], max(16, self._used + self._used // 2), newest.shape[-1]
            )
            if self._buffer is not None:
                grown[..., :before, :] = self._buffer[..., :before, :]
            self._buffer = grown
        self._buffer[..., before : self._used, :] = newest
        return self.vectors

    def keep(self, sentences: Tensor) -> None:
        """Keep some of the sentences, which are the first dimension."""
        if self._buffer is not None:
            self._buffer = self._buffer[sentences]
