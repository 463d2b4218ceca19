"""A task that is easy in one order only, from the middle outwards: a model finds that order by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
from corpora import learn

from anyorder.inference.generator import Generator
from anyorder.tasks.files import check_answers, write_task

NAME, TESTED = "middle-out", 300


def is_middle_out(positions: Sequence[int]) -> bool:
    """Whether the middle of five was written first, and each other token after its inner neighbour."""
    left, right = ([position for position in positions if position in side] for side in ((1, 2), (4, 5)))
    return len(positions) == 5 and positions[0] == 3 and left == [2, 1] and right == [4, 5]


@dataclass(frozen=True)
class Result:
    """What a trained model makes of the test problems."""

    right: float
    middle_out: float  # share of the answers, right or wrong


class Trained:
    """The task in a folder, and the models that learn it there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recipe = write_task(NAME, folder, seed=1).recipe
        self.sources = (folder / "test.source").read_text().splitlines()[:TESTED]

    def result(self, name: str, *overrides: str) -> Result:
        """Of a model trained with some keys changed."""
        run = self.folder / "runs" / name
        learn(self.recipe, run, "train.device=cpu", "train.validate_lines=100", *overrides)
        answers = [best for best, *_ in Generator.load(run).generate(self.sources)]
        wrong = check_answers(NAME, self.sources, [answer.text for answer in answers])
        middle_out = [is_middle_out(answer.positions) for answer in answers]
        return Result(right=1 - len(wrong) / TESTED, middle_out=sum(middle_out) / TESTED)

    @cached_property
    def left_to_right(self) -> Result:
        """What orders that the model finds are to be better than."""
        return self.result("l2r", "order.name=l2r")


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("middle-out"))


def test_drawn_orders_run_from_the_middle_outwards_and_beat_left_to_right(task: Trained) -> None:
    """By the defaults: nobody tells the model the order."""
    drawn = task.result("drawn", "order.name=sao")
    assert drawn.right >= task.left_to_right.right + 0.5
    assert drawn.middle_out >= 0.8


@pytest.mark.slow
def test_the_order_is_what_makes_the_task_easy(task: Trained) -> None:
    assert task.result("middle-out", "order.name=file").right >= 0.95
    assert task.left_to_right.right <= 0.4
    assert task.result("r2l", "order.name=r2l").right <= 0.4


@pytest.mark.slow
def test_a_model_that_reads_its_canvas_again_needs_no_order(task: Trained) -> None:
    """It learns from random canvases, and writes what it is surest of first."""
    keys = ("model.kind=insertion", "model.first=word", "insertion.loss=ilm", "insertion.canvases=3")
    canvas = task.result("canvas", *keys)
    assert canvas.right >= task.left_to_right.right + 0.5
    assert canvas.middle_out >= 0.5
