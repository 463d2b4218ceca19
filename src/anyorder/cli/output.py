"""What commands say: results on stdout, for people or as JSON for programs; everything else on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

from anyorder.errors import UserError

if TYPE_CHECKING:
    from anyorder.inference.hypothesis import Output, Step

# No markup: paths and words may have brackets.
results = Console(highlight=False, markup=False, soft_wrap=False)
remarks = Console(stderr=True, highlight=False, markup=False)

AS_JSON = typer.Option(False, "--json", help="Print JSON, one object a line.")
SVG = typer.Option(None, "--svg", help="File for a moving picture of how the first sentence is written.")


def print_json(value: Mapping[str, Any]) -> None:
    """One object, one line, at once."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_line(text: str) -> None:
    """A line of plain text, at once: whoever reads along should not wait for a buffer to fill."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def show_outputs(source: str | None, outputs: Sequence[Output], *, as_json: bool, trace: bool) -> None:
    """What a model wrote for one source, best first."""
    if as_json:
        print_json({"source": source, "hypotheses": [asdict(output) for output in outputs]})
    elif trace and outputs:
        from anyorder.views.trace import draw

        for output in outputs:
            results.print(draw(output.steps, f"{output.text}  ({output.score:.3f})"))
    else:
        # A blank source has no outputs, but a line of its own, so that answers stay in step with sources.
        for text in [output.text for output in outputs] or [""]:
            print_line(text)


def check_folder(flag: str, path: Path | None) -> None:
    """Refuse a file that has no name, or no folder to go to, before work is done for it."""
    if path is not None and (not path.name or path.is_dir()):
        raise UserError(f"{flag} {str(path)!r}: must be a file")
    if path is not None and not path.parent.is_dir():
        raise UserError(f"{flag} {path}: there is no folder {path.parent}")


def write_svg(path: Path, steps: Sequence[Step]) -> None:
    """A moving picture of how a sentence was written."""
    from anyorder.system.files import write_file
    from anyorder.views.svg import svg

    if not steps:
        raise UserError(f"--svg {path}: no sentence with words was written, so there is nothing to draw")
    write_file(path, svg(steps).encode())


def table(*columns: str) -> Table:
    """Quiet, the first column to the left and numbers to the right."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, column in enumerate(columns):
        drawn.add_column(column, justify="left" if number == 0 else "right")
    return drawn
