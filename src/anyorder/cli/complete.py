"""complete: write around what is given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from anyorder.cli.options import AS_JSON, DEVICE, HTML, RUN, SVG, TRACE, TRUST_CODE, with_decode_flags
from anyorder.cli.output import HypothesisPrinter, stdin_lines
from anyorder.config.decode import Decode
from anyorder.errors import UserError
from anyorder.models.kernels.malloc import freeze_objects

if TYPE_CHECKING:
    from anyorder.inference.generator import Generator
    from anyorder.inference.hypothesis import Completion

    Answer = Sequence[Completion] | UserError


@dataclass(frozen=True)
class Request:
    """A canvas to complete."""

    name: str  # in messages
    source: str | None
    canvas: dict[str, Any]
    fault: UserError | None = None  # why its line can't be read


BAD_INPUT = 2  # exit code

# Keys of [decode] that completion can't use.
UNUSED = (
    *Decode.keys_that_need("parallel"),
    *Decode.keys_that_need("editing"),
    "merge_partial",
    "max_target",
)


@with_decode_flags(without=UNUSED)
def complete(
    run: RUN,
    requests: Path | None = typer.Argument(
        None,
        help="JSONL, one source and canvas per line; default: stdin, unless flags give a canvas.",
        show_default=False,
    ),
    source: str | None = typer.Option(None, "--source", help="What to translate, describe, ..."),
    template: str | None = typer.Option(
        None, "--template", help="Text with blanks: ___, or ___{1,3} for one to three words."
    ),
    prefix: str | None = typer.Option(None, "--prefix", help="The target begins with it."),
    suffix: str | None = typer.Option(None, "--suffix", help="The target ends with it."),
    draft: str | None = typer.Option(None, "--draft", help="Text into which words may be inserted."),
    must: list[str] | None = typer.Option(
        None,
        "--must",
        help="A required word or phrase; | separates alternatives. May be repeated.",
        show_default=False,
    ),
    in_order: bool = typer.Option(False, "--in-order", help="--must in the order given, not in any."),
    forbid: list[str] | None = typer.Option(
        None, "--forbid", help="A forbidden word. May be repeated.", show_default=False
    ),
    trace: bool = TRACE,
    svg: Path | None = SVG,
    html: Path | None = HTML,
    as_json: bool = AS_JSON,
    device: str | None = DEVICE,
    trust_code: bool = TRUST_CODE,
    **decode: Any,  # noqa: ANN401 (keys of [decode], each with a type of its own)
) -> None:
    """Write around what is given of the target: required words, blanks, a prefix, a draft.

    Requests in JSONL have the same keys: {"source": "a dog", "must": ["Hund"], "forbid": ["Katze"]}.

    A request that can't be completed is reported on stderr and gets an empty line, or with --json an object
    with the key "error". All others are answered, and the exit code is 2.

    Example: `anyorder complete runs/l2r --source "a dog runs" --template "ein ___ rennt"`
    """
    from anyorder.inference.generator import Generator

    flags: dict[str, Any] = {"template": template, "prefix": prefix, "suffix": suffix, "draft": draft}
    flags |= {"must": must, "in_order": in_order or None, "forbid": forbid}
    canvas = {key: value for key, value in flags.items() if value is not None}
    by_flags = bool(canvas) or source is not None
    if by_flags and requests is not None:
        raise UserError(f"{requests}: give a file of requests, or flags that make one, not both")
    printer = HypothesisPrinter(as_json=as_json, trace=trace, svg=svg, html=html)
    asked = [Request("complete", source, canvas)] if by_flags else _read_requests(requests)
    generator = Generator.load(run, device=device, trust_code=trust_code)
    freeze_objects()
    answers = _complete(generator, asked, decode=decode)
    if by_flags and isinstance(answers[0], UserError):
        raise answers[0]
    for request, answer in zip(asked, answers, strict=True):
        if isinstance(answer, UserError):
            printer.show_error(request.source, str(answer))
        else:
            printer.show(request.source, answer)
    printer.write_files(title=f"What {run} writes")
    if any(isinstance(answer, UserError) for answer in answers):
        raise typer.Exit(BAD_INPUT)


def _complete(
    generator: Generator, requests: Sequence[Request], *, decode: Mapping[str, Any]
) -> list[Answer]:
    """Complete all requests that can be completed; the others get the error that says why not."""
    readable = [request for request in requests if request.fault is None]
    found = iter(
        generator.complete_or_refuse(
            [request.source or "" for request in readable],
            [request.canvas for request in readable],
            names=[request.name for request in readable],
            **decode,
        )
    )
    return [next(found) if request.fault is None else request.fault for request in requests]


def _read_requests(path: Path | None) -> list[Request]:
    from anyorder.data.readers import read_lines

    lines = enumerate(stdin_lines(), start=1) if path is None else read_lines(path)
    return [_read_request(line, name=f"{path or 'stdin'}:{number}") for number, line in lines]


def _read_request(line: str, *, name: str) -> Request:
    from anyorder.data.readers import has_half_characters, parsed_json

    def refused(why: str) -> Request:
        return Request(name, None, {}, fault=UserError(f"{name}: {why}"))

    try:
        values = parsed_json(line)
    except ValueError as error:
        return refused(f"not valid JSON ({error})")
    if has_half_characters(json.dumps(values, ensure_ascii=False)):
        return refused("holds half of a surrogate pair, which is no character")
    if not isinstance(values, dict):
        return refused('no JSON object; allowed: {"source": ..., "must": [...], ...}')
    source = values.pop("source", None)
    if not isinstance(source, str | None):
        return refused(f"source = {json.dumps(source)[:40]}: must be a string")
    return Request(name, source, values)
