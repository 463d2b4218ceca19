"""Made-up tasks on which the order of writing decides, each with a checker that knows the rules."""

from __future__ import annotations

from anyorder.tasks.star import Star, star_mistake
from anyorder.tasks.sudoku import Sudoku
from anyorder.tasks.sums import (
    addition_mistake,
    draw_addition,
    draw_longer_addition,
    draw_middle_out,
    draw_pivot,
    middle_out_mistake,
    pivot_mistake,
)
from anyorder.tasks.task import Settings, Task
from anyorder.tasks.zebra import draw_zebra, zebra_mistake

MEDIUM, HARD = Star(3, 3, 6, 20), Star(5, 6, 12, 56)
SMALL, LARGE = Sudoku(2, 4), Sudoku(3, 30)

TASKS: dict[str, Task] = {
    "pivot": Task(
        title="sums that grow outwards from a marked number",
        easy_order="from the marked number outwards",
        draw=draw_pivot,
        mistake=pivot_mistake,
        sizes={"train": 20_000, "dev": 500, "test": 2000},
    ),
    "middle-out": Task(
        title="sums that grow from the middle outwards",
        easy_order="from the middle outwards",
        draw=draw_middle_out,
        mistake=middle_out_mistake,
        sizes={"train": 5000, "dev": 500, "test": 2000},
        settings=Settings(
            width=64, hidden=128, encoder_layers=1, steps=400, batch_tokens=1000, lr=3e-3, warmup=50
        ),
    ),
    "addition": Task(
        title="the sum of two numbers, digit by digit",
        easy_order="from right to left",
        draw=draw_addition,
        mistake=addition_mistake,
        sizes={"train": 40_000, "dev": 500, "test": 2000, "longer": 1000},
        variants={"longer": draw_longer_addition},
    ),
    "star-medium": Task(
        title="the way through a star graph with three arms",
        easy_order="from both ends to the centre",
        draw=MEDIUM.draw,
        mistake=star_mistake,
        sizes={"train": 50_000, "dev": 1000, "test": 5000},
        settings=Settings(steps=4000, batch_tokens=5000),
    ),
    "star-hard": Task(
        title="the way through a star graph with five long arms",
        easy_order="from both ends to the centre",
        draw=HARD.draw,
        mistake=star_mistake,
        sizes={"train": 50_000, "dev": 1000, "test": 5000},
        settings=Settings(steps=8000, batch_tokens=8000),
    ),
    "sudoku": Task(
        title="a 4 × 4 Sudoku",
        easy_order="the cell with the fewest candidates first",
        draw=SMALL.draw,
        mistake=SMALL.mistake,
        sizes={"train": 20_000, "dev": 500, "test": 2000},
    ),
    "sudoku-9": Task(
        title="a 9 × 9 Sudoku",
        easy_order="the cell with the fewest candidates first",
        draw=LARGE.draw,
        mistake=LARGE.mistake,
        sizes={"train": 20_000, "dev": 500, "test": 1000},
        settings=Settings(encoder_layers=3, decoder_layers=3, steps=10_000, batch_tokens=8000),
    ),
    "zebra": Task(
        title="who lives in which of four houses",
        easy_order="what few clues tell first",
        draw=draw_zebra,
        mistake=zebra_mistake,
        sizes={"train": 40_000, "dev": 500, "test": 2000},
        settings=Settings(steps=4000, batch_tokens=4000),
    ),
}
