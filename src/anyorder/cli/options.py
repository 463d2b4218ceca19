"""Arguments and flags that several commands share, and the flags made from the recipe's [decode]."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from functools import wraps
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from anyorder.config.decode import Decode
from anyorder.config.order import Order
from anyorder.errors import UserError
from anyorder.orders.fixed import ORDERS, Needs, order_rule

Command = Callable[..., None]


def orders_that_need(*needs: Needs) -> str:
    """List the orders that need one of these things, e.g. "cf and rf" for "counts"."""
    return " and ".join(name for name, rule in ORDERS.items() if rule.needs in needs)


BY_TREES, BY_COUNTS = orders_that_need("heads"), orders_that_need("counts")
BY_FILE, BY_CHANCE = orders_that_need("heads", "file"), orders_that_need("random")

RECIPE = Annotated[
    Path, typer.Argument(help="A TOML recipe; `anyorder init` writes one.", show_default=False)
]
OVERRIDES = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Keys to change, e.g. train.steps=1000.")
]
RUN = Annotated[Path, typer.Argument(help="Folder of a trained model.", show_default=False)]
AS_JSON = typer.Option(False, "--json", help="Print JSON, one object per line.")
TRACE = typer.Option(False, "--trace", help="Draw how each hypothesis was written.")
SVG = typer.Option(None, "--svg", help="File for an animated picture of how the first sentence is written.")
HTML = typer.Option(None, "--html", help="File for a web page that replays how each hypothesis was written.")
DEVICE_HELP = "auto, cpu, cuda, ..."
DEVICE = typer.Option(None, "--device", help=DEVICE_HELP)
TRUST_CODE = typer.Option(
    False,
    "--trust-code",
    help="Let the model's own recipe name order functions to import and other models to read.",
)
PARSER = typer.Option(None, "--parser", help=f"For {BY_TREES}: a spaCy pipeline, or python for code.")
ORDER_FILE = typer.Option(
    None,
    "--order-file",
    help=f"For {BY_TREES}: CoNLL-U trees of the lines. "
    f"For {orders_that_need('file')}: one permutation per line.",
)


def order_section(name: str, *, parser: str | None, order_file: Path | None) -> Order:
    """Build a recipe's [order] from a command's flags; the order file belongs to the split `test`."""
    needs = order_rule(name).needs
    if needs == "file" and order_file is None:
        raise UserError(f"order {name} needs --order-file FILE, one permutation per line, counted from 1")
    if needs == "heads" and not parser and order_file is None:
        raise UserError(
            f"order {name} needs --parser NAME, a spaCy pipeline or python, or --order-file FILE, "
            "a CoNLL-U file"
        )
    if order_file is None:
        return Order(name=name, parser=parser)
    if needs not in ("file", "heads"):
        raise UserError(f"--order-file {order_file}: is for the orders {BY_FILE}, not for {name}")
    if not order_file.is_file():
        raise UserError(f"--order-file {order_file}: no such file")
    return Order(name=name, parser=parser, files={"test": order_file})


def with_decode_flags(*, without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Give a command one flag for each key of the recipe's [decode], except for some keys.

    The command receives the flags that the user gave as `**decode`, by key. Flags, types and help texts come
    from the fields of `Decode`, so that a new field is a new flag.
    """

    def decorate(command: Command) -> Command:
        parameters = inspect.signature(command, eval_str=True).parameters.values()
        own = [one for one in parameters if one.kind is not inspect.Parameter.VAR_KEYWORD]
        flags = [_flag(key, field) for key, field in Decode.model_fields.items() if key not in without]

        @wraps(command)
        def run(**values: Any) -> None:  # noqa: ANN401 (each flag has a type of its own)
            decode = {flag.name: values.pop(flag.name) for flag in flags}
            command(**values, **{key: value for key, value in decode.items() if value not in (None, [])})

        # Typer reads both to build the command line.
        run.__signature__ = inspect.Signature([*own, *flags])  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in (*own, *flags)}
        return run

    return decorate


def _flag(key: str, field: FieldInfo) -> inspect.Parameter:
    """Make the parameter of a command that stands for one key of [decode]; None means "not given"."""
    name, meaning = f"--{key.replace('_', '-')}", field.description or ""
    if field.annotation is bool:
        name = f"{name}/--no-{name.removeprefix('--')}"
    option = typer.Option(
        name,
        help=f"{meaning[:1].upper()}{meaning[1:]}.",
        rich_help_panel="Decoding: default as in the recipe",
    )
    return inspect.Parameter(
        key,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[_flag_type(field.annotation) | None, option],
    )


def _flag_type(annotation: Any) -> Any:  # noqa: ANN401 (types are values here)
    """Turn the type of a key into that of a flag: a tuple is a flag that may be repeated."""
    if get_origin(annotation) is UnionType:  # such as Path | None
        return next(kind for kind in get_args(annotation) if kind is not type(None))
    return list[get_args(annotation)[0]] if get_origin(annotation) is tuple else annotation  # type: ignore[misc]
