"""complete: write around what is given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from anyorder.cli.options import AS_JSON, DEVICE, HTML, RUN, SVG, TRACE, with_decode_flags
from anyorder.cli.output import HypothesisPrinter, stdin_lines
from anyorder.config.decode import Decode
from anyorder.errors import UserError
from anyorder.models.kernels.malloc import settle

Request = tuple[str, str | None, dict[str, Any]]  # its name in messages, its source and its canvas

# Keys of [decode] that completion can't use.
UNUSED = (*Decode.keys_that_need("parallel"), "merge_partial")


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
    **decode: Any,  # noqa: ANN401 (keys of [decode], each with a type of its own)
) -> None:
    """Write around what is given of the target: required words, blanks, a prefix, a draft.

    Requests in JSONL have the same keys: {"source": "a dog", "must": ["Hund"], "forbid": ["Katze"]}.

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
    asked: list[Request] = [("complete", source, canvas)] if by_flags else list(_read_requests(requests))
    generator = Generator.load(run, device=device)
    settle()
    found = generator.complete(
        [source or "" for _, source, _ in asked],
        [canvas for _, _, canvas in asked],
        names=[name for name, _, _ in asked],
        **decode,
    )
    for (_, asked_source, _), hypotheses in zip(asked, found, strict=True):
        printer.show(asked_source, hypotheses)
    printer.write_files(title=f"What {run} writes")


def _read_requests(path: Path | None) -> Iterator[Request]:
    from anyorder.data.readers import has_half_characters, parsed_json, read_lines

    lines = enumerate(stdin_lines(), start=1) if path is None else read_lines(path)
    for number, line in lines:
        name = f"{path or 'stdin'}:{number}"
        try:
            values = parsed_json(line)
        except ValueError as error:
            raise UserError(f"{name}: not valid JSON ({error})") from None
        if has_half_characters(json.dumps(values, ensure_ascii=False)):
            raise UserError(f"{name}: holds half of a surrogate pair, which is no character")
        if not isinstance(values, dict):
            raise UserError(f'{name}: no JSON object; allowed: {{"source": ..., "must": [...], ...}}')
        source = values.pop("source", None)
        if not isinstance(source, str | None):
            raise UserError(f"{name}: source = {json.dumps(source)[:40]}: must be a string")
        yield name, source, values
