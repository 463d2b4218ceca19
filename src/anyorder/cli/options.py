"""Arguments and flags that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from anyorder.config.decode import Decode
from anyorder.config.order import Order
from anyorder.errors import UserError

ORDER_FILE = typer.Option(
    None, "--order-file", help="CoNLL-U trees of the lines for syn, or a permutation a line for file."
)


def order_section(name: str, *, parser: str | None, order_file: Path | None) -> Order:
    """The [order] that a command's flags stand for; its lines are the split `test`."""
    from anyorder.orders.fixed import order_rule

    needs = order_rule(name).needs
    if needs == "file" and order_file is None:
        raise UserError(f"order {name} needs --order-file FILE, a permutation a line, counted from 1")
    if needs == "heads" and not parser and order_file is None:
        raise UserError(
            f"order {name} needs --parser NAME, a spaCy pipeline or python, or --order-file FILE, "
            "a CoNLL-U file"
        )
    if order_file is None:
        return Order(name=name, parser=parser)
    if needs not in ("file", "heads"):
        raise UserError(f"--order-file {order_file}: is for the orders syn and file, not for {name}")
    if not order_file.is_file():
        raise UserError(f"--order-file {order_file}: no such file")
    return Order(name=name, parser=parser, files={"test": order_file})


RECIPE = Annotated[
    Path, typer.Argument(help="A TOML recipe; `anyorder init` writes one.", show_default=False)
]
OVERRIDES = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Keys to change, e.g. train.steps=1000.")
]
AS_JSON = typer.Option(False, "--json", help="Print JSON, one object a line.")
SVG = typer.Option(None, "--svg", help="File for a moving picture of how the first sentence is written.")
RUN = Annotated[Path, typer.Argument(help="Folder of a trained model.", show_default=False)]
DEVICE = typer.Option(None, "--device", help="auto, cpu, cuda, ...")


def decode_option(key: str) -> Any:  # noqa: ANN401 (what typer's own option is typed as)
    """A flag for a key of the recipe's [decode], explained as it is there."""
    field, flag = Decode.model_fields[key], f"--{key.replace('_', '-')}"
    meaning = field.description or ""
    if field.annotation is bool:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    return typer.Option(flag, help=f"{meaning[:1].upper()}{meaning[1:]}.")
