"""export: write a trained model to share."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import typer

from anyorder.cli.options import AS_JSON, RUN
from anyorder.cli.output import print_json, results


def export(
    run: RUN,
    folder: Path = typer.Argument(..., help="Folder to write; must not hold a model yet."),
    precision: Literal["fp32", "fp16", "int8"] = typer.Option(
        "fp16",
        "--precision",
        help="Precision of the weights on disk; fp16 has half the size of fp32, int8 a quarter.",
    ),
    as_json: bool = AS_JSON,
) -> None:
    """Write a trained model to share, without checkpoints and without the paths of this machine.

    Example: `anyorder export runs/l2r my-model`
    """
    from anyorder.inference.model_folder import export as exported

    size = exported(run, folder, precision=precision)
    if as_json:
        print_json({"folder": str(folder), "bytes": size})
        return
    results.print(f"{folder}: {size / 1e6:.1f} MB", soft_wrap=True)
