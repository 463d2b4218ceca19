"""Recipes: one commented TOML file an experiment, one class a section, one field a key.

The descriptions of the fields are the comments of `anyorder init`, the help texts of the command line and the
recipe reference of the documentation.
"""

from anyorder.config.data import SPLITS, Data, Side, SplitFiles, Splits, Text
from anyorder.config.decode import Decode
from anyorder.config.model import Insertion, Model, Shape
from anyorder.config.order import Order, Search
from anyorder.config.recipe import Recipe, load_recipe, recipe_with
from anyorder.config.section import WIDEST_BEAM, Section, checked
from anyorder.config.train import Canvas, Train

__all__ = [
    "SPLITS",
    "WIDEST_BEAM",
    "Canvas",
    "Data",
    "Decode",
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
    "load_recipe",
    "recipe_with",
]
