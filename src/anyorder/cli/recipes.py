"""The command that writes a recipe for a user's own files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import typer

from anyorder.cli.output import results
from anyorder.errors import UserError

Size = Literal["tiny", "small", "base"]


def init(
    recipe: Path = typer.Argument(Path("recipe.toml"), help="The recipe to write."),
    train_source: Path | None = typer.Option(None, "--train-source", help="Training sources, a line each."),
    train_target: Path | None = typer.Option(None, "--train-target", help="Training targets, a line each."),
    dev_source: Path | None = typer.Option(None, "--dev-source", help="Sources to validate on."),
    dev_target: Path | None = typer.Option(None, "--dev-target", help="Targets to validate on."),
    source_language: str | None = typer.Option(None, "--source-language", help="en, de, ...; code: as it is"),
    target_language: str | None = typer.Option(None, "--target-language", help="en, de, ...; code: as it is"),
    order: str = typer.Option(
        "l2r", "--order", help="l2r, r2l, odd, blt, syn, cf, rf, rnd or module:function"
    ),
    size: Size = typer.Option("small", "--size", help="tiny: minutes on a laptop; base: the paper's."),
    force: bool = typer.Option(False, "--force", help="Replace a recipe of that name."),
) -> None:
    """Write a commented recipe for your own files; what is not given is asked for.

    Example: `anyorder init my.toml --train-source train.en --train-target train.de --dev-source dev.en
    --dev-target dev.de --source-language en --target-language de`
    """
    from anyorder.orders import order_rule
    from anyorder.template import Files, recipe_text

    order_rule(order)
    if recipe.exists() and not force:
        raise UserError(f"{recipe}: is there already; give another name, or --force to replace it")
    files = Files(
        train_source=_asked(train_source, "--train-source", "Training sources, a file with one a line"),
        train_target=_asked(train_target, "--train-target", "Training targets"),
        dev_source=_asked(dev_source, "--dev-source", "Sources to validate on"),
        dev_target=_asked(dev_target, "--dev-target", "Targets to validate on"),
    )
    languages = [
        given or (typer.prompt(question, default="en", err=True) if sys.stdin.isatty() else "en")
        for given, question in (
            (source_language, "Language of the sources (en, de, ...; code to take them as they are)"),
            (target_language, "Language of the targets"),
        )
    ]
    text = recipe_text(
        files, source_language=languages[0], target_language=languages[1], order=order, size=size
    )
    try:
        recipe.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{recipe}: can't be written: {error.strerror}") from None
    results.print(f"wrote {recipe}; next: anyorder train {recipe}", soft_wrap=True)


def _asked(given: Path | None, flag: str, question: str) -> Path:
    if given is None:
        if not sys.stdin.isatty():
            raise UserError(f"{flag} is missing: {question.lower()}")
        given = Path(typer.prompt(question, err=True))
    if not given.is_file():
        raise UserError(f"{flag} {given}: no such file")
    return given
