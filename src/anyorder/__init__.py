"""Sequence models that write their words in any order, by insertion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyorder.errors import UserError
from anyorder.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from anyorder.inference.generator import Generator

__all__ = ["UserError", "__version__", "load"]


def load(folder: str | Path, *, device: str | None = None, precision: str = "fp32") -> Generator:
    """A trained model from its folder, ready to `generate` and `score`.

    precision: "fp32", or "int8" for weights of eight bits, which are read faster and are nearly as good.
    """
    from anyorder.inference.generator import (
        Generator,  # torch takes a second to import: only when it is needed
    )

    return Generator.load(folder, device=device, precision=precision)
