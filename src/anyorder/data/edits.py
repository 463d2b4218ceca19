"""Training examples of an editor: drafts with the edits that make the targets of them, in batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder.data.batches import Ids, collate_sources
from anyorder.editing import (
    BOUNDARIES,
    NEVER,
    Alignment,
    CanvasTensors,
    EditCanvas,
    perform,
)
from anyorder.text.tokenizer import BOS, EOS

# B drafts, S source tokens, K edits, N tokens ever written


@dataclass(frozen=True)
class EditExample:
    """A draft, and how it becomes its target."""

    source: NDArray[np.generic]  # (S,) token ids; empty for editors without a source
    draft: Ids
    target: Ids
    alignment: Alignment
    order: Sequence[int]  # pairs of the alignment, in the order in which they are edited
    weight: float = 1.0  # factor of its loss


@dataclass(frozen=True)
class EditBatch:
    """Padded examples of an editor."""

    source: Tensor  # (B, S)
    source_mask: Tensor  # (B, S), bool: True for real tokens, False for padding
    canvas: CanvasTensors  # after all edits
    lengths: Tensor  # (B,), number of edits
    kind: Tensor  # (B, K), of each edit; padded with insertions
    left: Tensor  # (B, K), left neighbour of an insertion's gap, or the token that is substituted or deleted
    right: Tensor  # (B, K), right neighbour of the gap, or the same token
    weights: Tensor  # (B,), factor of each row's loss

    @property
    def steps(self) -> float:
        """Weighted number of steps with a loss, the end included."""
        return float((self.weights * (self.lengths + 1)).sum())

    @property
    def read(self) -> Tensor:
        """Number of tokens that the encoder reads of each source, (B,)."""
        return self.source_mask.sum(dim=1)

    def with_orders(self, chosen: Tensor) -> EditBatch:
        """Select drafts. chosen: their rows."""
        others = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "canvas"}
        rows = {name: value[chosen] for name, value in others.items()}
        return EditBatch(canvas=self.canvas.rows(chosen), **rows)

    def without_loss(self) -> EditBatch:
        """The same drafts, none of which counts."""
        return replace(self, weights=torch.zeros_like(self.weights))

    def to(self, device: torch.device) -> EditBatch:
        """Copy all tensors to a device."""
        return EditBatch(**{one.name: getattr(self, one.name).to(device) for one in fields(self)})


def collate_edits(examples: Sequence[EditExample]) -> EditBatch:
    """Make the edits of each example, and pad and stack everything."""
    room = max(len(example.draft) for example in examples)
    canvases = [EditCanvas(example.draft.tolist(), room=room) for example in examples]
    for canvas, example in zip(canvases, examples, strict=True):
        perform(canvas, example.alignment, example.target.tolist(), example.order)
    return edit_batch(
        canvases,
        sources=[example.source for example in examples],
        weights=[example.weight for example in examples],
    )


def edit_batch(
    canvases: Sequence[EditCanvas],
    *,
    sources: Sequence[NDArray[np.generic]],
    weights: Sequence[float] | None = None,
) -> EditBatch:
    """Stack edited canvases with their sources. weights: factor of each one's loss; None: 1."""
    lengths = torch.tensor([len(canvas.edits) for canvas in canvases])
    shape = (len(canvases), int(lengths.max()))
    kind, left = (torch.zeros(shape, dtype=torch.long) for _ in range(2))  # padding inserts after `<s>`
    right = torch.ones(shape, dtype=torch.long)
    for row, canvas in enumerate(canvases):
        real = slice(len(canvas.edits))
        kind[row, real] = torch.tensor([int(edit.kind) for edit in canvas.edits], dtype=torch.long)
        left[row, real] = torch.tensor([edit.token for edit in canvas.edits], dtype=torch.long)
        right[row, real] = torch.tensor(canvas.rights, dtype=torch.long)
    source, source_mask = collate_sources(sources)
    return EditBatch(
        source=source,
        source_mask=source_mask,
        canvas=stack_canvases(canvases),
        lengths=lengths,
        kind=kind,
        left=left,
        right=right,
        weights=torch.ones(len(canvases)) if weights is None else torch.tensor(weights),
    )


def stack_canvases(canvases: Sequence[EditCanvas]) -> CanvasTensors:
    """Put canvases that have the same room side by side."""
    block = BOUNDARIES + canvases[0].room
    columns = block + max(len(canvas.edits) for canvas in canvases)
    shape = (len(canvases), columns)
    words, marks, places = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    takes_place, real = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
    gone = np.full(shape, NEVER, dtype=np.int64)
    words[:, :BOUNDARIES] = BOS, EOS
    for row, canvas in enumerate(canvases):
        indices = canvas.indices()
        tokens = list(indices)
        places[row, tokens] = list(indices.values())
        real[row, tokens] = True
        takes_place[row, canvas.places] = True
        words[row, list(canvas.words)] = list(canvas.words.values())
        gone[row, list(canvas.gone)] = list(canvas.gone.values())
        marks[row, block : block + len(canvas.edits)] = [1 + edit.kind for edit in canvas.edits]
    return CanvasTensors(
        words=torch.from_numpy(words),
        marks=torch.from_numpy(marks),
        places=torch.from_numpy(places),
        takes_place=torch.from_numpy(takes_place),
        gone=torch.from_numpy(gone),
        real=torch.from_numpy(real),
        block=block,
    )
