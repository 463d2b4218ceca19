"""A model that is only used: its matrices laid out ahead as the processor multiplies them.

Otherwise they are laid out anew at each product, which for a few rows takes longer than the product itself.
In eight bits there is also less to read. Only for CPUs; elsewhere, and where torch was built without oneDNN,
single precision is left as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import Tensor, nn

from anyorder.network.encoder_decoder import EncoderDecoder
from anyorder.network.model import Indigo
from anyorder.network.quantised import Int8Linear
from anyorder.network.vocabulary import Product

PRECISIONS = ("fp32", "int8")

LARGE = 2**18  # weights; below, a call costs more than it gains
ROWS = 32  # for which a layout is asked; it serves any number well
WORDS_OF_BLOCK = {"fp32": 8192, "int8": 4096}  # of the vocabulary, so that its logits fit into a cache

Pack = Callable[[Tensor, Tensor | None], nn.Module]  # of a weight, (out, in), and a bias


def pack(model: EncoderDecoder, *, precision: str) -> None:
    """Change a model's matrix products for good: it can't be trained any more."""
    if precision == "int8":
        _replace(model, Int8Linear, least=0, block=WORDS_OF_BLOCK[precision])
    elif model.embed_target.weight.device.type == "cpu" and can_pack():
        _replace(model, PackedLinear, least=LARGE, block=WORDS_OF_BLOCK[precision])


class PackedLinear(nn.Module):
    """A linear map in single precision by oneDNN.

    With one row alone all is waiting for memory, and oneDNN reads its layout at half the speed that memory
    has. So the first time that somebody asks for one, the plain matrix is kept too, a part for each thread.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.bias = None if bias is None else bias.detach()
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), ROWS)
        self._multiply = torch.ops.mkldnn._linear_pointwise.default  # looked up once: it is called often
        self._for_one_row: _Parts | None = None

    def forward(self, states: Tensor) -> Tensor:
        """states: (..., in)."""
        if states.numel() == states.shape[-1]:
            return self._parts().product(states)
        product: Tensor = self._multiply(states, self._packed, self.bias, "none", [], "")
        return product

    def _parts(self) -> _Parts:
        threads = torch.get_num_threads()
        if self._for_one_row is None or self._for_one_row.threads != threads:
            self._for_one_row = _Parts(self._packed.to_dense(), self.bias, threads=threads)
        return self._for_one_row


class _Parts:
    """A matrix cut into a part for each thread, T, or into as many as divide it."""

    def __init__(self, weight: Tensor, bias: Tensor | None, *, threads: int) -> None:
        outputs, inputs = weight.shape
        parts = math.gcd(outputs, threads)
        self.threads = threads
        self._weight = weight.view(parts, -1, inputs)
        self._bias = None if bias is None else bias.view(parts, -1, 1)
        # The row as a column for every part. Laid out as a column should be: of one that only looks like it,
        # torch would make copies, and take four times as long.
        self._column = (parts, inputs, 1), (0, 1, inputs)
        self._output = outputs

    def product(self, row: Tensor) -> Tensor:
        """row: (..., in), all but the last of one element; returns (..., out)."""
        states = row.contiguous().as_strided(*self._column)
        if self._bias is None:
            product = torch.bmm(self._weight, states)
        else:
            product = torch.baddbmm(self._bias, self._weight, states)
        return product.view(*row.shape[:-1], self._output)


def can_pack() -> bool:
    """Whether torch was built with what `PackedLinear` needs."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _replace(model: EncoderDecoder, packed: Pack, *, least: int, block: int) -> None:
    """least: weights that a matrix must have; block: words of the vocabulary that are multiplied together."""
    for module, name, linear in list(_linears(model)):
        if linear.weight.numel() >= least:
            setattr(module, name, packed(linear.weight, linear.bias))
    if isinstance(model, Indigo):
        words = model.output_embedding[model.word_head.first :]
        if words.numel() >= least:
            model.packed_words = [cast("Product", packed(rows, None)) for rows in words.split(block)]


def _linears(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Linear]]:
    for module in model.modules():
        for name, part in module.named_children():
            if isinstance(part, nn.Linear):
                yield module, name, part
