"""The documentation shows what happens, and names what exists.

The fenced blocks of a group of RUN_PAGES run one after the other in one folder, as a reader would run
them. A `text` block is the output of the block before it. An exception has an HTML comment right before the
block: `<!-- not run: why -->`, or `<!-- varies -->` for output that differs each time.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import click
import pytest
import typer

from anyorder import config
from anyorder.cli import app
from anyorder.config.recipe import load_recipe
from anyorder.config.template import reference
from anyorder.evaluation.results import read_report
from anyorder.metrics import METRICS
from anyorder.orders.fixed import ORDERS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "anyorder"
DOCS = ROOT / "docs"
# Cards of result files lie two folders deep; nobody writes them by hand.
PAGES = [path for pattern in ("*.md", "docs/*.md", "docs/*/*.md") for path in sorted(ROOT.glob(pattern))]
# Pages of a group build on each other and run in one folder.
RUN_PAGES = {
    "shipped model": [
        DOCS / "start" / "first-model.md",
        DOCS / "guides" / "completion.md",
        ROOT / "README.md",
    ],
    "own data": [
        DOCS / "start" / "tutorial.md",
        DOCS / "guides" / "own-data.md",
        DOCS / "guides" / "orders.md",
    ],
}

FENCED = re.compile(
    r"^(?:<!-- (?P<remark>.*) -->\n)?```(?P<language>\w+)\n(?P<content>(?:.*\n)*?)```$", re.MULTILINE
)
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")
SEPARATORS = {"|", "||", "&&", ";", "do", "done", ">", "<"}

INTERPRETERS = {"sh": ["bash", "-ec"], "python": [sys.executable, "-c"]}

# What the paper numbers. Its source is not part of the project, so the numbers are listed here.
EQUATIONS = [f"Eq. {number}" for number in range(1, 13)]
ALGORITHMS = ["Algorithm 1"]
TABLES = [f"Table {number}" for number in range(1, 7)]
FIGURES = [f"Figure {number}" for number in range(1, 6)]


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

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
    """What the block prints; a failure names page and line."""
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


@pytest.mark.parametrize("group", RUN_PAGES)
def test_blocks_run_and_print_what_is_shown(group: str, tmp_path: Path) -> None:
    printed = ""
    for block in [block for page in RUN_PAGES[group] for block in blocks(page)]:
        if block.remark:
            continue
        if block.language in INTERPRETERS:
            printed = run(block, folder=tmp_path)
        elif block.language == "text":
            assert without_trailing_blanks(block.content) == without_trailing_blanks(printed), block.where


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_tree_lists_every_package_once_down_the_layers() -> None:
    (listing,) = [
        block.content for block in blocks(ROOT / "README.md") if block.content.startswith("src/anyorder/\n")
    ]
    listed = re.findall(r"^  (\w+)(?:/|\.py) +\S", listing, re.MULTILINE)
    packages = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    assert sorted(listed) == sorted([*packages, "editing", "insertion"])

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = settings["tool"]["importlinter"]["contracts"]
    depth_of = {
        module.strip().split(".")[1]: depth
        for depth, layer in enumerate(contract["layers"])
        for module in re.split(r"[|:]", layer)
    }
    depths = [depth_of[name] for name in listed]
    assert depths == sorted(depths)


def test_figures_of_the_readme_are_those_of_the_results() -> None:
    def figures(page: Path) -> set[str]:
        return set(re.findall(r"\d+\.\d+", page.read_text(encoding="utf-8")))

    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## Results")[1].split("\n## ")[0]
    assert set(re.findall(r"\d+\.\d+", section)) <= figures(DOCS / "results" / "index.md")


def test_pages_show_the_scores_of_the_result_files() -> None:
    """BLEU of each run is on a page of the results, by itself or in the mean of its seeds."""
    shown = " ".join(page.read_text(encoding="utf-8") for page in (DOCS / "results").glob("*.md"))
    by_system: dict[tuple[str, str], list[float]] = {}
    for path in sorted((DOCS / "results").glob("*/*.json")):
        system = re.sub(r"-\d+$", "", path.stem.removesuffix("-test"))
        by_system.setdefault((path.parent.name, system), []).append(read_report(path).scores["bleu"].score)
    assert len(by_system) > 40
    missing = [
        (system, score)
        for system, scores in by_system.items()
        for score in scores
        if f"{score:.2f}" not in shown and f"{mean(scores):.2f}" not in shown
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    targets = LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    made = {DOCS / "contributing.md", DOCS / "changelog.md"}  # by docs/hooks.py, of files at the top
    relative = [page.parent / target for target in targets if "://" not in target]
    assert [target for target in relative if not target.exists() and target not in made] == []


def test_every_key_is_explained_as_it_is() -> None:
    written = (DOCS / "reference" / "recipe.md").read_text(encoding="utf-8")
    assert written == reference(), "docs/reference/recipe.md is out of date; `make docs` writes it again"


@pytest.mark.parametrize("recipe", sorted(ROOT.glob("recipes/*.toml")), ids=lambda path: path.stem)
def test_recipes_are_valid_and_say_how_they_are_run(recipe: Path) -> None:
    load_recipe(recipe, ["data.root=somewhere"])
    assert f"anyorder train recipes/{recipe.name} data.root=" in recipe.read_text(encoding="utf-8")
    assert f"`{recipe.stem}`" in (DOCS / "guides" / "own-data.md").read_text(encoding="utf-8")


def first_column(page: Path) -> list[str]:
    """The names in backticks that open the rows of a page's tables."""
    return re.findall(r"^\| `([^`]+)`", page.read_text(encoding="utf-8"), re.MULTILINE)


def commands() -> dict[str, click.Command]:
    """The commands by what is typed, e.g. `bench decode`."""
    found: dict[str, click.Command] = {}

    def add(name: str, command: Any) -> None:  # noqa: ANN401 (typer may carry its own click)
        inner = getattr(command, "commands", None)
        if inner is None:
            found[name] = command
        else:
            for key, value in inner.items():
                add(f"{name} {key}".strip(), value)

    add("", typer.main.get_command(app))
    return found


def test_orders_metrics_and_commands_are_listed() -> None:
    assert set(ORDERS) <= set(first_column(DOCS / "guides" / "orders.md"))
    assert set(METRICS) <= set(first_column(DOCS / "guides" / "evaluation.md"))
    top = dict.fromkeys(name.split()[0] for name in commands())
    assert first_column(DOCS / "reference" / "commands.md") == list(top)


def typed_commands(page: Path) -> Iterator[list[str]]:
    """The words of every `anyorder ...` in a page's shell blocks and inline code."""
    text = page.read_text(encoding="utf-8")
    shell = [block.content.replace("\\\n", " ") for block in blocks(page) if block.language == "sh"]
    lines = [line for content in shell for line in content.splitlines()]
    for line in [*lines, *INLINE.findall(FENCED.sub("", text))]:
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a quote that goes on in the next line
            continue
        for start, word in enumerate(words):
            if word == "anyorder":
                rest = words[start + 1 :]
                ends = [
                    number
                    for number, some in enumerate(rest)
                    if some.rstrip(";") != some or some in SEPARATORS
                ]
                yield rest[: ends[0] + 1] if ends else rest


def documented_flags() -> list[tuple[str, list[str]]]:
    return [
        (f"{page.relative_to(ROOT)}: {' '.join(words)}", [word.rstrip(";") for word in words])
        for page in PAGES
        if page.name != "CHANGELOG.md"
        for words in typed_commands(page)
        if words
    ]


def test_commands_and_flags_in_the_pages_exist() -> None:
    known = commands()
    wrong = []
    for where, words in documented_flags():
        name = next((name for name in (" ".join(words[:2]), words[0]) if name in known), None)
        if name is None:
            # A group, a flag of the command itself, or a word in capitals that stands for any command.
            if not (words[0].startswith("-") or words[0].isupper() or words[0] in {"bench", "…"}):
                wrong.append(where)
            continue
        flags = {"--help"}.union(
            *(parameter.opts + parameter.secondary_opts for parameter in known[name].params)
        )
        wrong += [
            f"{where}: {word}"
            for word in words
            if re.match(r"--\w", word) and word.split("=")[0] not in flags
        ]
    assert wrong == []


def has_key(dotted: str) -> bool:
    section: Any = config.Recipe
    for part in dotted.split("."):
        fields = getattr(section, "model_fields", {})
        if part not in fields:
            return False
        annotation = fields[part].annotation
        kinds = [kind for kind in getattr(annotation, "__args__", ()) if hasattr(kind, "model_fields")]
        section = kinds[0] if kinds else annotation
    return True


def test_keys_in_the_pages_exist() -> None:
    sections = "|".join(name for name in config.Recipe.model_fields if name != "run")
    dotted = rf"((?:{sections})\.[a-z_]+(?:\.[a-z_]+)?)"
    given = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        given += re.findall(rf"(?<![\w./-]){dotted}(?==)", text)
        # Alone in backticks, or before a value; the names of files look alike.
        given += re.findall(rf"`{dotted}(?:`| = )", FENCED.sub("", text))
        for block in blocks(page):
            if block.language == "toml":
                given += [
                    f"{section}.{name}"
                    for section, values in tomllib.loads(block.content).items()
                    for name in values
                ]
    assert len(given) > 100
    files = ("data.json", "insertion.py", "model.safetensors", "train.txt")
    assert [key for key in given if key not in files and not has_key(key)] == []


def resolve(dotted: str) -> object:
    """The module, class, function or method of a dotted name."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(dotted)


def test_every_number_of_the_paper_leads_somewhere() -> None:
    page = (DOCS / "concepts" / "paper.md").read_text(encoding="utf-8")
    numbered = r"^\| ((?:Eq\.|Algorithm|Table|Figure) \d+) \|.*\| (.+) \|$"
    rows = dict(re.findall(numbered, page, re.MULTILINE))
    assert list(rows) == [*EQUATIONS, *ALGORITHMS, *TABLES, *FIGURES]
    assert all(re.search(r"`anyorder[. ]|\]\(|`recipes/", here) for here in rows.values())
    for label in EQUATIONS + ALGORITHMS:
        assert "`anyorder." in rows[label], label


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_dotted_names_exist(page: Path) -> None:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    names = re.findall(r"`(anyorder(?:\.\w+)+)(?:\(\))?`", text) + re.findall(
        r"^::: (anyorder\S+)", text, re.MULTILINE
    )
    for name in names:
        resolve(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_exist(page: Path) -> None:
    spans = INLINE.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    paths = [span for span in spans if re.fullmatch(r"(src|tests|docs|recipes|requirements)/[\w./-]*", span)]
    assert [path for path in paths if not (ROOT / path).exists()] == []
