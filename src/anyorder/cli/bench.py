"""bench: measure speed and memory as ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from anyorder.cli.options import AS_JSON
from anyorder.cli.output import check_equally_many, print_json, results, table
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
    """Draw the measurements that belong to a curve; there must be at least one."""
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
THREADS = typer.Option(
    None, "--threads", min=1, help="Threads of the processor; default: as many as torch uses."
)
PEERS = typer.Option(
    True, "--peers/--no-peers", help="Measure Marian and CTranslate2 too; needs anyorder[bench]."
)
PLOT = typer.Option(None, "--plot", help="File for a chart: .svg, .png or .pdf.")
SMALL = typer.Option(False, "--small", help="A small model instead of the paper's base size.")
app = typer.Typer(
    help="Measure speed, as ratios against named baselines in the same run.", no_args_is_help=True
)


@app.command()
def attention(
    batch: int = typer.Option(64, "--batch", min=1),
    length: int = typer.Option(32, "--length", min=1),
    width: int = typer.Option(512, "--width", min=1),
    heads: int = typer.Option(8, "--heads", min=1),
    repeats: int = typer.Option(30, "--repeats", min=1),
    as_json: bool = AS_JSON,
) -> None:
    """Compare relative attention with fused attention without relations, forward and backward.

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
        None,
        "--rows",
        min=1,
        help="Rows to multiply at once. May be repeated. Default: 1, 5, 32, 128 and 640.",
    ),
    threads: int | None = THREADS,
    repeats: int = typer.Option(15, "--repeats", min=1),
    as_json: bool = AS_JSON,
) -> None:
    """Compare packed and int8 matrix products with torch's own, 24 products per repetition.

    Example: `anyorder bench products --rows 1 --rows 32`
    """
    from anyorder.bench.parts import bench_products

    _prepare(threads=threads, peers=False)
    show(bench_products(width=width, hidden=hidden, rows=rows or ROWS, repeats=repeats), as_json=as_json)


@app.command()
def sao(
    width: int = typer.Option(256, "--width", min=1),
    layers: int = typer.Option(3, "--layers", min=1, help="Layers of the encoder and of the decoder, each."),
    vocabulary: int = typer.Option(8000, "--vocabulary", min=16),
    sentences: int = typer.Option(
        64, "--sentences", min=1, help="Sentences in the batch, about 13 tokens each."
    ),
    refresh: int = typer.Option(4, "--refresh", min=1, help="Epochs between two searches of the orders."),
    repeats: int = typer.Option(10, "--repeats", min=1),
    as_json: bool = AS_JSON,
) -> None:
    """Compare training with searched adaptive orders with training left to right, on the same batch.

    Tokens are those of the targets. The memory of a search and the time of its parts are measured too.

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
        help="Length of the targets. May be repeated. Default: 8, 16, 32 and 64.",
        show_default=False,
    ),
    width: int = typer.Option(256, "--width", min=2),
    layers: int = typer.Option(3, "--layers", min=1, help="Layers of the encoder and of the decoder, each."),
    vocabulary: int = typer.Option(8000, "--vocabulary", min=1000),
    sentences: int = typer.Option(1, "--sentences", min=1, help="Sentences to decode at once."),
    repeats: int = typer.Option(10, "--repeats", min=1),
    as_json: bool = AS_JSON,
) -> None:
    """Compare InDIGO's cached steps with an Insertion Transformer, which encodes its canvas at every step.

    The weights are random, and no model ends before it has written as many tokens as asked for.

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
    source: Path = typer.Option(..., "--source", help="File of sources, one per line."),
    target: Path = typer.Option(..., "--target", help="File of their references."),
    against: str | None = typer.Option(
        None, "--against", help="A left-to-right run to compare with, by grid beam search."
    ),
    lines: int | None = typer.Option(None, "--lines", min=1, help="Use only this many lines."),
    beam: int = typer.Option(5, "--beam", min=1),
    names: bool = typer.Option(
        False, "--names", help="Require the identifiers of code instead of random words."
    ),
    as_json: bool = AS_JSON,
) -> None:
    """Measure the effect of required words and blanks: BLEU, constraints met, time against free decoding.

    1, 2 and 4 words are drawn from each reference; each set contains the smaller ones. Times are processor
    time per sentence; their ratio is for equally many tokens. p is the probability that chance alone makes
    the difference in BLEU from the line named behind it. A checker that reads only text counts constraints.

    Example: `anyorder bench complete runs/canvas --source test.en --target test.de --against runs/l2r`
    """
    from anyorder.bench.complete import bench_completion
    from anyorder.inference.generator import Generator

    sources, targets = (_sentences(path)[:lines] for path in (source, target))
    check_equally_many((source, sources), (target, targets))
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
    drawn = table("", "BLEU", "exact", "met", "tokens", "ms", "ratio", "p")
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
        None, "--batch", min=1, help="Sentences at once. May be repeated. Default: 1, 32 and 128."
    ),
    beams: list[int] | None = typer.Option(
        None, "--beam", min=1, help="Width of the beam. May be repeated. Default: 1 and 5."
    ),
    length: int = typer.Option(BASE_LENGTH, "--length", min=1, help="Length of sources and targets."),
    small: bool = SMALL,
    peers: bool = PEERS,
    threads: int | None = THREADS,
    repeats: int = typer.Option(15, "--repeats", min=1),
    plot: Path | None = PLOT,
    as_json: bool = AS_JSON,
) -> None:
    """Compare InDIGO's decoding with left-to-right engines of the same size and with the machine's limits.

    The weights are random, and all targets are as long as their sources. Each engine runs in its own process
    and waits while another one is measured.

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
    _draw(plot, rows, title="Decoding", x_label="sentences at once", y_label="ms per sentence")


@app.command()
def scaling(
    lengths: list[int] | None = typer.Option(
        None, "--length", min=1, help="Length of the targets. May be repeated. Default: 16 to 256."
    ),
    batch: int = typer.Option(8, "--batch", min=1, help="Sentences at once."),
    small: bool = SMALL,
    threads: int | None = THREADS,
    repeats: int = typer.Option(5, "--repeats", min=1),
    plot: Path | None = PLOT,
    as_json: bool = AS_JSON,
) -> None:
    """Measure how the time per token grows with the length of the sentence, relative to the first length.

    Example: `anyorder bench scaling --length 16 --length 256`
    """
    from anyorder.bench.decode import bench_scaling

    check_chart("--plot", plot)
    _prepare(threads=threads, peers=False)
    workload = _workload(small=small, length=BASE_LENGTH)
    rows = bench_scaling(workload, lengths=lengths or LONG_LENGTHS, batch=batch, repeats=repeats)
    show(rows, as_json=as_json)
    _draw(plot, rows, title="Time per token", x_label="tokens per sentence", y_label="ms per token")


@app.command()
def train(
    sentences: int = typer.Option(32, "--sentences", min=1, help="Sentences in the batch."),
    length: int = typer.Option(BASE_LENGTH, "--length", min=1, help="Length of sources and targets."),
    small: bool = SMALL,
    peers: bool = PEERS,
    threads: int | None = THREADS,
    repeats: int = typer.Option(15, "--repeats", min=1),
    as_json: bool = AS_JSON,
) -> None:
    """Compare updates of InDIGO with those of an ordinary Transformer and of Marian in a plain loop.

    Updates in bf16 are measured too if the processor supports it, and so is the memory of an update and of
    decoding.

    Example: `anyorder bench train --sentences 16`
    """
    from anyorder.bench.train import bench_training

    _prepare(threads=threads, peers=peers)
    workload = _workload(small=small, length=length)
    show(bench_training(workload, sentences=sentences, peers=peers, repeats=repeats), as_json=as_json)


@app.command()
def start(
    run: str = typer.Argument("django-small", help="A run's folder or a model's name."),
    line: str = typer.Option("raise an exception ValueError .", "--source", help="The source to decode."),
    repeats: int = typer.Option(9, "--repeats", min=1),
    as_json: bool = AS_JSON,
) -> None:
    """Compare a cold start of `generate` for one line with the import of torch alone.

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
    """Read lines and refuse blank ones, because times are per sentence and per token."""
    from anyorder.data.readers import read_lines

    sentences = []
    for number, line in read_lines(path):
        if not line.strip():
            raise UserError(f"{path}:{number}: blank line; allowed: one sentence per line")
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
    """Print the measurements of a benchmark; the interval holds the middle half of the paired ratios."""
    if as_json:
        print_json({"rows": [asdict(row) for row in rows]})
        return
    counted = any(row.tokens_per_second is not None for row in rows)
    drawn = table("", "median", "ratio", "middle half", *(["tokens per second"] if counted else []))
    for row in rows:
        drawn.add_row(
            row.name,
            f"{row.value:.2f} {row.unit}",
            "" if row.ratio is None else f"{row.ratio:.2f}",
            "" if row.low is None else f"{row.low:.2f} to {row.high:.2f}",
            *([] if row.tokens_per_second is None else [f"{row.tokens_per_second:,.0f}"]),
        )
    results.print(drawn)
