"""The walks through the code in CONTRIBUTING.md are the way that a call really takes.

Each walk is run and traced. The list must name every module that it crosses, and only functions that ran.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType

import pytest
from corpora import learned, sentences

import anyorder
from anyorder.config.recipe import load_recipe
from anyorder.data.batches import collate
from anyorder.data.dataset import prepare
from anyorder.models.registry import build_model, family_of

PAGE = Path(__file__).parent.parent / "CONTRIBUTING.md"
# A walk passes by what checks settings, talks to the system, or only makes torch faster.
PASSED_BY = re.compile(r"anyorder\.(config|errors|system|models\.kernels)\b")
LISTED = re.compile(r"^\d+\. .*(?:\n   +\S.*)*", re.MULTILINE)


def a_pair_from_file_to_loss(folder: Path) -> None:
    recipe = load_recipe(learned().recipe, [f"data.cache={folder}"])
    prepared = prepare(recipe)
    new = build_model(recipe, prepared.shape)
    batch = collate([prepared.train.example(pair, seed=1, epoch=1) for pair in range(2)])
    family_of(new).loss(new, batch)


@cache
def model() -> anyorder.Generator:
    return anyorder.load(learned().run)


def a_source_to_an_answer(_: Path) -> None:
    model().generate(sentences(1, seed=8), beam=2)


def a_canvas_with_required_words(_: Path) -> None:
    (source,) = sentences(1, seed=8)
    model().complete([source], [{"must": [source.split()[0]]}], beam=2)


@dataclass(frozen=True)
class Walk:
    work: Callable[[Path], None]
    most: int  # modules that it may cross
    like: str | None = None  # the walk that its list continues


WALKS = {
    "A pair, from file to loss": Walk(a_pair_from_file_to_loss, most=16),
    "A source, to an answer": Walk(a_source_to_an_answer, most=20),
    "A canvas with required words, to an answer": Walk(
        a_canvas_with_required_words, most=27, like="A source, to an answer"
    ),
}


def traced(work: Callable[[Path], None], folder: Path) -> set[tuple[str, str]]:
    """The functions of the package that run, as (module, qualified name)."""
    called: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        module = frame.f_globals.get("__name__", "")
        name = frame.f_code.co_qualname
        # What dataclasses generate is no function that somebody reads.
        if event == "call" and module.startswith("anyorder.") and not name.startswith(("__create_fn__", "<")):
            called.add((module, name))

    sys.setprofile(note)
    try:
        work(folder)
    finally:
        sys.setprofile(None)
    return {(module, name) for module, name in called if not PASSED_BY.match(module)}


def split_name(dotted: str) -> tuple[str, str]:
    """The module of a dotted name, and what it is called there."""
    parts = dotted.split(".")
    for length in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:length])
        try:
            importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        return module, ".".join(parts[length:])
    raise ModuleNotFoundError(dotted)


def listed(heading: str) -> list[tuple[str, str]]:
    section = PAGE.read_text(encoding="utf-8").split(f"### {heading}\n")[1].split("\n#")[0]
    names = [name for line in LISTED.findall(section) for name in re.findall(r"`(anyorder\.[\w.]+)`", line)]
    return [split_name(name) for name in names]


@pytest.mark.parametrize("heading", WALKS)
def test_a_walk_names_the_modules_that_it_crosses(heading: str, tmp_path: Path) -> None:
    walk = WALKS[heading]
    model()  # trained and loaded once, before anything is traced
    called = traced(walk.work, tmp_path)
    names = listed(heading)
    assert [name for name in names if name not in called] == []
    crossed = {module for module, _ in called}
    before = [] if walk.like is None else listed(walk.like)
    assert {module for module, _ in [*before, *names]} == crossed
    assert len(crossed) <= walk.most


def test_the_page_says_how_many_modules_they_cross() -> None:
    first, second, third = (walk.most for walk in WALKS.values())
    assert f"cross at most {first}, {second} and {third} modules" in PAGE.read_text(encoding="utf-8")
