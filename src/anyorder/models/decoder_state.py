"""What a decoder remembers between steps: cached keys and values, and the encoded source.

The relations of written tokens never change, so their keys and values are computed once (Algorithm 1).
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from anyorder.insertion import BOUNDARIES
from anyorder.models.heads import Copyable, GapKeys
from anyorder.models.kernels.vocabulary import Vocabulary

# S sentences under way, K hypotheses of each, n tokens on a canvas, P tokens cached for a sentence


class DecoderState:
    """The sentences under way, ready to write one more token.

    All hypotheses of a sentence share one cache of P tokens, and `tokens` says which of them each hypothesis
    has written. A beam that goes on with other hypotheses changes these indices and copies nothing else.

    A sentence that joined later has written fewer tokens. Padding follows its boundaries (as in `Beam`), and
    the first vectors of its caches mean nothing; the padding refers to these.
    """

    def __init__(self, sources: list[SourceKeys], copyable: Copyable | None, vocabulary: Vocabulary) -> None:
        self.sources = sources  # one a layer
        self.copyable = copyable
        self.vocabulary = vocabulary
        self.caches = [KVCache() for _ in sources]  # one a layer
        self.left_keys, self.right_keys = VectorBuffer(), VectorBuffer()  # (S, P, D), of the gap head
        self.tokens = sources[0].key.new_zeros(self.sentences, 1, 0, dtype=torch.long)  # (S, K, n)
        self.size = 0  # P
        self.padding: Tensor | None = None  # (S,), padding on each canvas; None for none
        self.unused: Tensor | None = None  # (S,), meaningless vectors at the front of each cache

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

    @property
    def is_padding(self) -> Tensor | None:
        """Which tokens of each canvas are padding, (S, n), bool; None for none."""
        if self.padding is None:
            return None
        columns = torch.arange(self.tokens.shape[2], device=self.tokens.device)
        return (columns >= BOUNDARIES) & (columns < BOUNDARIES + self.padding[:, None])

    def padding_of_rows(self, rows: int) -> Tensor | None:
        """Number of padding tokens of each row, (R,); None for none. rows: R, a multiple of S."""
        if self.padding is None:
            return None
        return self.padding.repeat_interleave(rows // self.sentences)

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
        if self.padding is not None and self.unused is not None:
            self.padding, self.unused = self.padding[staying], self.unused[staying]

    def join(self, other: DecoderState) -> None:
        """Put the sentences of another state behind these; the shorter ones get padding."""
        size, longest = max(self.size, other.size), max(self.tokens.shape[2], other.tokens.shape[2])
        widest = max(self.tokens.shape[1], other.tokens.shape[1])
        parts = [one._aligned(size=size, length=longest, hypotheses=widest) for one in (self, other)]
        tokens, padding, unused = (torch.cat(both) for both in zip(*parts, strict=True))
        self.tokens, self.padding, self.unused, self.size = tokens, padding, unused, size
        self.sources = [mine.join(new) for mine, new in zip(self.sources, other.sources, strict=True)]
        if self.copyable is not None and other.copyable is not None:
            self.copyable = self.copyable.join(other.copyable)
        for mine, new in zip(self._buffers(), other._buffers(), strict=True):
            mine.join(new)

    def trim(self, columns: int) -> None:
        """Remove padding that all sentences have, and vectors that none of them uses. columns: of padding."""
        assert self.padding is not None and self.unused is not None
        if columns:
            self.padding = self.padding - columns
            self.tokens = torch.cat(
                [self.tokens[..., :BOUNDARIES], self.tokens[..., BOUNDARIES + columns :]], dim=2
            )
        vectors = int(self.unused.min())
        if vectors:
            self.unused = self.unused - vectors
            self.tokens = (self.tokens - vectors).clamp(min=0)  # padding goes on to refer to the first
            self.size -= vectors
            for buffer in self._buffers():
                buffer.trim(vectors)
        if not bool(self.padding.any() | self.unused.any()):  # a batch without padding is faster
            self.padding = self.unused = None

    def _buffers(self) -> list[VectorBuffer]:
        of_layers = [buffer for cache in self.caches for buffer in (cache.key, cache.value)]
        return [*of_layers, self.left_keys, self.right_keys]

    def _aligned(self, *, size: int, length: int, hypotheses: int) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, padding and unused vectors, once caches and canvases are so large, their ends aligned."""
        zeros = self.tokens.new_zeros(self.sentences)
        vectors, columns = size - self.size, length - self.tokens.shape[2]
        padded = self.is_padding
        tokens = self.tokens + vectors
        if padded is not None:
            tokens = tokens.masked_fill(padded[:, None], 0)
        more = tokens.new_zeros(*tokens.shape[:2], columns)
        tokens = torch.cat([tokens[..., :BOUNDARIES], more, tokens[..., BOUNDARIES:]], dim=2)
        missing = hypotheses - tokens.shape[1]
        tokens = torch.cat([tokens, tokens[:, :1].expand(-1, missing, -1)], dim=1)
        padding = (zeros if self.padding is None else self.padding) + columns
        return tokens, padding, (zeros if self.unused is None else self.unused) + vectors

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

    def join(self, other: SourceKeys) -> SourceKeys:
        """Put other sentences behind these, padded to the longest source of all."""
        both = [one._cut() for one in (self, other)]
        longest = max(one.key.shape[2] for one in both)
        both = [one._lengthened(longest - one.key.shape[2]) for one in both]
        return SourceKeys(
            torch.cat([one.key for one in both]),
            torch.cat([one.value for one in both]),
            torch.cat([one.padding for one in both]),
        )

    def _cut(self) -> SourceKeys:
        """Cut off what is padding in all sentences: those with long sources may have left."""
        real = (self.padding == 0).any(dim=0).flatten().nonzero()
        length = int(real[-1]) + 1 if len(real) else 1
        return SourceKeys(self.key[:, :, :length], self.value[:, :, :length], self.padding[..., :length])

    def _lengthened(self, more: int) -> SourceKeys:
        if not more:
            return self
        key, value = (pad(each, (0, 0, 0, more)) for each in (self.key, self.value))
        return SourceKeys(key, value, pad(self.padding, (0, more), value=float("-inf")))


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

    def join(self, other: VectorBuffer) -> None:
        """Put other sentences behind these, the newest vectors of all side by side."""
        used = max(self._used, other._used)
        mine, others = (
            pad(one.vectors, (0, 0, used - one._used, used // 2)) for one in (self, other)
        )  # zeros: what is masked out must still be a number
        self._buffer, self._used = torch.cat([mine, others]), used

    def trim(self, vectors: int) -> None:
        """Forget the first vectors."""
        assert self._buffer is not None
        self._buffer, self._used = self._buffer[..., vectors:, :], self._used - vectors
