"""Commands that use a trained model: generate and score."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from anyorder.cli.input import stdin_lines
from anyorder.cli.output import AS_JSON, print_json, print_line, results
from anyorder.errors import UserError

if TYPE_CHECKING:
    from anyorder.generate import Output, Source

RUN = Annotated[str, typer.Argument(help="Folder of a trained model.", show_default=False)]
DEVICE = typer.Option(None, "--device", help="auto, cpu, cuda, ...")


def generate(
    run: RUN,
    inputs: list[Path] | None = typer.Argument(
        None,
        help="Files of sources, a line each (or .npy feature vectors); default: stdin.",
        show_default=False,
    ),
    beam: int | None = typer.Option(None, "--beam", help="Hypotheses kept; 1 is greedy."),
    n_best: int | None = typer.Option(None, "--n-best", help="Outputs a source."),
    search: Literal["two-step", "joint", "sample"] | None = typer.Option(None, "--search"),
    length_penalty: float | None = typer.Option(None, "--length-penalty"),
    max_length: int | None = typer.Option(None, "--max-length", help="Most tokens to write."),
    max_ratio: float | None = typer.Option(None, "--max-ratio", help="Most tokens relative to the source."),
    merge: bool | None = typer.Option(None, "--merge/--no-merge", help="Add up the orders of the same text."),
    temperature: float | None = typer.Option(None, "--temperature", help="Sampling."),
    top_k: int | None = typer.Option(None, "--top-k", help="Sampling."),
    top_p: float | None = typer.Option(None, "--top-p", help="Sampling."),
    seed: int | None = typer.Option(None, "--seed", help="Sampling."),
    at_once: int = typer.Option(64, "--at-once", min=1, help="Most lines to decode together."),
    trace: bool = typer.Option(False, "--trace", help="Draw how each output was written."),
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
        beam=beam,
        n_best=n_best,
        search=search,
        length_penalty=length_penalty,
        max_length=max_length,
        max_ratio=max_ratio,
        merge=merge,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    line = 0
    for chunk in _chunks(inputs, at_once=at_once):
        for source, outputs in zip(
            chunk, writer.answer(chunk, settings=settings, first_line=line), strict=True
        ):
            _show(source if isinstance(source, str) else None, outputs, as_json=as_json, trace=trace)
        line += len(chunk)


def _show(source: str | None, outputs: list[Output], *, as_json: bool, trace: bool) -> None:
    if as_json:
        print_json({"source": source, "hypotheses": [asdict(output) for output in outputs]})
    elif trace:
        from anyorder.trace import draw

        for output in outputs:
            results.print(draw(output.steps, f"{output.text}  ({output.score:.3f})"))
    else:
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
    import numpy as np

    from anyorder.reading import read_lines

    for path in inputs:
        if path.suffix != ".npy":
            yield from (line for _, line in read_lines(path))
            continue
        try:
            rows = np.load(path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError:
            raise UserError(f"{path}: no such file") from None
        except ValueError as error:
            raise UserError(f"{path}: not a .npy array: {error}") from None
        yield from (rows if rows.ndim == 3 else [rows])


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
    order_file: Path | None = typer.Option(
        None, "--order-file", help="CoNLL-U trees for syn, or permutations for file."
    ),
    seed: int = typer.Option(1, "--seed", min=0, help="For rnd."),
    as_json: bool = AS_JSON,
    device: str | None = DEVICE,
) -> None:
    """log p of each target given its source, written in a given order; words and gaps apart.

    Example: `anyorder score runs/l2r --source dev.en --target dev.de --order l2r`
    """
    from anyorder.config import Order
    from anyorder.generate import Writer
    from anyorder.orders import order_rule
    from anyorder.reading import read_lines

    order_rule(order)
    writer = Writer.load(run, device=device)
    section = Order(
        name=order,
        parser=parser or writer.trained.recipe.order.parser,
        files={"test": order_file} if order_file else {},
    )
    sources = list(_from_files([source]))
    targets = [line for _, line in read_lines(target)]
    if len(sources) != len(targets):
        raise UserError(f"{source} has {len(sources)} lines, {target} {len(targets)}: they must be as many")
    scores = writer.score(sources, targets, order=section, seed=seed)
    for one in scores:
        if as_json:
            print_json(asdict(one))
        else:
            print_line(f"{one.score:.4f}\t{one.word_score:.4f}\t{one.gap_score:.4f}")
