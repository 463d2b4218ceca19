"""What a decoder remembers: keys and values of what is written, and the source as its layers see it."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from anyorder.models.copying import Copyable
from anyorder.models.heads import GapKeys
from anyorder.models.kernels.vocabulary import Vocabulary


class DecoderState:
    """Everything known of the sentences under way, to write one more token at little cost.

    All hypotheses of a sentence put what they write into one pool, (S, P) tokens, and remember where their
    own tokens are in it. So a beam goes on with other hypotheses by changing a few indices.
    """

    def __init__(self, sources: list[SourceKeys], copyable: Copyable | None, vocabulary: Vocabulary) -> None:
        self.sources = sources  # one a layer
        self.copyable = copyable
        self.vocabulary = vocabulary
        self.caches = [KVCache() for _ in sources]
        self.left_keys, self.right_keys = VectorBuffer(), VectorBuffer()  # (S, P, D)
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
        indices = torch.arange(self.size, self.size + hypotheses * newest, device=self.own.device)
        added = indices.view(1, hypotheses, newest).expand(self.sentences, -1, -1)
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

    def seen_by(self, hypotheses: Tensor) -> DecoderState:
        """The same for some of the hypotheses, to ask what comes next. hypotheses: (S, B)."""
        theirs = copy(self)
        theirs.own = self._own_of(hypotheses)
        return theirs

    def _own_of(self, hypotheses: Tensor) -> Tensor:
        return self.own.gather(1, hypotheses[..., None].expand(-1, -1, self.own.shape[2]))

    def follow(self, parent: Tensor, staying: Tensor) -> None:
        """Go on with some sentences, each of their hypotheses where its parent stood.

        parent: (S, B), among the hypotheses so far; staying: (S',), sentences, rising.
        """
        self.own = self._own_of(parent)
        if len(staying) == len(parent):
            return
        self.own = self.own[staying]
        self.sources = [source.keep(staying) for source in self.sources]
        self.copyable = None if self.copyable is None else self.copyable.keep(staying)
        for cache in self.caches:
            cache.keep(staying)
        self.left_keys.keep(staying)
        self.right_keys.keep(staying)


@dataclass(frozen=True)
class SourceKeys:
    """A layer's view of the source, computed once a sentence."""

    key: Tensor  # (B, H, S, d)
    value: Tensor  # (B, H, S, d)
    # (B, 1, 1, S): 0 where real, -inf where padding; attention would make it of a mask at each step
    padding: Tensor

    def keep(self, sentences: Tensor) -> SourceKeys:
        """Only those of some sentences."""
        return SourceKeys(self.key[sentences], self.value[sentences], self.padding[sentences])


class KVCache:
    """A layer's keys and values of every token that any hypothesis of a sentence has written.

    Hypotheses share the pool and know their own tokens in it, so a beam never copies what it goes on with.
    Room is made ahead, and nothing is recomputed.
    """

    def __init__(self) -> None:
        self.key, self.value = VectorBuffer(), VectorBuffer()  # (B, H, K, d)

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add the newest, (B, H, Q, d) each; returns all of them, (B, H, K, d) each."""
        return self.key.append(key), self.value.append(value)

    def keep(self, sentences: Tensor) -> None:
        """Only those of some sentences."""
        self.key.keep(sentences)
        self.value.keep(sentences)


class VectorBuffer:
    """Vectors that become more along dimension -2, in a buffer that is grown by half when it is full."""

    def __init__(self) -> None:
        self._buffer: Tensor | None = None
        self._used = 0

    @property
    def vectors(self) -> Tensor:
        """Those added so far."""
        assert self._buffer is not None
        return self._buffer[..., : self._used, :]

    def append(self, newest: Tensor) -> Tensor:
        """Add some at the end; returns all."""
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
        """Only those of some sentences, the first dimension."""
        if self._buffer is not None:
            self._buffer = self._buffer[sentences]
