"""The version of the package, in a module of its own so that everything can import it."""

from __future__ import annotations

__version__ = "0.1.0"
