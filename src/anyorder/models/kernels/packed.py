"""Linear maps laid out ahead for the CPU, in single precision or in eight bits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn

from anyorder.models.encoder_decoder import EncoderDecoder
from anyorder.models.indigo import Indigo
from anyorder.models.kernels.vocabulary import Product

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


LARGEST = 127  # of the integers that stand for weights


class Int8Linear(nn.Module):
    """A linear map whose weights are integers."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.bias = None if bias is None else bias.detach()
        self._packed = _packed(weight.detach())
        self._ends = torch.zeros(1, weight.shape[1])
        self._ends[0, :2] = torch.tensor([-1.0, 1.0])

    def forward(self, states: Tensor) -> Tensor:
        """states: (..., D)."""
        rows = states.reshape(-1, states.shape[-1])
        size = torch.linalg.vector_norm(rows, ord=float("inf"), dim=1, keepdim=True)
        size = size.clamp_(min=torch.finfo(states.dtype).tiny)
        # Torch takes one scale for all rows, from the least to the largest number. So they are made alike,
        # and one row more has both 1 and -1: none depends on its neighbours.
        scaled = torch.cat([rows / size, self._ends])
        product = _multiplied(scaled, self._packed)[:-1].mul_(size)
        return self._added(product).view(*states.shape[:-1], -1)

    def _added(self, product: Tensor) -> Tensor:
        return product if self.bias is None else product.add_(self.bias)


_multiply = torch.ops.quantized.linear_dynamic.default  # looked up once: it is called many times a word


def _multiplied(states: Tensor, packed: Any) -> Tensor:  # noqa: ANN401
    # Seven bits: with eight, sums of two products could overflow where a processor adds in sixteen.
    product: Tensor = _multiply(states, packed, True)
    return product


def row_scales(weight: Tensor) -> Tensor:
    """What the integers of each row are to be multiplied with; weight: (..., in), returns (..., 1)."""
    return (weight.abs().amax(dim=-1, keepdim=True) / LARGEST).clamp(min=torch.finfo(weight.dtype).tiny)


def _packed(weight: Tensor) -> Any:  # noqa: ANN401
    """As the kernel reads it; weight: (out, in)."""
    scale = row_scales(weight).squeeze(1)
    with warnings.catch_warnings():  # that torch moves such tensors to another package
        warnings.simplefilter("ignore")
        integers = torch.quantize_per_channel(
            weight.float(), scale.double(), torch.zeros(len(scale), dtype=torch.long), 0, torch.qint8
        )
    return torch.ops.quantized.linear_prepack(integers, None)
