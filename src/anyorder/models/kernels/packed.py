"""Linear maps laid out ahead for the CPU, in single precision or in eight bits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn

from anyorder.models import kernels
from anyorder.models.encoder_decoder import EncoderDecoder
from anyorder.models.indigo import Indigo
from anyorder.models.kernels.vocabulary import Product

PRECISIONS = ("fp32", "int8")
LARGE = 2**18  # weights; for smaller matrices a call costs more than it gains
ROWS = 32  # that the layout is made for; it serves any number well
WORDS_OF_BLOCK = {
    "fp32": 8192,
    "int8": 4096,
}  # of the vocabulary: their logits fit into a cache
Pack = Callable[[Tensor, Tensor | None], nn.Module]  # from a weight, (out, in), and a bias


def pack(model: EncoderDecoder, *, precision: str) -> None:
    """Replace a model's linear layers for good; it can't be trained any more."""
    if precision == "int8":
        _replace(model, Int8Linear, least=0, block=WORDS_OF_BLOCK[precision])
    elif model.embed_target.weight.device.type == "cpu" and kernels.enabled() and can_pack():
        _replace(model, PackedLinear, least=LARGE, block=WORDS_OF_BLOCK[precision])


class PackedLinear(nn.Module):
    """A linear layer in single precision by oneDNN. The plain twin is `nn.Linear`.

    A product with a single row waits for memory, and oneDNN reads its layout at half the speed of memory. So
    with the first such product, the plain matrix is kept too, one part for each thread.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.bias = None if bias is None else bias.detach()
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), ROWS)
        self._multiply = torch.ops.mkldnn._linear_pointwise.default  # looked up once
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
    """A matrix cut into one part for each thread, or into as many as divide it."""

    def __init__(self, weight: Tensor, bias: Tensor | None, *, threads: int) -> None:
        outputs, inputs = weight.shape
        parts = math.gcd(outputs, threads)
        self.threads = threads
        self._weight = weight.view(parts, -1, inputs)
        self._bias = None if bias is None else bias.view(parts, -1, 1)
        # The row as a column for every part, with the strides of a column. Otherwise torch would copy it,
        # which takes four times as long.
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
    """Whether this build of torch has the operations that `PackedLinear` uses."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _replace(model: EncoderDecoder, packed: Pack, *, least: int, block: int) -> None:
    """Replace matrices of at least `least` weights; block: words of the vocabulary in one product."""
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


LARGEST = 127  # integer that stands for a weight


class Int8Linear(nn.Module):
    """A linear layer with weights in eight bits."""

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
        # Torch takes one scale for all rows, from the smallest to the largest number. So rows are scaled to
        # the same size, and one more row has both 1 and -1: no row depends on its neighbours.
        scaled = torch.cat([rows / size, self._ends])
        product = _multiplied(scaled, self._packed)[:-1].mul_(size)
        return self._added(product).view(*states.shape[:-1], -1)

    def _added(self, product: Tensor) -> Tensor:
        return product if self.bias is None else product.add_(self.bias)


_multiply = torch.ops.quantized.linear_dynamic.default  # looked up once, since it is called many times a word


def _multiplied(states: Tensor, packed: Any) -> Tensor:  # noqa: ANN401
    # Seven bits: with eight, the sum of two products could overflow on processors that add in sixteen bits.
    product: Tensor = _multiply(states, packed, True)
    return product


def row_scales(weight: Tensor) -> Tensor:
    """Scale of the integers of each row. weight: (..., in); returns (..., 1)."""
    return (weight.abs().amax(dim=-1, keepdim=True) / LARGEST).clamp(min=torch.finfo(weight.dtype).tiny)


def _packed(weight: Tensor) -> Any:  # noqa: ANN401
    """Convert a weight, (out, in), to the layout of the kernel."""
    scale = row_scales(weight).squeeze(1)
    with warnings.catch_warnings():  # torch announces that it moves these tensors to another package
        warnings.simplefilter("ignore")
        integers = torch.quantize_per_channel(
            weight.float(), scale.double(), torch.zeros(len(scale), dtype=torch.long), 0, torch.qint8
        )
    return torch.ops.quantized.linear_prepack(integers, None)
