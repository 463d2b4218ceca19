"""What commands read from stdin and print: results go to stdout, everything else to stderr."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from anyorder.errors import UserError
from anyorder.inference.answers import Refused, Written, json_line
from anyorder.inference.hypothesis import Hypothesis

if TYPE_CHECKING:
    from anyorder.inference.hypothesis import Step
    from anyorder.viz.page import Replay

LONGEST_ANIMATION = 300  # words; an animation grows by their square

# Control characters, which can move the cursor, rename the window or hide text, except tab and newline.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Show control characters as escapes, so that text from a file can't control a terminal."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class SafeConsole(Console):
    """A console whose only control characters are its own styles."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as usual, with control characters in texts shown as escapes."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


# Without markup, because paths and words may contain brackets.
results = SafeConsole(highlight=False, markup=False, soft_wrap=False)
remarks = SafeConsole(stderr=True, highlight=False, markup=False)


def stdin_lines() -> Iterator[str]:
    """Read stdin line by line as UTF-8, whatever the locale is."""
    if sys.stdin is None:
        raise UserError("stdin: is closed; give a file")
    # Not sys.stdin itself: Python aborts at exit if a thread still waits for a line of it.
    with os.fdopen(sys.stdin.fileno(), "rb", closefd=False) as lines:
        for number, line in enumerate(lines, start=1):
            try:
                # Some programs put a byte-order mark before the first line.
                coding = "utf-8-sig" if number == 1 else "utf-8"
                yield line.removesuffix(b"\n").removesuffix(b"\r").decode(coding)
            except UnicodeDecodeError as error:
                raise UserError(f"stdin:{number}: not valid UTF-8 ({error.reason})") from None


def first_process() -> bool:
    """Whether this process prints results: torchrun starts a command several times, and one prints."""
    return os.environ.get("RANK", "0") == "0"


def print_json(value: Mapping[str, Any]) -> None:
    """Print one object on one line and flush it."""
    print_line(json_line(value))


def print_line(text: str) -> None:
    """Print a line of plain text and flush it, so that a program that reads along sees it at once.

    A terminal gets control characters as escapes; a file or a pipe gets the text as it is.
    """
    sys.stdout.write((visible(text) if sys.stdout.isatty() else text) + "\n")
    sys.stdout.flush()


def print_error(message: str) -> None:
    """Print an error on one line of stderr, in the form that all errors have."""
    with suppress(OSError):  # the disk may be full; the exit code says that something was wrong
        print(f"anyorder: {visible(' '.join(message.split()))}", file=sys.stderr, flush=True)


def table(*columns: str) -> Table:
    """Make a table without borders: the first column is aligned left, the others right."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, column in enumerate(columns):
        drawn.add_column(column, justify="left" if number == 0 else "right")
    return drawn


def check_equally_many(first: tuple[Path, Sized], second: tuple[Path, Sized]) -> None:
    """Refuse two files, given with their lines, that don't belong together line by line."""
    (path, lines), (other, other_lines) = first, second
    if len(lines) != len(other_lines):
        raise UserError(
            f"{path} has {len(lines)} lines, {other} has {len(other_lines)}: they must have equally many"
        )


def check_output_file(flag: str, path: Path | None) -> None:
    """Refuse a path that can't be written, before any work is done for it."""
    if path is not None and (not path.name or path.is_dir()):
        raise UserError(f"{flag} {str(path)!r}: must be a file")
    if path is not None and not path.parent.is_dir():
        raise UserError(f"{flag} {path}: there is no folder {path.parent}")


def write_svg(path: Path, steps: Sequence[Step]) -> None:
    """Write an animated picture of how a sentence was written."""
    from anyorder.system.files import write_file
    from anyorder.viz.animation import svg

    if len(steps) > LONGEST_ANIMATION:
        raise UserError(
            f"--svg {path}: the first sentence has {len(steps):,} words, and an animation has room for "
            f"{LONGEST_ANIMATION}"
        )
    if not steps:
        raise UserError(f"--svg {path}: no sentence with words was written, so there is nothing to draw")
    write_file(path, svg(steps).encode())


class HypothesisPrinter:
    """Prints the hypotheses of each source as they come, and draws them into files at the end.

    as_json, trace, svg and html are the flags of `generate` and `complete`.
    """

    def __init__(self, *, as_json: bool, trace: bool, svg: Path | None, html: Path | None) -> None:
        check_output_file("--svg", svg)
        check_output_file("--html", html)
        self._as_json, self._trace = as_json, trace
        self._svg, self._html = svg, html
        self._first: list[Step] = []  # steps of the first sentence that has words
        self._replays: list[Replay] = []

    def show(self, source: str | None, hypotheses: Sequence[Hypothesis]) -> None:
        """Print what a model wrote for one source, best first."""
        if self._as_json:
            print_line(Written[Hypothesis].model_construct(source=source, hypotheses=hypotheses).as_json())
        elif self._trace and any(hypothesis.tokens for hypothesis in hypotheses):
            from anyorder.viz.trace import draw_trace

            for hypothesis in hypotheses:
                results.print(draw_trace(hypothesis.steps, f"{hypothesis.text}  ({hypothesis.score:.3f})"))
        else:
            # A blank source has an empty line, so that lines match those of the input.
            for text in [hypothesis.text for hypothesis in hypotheses] or [""]:
                print_line(text)
        if hypotheses and self._svg is not None:
            self._first = self._first or hypotheses[0].steps
        if self._html is not None and any(hypothesis.tokens for hypothesis in hypotheses):
            self._replays.append(_replay(source, hypotheses))

    def show_error(self, source: str | None, message: str) -> None:
        """Print what is wrong with one source on stderr, and keep its line on stdout."""
        print_error(message)
        if self._as_json:
            print_line(Refused(source=source, error=message).as_json())
        else:
            print_line("")

    def write_files(self, *, title: str) -> None:
        """Write the files that --svg and --html name. title: of the page."""
        from anyorder.system.files import write_file

        if self._svg is not None:
            write_svg(self._svg, self._first)
        if self._html is not None:
            from anyorder.viz.page import page

            intro = (
                "Each sentence grows word by word. Press play, or go through its steps with the arrow keys."
            )
            write_file(self._html, page(title, self._replays, intro).encode())


def _replay(source: str | None, hypotheses: Sequence[Hypothesis]) -> Replay:
    from anyorder.viz.page import Rendition, Replay

    renditions = [
        Rendition(order=f"Hypothesis {number}", steps=hypothesis.steps, score=hypothesis.score)
        for number, hypothesis in enumerate(hypotheses, start=1)
    ]
    return Replay(renditions=renditions, source=source or "")
