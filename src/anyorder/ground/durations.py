"""Spans of time as people say them."""

from __future__ import annotations

SECONDS_AN_HOUR = 3600
_UNITS = {"days": 24 * SECONDS_AN_HOUR, "hours": SECONDS_AN_HOUR, "min": 60}  # in seconds


def duration(seconds: float) -> str:
    """In the unit that leaves a number that people can picture."""
    for unit, length in _UNITS.items():
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.3g} s"
