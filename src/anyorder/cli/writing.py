"""Commands that use a trained model: generate and score."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from anyorder.cli.input import stdin_lines
from anyorder.cli.orders import ORDER_FILE, order_section
from anyorder.cli.output import (
    AS_JSON,
    SVG,
    check_folder,
    print_json,
    print_line,
    results,
    show_outputs,
    table,
    write_svg,
)
from anyorder.config.decode import Decode
from anyorder.errors import UserError
from anyorder.models.kernels.malloc import settle

if TYPE_CHECKING:
    from anyorder.inference.hypothesis import Output, Step
    from anyorder.inference.scoring import Marginal, Score
    from anyorder.runs.generate import Source, Writer

RUN = Annotated[str, typer.Argument(help="Folder of a trained model.", show_default=False)]
DEVICE = typer.Option(None, "--device", help="auto, cpu, cuda, ...")


def decode_option(key: str) -> Any:  # noqa: ANN401 (what typer's own option is typed as)
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
    from anyorder.runs.generate import Writer

    check_folder("--svg", svg)
    writer = Writer.load(run, device=device, precision=precision)
    settle()
    settings = writer.settings(
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
    for source, outputs in _answers(writer, _chunks(inputs, at_once=at_once), settings=settings):
        named = str(source) if isinstance(source, str | Path) else None
        show_outputs(named, outputs, as_json=as_json, trace=trace)
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


def score(
    run: RUN,
    source: Path = typer.Option(
        ..., "--source", help="File of sources, a line each, or .npy feature vectors."
    ),
    target: Path = typer.Option(..., "--target", help="File of targets, a line each."),
    order: str = typer.Option(
        "l2r",
        "--order",
        help="l2r, r2l, odd, blt, syn, cf, rf, rnd, file or module:function; "
        "sao: the best order found; marginal: many orders added up.",
    ),
    parser: str | None = typer.Option(None, "--parser", help="For syn, as order.parser; default: the run's."),
    order_file: Path | None = ORDER_FILE,
    beam: int = typer.Option(8, "--beam", min=1, help="Orders to find for sao and marginal."),
    samples: int | None = typer.Option(
        None, "--samples", min=2, help="For marginal: orders to draw by chance, to estimate all others."
    ),
    seed: int = typer.Option(1, "--seed", min=0, help="For rnd and --samples."),
    total: bool = typer.Option(False, "--total", help="Print the sums over all pairs, not a line for each."),
    as_json: bool = AS_JSON,
    device: str | None = DEVICE,
) -> None:
    """log p of each target given its source, written in one order or in any.

    In one order, a line holds log p and its two parts: of the words and of the gaps.

    With --order marginal it holds a lower bound of log p in whatever order, which adds up the orders found
    and the one that the model was trained in; log p in the likeliest of them; and their number. With
    --samples the first is an estimate that counts all other orders too, and the last is its standard error,
    which knows only of what was drawn.

    Example: `anyorder score runs/l2r --source dev.en --target dev.de --order l2r`
    """
    from anyorder.data.readers import read_lines
    from anyorder.runs.generate import Writer

    _check_flags(order, order_file=order_file, samples=samples)
    writer = Writer.load(run, device=device)
    sources = list(_from_files([source]))
    targets = [line for _, line in read_lines(target)]
    if len(sources) != len(targets):
        raise UserError(f"{source} has {len(sources)} lines, {target} {len(targets)}: they must be as many")
    scores: Sequence[Score] | Sequence[Marginal]
    if order == "marginal":
        scores = writer.score(sources, targets, order="marginal", beam=beam, samples=samples, seed=seed)
    else:
        parser = parser or writer.trained.recipe.order.parser
        section = order_section(order, parser=parser, order_file=order_file)
        scores = writer.score(sources, targets, order=section, beam=beam, seed=seed)
    if total:
        _show_sums(scores, as_json=as_json)
        return
    for one in scores:
        if as_json:
            print_json(asdict(one))
        else:
            print_line("\t".join(_figures(one)))


def _check_flags(order: str, *, order_file: Path | None, samples: int | None) -> None:
    if order == "marginal" and order_file is not None:
        raise UserError(f"--order-file {order_file}: is for the orders syn and file, not for marginal")
    if order != "marginal" and samples is not None:
        raise UserError(f"--samples {samples}: is for --order marginal, not for {order}")


def _figures(one: Score | Marginal) -> list[str]:
    from anyorder.inference.scoring import Score

    if isinstance(one, Score):
        return [f"{figure:.4f}" for figure in (one.score, one.word_score, one.gap_score)]
    last = str(one.orders) if one.standard_error is None else f"{one.standard_error:.4f}"
    return [f"{one.score:.4f}", f"{one.best.score:.4f}", last]


def _show_sums(scores: Sequence[Score] | Sequence[Marginal], *, as_json: bool) -> None:
    sums = _sums(scores)
    if as_json:
        print_json(sums)
        return
    drawn = table(*(name.replace("_", " ") for name in sums))
    drawn.add_row(*(f"{value:,}" if isinstance(value, int) else f"{value:,.4f}" for value in sums.values()))
    results.print(drawn)


def _sums(scores: Sequence[Score] | Sequence[Marginal]) -> dict[str, float]:
    """Over all pairs; a step is a token or the end of a target."""
    from anyorder.inference.scoring import Marginal

    marginals = [one for one in scores if isinstance(one, Marginal)]
    in_one_order = [one.best if isinstance(one, Marginal) else one for one in scores]
    steps = sum(len(one.slots) + 1 for one in in_one_order)
    score = math.fsum(one.score for one in scores)
    sums = {"pairs": len(scores), "steps": steps, "score": score, "score_a_step": score / max(1, steps)}
    if not marginals:
        sums["word_score"] = math.fsum(one.word_score for one in in_one_order)
        sums["gap_score"] = math.fsum(one.gap_score for one in in_one_order)
        return sums
    sums["best_score"] = math.fsum(one.score for one in in_one_order)
    errors = [one.standard_error for one in marginals if one.standard_error is not None]
    if errors:
        sums["standard_error"] = math.hypot(*errors)  # pairs are drawn for independently
    return sums
