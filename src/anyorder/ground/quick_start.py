"""A quicker start: a part of torch that takes a third of its import is left out until somebody asks for it.

It teaches torch the shapes that operators return, for compiling and exporting models. Writing text never does
either.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

SHAPES = "torch._meta_registrations"


class _Later(ModuleType):
    """A module that is imported when one of its names is asked for."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # the import system's own questions
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def put_off_shapes() -> None:
    """From now on, if torch is not there yet."""
    if "torch" not in sys.modules:
        sys.modules[SHAPES] = _Later(SHAPES)
