"""Commands that use a trained model: generate and score."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from anyorder.cli.input import stdin_lines
from anyorder.cli.orders import ORDER_FILE, order_section
from anyorder.cli.output import AS_JSON, SVG, print_json, print_line, results, write_svg
from anyorder.config import Decode
from anyorder.errors import UserError

if TYPE_CHECKING:
    from anyorder.generate import Output, Source, Writer
    from anyorder.replay import Step

RUN = Annotated[str, typer.Argument(help="Folder of a trained model.", show_default=False)]
DEVICE = typer.Option(None, "--device", help="auto, cpu, cuda, ...")


def _decode_option(key: str) -> Any:  # noqa: ANN401 (what typer's own option is typed as)
    """A flag for a key of the recipe's [decode], explained as it is there."""
    field, flag = Decode.model_fields[key], f"--{key.replace('_', '-')}"
    meaning = field.description or ""
    if field.annotation is bool:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    return typer.Option(flag, help=f"{meaning[:1].upper()}{meaning[1:]}.")


def generate(
    run: RUN,
    inputs: list[Path] | None = typer.Argument(
        None,
        help="Files of sources, a line each (or .npy feature vectors); default: stdin.",
        show_default=False,
    ),
    search: Annotated[Literal["two-step", "joint", "sample"] | None, _decode_option("search")] = None,
    beam: Annotated[int | None, _decode_option("beam")] = None,
    n_best: Annotated[int | None, _decode_option("n_best")] = None,
    length_penalty: Annotated[float | None, _decode_option("length_penalty")] = None,
    max_length: Annotated[int | None, _decode_option("max_length")] = None,
    max_ratio: Annotated[float | None, _decode_option("max_ratio")] = None,
    max_extra: Annotated[int | None, _decode_option("max_extra")] = None,
    merge: Annotated[bool | None, _decode_option("merge")] = None,
    merge_partial: Annotated[bool | None, _decode_option("merge_partial")] = None,
    temperature: Annotated[float | None, _decode_option("temperature")] = None,
    top_k: Annotated[int | None, _decode_option("top_k")] = None,
    top_p: Annotated[float | None, _decode_option("top_p")] = None,
    seed: Annotated[int | None, _decode_option("seed")] = None,
    at_once: int = typer.Option(64, "--at-once", min=1, help="Most lines to decode together."),
    trace: bool = typer.Option(False, "--trace", help="Draw how each output was written."),
    svg: Path | None = SVG,
    as_json: bool = AS_JSON,
    device: str | None = DEVICE,
) -> None:
    """Write the answer to each source, in order, as soon as it is known.

    Options that are not given are the recipe's [decode].

    Example: `echo "a dog runs" | anyorder generate runs/l2r --beam 5`
    """
    from anyorder.generate import Writer

    writer = Writer.load(run, device=device)
    settings = writer.settings(
        search=search,
        beam=beam,
        n_best=n_best,
        length_penalty=length_penalty,
        max_length=max_length,
        max_ratio=max_ratio,
        max_extra=max_extra,
        merge=merge,
        merge_partial=merge_partial,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    first: list[Step] = []
    for source, outputs in _answers(writer, _chunks(inputs, at_once=at_once), settings=settings):
        _show(source if isinstance(source, str) else None, outputs, as_json=as_json, trace=trace)
        first = first or (outputs[0].steps if outputs else [])
    if svg is not None:
        write_svg(svg, first)


def _answers(
    writer: Writer, chunks: Iterator[list[Source]], *, settings: Decode
) -> Iterator[tuple[Source, list[Output]]]:
    """Each source with its outputs, as soon as its chunk is decoded."""
    line = 0
    for chunk in chunks:
        yield from zip(chunk, writer.answer(chunk, settings=settings, first_line=line), strict=True)
        line += len(chunk)


def _show(source: str | None, outputs: list[Output], *, as_json: bool, trace: bool) -> None:
    if as_json:
        print_json({"source": source, "hypotheses": [asdict(output) for output in outputs]})
    elif trace and outputs:
        from anyorder.trace import draw

        for output in outputs:
            results.print(draw(output.steps, f"{output.text}  ({output.score:.3f})"))
    else:
        # A blank source has no outputs, but a line of its own, so that answers stay in step with sources.
        for text in [output.text for output in outputs] or [""]:
            print_line(text)


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
    from anyorder.reading import File, open_features, read_lines

    for path in inputs:
        if path.suffix == ".npy":
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


def score(
    run: RUN,
    source: Path = typer.Option(
        ..., "--source", help="File of sources, a line each, or .npy feature vectors."
    ),
    target: Path = typer.Option(..., "--target", help="File of targets, a line each."),
    order: str = typer.Option(
        "l2r", "--order", help="l2r, r2l, odd, blt, syn, cf, rf, rnd, file or module:function"
    ),
    parser: str | None = typer.Option(None, "--parser", help="spaCy pipeline for syn; default: the run's."),
    order_file: Path | None = ORDER_FILE,
    seed: int = typer.Option(1, "--seed", min=0, help="For rnd."),
    as_json: bool = AS_JSON,
    device: str | None = DEVICE,
) -> None:
    """log p of each target given its source, written in a given order; words and gaps apart.

    Example: `anyorder score runs/l2r --source dev.en --target dev.de --order l2r`
    """
    from anyorder.generate import Writer
    from anyorder.reading import read_lines

    writer = Writer.load(run, device=device)
    parser = parser or writer.trained.recipe.order.parser
    section = order_section(order, parser=parser, order_file=order_file)
    sources = list(_from_files([source]))
    targets = [line for _, line in read_lines(target)]
    if len(sources) != len(targets):
        raise UserError(f"{source} has {len(sources)} lines, {target} {len(targets)}: they must be as many")
    for one in writer.score(sources, targets, order=section, seed=seed):
        if as_json:
            print_json(asdict(one))
        else:
            print_line(f"{one.score:.4f}\t{one.word_score:.4f}\t{one.gap_score:.4f}")
