"""What a model's own configuration may make this machine do: nothing, unless the user trusts it.

A model may come from a stranger. Its recipe can name functions to import, a parser to load and other models
to read; all of these are the choice of whoever wrote the file.
"""

from __future__ import annotations

import os
from pathlib import Path

from anyorder import config
from anyorder.errors import UserError
from anyorder.orders.fixed import order_rule

FLAG = "--trust-code"


def check_code(recipe: config.Recipe, *, trust_code: bool) -> None:
    """Refuse an order whose code the model's own recipe names: a function, or a parser in some folder."""
    if trust_code:
        return
    order = recipe.fixed_order
    if order_rule(order.name).needs == "function":
        raise UserError(
            f"order.name = {order.name!r}: a function that the model's own recipe names is not imported; "
            f"{FLAG} imports it"
        )
    if order.parser is not None and not order.parser.isidentifier():
        raise UserError(
            f"order.parser = {order.parser!r}: a folder that the model's own recipe names is not loaded; "
            f"{FLAG} loads it"
        )


def check_paths(decode: config.Decode, *, folder: Path, trust_code: bool) -> None:
    """Refuse other models that the model's own recipe names, unless they lie in its folder."""
    within = Path(os.path.realpath(folder))
    outside = [path for path in decode.others if not Path(os.path.realpath(path)).is_relative_to(within)]
    if outside and not trust_code:
        raise UserError(
            f"decode.partners and decode.reverse: {outside[0]}: a path that the model's own recipe names is "
            f"not followed out of {folder}; name it by --partners or --reverse, or give {FLAG}"
        )
