"""generate: write the answer to each source."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from anyorder.cli.options import AS_JSON, DEVICE, HTML, RUN, SVG, TRACE, with_decode_flags
from anyorder.cli.output import HypothesisPrinter, stdin_lines
from anyorder.config.decode import Decode
from anyorder.models.kernels.malloc import freeze_objects

if TYPE_CHECKING:
    from anyorder.inference.generation import Source
    from anyorder.inference.generator import Generator
    from anyorder.inference.hypothesis import Hypothesis


@with_decode_flags(without=Decode.keys_that_need("editing"))
def generate(
    run: RUN,
    inputs: list[Path] | None = typer.Argument(
        None,
        help="Files of sources, one per line (or photos, or .npy feature vectors); default: stdin.",
        show_default=False,
    ),
    at_once: int = typer.Option(64, "--at-once", min=1, help="Most lines to decode together."),
    trace: bool = TRACE,
    svg: Path | None = SVG,
    html: Path | None = HTML,
    as_json: bool = AS_JSON,
    device: str | None = DEVICE,
    precision: Literal["fp32", "int8"] = typer.Option(
        "fp32", "--precision", help="Precision of the weights; int8 is faster on a CPU."
    ),
    **decode: Any,  # noqa: ANN401 (keys of [decode], each with a type of its own)
) -> None:
    """Write the answer to each source, in order, as soon as it is known.

    Example: `echo "a dog runs" | anyorder generate runs/l2r --beam 5`

    Example: `anyorder generate runs/captions photo.jpg`
    """
    from anyorder.inference.generator import Generator

    printer = HypothesisPrinter(as_json=as_json, trace=trace, svg=svg, html=html)
    generator = Generator.load(run, device=device, precision=precision)
    freeze_objects()
    settings = generator.settings(**decode)
    for source, hypotheses in _answers(generator, _chunks(inputs, at_once=at_once), settings=settings):
        printer.show(str(source) if isinstance(source, str | Path) else None, hypotheses)
    printer.write_files(title=f"What {run} writes")


def read_sources(paths: list[Path]) -> Iterator[Source]:
    """Read the sources in files: lines of text, photos, or feature vectors."""
    from anyorder.data.features import SUFFIXES
    from anyorder.data.photos import is_photo
    from anyorder.data.readers import File, open_features, read_lines

    for path in paths:
        if is_photo(path):
            yield path
        elif path.suffix in SUFFIXES:
            yield from open_features(File(path))
        else:
            yield from (line for _, line in read_lines(path))


def _answers(
    generator: Generator, chunks: Iterator[list[Source]], *, settings: Decode
) -> Iterator[tuple[Source, list[Hypothesis]]]:
    """Pair each source with its hypotheses, as soon as its chunk is decoded."""
    line = 0
    for chunk in chunks:
        yield from zip(chunk, generator.answer(chunk, settings=settings, first_line=line), strict=True)
        line += len(chunk)


def _chunks(inputs: list[Path] | None, *, at_once: int) -> Iterator[list[Source]]:
    """Group sources that are decoded together, at most `at_once` of them."""
    if not inputs:
        yield from _chunks_of_stdin(at_once)
        return
    chunk: list[Source] = []
    for source in read_sources(inputs):
        chunk.append(source)
        if len(chunk) == at_once:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _chunks_of_stdin(at_once: int) -> Iterator[list[Source]]:
    """Group the lines that have arrived so far: a user who types lines should not wait for a full chunk."""
    lines: queue.Queue[str | Exception | None] = queue.Queue(maxsize=4 * at_once)

    def read() -> None:
        try:
            for line in stdin_lines():
                lines.put(line)
            lines.put(None)
        except Exception as error:  # raised again in the main thread, which sets the exit code
            lines.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        chunk: list[Source] = []
        entry = lines.get()
        while isinstance(entry, str):
            chunk.append(entry)
            if len(chunk) == at_once or lines.empty():
                break
            entry = lines.get()
        if chunk:
            yield chunk
        if isinstance(entry, Exception):
            raise entry
        if entry is None:
            return
