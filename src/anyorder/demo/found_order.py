"""The last part of the demo: a task that is hard from left to right, and a model that finds an easy order."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from anyorder.config.recipe import load_recipe
from anyorder.inference.generator import Generator
from anyorder.inference.hypothesis import Hypothesis
from anyorder.tasks.files import check_answers, write_task
from anyorder.training.metrics_log import TrainingListener
from anyorder.training.trainer import train
from anyorder.viz.page import Rendition, Replay
from anyorder.viz.trace import draw_trace

Watch = Callable[[], AbstractContextManager[TrainingListener]]  # shows the progress of a training
TASK, TESTED, SHOWN = "middle-out", 500, 6
ORDERS = {"l2r": "left to right", "sao": "order found by the model"}


@dataclass(frozen=True)
class Solved:
    """What one model made of the test problems."""

    order: str
    answers: list[Hypothesis]
    wrong: set[int]  # lines, counted from 1
    seconds: float  # of training

    @property
    def right(self) -> float:
        """Percent."""
        return 100 * (1 - len(self.wrong) / len(self.answers))


def show_found_order(*, folder: Path, console: Console, watch: Watch) -> list[Replay]:
    """Train both models, print what they write, and return replays for the page."""
    console.print(Text("\nA task that is easy in one order only.", "bold"))
    data = folder / TASK
    recipe = write_task(TASK, data, seed=1, replace=True).recipe
    sources = (data / "test.source").read_text(encoding="utf-8").splitlines()[:TESTED]
    console.print(
        "The middle one of five numbers is the sum of two, each other one its inner neighbour plus one "
        f"more:\n  {sources[0]}\nNobody tells the second model to begin in the middle.\n"
    )
    solved = [_learn_and_solve(recipe, order, folder, sources, watch) for order in ORDERS]
    for one in solved:
        scores = f"   right {one.right:5.1f} %   trained in {one.seconds:.0f} s"
        console.print(Text.assemble((f"{ORDERS[one.order]:>24}", "bold"), scores))
    found = solved[-1]
    shown = next((line for line in range(1, TESTED + 1) if line in solved[0].wrong - found.wrong), 1)
    for one in solved:
        answer, verdict = one.answers[shown - 1], "wrong" if shown in one.wrong else "right"
        console.print("")
        console.print(draw_trace(answer.steps, f"{ORDERS[one.order]}: {answer.text}  ({verdict})"))
    targets = (data / "test.target").read_text(encoding="utf-8").splitlines()
    return [_replay(sources[line], targets[line], line, solved) for line in range(SHOWN)]


def _learn_and_solve(recipe: Path, order: str, folder: Path, sources: Sequence[str], watch: Watch) -> Solved:
    settings = load_recipe(recipe, [f"order.name={order}", f"run={folder / f'{TASK}-{order}'}"])
    began = time.perf_counter()
    with watch() as watcher:
        watcher.note(f"learning to write: {ORDERS[order]} …")
        train(settings, listener=watcher, overwrite=True)
    seconds = time.perf_counter() - began
    answers = [best for best, *_ in Generator.load(settings.run).generate(list(sources))]
    wrong = check_answers(TASK, sources, [answer.text for answer in answers])
    return Solved(order=order, answers=answers, wrong=set(wrong), seconds=seconds)


def _replay(source: str, target: str, line: int, solved: Sequence[Solved]) -> Replay:
    return Replay(
        source=source,
        reference=target,
        renditions=[
            Rendition(
                order=ORDERS[one.order],
                steps=one.answers[line].steps,
                score=one.answers[line].score,
                equals_reference=one.answers[line].text == target,
            )
            for one in solved
        ],
    )
