"""What a server allows its clients, so that no request can take it over."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Bounds:
    """The most that one request may ask for; each field is a flag of `anyorder serve`."""

    max_body: int = 8 * 2**20  # bytes
    max_sources: int = 64  # sources
    max_tokens: int = 512  # tokens of a source or target, counted at white space
    max_characters: int = 20_000  # of a source or target
    max_length: int = 512  # tokens to write
    max_beam: int = 16
    max_samples: int = 64
    max_blanks: int = 16
    max_required: int = 16  # required and forbidden words
    max_deadline: float = 60.0  # seconds
    queue: int = 256  # sources that wait

    @classmethod
    def names(cls) -> list[str]:
        """The names of all bounds."""
        return [field.name for field in fields(cls)]
