"""What holds for each sentence of a batch from the first step to the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from anyorder.decoding.canvas import Canvas, ForbiddenWord
from anyorder.decoding.items import ItemGraph
from anyorder.text.tokenizer import PAD

# S sentences under way, K hypotheses of each, n tokens on the canvas, G = n - 1 gaps, W blanks, V ids,
# I items, A ways to go on with an item, L tokens of the longest template

UNLIMITED = 2**30


@dataclass(frozen=True)
class Constraints:
    """What holds for a batch from the beginning to the end; sentences by their number in the batch."""

    template: Tensor  # (sentences, L), tokens
    template_right: Tensor  # (sentences, L), the blank right of each, or CLOSED
    template_length: Tensor  # (sentences,)
    items: ItemGraph
    ends_word: Tensor  # (V,), bool: no piece that goes on with the next one
    before: Tensor  # (sentences,), the blank that each begins with, or CLOSED
    least: Tensor  # (sentences, W), words
    most: Tensor  # (sentences, W)
    narrow: Tensor  # (sentences,), bool: some blank has a most number of words
    any_counted: bool  # somebody asks for numbers of words
    limits: Tensor  # (sentences,), most tokens
    forbidden: tuple[tuple[ForbiddenWord, ...], ...]  # of each sentence
    required: Tensor  # (sentences, H), what an encoder is told, PAD where there is less

    @classmethod
    def of(cls, canvases: Sequence[Canvas], *, ends_word: Tensor, limits: Tensor) -> Constraints:
        """limits: (sentences,), most tokens to write, given ones among them."""
        device = ends_word.device
        least = [[blank.least for blank in canvas.blanks] for canvas in canvases]
        most = [
            [UNLIMITED if blank.most is None else blank.most for blank in canvas.blanks]
            for canvas in canvases
        ]
        return cls(
            template=_padded([[token for token, _ in canvas.template] for canvas in canvases], device=device),
            template_right=_padded(
                [[right for _, right in canvas.template] for canvas in canvases], device=device
            ),
            template_length=torch.tensor([len(canvas.template) for canvas in canvases], device=device),
            items=ItemGraph.of(canvases, device=device),
            ends_word=ends_word,
            before=torch.tensor([canvas.before for canvas in canvases], device=device),
            least=_padded(least, device=device, padding=0),
            most=_padded(most, device=device, padding=0),  # with fewer blanks, there is no room
            narrow=torch.tensor([canvas.narrow for canvas in canvases], device=device),
            any_counted=any(canvas.counted for canvas in canvases),
            limits=limits.to(device),
            forbidden=tuple(
                tuple(word.among(len(ends_word)) for word in canvas.forbidden) for canvas in canvases
            ),
            required=_padded([canvas.required for canvas in canvases], device=device),
        )

    def ends(self, words: Tensor) -> Tensor:
        """Whether each word's token is its last, of ids of any shape."""
        return self.ends_word[words]

    @cached_property
    def forbids(self) -> Tensor:
        """Whether each sentence has words that must not be written, (sentences,), bool."""
        return torch.tensor([bool(words) for words in self.forbidden], device=self.ends_word.device)

    @cached_property
    def has_pieces(self) -> bool:
        """Whether words may be written in several tokens."""
        return not bool(self.ends_word.all())


def _padded(rows: Sequence[Sequence[int]], *, device: torch.device, padding: int = PAD) -> Tensor:
    longest = max(map(len, rows))
    filled = [[*row, *[padding] * (longest - len(row))] for row in rows]
    return torch.tensor(filled, dtype=torch.long, device=device).view(len(rows), longest)
