"""bench: measure speed and memory as ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from anyorder.cli.options import AS_JSON
from anyorder.cli.output import print_json, results, table
from anyorder.cli.progress import Watcher
from anyorder.config.model import Model
from anyorder.config.section import checked
from anyorder.errors import UserError
from anyorder.models.kernels.malloc import freeze_objects
from anyorder.viz.charts import Curve, check_chart, line_chart, save_chart

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from anyorder.bench.decode import DecodingWorkload
    from anyorder.bench.timing import Measurement


def bench_chart(rows: Sequence[Measurement], *, title: str, x_label: str, y_label: str) -> Figure:
    """A chart of those rows that belong to a curve."""
    curves: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.curve is not None and row.at is not None:
            curves.setdefault(row.curve, {})[row.at] = row.value
    return line_chart(
        [Curve(label=label, points=dict(sorted(points.items()))) for label, points in curves.items()],
        title=title,
        x_label=x_label,
        y_label=y_label,
        x_ticks=sorted({at for points in curves.values() for at in points}),
    )


LENGTHS = (8, 16, 32, 64)
LONG_LENGTHS = (16, 32, 64, 128, 256)
BATCHES = (1, 32, 128)
BEAMS = (1, 5)
ROWS = (1, 5, 32, 128, 640)
BASE_LENGTH, BASE_VOCABULARY = 27, 32_000
THREADS = typer.Option(None, "--threads", min=1, help="Of the processor; default: all that torch takes.")
PEERS = typer.Option(True, "--peers/--no-peers", help="Marian and CTranslate2 too: anyorder[bench].")
PLOT = typer.Option(None, "--plot", help="File for a chart: .svg, .png or .pdf.")
SMALL = typer.Option(False, "--small", help="A small model instead of the paper's base size.")
app = typer.Typer(
    help="Measure speed, as ratios against named baselines in the same run.", no_args_is_help=True
)


@app.callback()
def _group() -> None:
    """Keep `bench attention` a subcommand, also while it is the only one."""


@app.command()
def attention(
    batch: int = typer.Option(64, "--batch", min=1),
    length: int = typer.Option(32, "--length", min=1),
    width: int = typer.Option(512, "--width", min=1),
    heads: int = typer.Option(8, "--heads", min=1),
    repeats: int = typer.Option(30, "--repeats", min=1),
    as_json: bool = AS_JSON,
) -> None:
    """Relative attention against fused attention without relations, forward and backward.

    Example: `anyorder bench attention`
    """
    from anyorder.bench.parts import bench_attention

    if width % heads:
        raise UserError(f"--width {width} must be a multiple of --heads {heads}")
    rows = bench_attention(batch=batch, length=length, width=width, heads=heads, repeats=repeats)
    show(rows, as_json=as_json)


@app.command()
def products(
    width: int = typer.Option(512, "--width", min=1),
    hidden: int = typer.Option(2048, "--hidden", min=1),
    rows: list[int] | None = typer.Option(
        None, "--rows", min=1, help="How many are multiplied, once for each; default 1, 5, 32, 128 and 640."
    ),
    threads: int | None = THREADS,
    repeats: int = typer.Option(15, "--repeats", min=1),
    as_json: bool = AS_JSON,
) -> None:
    """Matrices laid out ahead and in eight bits against torch's own products, 24 of them a turn.

    Example: `anyorder bench products --rows 1 --rows 32`
    """
    from anyorder.bench.parts import bench_products

    _prepare(threads=threads, peers=False)
    show(
        bench_products(width=width, hidden=hidden, rows=rows or ROWS, repeats=repeats),
        as_json=as_json,
    )


@app.command()
def sao(
    width: int = typer.Option(256, "--width", min=1),
    layers: int = typer.Option(3, "--layers", min=1, help="Of the encoder and of the decoder."),
    vocabulary: int = typer.Option(8000, "--vocabulary", min=16),
    sentences: int = typer.Option(64, "--sentences", min=1, help="Of the batch, about 13 tokens each."),
    refresh: int = typer.Option(4, "--refresh", min=1, help="Epochs that orders are kept for."),
    repeats: int = typer.Option(10, "--repeats", min=1),
    as_json: bool = AS_JSON,
) -> None:
    """Training with searched adaptive orders against training left to right, on the same batch.

    Tokens are those of the targets. Also what a search holds in memory, and where its time goes.

    Example: `anyorder bench sao`
    """
    from anyorder.bench.sao import SaoWorkload, bench_sao

    workload = SaoWorkload(
        model=_model(width, layers, "bench sao"),
        vocabulary=vocabulary,
        sentences=sentences,
        refresh=refresh,
    )
    show(bench_sao(workload, repeats=repeats), as_json=as_json)


@app.command()
def decoding(
    lengths: list[int] | None = typer.Option(
        None,
        "--length",
        min=1,
        help="Of the targets, once for each; default 8, 16, 32 and 64.",
        show_default=False,
    ),
    width: int = typer.Option(256, "--width", min=2),
    layers: int = typer.Option(3, "--layers", min=1, help="Of the encoder and of the decoder."),
    vocabulary: int = typer.Option(8000, "--vocabulary", min=1000),
    sentences: int = typer.Option(1, "--sentences", min=1, help="To decode at once."),
    repeats: int = typer.Option(10, "--repeats", min=1),
    as_json: bool = AS_JSON,
) -> None:
    """InDIGO's cached steps against an Insertion Transformer, which reads its canvas anew, by target length.

    Random weights; no model ends before it has written as many tokens as asked for.

    Example: `anyorder bench decoding --length 8 --length 64`
    """
    from anyorder.bench.decode import bench_cached_steps

    rows = bench_cached_steps(
        _model(width, layers, "bench decoding"),
        vocabulary=vocabulary,
        sentences=sentences,
        lengths=lengths or LENGTHS,
        repeats=repeats,
    )
    show(rows, as_json=as_json)


@app.command()
def complete(
    run: str = typer.Argument(help="Folder of a trained model.", show_default=False),
    source: Path = typer.Option(..., "--source", help="File of sources, a line each."),
    target: Path = typer.Option(..., "--target", help="File of their references."),
    against: str | None = typer.Option(
        None, "--against", help="A run that writes left to right, to search with a grid beam."
    ),
    lines: int | None = typer.Option(None, "--lines", min=1, help="Only the first so many."),
    beam: int = typer.Option(5, "--beam", min=1),
    names: bool = typer.Option(
        False, "--names", help="Require the identifiers of code instead of words drawn by chance."
    ),
    as_json: bool = AS_JSON,
) -> None:
    """What required words and blanks do to translations: BLEU, constraints kept, time against free decoding.

    Words are drawn from the references, 1, 2 and 4, each set within the next. Times are of the processor, a
    sentence; their ratio is for as many tokens. p: that BLEU differs by chance from the line named behind it.
    Constraints are counted by a checker that reads nothing but text.

    Example: `anyorder bench complete runs/canvas --source test.en --target test.de --against runs/l2r`
    """
    from anyorder.bench.complete import bench_completion
    from anyorder.inference.generator import Generator

    sources, targets = (_sentences(path)[:lines] for path in (source, target))
    if len(sources) != len(targets):
        raise UserError(f"{source} has {len(sources)} lines, {target} {len(targets)}: they must be as many")
    generator, baseline = Generator.load(run), None if against is None else Generator.load(against)
    freeze_objects()
    with Watcher() as watcher:
        found = bench_completion(
            generator,
            sources,
            targets,
            baseline=baseline,
            beam=beam,
            names=names,
            progress=partial(watcher.preparing, "completing"),
        )
    if as_json:
        print_json({"rows": [asdict(one) for one in found]})
        return
    drawn = table("", "BLEU", "exact", "kept", "tokens", "ms", "ratio", "p")
    for one in found:
        drawn.add_row(
            one.name,
            f"{one.bleu:.1f}",
            f"{one.exact:.1f} %",
            "" if one.satisfied is None else f"{one.satisfied:.1f} %",
            f"{one.tokens:.1f}",
            f"{one.milliseconds:.1f}",
            f"{one.ratio:.2f}",
            "" if one.p is None else f"{one.p:.3f} ({one.against})",
        )
    results.print(drawn)


@app.command()
def decode(
    batches: list[int] | None = typer.Option(
        None, "--batch", min=1, help="Sentences at once, once for each; default 1, 32 and 128."
    ),
    beams: list[int] | None = typer.Option(
        None, "--beam", min=1, help="Hypotheses kept, once for each; default 1 and 5."
    ),
    length: int = typer.Option(BASE_LENGTH, "--length", min=1, help="Of sources and targets."),
    small: bool = SMALL,
    peers: bool = PEERS,
    threads: int | None = THREADS,
    repeats: int = typer.Option(15, "--repeats", min=1),
    plot: Path | None = PLOT,
    as_json: bool = AS_JSON,
) -> None:
    """InDIGO's decoding against left-to-right engines of the same size, and what the machine allows.

    Random weights; all targets are as long as their sources. Each engine has a process of its own, and waits
    while another has its turn.

    Example: `anyorder bench decode --batch 32 --beam 1`
    """
    from anyorder.bench.decode import bench_engines

    check_chart("--plot", plot)
    _prepare(threads=threads, peers=peers)
    with Watcher() as watcher:
        rows = bench_engines(
            _workload(small=small, length=length),
            batches=batches or BATCHES,
            beams=beams or BEAMS,
            peers=peers,
            repeats=repeats,
            progress=watcher.measured,
        )
    show(rows, as_json=as_json)
    _draw(plot, rows, title="Decoding", x_label="sentences at once", y_label="ms a sentence")


@app.command()
def scaling(
    lengths: list[int] | None = typer.Option(
        None, "--length", min=1, help="Of the targets, once for each; default 16 to 256."
    ),
    batch: int = typer.Option(8, "--batch", min=1, help="Sentences at once."),
    small: bool = SMALL,
    threads: int | None = THREADS,
    repeats: int = typer.Option(5, "--repeats", min=1),
    plot: Path | None = PLOT,
    as_json: bool = AS_JSON,
) -> None:
    """How the time of a token grows with the length of the sentence, against the first length.

    Example: `anyorder bench scaling --length 16 --length 256`
    """
    from anyorder.bench.decode import bench_scaling

    check_chart("--plot", plot)
    _prepare(threads=threads, peers=False)
    workload = _workload(small=small, length=BASE_LENGTH)
    rows = bench_scaling(workload, lengths=lengths or LONG_LENGTHS, batch=batch, repeats=repeats)
    show(rows, as_json=as_json)
    _draw(plot, rows, title="Time of a token", x_label="tokens of a sentence", y_label="ms a token")


@app.command()
def train(
    sentences: int = typer.Option(32, "--sentences", min=1, help="Of the batch."),
    length: int = typer.Option(BASE_LENGTH, "--length", min=1, help="Of sources and targets."),
    small: bool = SMALL,
    peers: bool = PEERS,
    threads: int | None = THREADS,
    repeats: int = typer.Option(15, "--repeats", min=1),
    as_json: bool = AS_JSON,
) -> None:
    """Updates of InDIGO against those of an ordinary Transformer and of Marian in a plain loop.

    In bf16, too, where the processor has it. Also the memory of an update and of decoding.

    Example: `anyorder bench train --sentences 16`
    """
    from anyorder.bench.train import bench_training

    _prepare(threads=threads, peers=peers)
    workload = _workload(small=small, length=length)
    show(bench_training(workload, sentences=sentences, peers=peers, repeats=repeats), as_json=as_json)


@app.command()
def start(
    run: str = typer.Argument("django-small", help="A run's folder or a model's name."),
    line: str = typer.Option("raise an exception ValueError .", "--source", help="What is written for."),
    repeats: int = typer.Option(9, "--repeats", min=1),
    as_json: bool = AS_JSON,
) -> None:
    """How long `generate` takes for one line from a cold start, against the import of torch alone.

    Example: `anyorder bench start`
    """
    from anyorder.bench.parts import bench_cold_start

    show(bench_cold_start(run, line, repeats=repeats), as_json=as_json)


def _prepare(*, threads: int | None, peers: bool) -> None:
    import torch

    from anyorder.bench.peers import check_installed

    if peers:
        check_installed()
    if threads is not None:
        torch.set_num_threads(threads)


def _workload(*, small: bool, length: int) -> DecodingWorkload:
    from anyorder.bench.decode import DecodingWorkload

    if small:
        return DecodingWorkload(model=_model(64, 1, "bench"), vocabulary=1000, length=length)
    return DecodingWorkload(model=Model(), vocabulary=BASE_VOCABULARY, length=length)


def _draw(path: Path | None, rows: Sequence[Measurement], *, title: str, x_label: str, y_label: str) -> None:
    if path is not None:
        save_chart(bench_chart(rows, title=title, x_label=x_label, y_label=y_label), path)


def _sentences(path: Path) -> list[str]:
    """Lines of which each holds something: times are of a sentence and of a token."""
    from anyorder.data.readers import read_lines

    sentences = []
    for number, line in read_lines(path):
        if not line.strip():
            raise UserError(f"{path}:{number}: blank line; allowed: a sentence a line")
        sentences.append(line)
    if not sentences:
        raise UserError(f"{path}: empty; allowed: a line or more")
    return sentences


def _model(width: int, layers: int, command: str) -> Model:
    sizes = {
        "width": width,
        "hidden": 4 * width,
        "encoder_layers": layers,
        "decoder_layers": layers,
        "heads": 4,
    }
    return checked(Model, sizes, origin=command)


def show(rows: Sequence[Measurement], *, as_json: bool) -> None:
    """The table of a benchmark; the interval holds the middle half of the paired ratios."""
    if as_json:
        print_json({"rows": [asdict(row) for row in rows]})
        return
    counted = any(row.tokens_per_second is not None for row in rows)
    drawn = table("", "median", "ratio", "middle half", *(["tokens a second"] if counted else []))
    for row in rows:
        drawn.add_row(
            row.name,
            f"{row.value:.2f} {row.unit}",
            "" if row.ratio is None else f"{row.ratio:.2f}",
            "" if row.low is None else f"{row.low:.2f} to {row.high:.2f}",
            *([] if row.tokens_per_second is None else [f"{row.tokens_per_second:,.0f}"]),
        )
    results.print(drawn)
