"""Recipes: one commented TOML file per experiment, one class per section, one field per key.

The fields' descriptions are the comments that `anyorder init` writes, the help texts of the command line and
the recipe reference of the documentation.
"""

from anyorder.config.data import SPLITS, Data, Side, SplitFiles, Splits, Text
from anyorder.config.decode import Decode
from anyorder.config.model import KINDS, Edit, Insertion, Model, Shape, kinds_with
from anyorder.config.order import Order, Search
from anyorder.config.recipe import Recipe, load_recipe, recipe_with
from anyorder.config.section import WIDEST_BEAM, Section, checked
from anyorder.config.train import Canvas, Train

__all__ = [
    "KINDS",
    "SPLITS",
    "WIDEST_BEAM",
    "Canvas",
    "Data",
    "Decode",
    "Edit",
    "Insertion",
    "Model",
    "Order",
    "Recipe",
    "Search",
    "Section",
    "Shape",
    "Side",
    "SplitFiles",
    "Splits",
    "Text",
    "Train",
    "checked",
    "kinds_with",
    "load_recipe",
    "recipe_with",
]
