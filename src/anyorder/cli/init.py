"""init: write a recipe for a user's own files."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import typer

from anyorder.cli.options import BY_TREES, PARSER
from anyorder.cli.output import results
from anyorder.config.data import SplitFiles, Splits
from anyorder.config.order import Order
from anyorder.config.template import AS_IT_IS, SIZES, Size, Wishes, recipe_text
from anyorder.errors import UserError
from anyorder.orders.fixed import order_names, order_rule
from anyorder.system.files import write_file

PURPOSES: dict[Splits, str] = {"train": "to learn from", "dev": "to validate on", "test": "to test on"}
LANGUAGES = f"en, de, ...; ja: split by MeCab; {AS_IT_IS}: words are separated by spaces"
LANGUAGE_HELP = f"{LANGUAGES}. Where Moses has no abbreviations for a language, it uses the English ones."
ORDER_HELP, DEFAULT_ORDER = order_names(without="file"), Order().name
SIZE_HELP, DEFAULT_SIZE = "tiny: minutes on a laptop; base: the paper's", "small"
TREES_HELP = f"CoNLL-U for {BY_TREES}, instead of --parser."


def init(
    recipe: Path = typer.Argument(Path("recipe.toml"), help="The recipe to write."),
    train_source: Path | None = typer.Option(None, "--train-source", help="Training sources, one per line."),
    train_target: Path | None = typer.Option(None, "--train-target", help="Training targets, one per line."),
    train_jsonl: Path | None = typer.Option(
        None, "--train-jsonl", help="Training pairs as JSONL, instead of both."
    ),
    dev_source: Path | None = typer.Option(None, "--dev-source", help="Sources to validate on."),
    dev_target: Path | None = typer.Option(None, "--dev-target", help="Targets to validate on."),
    dev_jsonl: Path | None = typer.Option(None, "--dev-jsonl", help="Pairs to validate on as JSONL."),
    test_source: Path | None = typer.Option(None, "--test-source", help="Sources to test on, optional."),
    test_target: Path | None = typer.Option(None, "--test-target", help="Targets to test on."),
    test_jsonl: Path | None = typer.Option(None, "--test-jsonl", help="Pairs to test on as JSONL."),
    source_language: str | None = typer.Option(None, "--source-language", help=LANGUAGE_HELP),
    target_language: str | None = typer.Option(None, "--target-language", help=LANGUAGE_HELP),
    order: str | None = typer.Option(None, "--order", help=f"{ORDER_HELP}; default: {DEFAULT_ORDER}."),
    parser: str | None = PARSER,
    train_trees: Path | None = typer.Option(None, "--train-trees", help=TREES_HELP),
    dev_trees: Path | None = typer.Option(None, "--dev-trees", help=TREES_HELP),
    size: Size | None = typer.Option(None, "--size", help=f"{SIZE_HELP}; default: {DEFAULT_SIZE}."),
    force: bool = typer.Option(False, "--force", help="Replace an existing recipe."),
) -> None:
    """Write a commented recipe for your own files; the command asks for what you don't give.

    Example: `anyorder init my.toml --train-source train.en --train-target train.de --dev-source dev.en
    --dev-target dev.de --source-language en --target-language de`
    """
    if recipe.exists() and not force:
        raise UserError(f"{recipe}: exists already; give another name, or --force to replace it")
    splits: dict[Splits, SplitFiles] = {
        "train": _split("train", source=train_source, target=train_target, jsonl=train_jsonl),
        "dev": _split("dev", source=dev_source, target=dev_target, jsonl=dev_jsonl),
    }
    if test_source or test_target or test_jsonl:
        splits["test"] = _split("test", source=test_source, target=test_target, jsonl=test_jsonl)
    wishes = Wishes(
        splits=splits,
        source_language=_language(source_language, side="source"),
        target_language=_language(target_language, side="target"),
        order=_order(order, parser=parser, trees={"train": train_trees, "dev": dev_trees}),
        size=_size(size),
    )
    try:
        text = recipe_text(wishes).encode()
    except UnicodeEncodeError:
        raise UserError(f"{recipe}: not written: the name of a file isn't valid UTF-8") from None
    write_file(recipe, text)
    results.print(f"wrote {recipe}; next: anyorder train {recipe}", soft_wrap=True)


def _split(split: Splits, *, source: Path | None, target: Path | None, jsonl: Path | None) -> SplitFiles:
    """Collect the files of a split; ask for the source and target files unless there is a file of pairs."""
    if jsonl is None:
        purpose = PURPOSES[split]
        return SplitFiles(
            source=_file(source, f"--{split}-source", f"Sources {purpose}, a file with one per line"),
            target=_file(target, f"--{split}-target", f"Targets {purpose}, a file with one per line"),
        )
    if source or target:
        other = "source" if source else "target"
        raise UserError(
            f"--{split}-jsonl and --{split}-{other}: give one of them, a JSONL file has both sides"
        )
    path = _file(jsonl, f"--{split}-jsonl", "Pairs")
    _check_holds_a_pair(path, flag=f"--{split}-jsonl")
    return SplitFiles(jsonl=path)


def _check_holds_a_pair(path: Path, *, flag: str) -> None:
    """Refuse a JSONL file without one valid pair."""
    from anyorder.data.readers import Fault, File, Pair, read_pairs

    first: Fault | None = None
    for entry in read_pairs({"jsonl": File(path)}):
        if isinstance(entry, Pair):
            return
        first = first or entry
    raise UserError(f"{flag} {path}: holds no pair; {first or 'it is empty'}")


def _order(name: str | None, *, parser: str | None, trees: dict[Splits, Path | None]) -> Order:
    """Build the recipe's [order] and check that it has everything that it needs."""
    name = name or _asked(f"Order to write in ({ORDER_HELP})", default=DEFAULT_ORDER)
    needs = order_rule(name).needs
    given = {split: _file(path, f"--{split}-trees", "Trees") for split, path in trees.items() if path}
    if needs == "file":
        raise UserError(f"--order {name}: init can't write its recipe; set order.name and order.files in one")
    if needs != "heads":
        if parser or given:
            raise UserError(f"--parser, --train-trees and --dev-trees are for --order {BY_TREES}, not {name}")
        return Order(name=name)
    if len(given) < len(trees):
        parser = parser or _asked(f"spaCy pipeline that {name} takes its trees from, or python for code")
        if not parser:
            raise UserError(
                f"--order {name} needs --parser NAME, a spaCy pipeline or python, "
                "or --train-trees and --dev-trees, CoNLL-U files"
            )
    return Order(name=name, parser=parser, files=given)


def _language(given: str | None, *, side: str) -> str:
    language = given or _asked(f"Language of the {side}s ({LANGUAGES})", default="en")
    if language != AS_IT_IS and not re.fullmatch("[a-z]{2,3}", language):
        raise UserError(
            f"--{side}-language {language!r}: must be two or three letters, e.g. en or de, or {AS_IT_IS}"
        )
    return language


def _size(given: Size | None) -> Size:
    answer = given or _asked(f"Size of the model ({', '.join(SIZES)}; {SIZE_HELP})", default=DEFAULT_SIZE)
    for size in SIZES:
        if size == answer:
            return size
    raise UserError(f"--size {answer}: must be one of {', '.join(SIZES)}")


def _file(given: Path | None, flag: str, question: str) -> Path:
    if given is None:
        answer = _asked(question)
        if not answer:
            raise UserError(f"{flag} is missing: {question.lower()}")
        given = Path(answer)
    if not given.is_file():
        raise UserError(f"{flag} {given}: no such file")
    return given


def _asked(question: str, *, default: str = "") -> str:
    """Ask the user; without a terminal, take the default."""
    if sys.stdin is None or not sys.stdin.isatty():
        return default
    answer: Any = typer.prompt(question, default=default or None, err=True)
    return str(answer).strip()
