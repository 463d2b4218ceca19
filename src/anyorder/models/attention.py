"""Self-attention with relations (Eq. 7), attention to the source, and the pre-norm layers around them.

The logit of a query and a key is q · (k + A[r]), where r is the relation of the two tokens. A (T, T, width)
tensor of the vectors A[r] is never built: q · A has one value for each kind of relation, and `Relations`
picks among these by a product with a one-hot that all layers share.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn

from anyorder.models.decoder_state import KVCache, SourceKeys
from anyorder.models.kernels.training import Dropout

# B batch, H heads, Q queries, K keys, D width, d = D / H width of a head, C kinds of relations


@dataclass(frozen=True)
class Relations:
    """The relation of each query to each key: one of C kinds, shared by all layers and heads."""

    one_hot: Tensor  # (B, Q, C, K), or (1, Q, C, K) if it is the same for the whole batch; float

    @classmethod
    def signed(cls, relations: Tensor, *, reach: int = 1, dtype: torch.dtype) -> Relations:
        """Relations of the decoder, (B, Q, K), from -reach to reach; any other value is of no kind."""
        kinds = torch.arange(-reach, reach + 1, device=relations.device, dtype=relations.dtype)
        return cls((relations[:, :, None, :] == kinds[:, None]).to(dtype))

    @classmethod
    def distances(cls, *lengths: int, clip: int, device: torch.device, dtype: torch.dtype) -> Relations:
        """Distances i - j in plain sequences, clipped to ±clip, also between different sequences."""
        ends = accumulate(lengths, lambda end, length: end + clip + length)
        offsets = torch.cat(
            [torch.arange(end - length, end) for end, length in zip(ends, lengths, strict=True)]
        )
        offsets = offsets.to(device)
        distance = (offsets[:, None] - offsets[None, :]).clamp(-clip, clip)  # (Q, K)
        kinds = torch.arange(-clip, clip + 1, device=device)
        return cls((distance[None, :, None, :] == kinds[:, None]).to(dtype))

    def bias(self, scores: Tensor) -> Tensor:
        """Pick each pair's score. scores: (B, H, Q, C), q · A; returns (B, H, Q, K)."""
        if len(self.one_hot) == 1 < len(scores):  # one for the whole batch, which joins the heads
            picked = torch.matmul(scores.permute(2, 0, 1, 3).flatten(1, 2), self.one_hot[0])  # (Q, B·H, K)
            return picked.unflatten(1, scores.shape[:2]).permute(1, 2, 0, 3)
        return torch.matmul(scores.transpose(1, 2), self.one_hot).transpose(1, 2)


def split_heads(states: Tensor, heads: int) -> Tensor:
    """(B, T, D) to (B, H, T, d)."""
    return states.view(*states.shape[:-1], heads, -1).transpose(1, 2)


def join_heads(states: Tensor) -> Tensor:
    """(B, H, T, d) to (B, T, D)."""
    return states.transpose(1, 2).flatten(2)


class SelfAttention(nn.Module):
    """Attention among the tokens of one sequence, with or without relations (Eq. 7)."""

    def __init__(self, *, width: int, heads: int, kinds: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.scale = (width // heads) ** -0.5
        # No biases, as in Eq. 7: a key's would shift all logits of a query alike and be trained by noise.
        self.project = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width)
        self.dropout = Dropout(dropout)
        # A: a vector for each kind of relation and head.
        self.relation_keys = nn.Parameter(torch.empty(heads, kinds, width // heads)) if kinds else None
        if self.relation_keys is not None:
            nn.init.normal_(self.relation_keys, std=width**-0.5)

    def queries_keys_values(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """states: (B, T, D); returns three (B, H, T, d)."""
        query, key, value = self.project(states).chunk(3, dim=-1)
        return (
            split_heads(query * self.scale, self.heads),
            split_heads(key, self.heads),
            split_heads(value, self.heads),
        )

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        relations: Relations | None,
        blocked: Tensor | None,
    ) -> Tensor:
        """query: (B, H, Q, d); key, value: (B, H, K, d); blocked: broadcast to (B, H, Q, K).

        Returns (B, Q, D).
        """
        logits = torch.matmul(query, key.mT)  # (B, H, Q, K)
        if self.relation_keys is not None:
            assert relations is not None
            logits = logits + relations.bias(torch.matmul(query, self.relation_keys.mT))
        if blocked is not None:
            logits = logits.masked_fill(blocked, float("-inf"))
        weights = self.dropout(logits.softmax(dim=-1))
        return self.output(join_heads(torch.matmul(weights, value)))

    def forward(self, states: Tensor, *, relations: Relations | None, blocked: Tensor | None) -> Tensor:
        """states: (B, T, D); blocked: broadcast to (B, H, T, T), True where a query must not look."""
        query, key, value = self.queries_keys_values(states)
        return self.attend(query, key, value, relations=relations, blocked=blocked)


class CrossAttention(nn.Module):
    """Attention from the written tokens to the source."""

    def __init__(self, *, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.scale = (width // heads) ** -0.5
        self.dropout = Dropout(dropout)
        self.query = nn.Linear(width, width, bias=False)
        self.project = nn.Linear(width, 2 * width, bias=False)
        self.output = nn.Linear(width, width)

    def keys_values(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Project the source, once a sentence. source: (B, S, D); returns two (B, H, S, d)."""
        key, value = (split_heads(half, self.heads) for half in self.project(source).chunk(2, dim=-1))
        return key.contiguous(), value.contiguous()  # otherwise the product of every step would copy them

    def forward(self, states: Tensor, key: Tensor, value: Tensor, *, padding: Tensor) -> Tensor:
        """states: (B, Q, D); key, value: (B, H, S, d); padding: (B, 1, 1, S), added to logits."""
        query = split_heads(self.query(states) * self.scale, self.heads)
        # Torch's fused attention is slower for one query, as in decoding, and has no dropout on a CPU.
        weights = self.dropout((torch.matmul(query, key.mT) + padding).softmax(dim=-1))
        attended = torch.matmul(weights, value)
        return self.output(join_heads(attended))


class FeedForward(nn.Sequential):
    """Two linear maps and a ReLU."""

    def __init__(self, *, width: int, hidden: int, dropout: float) -> None:
        super().__init__(
            nn.Linear(width, hidden), nn.ReLU(inplace=True), Dropout(dropout), nn.Linear(hidden, width)
        )


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward part, each with layer norm at its entry."""

    def __init__(self, *, width: int, hidden: int, heads: int, kinds: int, dropout: float) -> None:
        super().__init__()
        self.attention = SelfAttention(width=width, heads=heads, kinds=kinds, dropout=dropout)
        self.attention_norm = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width=width, hidden=hidden, dropout=dropout)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(self, states: Tensor, *, relations: Relations | None, blocked: Tensor) -> Tensor:
        """states: (B, S, D); blocked: (B, 1, 1, S)."""
        attended = self.attention(self.attention_norm(states), relations=relations, blocked=blocked)
        states = states + self.dropout(attended)
        return states + self.dropout(self.feed_forward(self.feed_forward_norm(states)))


class DecoderLayer(nn.Module):
    """Self-attention over the written tokens, attention to the source, and a feed-forward part."""

    def __init__(self, *, width: int, hidden: int, heads: int, kinds: int, dropout: float) -> None:
        super().__init__()
        self.attention = SelfAttention(width=width, heads=heads, kinds=kinds, dropout=dropout)
        self.attention_norm = nn.LayerNorm(width)
        self.cross = CrossAttention(width=width, heads=heads, dropout=dropout)
        self.cross_norm = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width=width, hidden=hidden, dropout=dropout)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        states: Tensor,
        *,
        relations: Relations | None,
        blocked: Tensor | None,
        source: SourceKeys,
        cache: KVCache | None = None,
    ) -> Tensor:
        """states: (R, Q, D); R is a multiple of the B sources, and rows of one source lie side by side.

        With a cache, R = B and the queries are the newest tokens of all hypotheses of a sentence; blocked
        hides the keys of other hypotheses. relations: (R, Q, K); blocked: broadcast to (R, H, Q, K).
        """
        query, key, value = self.attention.queries_keys_values(self.attention_norm(states))
        if cache is not None:
            key, value = cache.append(key, value)
        attended = self.attention.attend(query, key, value, relations=relations, blocked=blocked)
        states = states + self.dropout(attended)

        # All rows of a source are queries of one attention, so its keys are not copied for each order.
        rows = self.cross_norm(states).reshape(len(source.key), -1, states.shape[-1])  # (B, R / B · Q, D)
        attended = self.cross(rows, source.key, source.value, padding=source.padding)
        states = states + self.dropout(attended.reshape(states.shape))
        return states + self.dropout(self.feed_forward(self.feed_forward_norm(states)))
