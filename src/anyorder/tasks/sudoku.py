"""Sudoku: fill a grid so that no number stands twice in a row, a column or a box.

Which cell is easy to fill depends on the numbers that are given, so no fixed order is easy.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from anyorder.tasks.task import Problem

Grid = list[int]  # row by row; 0 for an empty cell
ROWS = "abcdefghi"


@dataclass(frozen=True)
class Sudoku:
    """Grids of box × box boxes. clues: how many numbers are given at least."""

    box: int
    clues: int

    @property
    def side(self) -> int:
        """Cells of a row."""
        return self.box**2

    def draw(self, chance: random.Random) -> Problem:
        """A grid with one solution: `a1=3 b2=1 …` are the numbers given, and the answer has all cells."""
        solution = self._random_solution(chance)
        clues = list(solution)
        cells = list(range(len(solution)))
        chance.shuffle(cells)
        left = len(cells)
        for cell in cells:
            if left <= self.clues:
                break
            clues[cell] = 0
            if self._count_solutions(list(clues), most=2) == 1:
                left -= 1
            else:
                clues[cell] = solution[cell]
        return Problem(
            source=[self.token(cell, number) for cell, number in enumerate(clues) if number],
            target=[self.token(cell, number) for cell, number in enumerate(solution)],
            easy=[cell + 1 for cell in self._solving_order(clues, solution)],
        )

    def token(self, cell: int, number: int) -> str:
        """Name a cell and its number: `b3=1` is a 1 in row b, column 3."""
        row, column = divmod(cell, self.side)
        return f"{ROWS[row]}{column + 1}={number}"

    def mistake(self, source: Sequence[str], answer: Sequence[str]) -> str | None:
        """Say where a grid breaks the rules."""
        cells = self.side**2
        if len(answer) != cells:
            return f"has {len(answer)} tokens instead of {cells}"
        numbers = range(1, self.side + 1)
        possible = [{self.token(cell, number): number for number in numbers} for cell in range(cells)]
        for clue in source:
            if not any(clue in tokens for tokens in possible):
                raise ValueError(clue)
        for cell, token in enumerate(answer):
            if token not in possible[cell]:
                return f"token {cell + 1} is {token}, which is no number of cell {self.token(cell, 1)[:2]}"
        grid = [tokens[token] for tokens, token in zip(possible, answer, strict=True)]
        for clue in source:
            if clue not in answer:
                return f"{clue} was given"
        for unit in self._units:
            if len({grid[cell] for cell in unit}) < self.side:
                return f"a number stands twice among {', '.join(answer[cell] for cell in unit)}"
        return None

    # --- solving ---

    @cached_property
    def _units(self) -> list[list[int]]:
        """The cells of each row, column and box."""
        side, box = self.side, self.box
        rows = [[row * side + column for column in range(side)] for row in range(side)]
        columns = [list(column) for column in zip(*rows, strict=True)]
        boxes = [
            [rows[top + row][left + column] for row in range(box) for column in range(box)]
            for top in range(0, side, box)
            for left in range(0, side, box)
        ]
        return [*rows, *columns, *boxes]

    def _random_solution(self, chance: random.Random) -> Grid:
        empty = [0] * self.side**2
        return next(self._solutions(empty, _Taken(self, empty), chance))

    def _count_solutions(self, grid: Grid, *, most: int) -> int:
        found = self._solutions(grid, _Taken(self, grid), None)
        return sum(1 for _ in itertools.islice(found, most))

    def _solutions(self, grid: Grid, taken: _Taken, chance: random.Random | None) -> Iterator[Grid]:
        """All ways to fill a grid, the cell with the fewest candidates first. The grid changes meanwhile."""
        cell = taken.easiest(grid)
        if cell is None:
            yield list(grid)
            return
        numbers = taken.candidates(cell)
        if chance is not None:
            chance.shuffle(numbers)
        for number in numbers:
            grid[cell] = number
            taken.flip(cell, number)
            yield from self._solutions(grid, taken, chance)
            taken.flip(cell, number)
        grid[cell] = 0

    def _solving_order(self, clues: Grid, solution: Grid) -> list[int]:
        """The cells that are given, then always the cell with the fewest candidates."""
        grid = list(clues)
        taken = _Taken(self, grid)
        order = [cell for cell, number in enumerate(grid) if number]
        while (cell := taken.easiest(grid)) is not None:
            grid[cell] = solution[cell]
            taken.flip(cell, solution[cell])
            order.append(cell)
        return order


class _Taken:
    """Which numbers stand in each row, column and box already: a bit for each number."""

    def __init__(self, sudoku: Sudoku, grid: Grid) -> None:
        side, box = sudoku.side, sudoku.box
        self.numbers = range(1, side + 1)
        self.units = [0] * (3 * side)
        self.of_cell = [
            (row, side + column, 2 * side + row // box * box + column // box)
            for row in range(side)
            for column in range(side)
        ]
        for cell, number in enumerate(grid):
            if number:
                self.flip(cell, number)

    def flip(self, cell: int, number: int) -> None:
        """Write a number into a cell, or take it out again."""
        for unit in self.of_cell[cell]:
            self.units[unit] ^= 1 << number

    def candidates(self, cell: int) -> list[int]:
        """The numbers that the rules allow in a cell."""
        taken = self._taken(cell)
        return [number for number in self.numbers if not taken >> number & 1]

    def easiest(self, grid: Grid) -> int | None:
        """The empty cell with the fewest candidates; None if the grid is full."""
        empty = (cell for cell, number in enumerate(grid) if not number)
        return max(empty, key=lambda cell: self._taken(cell).bit_count(), default=None)

    def _taken(self, cell: int) -> int:
        row, column, box = self.of_cell[cell]
        return self.units[row] | self.units[column] | self.units[box]
