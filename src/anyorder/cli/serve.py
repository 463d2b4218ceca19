"""serve: put models behind HTTP, and a studio page in front of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from anyorder.cli.options import DEVICE
from anyorder.cli.output import remarks
from anyorder.errors import UserError
from anyorder.serve.bounds import Bounds

if TYPE_CHECKING:
    from anyorder.inference.generator import Generator

BOUNDS = Bounds()
PANEL = "Bounds of one request"
MISSING = "serve needs pip install 'anyorder[serve]'"


def serve(
    runs: list[Path] | None = typer.Argument(
        None,
        metavar="[MODEL]...",
        help="Folders of trained models, or names of shipped ones; NAME=FOLDER gives a name. "
        "Default: django-small.",
        show_default=False,
    ),
    host: str = typer.Option("127.0.0.1", "--host", help="Address to listen at."),
    port: int = typer.Option(8000, "--port", min=0, max=65535, help="Port; 0 picks a free one."),
    api_key_file: Path | None = typer.Option(
        None, "--api-key-file", help="File of keys, one per line; requests then need one as bearer token."
    ),
    cors: list[str] | None = typer.Option(
        None, "--cors", help="Origin of web pages that may ask, such as https://example.org. May be repeated."
    ),
    grace: int = typer.Option(20, "--grace", min=0, help="Seconds that requests have to end after SIGTERM."),
    at_once: int = typer.Option(64, "--at-once", min=1, max=128, help="Most sources to decode together."),
    threads: int | None = typer.Option(None, "--threads", min=1, help="Threads of the processor for models."),
    deadline: float = typer.Option(
        30.0, "--deadline", min=0.001, help="Seconds for requests that name no deadline."
    ),
    max_deadline: float = typer.Option(
        BOUNDS.max_deadline, "--max-deadline", min=0.001, help="Longest deadline.", rich_help_panel=PANEL
    ),
    queue: int = typer.Option(BOUNDS.queue, "--queue", min=1, help="Sources that may wait, for each model."),
    max_body: int = typer.Option(
        BOUNDS.max_body, "--max-body", min=100, help="Bytes of a body.", rich_help_panel=PANEL
    ),
    max_sources: int = typer.Option(
        BOUNDS.max_sources, "--max-sources", min=1, help="Sources.", rich_help_panel=PANEL
    ),
    max_tokens: int = typer.Option(
        BOUNDS.max_tokens, "--max-tokens", min=1, help="Words of a source or target.", rich_help_panel=PANEL
    ),
    max_characters: int = typer.Option(
        BOUNDS.max_characters,
        "--max-characters",
        min=1,
        help="Characters of a source or target.",
        rich_help_panel=PANEL,
    ),
    max_length: int = typer.Option(
        BOUNDS.max_length, "--max-length", min=1, help="Tokens to write.", rich_help_panel=PANEL
    ),
    max_beam: int = typer.Option(
        BOUNDS.max_beam, "--max-beam", min=1, help="Width of the beam.", rich_help_panel=PANEL
    ),
    max_samples: int = typer.Option(
        BOUNDS.max_samples, "--max-samples", min=1, help="Samples.", rich_help_panel=PANEL
    ),
    max_blanks: int = typer.Option(
        BOUNDS.max_blanks, "--max-blanks", min=1, help="Blanks of a template.", rich_help_panel=PANEL
    ),
    max_required: int = typer.Option(
        BOUNDS.max_required,
        "--max-required",
        min=1,
        help="Required or forbidden words.",
        rich_help_panel=PANEL,
    ),
    log_format: Literal["text", "json"] = typer.Option("text", "--log-format", help="Form of log lines."),
    log_sources: bool = typer.Option(
        False, "--log-sources", help="Log the sources too; otherwise no text of a request is logged."
    ),
    device: str | None = DEVICE,
    precision: Literal["fp32", "int8"] = typer.Option(
        "fp32", "--precision", help="Precision of the weights."
    ),
) -> None:
    """Serve models over HTTP, with a studio page to watch and to push them.

    Without --api-key-file only programs on this machine are answered.

    Example: `anyorder serve django-small` and then open http://127.0.0.1:8000
    """
    try:
        from anyorder.serve.access import read_keys
        from anyorder.serve.app import ServerSettings
        from anyorder.serve.requests_log import configure_logging
        from anyorder.serve.run import check_host
        from anyorder.serve.run import serve as run_server
    except ModuleNotFoundError as error:
        raise UserError(f"{MISSING} ({error.name} is missing)") from None

    keys = [] if api_key_file is None else read_keys(api_key_file)
    check_host(host, has_key=bool(keys))
    bounds = Bounds(
        max_body=max_body,
        max_sources=max_sources,
        max_tokens=max_tokens,
        max_characters=max_characters,
        max_length=max_length,
        max_beam=max_beam,
        max_samples=max_samples,
        max_blanks=max_blanks,
        max_required=max_required,
        max_deadline=max_deadline,
        queue=queue,
    )
    configure_logging(as_json=log_format == "json")
    settings = ServerSettings(
        bounds=bounds,
        deadline=min(deadline, max_deadline),
        at_once=at_once,
        keys=keys,
        origins=cors or [],
        log_sources=log_sources,
    )
    models = _load(runs or [Path("django-small")], device=device, precision=precision, threads=threads)

    def ready(address: str) -> None:
        remarks.print(f"anyorder serves {', '.join(models)} at {address}", soft_wrap=True)
        if not keys:
            remarks.print(
                "Only this machine is answered, because there is no --api-key-file.", soft_wrap=True
            )

    run_server(models, settings, host=host, port=port, grace=grace, ready=ready)


def _load(
    runs: list[Path], *, device: str | None, precision: str, threads: int | None
) -> dict[str, Generator]:
    """Load models by the names that requests use."""
    import torch

    from anyorder.inference.generator import Generator
    from anyorder.models.kernels.malloc import freeze_objects

    if threads is not None:
        torch.set_num_threads(threads)
    models: dict[str, Generator] = {}
    for run in runs:
        given, _, folder = str(run).partition("=")
        generator = Generator.load(folder or given, device=device, precision=precision)
        name = given if folder else generator.name
        if name in models:
            raise UserError(f"{run}: two models are called {name}; name one as NAME=FOLDER")
        models[name] = generator
    freeze_objects()
    return models
