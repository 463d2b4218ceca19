"""A task that is easy in one order only, from the middle outwards: does a model find that order by itself?

The middle number is the sum of two numbers of the source; each of the others is its inner neighbour plus one
more number of the source, all modulo 5. Whoever writes the middle first adds two numbers at a time. Whoever
begins at an end has to add four at once, and a sum modulo 5 says nothing until its last number is known.

    m1+3 m2+4 a1+1 a2+0 b1+2 b2+4   becomes   A2=3 A1=3 M=2 B1=4 B2=3

The results are in docs/results/synthetic.md.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
from corpora import learn, write_lines

from anyorder.inference.generator import Generator

MODULUS = 5
PAIRS = {"train": 5000, "dev": 300}
NUMBERS = 6  # of a source
MIDDLE_OUT = (3, 2, 4, 1, 5)

RECIPE = """
[data]
root = "{folder}"
cache = "cache"
train = {{ source = "train.source", target = "train.target" }}
dev = {{ source = "dev.source", target = "dev.target" }}

[text]
unit = "words"
source = {{ split = "spaces" }}
target = {{ split = "spaces" }}

[order]
files = {{ train = "train.order", dev = "dev.order" }}  # middle-out, for order.name = "file"

[model]
width = 64
hidden = 128
heads = 4
encoder_layers = 1
decoder_layers = 2
dropout = 0.0
encoder_positions = "sinusoidal"
first = "position"

[train]
steps = 400
batch_tokens = 1000
lr = 3e-3
warmup = 50
schedule = "cosine"
validate_every = 400
validate_lines = 300
device = "cpu"
"""

# One order a target and update, each token drawn as likely as the model finds it: a beam of one whose choice
# is disturbed by Gumbel noise of scale 1. It is stronger in the beginning: else the first order that comes up
# may be the last.
DRAWN = (
    "order.name=sao",
    "search.bootstrap_steps=0",
    "search.refresh=0",
    "search.beam=1",
    "search.gumbel=1.0",
    "search.start_temperature=3.0",
    "search.anneal_steps=300",
    "search.dropout=0.0",
    "search.look_ahead=false",
)


def answer(numbers: Sequence[int]) -> list[int]:
    """The numbers of the target, from left to right."""
    first, second, inner_left, outer_left, inner_right, outer_right = numbers
    middle = first + second
    left, right = middle + inner_left, middle + inner_right
    return [number % MODULUS for number in (left + outer_left, left, middle, right, right + outer_right)]


def source_line(numbers: Sequence[int]) -> str:
    names = ("m1", "m2", "a1", "a2", "b1", "b2")
    return " ".join(f"{name}+{number}" for name, number in zip(names, numbers, strict=True))


def target_line(numbers: Sequence[int]) -> str:
    names = ("A2", "A1", "M", "B1", "B2")
    return " ".join(f"{name}={number}" for name, number in zip(names, answer(numbers), strict=True))


def is_middle_out(positions: Sequence[int]) -> bool:
    """Whether the middle of five was written first, and each other token after its inner neighbour."""
    left, right = ([position for position in positions if position in side] for side in ((1, 2), (4, 5)))
    return len(positions) == 5 and positions[0] == 3 and left == [2, 1] and right == [4, 5]


@dataclass(frozen=True)
class Result:
    """What a trained model makes of the dev set."""

    exact: float
    middle_out: float  # share of the sentences, right or wrong


class Task:
    """The corpus in a folder, and the models that learn it there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        chance = random.Random(1)
        for split, count in PAIRS.items():
            pairs = [chance.choices(range(MODULUS), k=NUMBERS) for _ in range(count)]
            write_lines(folder / f"{split}.source", [source_line(numbers) for numbers in pairs])
            write_lines(folder / f"{split}.target", [target_line(numbers) for numbers in pairs])
            write_lines(folder / f"{split}.order", [" ".join(map(str, MIDDLE_OUT))] * count)
        self.recipe = folder / "middle-out.toml"
        self.recipe.write_text(RECIPE.format(folder=folder))

    def result(self, name: str, *overrides: str) -> Result:
        """Of a model trained with some keys changed."""
        run = self.folder / "runs" / name
        learn(self.recipe, run, *overrides)
        outputs = [best for best, *_ in Generator.load(run).generate(self._dev("source"))]
        right = [output.text == text for output, text in zip(outputs, self._dev("target"), strict=True)]
        middle_out = [is_middle_out(output.positions) for output in outputs]
        result = Result(exact=sum(right) / len(right), middle_out=sum(middle_out) / len(middle_out))
        print(f"\n{name}: {result.exact:.1%} exact, {result.middle_out:.1%} from the middle outwards", end="")
        return result

    @cached_property
    def left_to_right(self) -> Result:
        """What orders that the model finds are to be better than."""
        return self.result("l2r", "order.name=l2r")

    def _dev(self, side: str) -> list[str]:
        return (self.folder / f"dev.{side}").read_text().splitlines()


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return Task(tmp_path_factory.mktemp("middle-out"))


def test_the_pairs_are_as_described() -> None:
    numbers = (3, 4, 1, 0, 2, 4)
    assert source_line(numbers) == "m1+3 m2+4 a1+1 a2+0 b1+2 b2+4"
    assert target_line(numbers) == "A2=3 A1=3 M=2 B1=4 B2=3"


@pytest.mark.parametrize("unknown", range(4))  # of the four numbers that the leftmost token adds up
def test_an_end_can_only_be_guessed_while_one_of_its_numbers_is_unknown(unknown: int) -> None:
    known: dict[tuple[int, ...], Counter[int]] = {}
    for four in itertools.product(range(MODULUS), repeat=4):
        others = four[:unknown] + four[unknown + 1 :]
        known.setdefault(others, Counter())[answer([*four, 0, 0])[0]] += 1
    assert all(guesses == Counter(range(MODULUS)) for guesses in known.values())


def test_drawn_orders_run_from_the_middle_outwards_and_beat_left_to_right(task: Task) -> None:
    drawn = task.result("drawn", *DRAWN)
    assert drawn.exact >= task.left_to_right.exact + 0.5
    assert drawn.middle_out >= 0.8


@pytest.mark.slow
def test_the_order_is_what_makes_the_task_easy(task: Task) -> None:
    assert task.result("middle-out", "order.name=file").exact >= 0.95
    assert task.left_to_right.exact <= 0.4
    assert task.result("r2l", "order.name=r2l").exact <= 0.4
