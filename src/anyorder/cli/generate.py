"""generate: write the answer to each source."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from anyorder.cli.options import AS_JSON, DEVICE, RUN, SVG, decode_option
from anyorder.cli.output import check_output_file, show_outputs, stdin_lines, write_svg
from anyorder.config.decode import Decode
from anyorder.models.kernels.malloc import settle

if TYPE_CHECKING:
    from anyorder.inference.generator import Generator, Source
    from anyorder.inference.hypothesis import Hypothesis, Step


def generate(
    run: RUN,
    inputs: list[Path] | None = typer.Argument(
        None,
        help="Files of sources, a line each (or photos, or .npy feature vectors); default: stdin.",
        show_default=False,
    ),
    search: Annotated[Literal["two-step", "joint", "sample"] | None, decode_option("search")] = None,
    beam: Annotated[int | None, decode_option("beam")] = None,
    n_best: Annotated[int | None, decode_option("n_best")] = None,
    length_penalty: Annotated[float | None, decode_option("length_penalty")] = None,
    max_length: Annotated[int | None, decode_option("max_length")] = None,
    max_ratio: Annotated[float | None, decode_option("max_ratio")] = None,
    max_extra: Annotated[int | None, decode_option("max_extra")] = None,
    unknown: Annotated[bool | None, decode_option("unknown")] = None,
    merge: Annotated[bool | None, decode_option("merge")] = None,
    merge_partial: Annotated[bool | None, decode_option("merge_partial")] = None,
    partners: Annotated[list[Path] | None, decode_option("partners")] = None,
    reverse: Annotated[Path | None, decode_option("reverse")] = None,
    reverse_weight: Annotated[float | None, decode_option("reverse_weight")] = None,
    temperature: Annotated[float | None, decode_option("temperature")] = None,
    top_k: Annotated[int | None, decode_option("top_k")] = None,
    top_p: Annotated[float | None, decode_option("top_p")] = None,
    seed: Annotated[int | None, decode_option("seed")] = None,
    parallel: Annotated[bool | None, decode_option("parallel")] = None,
    eos_penalty: Annotated[float | None, decode_option("eos_penalty")] = None,
    at_once: int = typer.Option(64, "--at-once", min=1, help="Most lines to decode together."),
    trace: bool = typer.Option(False, "--trace", help="Draw how each output was written."),
    svg: Path | None = SVG,
    as_json: bool = AS_JSON,
    device: str | None = DEVICE,
    precision: Literal["fp32", "int8"] = typer.Option(
        "fp32", "--precision", help="Of the weights; int8 is faster on a CPU."
    ),
) -> None:
    """Write the answer to each source, in order, as soon as it is known.

    Options that are not given are the recipe's [decode].

    Example: `echo "a dog runs" | anyorder generate runs/l2r --beam 5`

    Example: `anyorder generate runs/captions photo.jpg`
    """
    from anyorder.inference.generator import Generator

    check_output_file("--svg", svg)
    generator = Generator.load(run, device=device, precision=precision)
    settle()
    settings = generator.settings(
        search=search,
        beam=beam,
        n_best=n_best,
        length_penalty=length_penalty,
        max_length=max_length,
        max_ratio=max_ratio,
        max_extra=max_extra,
        unknown=unknown,
        merge=merge,
        merge_partial=merge_partial,
        partners=partners or None,
        reverse=reverse,
        reverse_weight=reverse_weight,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        parallel=parallel,
        eos_penalty=eos_penalty,
    )
    first: list[Step] = []
    for source, outputs in _answers(generator, _chunks(inputs, at_once=at_once), settings=settings):
        named = str(source) if isinstance(source, str | Path) else None
        show_outputs(named, outputs, as_json=as_json, trace=trace)
        first = first or (outputs[0].steps if outputs else [])
    if svg is not None:
        write_svg(svg, first)


def _answers(
    generator: Generator, chunks: Iterator[list[Source]], *, settings: Decode
) -> Iterator[tuple[Source, list[Hypothesis]]]:
    """Each source with its outputs, as soon as its chunk is decoded."""
    line = 0
    for chunk in chunks:
        yield from zip(chunk, generator.answer(chunk, settings=settings, first_line=line), strict=True)
        line += len(chunk)


def _chunks(inputs: list[Path] | None, *, at_once: int) -> Iterator[list[Source]]:
    """Sources to decode together; from stdin, whatever has come by now: nobody waits for a full batch."""
    if not inputs:
        yield from _from_stdin(at_once)
        return
    chunk: list[Source] = []
    for source in _from_files(inputs):
        chunk.append(source)
        if len(chunk) == at_once:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _from_files(inputs: list[Path]) -> Iterator[Source]:
    from anyorder.data.features import SUFFIXES
    from anyorder.data.photos import is_photo
    from anyorder.data.readers import File, open_features, read_lines

    for path in inputs:
        if is_photo(path):
            yield path
        elif path.suffix in SUFFIXES:
            yield from open_features(File(path))
        else:
            yield from (line for _, line in read_lines(path))


def _from_stdin(at_once: int) -> Iterator[list[Source]]:
    lines: queue.Queue[str | Exception | None] = queue.Queue(maxsize=4 * at_once)

    def read() -> None:
        try:
            for line in stdin_lines():
                lines.put(line)
            lines.put(None)
        except Exception as error:  # said by the main thread, which owns the exit code
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
