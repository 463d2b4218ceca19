"""The algebra of insertion: relations, places, positions and gaps.

A canvas of n written tokens, both boundaries counted, is described in two equivalent ways:

- relations R (n, n): R[i, j] = -1, 0 or +1 as token i stands left of, is, or stands right of token j;
- places (n): where each token stands in the partial sentence, counted from 0 (`<s>`).

Tokens are numbered by the step that wrote them: 0 is `<s>`, 1 is `</s>`. Relations of two written tokens
never change; places do, with every insertion. The places of the finished sentence are the positions.

A gap is named by the place at its left: gap g lies between the places g and g + 1, so n tokens have
n - 1 gaps and a token that goes into gap g stands at place g + 1. Its other two names are its neighbours:
right of its left neighbour, left of its right neighbour.

Learning and decoding keep places, which are smaller, and take relations from them. The paper's own way, a
matrix that is extended by a row and a column a step, is here too, and tests hold the two together.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# B batch, T tokens of a target, n tokens on the canvas, N = T + 2 tokens on the finished canvas

LEFT, RIGHT = -1, 1
NEG_INF = float("-inf")  # log p of what can't be


def relations(indices: Tensor) -> Tensor:
    """Sign of place differences: -1 left of, 0 itself, +1 right of (Eq. 3).

    places: (..., n), or positions; returns (..., n, n), int8.
    """
    return torch.sign(indices[..., :, None] - indices[..., None, :]).to(torch.int8)


def indices_of(relations: Tensor) -> Tensor:
    """Where each token stands: the number of tokens that it is right of (Eq. 4).

    relations: (..., n, n); returns (..., n), counted from 0.
    """
    return relations.clamp(min=0).sum(dim=-1, dtype=torch.long)


def relation_row(relations: Tensor, *, neighbour: Tensor, side: Tensor) -> Tensor:
    """How a new token relates to the written ones when it is put beside one of them (Eq. 6).

    relations: (B, n, n); neighbour: (B,), a token; side: (B,), LEFT or RIGHT of it; returns (B, n).
    """
    row = relations[torch.arange(len(neighbour), device=neighbour.device), neighbour]  # (B, n), a copy
    return row.scatter_(1, neighbour[:, None], side[:, None].to(row.dtype))


def extend(relations: Tensor, row: Tensor) -> Tensor:
    """The relations with one more token: a row, its negation as a column, and a zero (Eq. 5).

    relations: (B, n, n); row: (B, n), the new token's; returns (B, n + 1, n + 1).

    The paper prints its matrices by columns: row i is token i's here.
    """
    zero = row.new_zeros(len(row), 1)
    above = torch.cat([relations, -row[:, :, None]], dim=2)  # (B, n, n + 1)
    below = torch.cat([row, zero], dim=1)[:, None, :]  # (B, 1, n + 1)
    return torch.cat([above, below], dim=1)


def insert(indices: Tensor, gap: Tensor) -> Tensor:
    """The places after one token went into a gap: those behind it move on by one.

    places: (B, n); gap: (B,); returns (B, n + 1).
    """
    index = gap[:, None] + 1
    return torch.cat([indices + (indices >= index), index], dim=1)


def reading_order(indices: Tensor) -> Tensor:
    """Which token stands at each place: the inverse permutation of the places.

    places: (..., n); returns (..., n).
    """
    tokens = torch.arange(indices.shape[-1], device=indices.device).expand_as(indices)
    return torch.empty_like(indices).scatter_(-1, indices, tokens)


def gap_beside(indices: Tensor, *, neighbour: Tensor, side: Tensor) -> Tensor:
    """The gap that lies at one side of a token.

    places: (B, n); neighbour: (B,); side: (B,), LEFT or RIGHT; returns (B,).
    """
    index = indices.gather(1, neighbour[:, None]).squeeze(1)
    return index - (side == LEFT).to(index.dtype)


def gap_neighbours(indices: Tensor) -> tuple[Tensor, Tensor]:
    """Every gap's left and right neighbour.

    places: (..., n); returns two (..., n - 1), tokens.
    """
    tokens = reading_order(indices)
    return tokens[..., :-1], tokens[..., 1:]


def legal_keys(n: int, *, device: torch.device | None = None) -> Tensor:
    """Which of the pointer's keys name a gap: all but left of `<s>` and right of `</s>`.

    Returns (2, n), bool: left keys, then right keys.
    """
    legal = torch.ones(2, n, dtype=torch.bool, device=device)
    legal[0, 0] = legal[1, 1] = False
    return legal


@dataclass(frozen=True)
class Supervision:
    """What a target in a given order teaches, step by step.

    After the boundaries there is a step for each token and one for `<eod>`. The state of token t predicts
    token t + 1, so state 0 (`<s>`) predicts nothing.
    """

    positions: Tensor  # (B, N), of every written token, boundaries included
    gap: Tensor  # (B, T), the gap that each token goes into, when it does
    left: Tensor  # (B, T), the gap's left neighbour: its right key names the gap
    right: Tensor  # (B, T), the gap's right neighbour: its left key names the gap
    mask: Tensor  # (B, T), bool: a real token, not padding


def supervise(order: Tensor, lengths: Tensor) -> Supervision:
    """The gaps and neighbours that lead to a sentence when it is written in the given order.

    order: (B, T), the position that each step fills, counted from 1; padding is ignored. lengths: (B,).
    """
    longest = order.shape[1]
    steps = torch.arange(longest, device=order.device)
    mask = steps < lengths[:, None]  # (B, T)
    # Padding stands behind `</s>`, where it is between no two real tokens.
    positions = torch.where(mask, order, lengths[:, None] + 2 + steps)
    boundaries = torch.stack([torch.zeros_like(lengths), lengths + 1], dim=1)
    positions = torch.cat([boundaries, positions], dim=1)  # (B, N)

    # A token's neighbours are the nearest positions on both sides among those written before it.
    new, old = positions[:, 2:, None], positions[:, None, :]  # (B, T, 1), (B, 1, N)
    written = torch.ones(longest, longest + 2, dtype=torch.bool, device=order.device).tril(diagonal=1)
    before, behind = (old < new) & written, (old > new) & written  # (B, T, N)
    beyond = positions.amax(dim=1)[:, None, None] + 1
    left = torch.where(before, old, -1).argmax(dim=2)
    right = torch.where(behind, old, beyond).argmin(dim=2)
    return Supervision(
        positions=positions,
        gap=(before.sum(dim=2) - 1).where(mask, 0),
        left=left.where(mask, 0),  # for padding, the gap of an empty canvas, which is always legal
        right=right.where(mask, 1),
        mask=mask,
    )
