"""What the documentation shows is what happens.

The fenced blocks of the tutorial and then of the README run one after the other in one folder, as a reader
would run them. A `text` block is the output of the block before it. An exception says so in an HTML comment
right before the block: `<!-- not run: why -->`, or `<!-- varies -->` for output that differs each time.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from anyorder.config.recipe import load_recipe
from anyorder.config.template import reference

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "anyorder"
PAGES = [path for pattern in ("*.md", "docs/*.md") for path in sorted(ROOT.glob(pattern))]

FENCED = re.compile(
    r"^(?:<!-- (?P<remark>.*) -->\n)?```(?P<language>\w+)\n(?P<content>(?:.*\n)*?)```$", re.MULTILINE
)
LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")
TREE_FILE = re.compile(r"^ +(\S+\.\w+)  +\S")  # a name, and then what it is for

INTERPRETERS = {"sh": ["bash", "-ec"], "python": [sys.executable, "-c"]}


@dataclass(frozen=True)
class Block:
    """Something fenced."""

    where: str
    language: str
    content: str
    remark: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found_blocks = list(FENCED.finditer(text))
    assert len(re.findall(r"^ *```", text, re.MULTILINE)) == 2 * len(found_blocks), f"{page}: a fence is odd"
    return [
        Block(
            where=f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, found.start('content')) + 1}",
            language=found["language"],
            content=found["content"],
            remark=found["remark"] or "",
        )
        for found in found_blocks
    ]


def run(block: Block, *, folder: Path) -> str:
    """What it prints, or a failure that says where it stands."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "COLUMNS": "80",
        # Tests may share the machine, and threads that wait for each other are slower than one.
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [*INTERPRETERS[block.language], block.content],
        stdin=subprocess.DEVNULL,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{block.where} failed:\n{block.content}\n{done.stdout}{done.stderr}"
    return done.stdout


def without_trailing_blanks(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def test_blocks_run_and_print_what_is_shown(tmp_path: Path) -> None:
    printed = ""
    for block in [*blocks(ROOT / "docs" / "tutorial.md"), *blocks(ROOT / "README.md")]:
        if block.remark:
            continue
        if block.language in INTERPRETERS:
            printed = run(block, folder=tmp_path)
        elif block.language == "text":
            assert without_trailing_blanks(block.content) == without_trailing_blanks(printed), block.where


def tree() -> list[str]:
    """The package's files as the README lists them."""
    (listing,) = [
        block.content for block in blocks(ROOT / "README.md") if block.content.startswith("src/anyorder/\n")
    ]
    return [found[1] for line in listing.splitlines() if (found := TREE_FILE.match(line))]


def test_tree_lists_every_file_of_the_package_once() -> None:
    files = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*") if path.is_file()]
    assert sorted(tree()) == sorted(str(path) for path in files if "__pycache__" not in path.parts)


def test_tree_goes_down_the_layers() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = settings["tool"]["importlinter"]["contracts"]
    depth_of = {
        tuple(module.strip().split(".")[1:]): depth
        for depth, layer in enumerate(contract["layers"])
        for module in layer.split(":")
    }
    listed = [Path(name).with_suffix("").parts for name in tree()]
    depths = [depth_of[some] for parts in listed for some in (parts, parts[:1]) if some in depth_of]
    assert len(depths) >= len(depth_of)
    assert depths == sorted(depths)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    relative = [target for target in targets if "://" not in target]
    assert [target for target in relative if not (page.parent / target).exists()] == []


def test_every_key_is_explained_as_it_is() -> None:
    written = (ROOT / "docs" / "recipe.md").read_text(encoding="utf-8")
    assert written == reference(), "docs/recipe.md is out of date; CONTRIBUTING.md says how to make it anew"


@pytest.mark.parametrize("recipe", sorted(ROOT.glob("recipes/*.toml")), ids=lambda path: path.stem)
def test_recipes_are_valid_and_say_how_they_are_run(recipe: Path) -> None:
    load_recipe(recipe, ["data.root=somewhere"])
    assert f"anyorder train recipes/{recipe.name} data.root=" in recipe.read_text(encoding="utf-8")
