"""The version of the package, for whoever writes files that another version may read."""

from __future__ import annotations

__version__ = "0.1.0"
