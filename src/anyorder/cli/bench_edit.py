"""bench edit: the speed of editing against writing anew."""

from __future__ import annotations

import typer

from anyorder.cli.bench import THREADS, show
from anyorder.cli.options import AS_JSON
from anyorder.config.model import Model
from anyorder.config.section import checked

LENGTHS, SHARES = (16, 32, 64), (0.1, 0.25, 0.5)


def edit(
    lengths: list[int] | None = typer.Option(
        None,
        "--length",
        min=1,
        help="Length of the drafts. May be repeated. Default: 16, 32 and 64.",
        show_default=False,
    ),
    shares: list[float] | None = typer.Option(
        None,
        "--share",
        min=0.0,
        max=1.0,
        help="Share of the tokens that change. May be repeated. Default: 0.1, 0.25 and 0.5.",
        show_default=False,
    ),
    width: int = typer.Option(256, "--width", min=2),
    layers: int = typer.Option(3, "--layers", min=1, help="Layers of the encoder and of the decoder, each."),
    vocabulary: int = typer.Option(8000, "--vocabulary", min=1000),
    sentences: int = typer.Option(1, "--sentences", min=1, help="Sentences to edit at once."),
    threads: int | None = THREADS,
    repeats: int = typer.Option(10, "--repeats", min=1),
    as_json: bool = AS_JSON,
) -> None:
    """Compare editing a draft with writing the whole target from left to right, at the same size.

    The weights are random: the editor makes exactly as many edits as asked for, and the baseline writes as
    many tokens as the draft has.

    Example: `anyorder bench edit --length 32 --share 0.1`
    """
    import torch

    from anyorder.bench.edit import bench_editing

    if threads is not None:
        torch.set_num_threads(threads)
    sizes = {"width": width, "hidden": 4 * width, "encoder_layers": layers, "decoder_layers": layers}
    rows = bench_editing(
        checked(Model, {**sizes, "heads": 4}, origin="bench edit"),
        vocabulary=vocabulary,
        sentences=sentences,
        lengths=lengths or LENGTHS,
        shares=shares or SHARES,
        repeats=repeats,
    )
    show(rows, as_json=as_json)
