"""The algebra of insertion: relations, positions and gaps (Eq. 3 to 6 of the paper).

Tokens are numbered by the step t that writes them: y_0 is `<s>`, y_1 is `</s>`, y_2 is the first real token.
The canvas is the partial sequence of n = t + 1 tokens, boundaries included. Two descriptions of it are
equivalent:

- indices z (n,): z[i] is where token i stands on the canvas, counted from 0. Every insertion shifts the
  indices of the tokens to its right. On the finished canvas, indices are the final positions.
- relations R (n, n): R[i, j] = sign(z[i] - z[j]), so -1, 0 or +1 if token i is left of, is, or is right of
  token j. Once two tokens are written, their relation never changes. Row i belongs to token i; the paper
  prints the transpose.

A gap is the space between two neighbours on the canvas. Gap g lies between the indices g and g + 1, so n
tokens have n - 1 gaps, and a token inserted into gap g gets the index g + 1. The pointer network names every
gap twice: by the right key of its left neighbour and by the left key of its right neighbour.

Training and decoding store indices, which are smaller, and compute relations from them. `relation_row` and
`extend` build the same matrix as the paper does, one row and one column per step; tests compare the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# B batch, T tokens of a target, n tokens on the canvas, N = T + 2 tokens on the finished canvas

BOUNDARIES = 2  # the first tokens of every canvas
LEFT, RIGHT = -1, 1  # the paper's s: on which side of an existing token the new one goes
NEG_INF = float("-inf")  # log-probability of the impossible


def relations(indices: Tensor) -> Tensor:
    """Compare all pairs of tokens: -1 left of, 0 itself, +1 right of (Eq. 3).

    indices: (..., n), on the canvas, or final positions; returns R, (..., n, n), int8.
    """
    return torch.sign(indices[..., :, None] - indices[..., None, :]).to(torch.int8)


def canvas_indices(relations: Tensor) -> Tensor:
    """Recover each token's index on the canvas: the number of tokens that it is right of (Eq. 4).

    relations: (..., n, n); returns z, (..., n), counted from 0.
    """
    return relations.clamp(min=0).sum(dim=-1, dtype=torch.long)


def extend(relations: Tensor, row: Tensor) -> Tensor:
    """Add a new token to R: its row, the negated row as a column, and a zero in the corner (Eq. 5).

    relations: R of step t, (B, n, n); row: (B, n), from `relation_row`; returns R of step t + 1,
    (B, n + 1, n + 1).
    """
    zero = row.new_zeros(len(row), 1)
    above = torch.cat([relations, -row[:, :, None]], dim=2)  # (B, n, n + 1)
    below = torch.cat([row, zero], dim=1)[:, None, :]  # (B, 1, n + 1)
    return torch.cat([above, below], dim=1)


def relation_row(relations: Tensor, *, neighbour: Tensor, side: Tensor) -> Tensor:
    """Relate a new token to the written ones: it shares its neighbour's relations, except to it (Eq. 6).

    relations: (B, n, n); neighbour: (B,), the existing token k; side: (B,), s, LEFT or RIGHT of k;
    returns r of the new token, (B, n).
    """
    row = relations[torch.arange(len(neighbour), device=neighbour.device), neighbour]  # (B, n), a copy
    return row.scatter_(1, neighbour[:, None], side[:, None].to(row.dtype))


def insert(indices: Tensor, gap: Tensor) -> Tensor:
    """Insert a new token into a gap: the tokens to the right of the gap move on by one.

    indices: (B, n); gap: (B,); returns (B, n + 1), the new token last.
    """
    index = gap[:, None] + 1
    return torch.cat([indices + (indices >= index), index], dim=1)


def reading_order(indices: Tensor) -> Tensor:
    """List the tokens from left to right: the inverse permutation of their indices.

    indices: (..., n); returns (..., n), the token at each index.
    """
    tokens = torch.arange(indices.shape[-1], device=indices.device).expand_as(indices)
    return torch.empty_like(indices).scatter_(-1, indices, tokens)


def gap_beside(indices: Tensor, *, neighbour: Tensor, side: Tensor) -> Tensor:
    """Find the gap directly to the left or right of a token.

    indices: (B, n); neighbour: (B,), the token; side: (B,), LEFT or RIGHT of it; returns (B,).
    """
    index = indices.gather(1, neighbour[:, None]).squeeze(1)
    return index - (side == LEFT).to(index.dtype)


def gap_neighbours(indices: Tensor) -> tuple[Tensor, Tensor]:
    """Find the left and the right neighbour of every gap.

    indices: (..., n); returns two (..., n - 1), tokens.
    """
    tokens = reading_order(indices)
    return tokens[..., :-1], tokens[..., 1:]


def legal_keys(n: int, *, device: torch.device | None = None) -> Tensor:
    """Mark the pointer's keys that name a gap: all but the left key of `<s>` and the right key of `</s>`.

    Returns (2, n), bool: the left keys of all tokens, then their right keys.
    """
    legal = torch.ones(2, n, dtype=torch.bool, device=device)
    legal[0, 0] = legal[1, 1] = False
    return legal


@dataclass(frozen=True)
class Supervision:
    """The insertions that write each target in its order, which is what the model learns to predict.

    The decoder's state of token t predicts token t + 1 and its gap. State 0 (`<s>`) predicts nothing, and the
    state of the last token predicts `<eod>`, which has no gap.
    """

    positions: Tensor  # (B, N), final position of each token, boundaries included
    gap: Tensor  # (B, T), gap that each token is inserted into, on the canvas of its step
    left: Tensor  # (B, T), left neighbour of the gap, whose right key names it
    right: Tensor  # (B, T), right neighbour of the gap, whose left key names it
    mask: Tensor  # (B, T), bool: True for a real token, False for padding


def supervise(order: Tensor, lengths: Tensor) -> Supervision:
    """Work out the insertions that write targets in the given orders.

    order: (B, T), the final position that each step fills, counted from 1, padded with any number;
    lengths: (B,), real tokens.
    """
    longest = order.shape[1]
    steps = torch.arange(longest, device=order.device)
    mask = steps < lengths[:, None]  # (B, T)
    # Padding goes to the right of `</s>`, where it can't come between two real tokens.
    positions = torch.where(mask, order, lengths[:, None] + 2 + steps)
    boundaries = torch.stack([torch.zeros_like(lengths), lengths + 1], dim=1)
    positions = torch.cat([boundaries, positions], dim=1)  # (B, N)

    # The neighbours of a new token are the nearest tokens on both sides that are already written.
    new, old = positions[:, 2:, None], positions[:, None, :]  # (B, T, 1), (B, 1, N)
    written = torch.ones(longest, longest + 2, dtype=torch.bool, device=order.device).tril(diagonal=1)
    left_of_new, right_of_new = (old < new) & written, (old > new) & written  # (B, T, N)
    beyond = positions.amax(dim=1)[:, None, None] + 1
    left = torch.where(left_of_new, old, -1).argmax(dim=2)
    right = torch.where(right_of_new, old, beyond).argmin(dim=2)
    return Supervision(
        positions=positions,
        gap=(left_of_new.sum(dim=2) - 1).where(mask, 0),
        left=left.where(mask, 0),  # padding gets the only gap of an empty canvas, which is always legal
        right=right.where(mask, 1),
        mask=mask,
    )
