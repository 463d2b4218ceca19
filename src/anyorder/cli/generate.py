"""generate: write the answer to each source."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import typer

from anyorder.cli.options import AS_JSON, DEVICE, HTML, RUN, SVG, TRACE, TRUST_CODE, with_decode_flags
from anyorder.cli.output import HypothesisPrinter, stdin_lines
from anyorder.config.decode import Decode
from anyorder.errors import UserError
from anyorder.models.kernels.malloc import freeze_objects

if TYPE_CHECKING:
    from anyorder.inference.generation import Source
    from anyorder.inference.generator import Generator
    from anyorder.inference.hypothesis import Hypothesis


@with_decode_flags(without=(*Decode.keys_that_need("editing"), "max_target"))
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
    trust_code: bool = TRUST_CODE,
    **decode: Any,  # noqa: ANN401 (keys of [decode], each with a type of its own)
) -> None:
    """Write the answer to each source, in order, as soon as it is known.

    Example: `echo "a dog runs" | anyorder generate runs/l2r --beam 5`

    Example: `anyorder generate runs/captions photo.jpg`
    """
    from anyorder.inference.generator import Generator

    printer = HypothesisPrinter(as_json=as_json, trace=trace, svg=svg, html=html)
    generator = Generator.load(run, device=device, precision=precision, trust_code=trust_code)
    freeze_objects()
    settings = generator.settings(**decode)
    for source, hypotheses in _answers(generator, _chunks(inputs, at_once=at_once), settings=settings):
        printer.show(str(source) if isinstance(source, str | Path) else None, hypotheses)
    printer.write_files(title=f"What {run} writes")


class LocatedSource(NamedTuple):
    """A source, and where it stands, for messages."""

    where: str
    source: Source


def read_sources(paths: list[Path]) -> Iterator[LocatedSource]:
    """Read the sources in files: lines of text, photos, or feature vectors."""
    from anyorder.data.features import SUFFIXES
    from anyorder.data.photos import is_photo
    from anyorder.data.readers import File, open_features, read_lines

    for path in paths:
        if is_photo(path):
            yield LocatedSource(str(path), path)
        elif path.suffix in SUFFIXES:
            vectors = enumerate(open_features(File(path)), start=1)
            yield from (LocatedSource(f"{path}:{row}", source) for row, source in vectors)
        else:
            yield from (LocatedSource(f"{path}:{number}", line) for number, line in read_lines(path))


def _answers(
    generator: Generator, chunks: Iterator[list[LocatedSource]], *, settings: Decode
) -> Iterator[tuple[Source, list[Hypothesis]]]:
    """Pair each source with its hypotheses, as soon as its chunk is decoded."""
    line = 0
    for chunk in chunks:
        sources = [one.source for one in chunk]
        with located({"source": [one.where for one in chunk]}):
            answers = generator.answer(sources, settings=settings, first_line=line)
        yield from zip(sources, answers, strict=True)
        line += len(chunk)


@contextmanager
def located(places: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """Name the file and the line of a source or target that is refused. places: of each, by side."""
    from anyorder.inference.generation import RefusedInput

    try:
        yield
    except RefusedInput as error:
        raise UserError(f"{places[error.side][error.index]}: {error.side} of {error.reason}") from None


def _chunks(inputs: list[Path] | None, *, at_once: int) -> Iterator[list[LocatedSource]]:
    """Group sources that are decoded together, at most `at_once` of them."""
    if not inputs:
        yield from _chunks_of_stdin(at_once)
        return
    chunk: list[LocatedSource] = []
    for source in read_sources(inputs):
        chunk.append(source)
        if len(chunk) == at_once:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _chunks_of_stdin(at_once: int) -> Iterator[list[LocatedSource]]:
    """Group the lines that have arrived so far: a user who types lines should not wait for a full chunk."""
    lines: queue.Queue[LocatedSource | Exception | None] = queue.Queue(maxsize=4 * at_once)

    def read() -> None:
        try:
            for number, line in enumerate(stdin_lines(), start=1):
                lines.put(LocatedSource(f"stdin:{number}", line))
            lines.put(None)
        except Exception as error:  # raised again in the main thread, which sets the exit code
            lines.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        chunk: list[LocatedSource] = []
        entry = lines.get()
        while isinstance(entry, LocatedSource):
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
