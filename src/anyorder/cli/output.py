"""What commands read from stdin and print: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from anyorder.errors import UserError

if TYPE_CHECKING:
    from anyorder.inference.hypothesis import Hypothesis, Step


def stdin_lines() -> Iterator[str]:
    """Lines as they come, in UTF-8 whatever the locale says."""
    if sys.stdin is None:
        raise UserError("stdin: is closed; give a file")
    # A reader of its own: Python aborts at its end if a thread still waits inside that of sys.stdin.
    with os.fdopen(sys.stdin.fileno(), "rb", closefd=False) as lines:
        for number, line in enumerate(lines, start=1):
            try:
                # Some programs put a byte-order mark before the first line.
                coding = "utf-8-sig" if number == 1 else "utf-8"
                yield line.removesuffix(b"\n").removesuffix(b"\r").decode(coding)
            except UnicodeDecodeError as error:
                raise UserError(f"stdin:{number}: not valid UTF-8 ({error.reason})") from None


def _first_process() -> bool:
    """torchrun starts a command several times, and one of them is enough to speak."""
    return os.environ.get("RANK", "0") == "0"


# No markup: paths and words may have brackets.
results = Console(highlight=False, markup=False, soft_wrap=False)
remarks = Console(stderr=True, highlight=False, markup=False)


def print_json(value: Mapping[str, Any]) -> None:
    """One object, one line, at once."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_line(text: str) -> None:
    """A line of plain text, at once: whoever reads along should not wait for a buffer to fill."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def show_outputs(source: str | None, outputs: Sequence[Hypothesis], *, as_json: bool, trace: bool) -> None:
    """What a model wrote for one source, best first."""
    if as_json:
        print_json({"source": source, "hypotheses": [asdict(output) for output in outputs]})
    elif trace and outputs:
        from anyorder.viz.trace import draw

        for output in outputs:
            results.print(draw(output.steps, f"{output.text}  ({output.score:.3f})"))
    else:
        # A blank source has no outputs, but a line of its own, so that answers stay in step with sources.
        for text in [output.text for output in outputs] or [""]:
            print_line(text)


def check_output_file(flag: str, path: Path | None) -> None:
    """Refuse a file that has no name, or no folder to go to, before work is done for it."""
    if path is not None and (not path.name or path.is_dir()):
        raise UserError(f"{flag} {str(path)!r}: must be a file")
    if path is not None and not path.parent.is_dir():
        raise UserError(f"{flag} {path}: there is no folder {path.parent}")


def write_svg(path: Path, steps: Sequence[Step]) -> None:
    """A moving picture of how a sentence was written."""
    from anyorder.system.files import write_file
    from anyorder.viz.animation import svg

    if not steps:
        raise UserError(f"--svg {path}: no sentence with words was written, so there is nothing to draw")
    write_file(path, svg(steps).encode())


def table(*columns: str) -> Table:
    """Quiet, the first column to the left and numbers to the right."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, column in enumerate(columns):
        drawn.add_column(column, justify="left" if number == 0 else "right")
    return drawn
