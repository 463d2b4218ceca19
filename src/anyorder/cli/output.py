"""What commands say: results on stdout, for people or as JSON for programs; everything else on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

results = Console(highlight=False, soft_wrap=False)
remarks = Console(stderr=True, highlight=False)

INTERRUPTED = 130  # exit code: 128 + SIGINT, as shells count

AS_JSON = typer.Option(False, "--json", help="Print JSON, one object a line.")


def print_json(value: Mapping[str, Any]) -> None:
    """One object, one line, at once."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_line(text: str) -> None:
    """A line of plain text, at once: whoever reads along should not wait for a buffer to fill."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def table(*columns: str) -> Table:
    """Quiet, the first column to the left and numbers to the right."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, column in enumerate(columns):
        drawn.add_column(column, justify="left" if number == 0 else "right")
    return drawn
