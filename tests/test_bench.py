"""Benchmarks of decoding and training, on a model so small that only their tables matter."""

from __future__ import annotations

from anyorder.bench.engines import BASELINE, Setting, bench_engines
from anyorder.bench.measure import Row
from anyorder.bench.products import bench_products
from anyorder.bench.scaling import bench_scaling
from anyorder.bench_plot import plot
from anyorder.config import Model

SMALL = Setting(
    model=Model(width=16, hidden=32, heads=2, encoder_layers=1, decoder_layers=1), vocabulary=200, length=4
)


def test_engines_are_compared_with_indigo_at_each_batch_and_beam() -> None:
    rows = bench_engines(SMALL, batches=[1, 3], beams=[1, 2], peers=False, repeats=2)
    measured = [row for row in rows if row.curve is not None]
    assert {(row.curve, row.at) for row in measured} >= {("InDIGO, greedy", 1), ("InDIGO int8, beam 2", 3)}
    assert all(row.against == BASELINE for row in measured)
    assert [row.ratio for row in measured if row.name.endswith(f": {BASELINE}")] == [1.0] * 4
    assert {row.unit for row in rows[-2:]} == {"GFLOPS", "GB/s"}


def test_scaling_divides_by_what_was_written() -> None:
    rows = bench_scaling(SMALL, lengths=[2, 8], batch=2, repeats=1)
    assert [row.at for row in rows[:-1]] == [2, 8, 2, 8]
    assert rows[0].ratio == rows[2].ratio == 1.0


def test_a_picture_has_a_curve_for_each_variant() -> None:
    rows = [
        Row(name=f"{name} {at}", value=at, unit="ms", ratio=None, against=None, curve=name, at=at)
        for name in ("one", "other")
        for at in (1, 32)
    ]
    drawn = plot([*rows, Row("limit", 1.0, "ms", None, None)], title="T", axis="batch", upward="ms")
    assert {f"line{number}" for number in (1, 2, 3) if f'class="line{number}"' in drawn} == {"line1", "line2"}
    assert "other" in drawn and "limit" not in drawn


def test_products_are_compared_row_by_row() -> None:
    rows = bench_products(width=8, hidden=16, rows=[1, 3], repeats=2)
    assert [row.ratio for row in rows if row.name.endswith("as torch multiplies")] == [1, 1]
    assert sum("laid out ahead" in row.name for row in rows) == 2
    assert sum("int8" in row.name for row in rows) == 2
