"""check: check the answers to a made-up task by its rules."""

from __future__ import annotations

from pathlib import Path

import typer

from anyorder.cli.options import AS_JSON
from anyorder.cli.output import check_equally_many, print_json, results, stdin_lines
from anyorder.tasks import TASKS


def check(
    name: str = typer.Argument(help=f"The task: {', '.join(TASKS)}.", show_default=False),
    sources: Path = typer.Argument(help="The problems, one per line.", show_default=False),
    answers: Path | None = typer.Argument(None, help="The answers, one per line; default: lines of stdin."),
    mistakes: int = typer.Option(0, "--mistakes", min=0, help="Number of wrong answers to explain."),
    as_json: bool = AS_JSON,
) -> None:
    """Check the answers to a made-up task by its rules, which need no reference.

    Example: `anyorder generate runs/pivot pivot/test.source | anyorder check pivot pivot/test.source`
    """
    from anyorder.data.readers import read_lines
    from anyorder.errors import UserError
    from anyorder.tasks.files import check_answers

    problems = [line for _, line in read_lines(sources)]
    given = list(stdin_lines()) if answers is None else [line for _, line in read_lines(answers)]
    check_equally_many((sources, problems), (answers or Path("stdin"), given))
    if not problems:
        raise UserError(f"{sources}: is empty")
    wrong = check_answers(name, problems, given)
    right = len(given) - len(wrong)
    if as_json:
        reasons = [{"line": line, "mistake": mistake} for line, mistake in wrong.items()]
        print_json({"task": name, "right": right, "answers": len(given), "mistakes": reasons[:mistakes]})
        return
    results.print(f"{100 * right / len(given):.1f} % right: {right:,} of {len(given):,}", soft_wrap=True)
    for line, mistake in list(wrong.items())[:mistakes]:
        results.print(f"line {line}: {mistake}", soft_wrap=True)
