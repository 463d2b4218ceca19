"""EfficientNet-Lite0, which knows ImageNet's photos, up to the grid that its classes are read from.

Mingxing Tan and Quoc V. Le: EfficientNet (2019). The Lite networks do without squeeze-and-excitation, and
have ReLU6 in place of swish. Parts are named as in the published weights, so that these fit as they are.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional

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
