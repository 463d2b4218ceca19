"""bench serve: load on the server, beside the library."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import typer

from anyorder.cli.bench import THREADS, show
from anyorder.cli.options import AS_JSON
from anyorder.cli.progress import Watcher


def serve(
    run: Path = typer.Argument(Path("django-small"), help="A run's folder or a model's name."),
    source: Path = typer.Option(..., "--source", help="File of sources, one per line."),
    lines: int = typer.Option(1000, "--lines", min=64, help="Use only this many lines."),
    clients: list[int] | None = typer.Option(
        None, "--clients", min=1, help="Clients at once. May be repeated. Default: 1, 8 and 64."
    ),
    seconds: int = typer.Option(5, "--seconds", min=1, help="How long each load lasts."),
    repeats: int = typer.Option(3, "--repeats", min=1),
    threads: int | None = THREADS,
    as_json: bool = AS_JSON,
) -> None:
    """Measure requests a second and latency of `anyorder serve`, beside the library's own batches.

    A second server decodes one request at a time, to show what joining batches is worth. The load comes from
    wrk, over loopback.

    Example: `anyorder bench serve --source test.nl`
    """
    import torch

    from anyorder.bench.serve import CLIENTS, bench_serve
    from anyorder.data.readers import read_lines
    from anyorder.inference.generator import Generator
    from anyorder.models.kernels.malloc import freeze_objects

    if threads is not None:
        torch.set_num_threads(threads)
    sources = [line for _, line in read_lines(source) if line.strip()][:lines]
    generator = Generator.load(run)
    freeze_objects()
    with Watcher() as watcher:
        rows = bench_serve(
            run,
            generator,
            sources,
            clients=clients or CLIENTS,
            seconds=seconds,
            repeats=repeats,
            progress=partial(watcher.measured, "load"),
        )
    show(rows, as_json=as_json)
