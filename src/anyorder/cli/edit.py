"""edit: change drafts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from anyorder.cli.options import AS_JSON, DEVICE, RUN, with_decode_flags
from anyorder.cli.output import (
    check_output_file,
    print_error,
    print_json,
    print_line,
    remarks,
    results,
    stdin_lines,
)
from anyorder.config.decode import Decode
from anyorder.errors import UserError
from anyorder.models.kernels.malloc import freeze_objects

if TYPE_CHECKING:
    from anyorder.inference.edited import Edited


@dataclass(frozen=True)
class Request:
    """A draft to edit."""

    name: str  # in messages
    source: str | None
    draft: dict[str, Any] = field(default_factory=dict)
    fault: UserError | None = None  # why its line can't be read


AT_ONCE = 512  # drafts that are edited together
SHOWN = 5  # words in a remark
BAD_INPUT = 2  # exit code
JSONL = ".jsonl"

# Keys of [decode] that editing has a use for.
USED = (*Decode.keys_that_need("editing"), "max_length", "max_ratio", "max_extra")


@with_decode_flags(without=[key for key in Decode.model_fields if key not in USED])
def edit(
    run: RUN,
    drafts: Path | None = typer.Argument(
        None,
        help="File of drafts, one per line, or .jsonl with a request per line; default: stdin.",
        show_default=False,
    ),
    sources: Path | None = typer.Option(
        None, "--sources", help="File of sources, one per draft, for a model that reads them."
    ),
    draft: str | None = typer.Option(None, "--draft", help="A draft, instead of a file."),
    source: str | None = typer.Option(None, "--source", help="The source of --draft."),
    keep: list[str] | None = typer.Option(
        None, "--keep", help="A part of the drafts that stays as it is. May be repeated.", show_default=False
    ),
    must: list[str] | None = typer.Option(
        None, "--must", help="A required word or phrase. May be repeated.", show_default=False
    ),
    forbid: list[str] | None = typer.Option(
        None, "--forbid", help="A forbidden word. May be repeated.", show_default=False
    ),
    diff: bool = typer.Option(False, "--diff", help="Show what was changed, not only the result."),
    html: Path | None = typer.Option(None, "--html", help="File for a web page that shows what was changed."),
    as_json: bool = AS_JSON,
    device: str | None = DEVICE,
    **decode: Any,  # noqa: ANN401 (keys of [decode], each with a type of its own)
) -> None:
    """Change drafts: post-edit a translation, correct a sentence, revise code.

    Requests in JSONL have the keys draft, source, keep, must and forbid: {"draft": "a dog run", "keep":
    ["dog"]}.

    A draft that can't be edited is reported on stderr and gets an empty line, or with --json an object with
    the key "error". All others are answered, and the exit code is 2.

    Example: `anyorder edit runs/post-editing drafts.de --sources sources.en --cautious 0.5`
    """
    from anyorder.inference.generator import Generator

    check_output_file("--html", html)
    if draft is None and source is not None:
        raise UserError("--source: is for --draft; for a file of drafts give --sources FILE")
    if draft is not None and (drafts is not None or sources is not None):
        raise UserError(f"{drafts or sources}: give a file, or --draft and --source, not both")
    asked = [Request("edit", source, {"draft": draft})] if draft is not None else _read(drafts, sources)
    generator = Generator.load(run, device=device)
    freeze_objects()
    printer = _Printer(as_json=as_json, diff=diff, keeps_page=html is not None)
    rules = {"keep": keep or (), "must": must or (), "forbid": forbid or ()}
    for first in range(0, len(asked), AT_ONCE):
        chunk = asked[first : first + AT_ONCE]
        readable = [request for request in chunk if request.fault is None]
        given = [request.source for request in readable]
        answers = iter(
            generator.edit_or_refuse(
                [request.draft for request in readable],
                None if all(one is None for one in given) else [one or "" for one in given],
                names=[request.name for request in readable],
                **rules,
                **decode,
            )
        )
        for request in chunk:
            answer = next(answers) if request.fault is None else request.fault
            if draft is not None and isinstance(answer, UserError):
                raise answer
            printer.show(request, answer)
    if html is not None:
        from anyorder.system.files import write_file
        from anyorder.viz.diff import diff_page

        write_file(html, diff_page(f"What {run} changes", printer.shown).encode())
    if printer.refused:
        raise typer.Exit(BAD_INPUT)


class _Printer:
    """Prints edited drafts as they come, and keeps them for a page."""

    def __init__(self, *, as_json: bool, diff: bool, keeps_page: bool) -> None:
        self._as_json, self._diff, self._keeps_page = as_json, diff, keeps_page
        self.shown: list[tuple[str | None, Edited]] = []
        self.refused = False

    def show(self, request: Request, answer: Edited | UserError) -> None:
        if isinstance(answer, UserError):
            self.refused = True
            print_error(str(answer))
            if self._as_json:
                print_json({"draft": request.draft.get("draft"), "error": str(answer)})
            else:
                print_line("")
            return
        if self._keeps_page:
            self.shown.append((request.source, answer))
        if self._as_json:
            print_json({"source": request.source, **asdict(answer)})
        elif self._diff:
            from anyorder.viz.diff import draw_diff

            results.print(draw_diff(answer, colour=results.is_terminal), soft_wrap=True)
        else:
            print_line(answer.text)
        if answer.refused:
            words = ", ".join(answer.refused[:SHOWN])
            more = f" and {len(answer.refused) - SHOWN} more" if len(answer.refused) > SHOWN else ""
            text = f"{request.name}: not deleted, because too much would be gone: {words}{more}"
            remarks.print(text, soft_wrap=True)


def _read(drafts: Path | None, sources: Path | None) -> list[Request]:
    from anyorder.cli.output import check_equally_many
    from anyorder.data.readers import read_lines

    lines = list(enumerate(stdin_lines(), start=1) if drafts is None else read_lines(drafts))
    where = drafts or "stdin"
    if drafts is not None and drafts.suffix == JSONL:
        if sources is not None:
            raise UserError(f"--sources {sources}: requests in JSONL have their sources with them")
        return [_read_request(line, name=f"{where}:{number}") for number, line in lines]
    texts: Sequence[str | None] = [None] * len(lines)
    if sources is not None:
        texts = [line for _, line in read_lines(sources)]
        check_equally_many((Path(where), lines), (sources, texts))
    return [
        Request(f"{where}:{number}", text, {"draft": line})
        for (number, line), text in zip(lines, texts, strict=True)
    ]


def _read_request(line: str, *, name: str) -> Request:
    from anyorder.data.readers import has_half_characters, parsed_json

    def refused(why: str) -> Request:
        return Request(name, None, fault=UserError(f"{name}: {why}"))

    try:
        values = parsed_json(line)
    except ValueError as error:
        return refused(f"not valid JSON ({error})")
    if has_half_characters(json.dumps(values, ensure_ascii=False)):
        return refused("holds half of a surrogate pair, which is no character")
    if not isinstance(values, dict):
        return refused('no JSON object; allowed: {"draft": ..., "source": ..., "keep": [...], ...}')
    source = values.pop("source", None)
    if not isinstance(source, str | None):
        return refused(f"source = {json.dumps(source)[:40]}: must be a string")
    return Request(name, source, values)
