"""complete: write around what is given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from anyorder.cli.options import AS_JSON, DEVICE, RUN, decode_option
from anyorder.cli.output import show_outputs, stdin_lines
from anyorder.errors import UserError
from anyorder.models.kernels.malloc import settle

Request = tuple[str, str | None, dict[str, Any]]  # what messages call it, its source and its canvas


def complete(
    run: RUN,
    requests: Path | None = typer.Argument(
        None,
        help="JSONL, a source and a canvas a line; default: stdin, unless flags give a canvas.",
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
        help="A word or phrase that must appear, once for each; | between alternatives.",
        show_default=False,
    ),
    in_order: bool = typer.Option(False, "--in-order", help="--must in the order given, not in any."),
    forbid: list[str] | None = typer.Option(
        None, "--forbid", help="A word that must not appear, once for each.", show_default=False
    ),
    search: Annotated[Literal["two-step", "joint", "sample"] | None, decode_option("search")] = None,
    beam: Annotated[int | None, decode_option("beam")] = None,
    n_best: Annotated[int | None, decode_option("n_best")] = None,
    length_penalty: Annotated[float | None, decode_option("length_penalty")] = None,
    max_length: Annotated[int | None, decode_option("max_length")] = None,
    unknown: Annotated[bool | None, decode_option("unknown")] = None,
    merge: Annotated[bool | None, decode_option("merge")] = None,
    partners: Annotated[list[Path] | None, decode_option("partners")] = None,
    reverse: Annotated[Path | None, decode_option("reverse")] = None,
    reverse_weight: Annotated[float | None, decode_option("reverse_weight")] = None,
    temperature: Annotated[float | None, decode_option("temperature")] = None,
    top_k: Annotated[int | None, decode_option("top_k")] = None,
    top_p: Annotated[float | None, decode_option("top_p")] = None,
    seed: Annotated[int | None, decode_option("seed")] = None,
    trace: bool = typer.Option(False, "--trace", help="Draw how each output was written."),
    as_json: bool = AS_JSON,
    device: str | None = DEVICE,
) -> None:
    """Write around what is given of the target: required words, blanks, a prefix, a draft.

    Requests in JSONL have the same keys: {"source": "a dog", "must": ["Hund"], "forbid": ["Katze"]}.

    Example: `anyorder complete runs/l2r --source "a dog runs" --template "ein ___ rennt"`
    """
    from anyorder.inference.generator import Generator

    canvas = {
        key: value
        for key, value in {
            "template": template,
            "prefix": prefix,
            "suffix": suffix,
            "draft": draft,
            "must": must,
            "in_order": in_order or None,
            "forbid": forbid,
        }.items()
        if value is not None
    }
    by_flags = bool(canvas) or source is not None
    asked = [("complete", source, canvas)] if by_flags else list(_requests(requests))
    if by_flags and requests is not None:
        raise UserError(f"{requests}: give a file of requests, or flags that make one, not both")
    generator = Generator.load(run, device=device)
    settle()
    found = generator.complete(
        [source or "" for _, source, _ in asked],
        [canvas for _, _, canvas in asked],
        names=[name for name, _, _ in asked],
        search=search,
        beam=beam,
        n_best=n_best,
        length_penalty=length_penalty,
        max_length=max_length,
        unknown=unknown,
        merge=merge,
        partners=partners or None,
        reverse=reverse,
        reverse_weight=reverse_weight,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    for (_, asked_source, _), outputs in zip(asked, found, strict=True):
        show_outputs(asked_source, outputs, as_json=as_json, trace=trace)


def _requests(path: Path | None) -> Iterator[Request]:
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
