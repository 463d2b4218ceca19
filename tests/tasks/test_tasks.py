"""Made-up tasks: problems have one answer, checkers know the rules, splits don't overlap."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from corpora import assert_one_line_refusal, call_here, json_lines

from anyorder.config.recipe import load_recipe
from anyorder.orders.fixed import order_rule
from anyorder.tasks import TASKS
from anyorder.tasks.star import Star
from anyorder.tasks.sudoku import Sudoku
from anyorder.tasks.task import Problem
from anyorder.tasks.zebra import HOUSES, KINDS

QUICK = [name for name in TASKS if name != "sudoku-9"]


def problems(name: str, count: int) -> list[Problem]:
    chance = random.Random(1)
    return [TASKS[name].draw(chance) for _ in range(count)]


@pytest.mark.parametrize("name", TASKS)
def test_the_target_is_right_and_its_easy_order_is_a_permutation(name: str) -> None:
    task = TASKS[name]
    for problem in problems(name, 2 if name == "sudoku-9" else 50):
        assert task.mistake(problem.source, problem.target) is None
        assert sorted(problem.easy) == list(range(1, len(problem.target) + 1))


@pytest.mark.parametrize("name", QUICK)
def test_any_other_answer_is_wrong(name: str) -> None:
    """One token changed to another that the task uses, one left out, one repeated, two exchanged."""
    task, drawn = TASKS[name], problems(name, 20)
    tokens = sorted({token for problem in drawn for token in problem.target})
    chance = random.Random(2)
    for problem in drawn:
        target = list(problem.target)
        place = chance.randrange(len(target))
        other = chance.choice([token for token in tokens if token != target[place]])
        wrong = [
            [*target[:place], other, *target[place + 1 :]],
            [*target[:place], *target[place + 1 :]],
            [*target[:place], target[place], *target[place:]],
            [],
        ]
        if len(set(target[:2])) == 2:
            wrong.append([target[1], target[0], *target[2:]])
        for answer in wrong:
            assert task.mistake(problem.source, answer) is not None


@pytest.mark.parametrize("name", QUICK)
def test_no_source_stands_twice_and_the_seed_decides(name: str) -> None:
    task = TASKS[name]
    few = dict.fromkeys(task.sizes, 12)
    drawn = list(task.problems(seed=3, sizes=few))
    sources = [tuple(problem.source) for _, problem in drawn]
    assert len(set(sources)) == len(sources) == 12 * len(few)
    assert list(task.problems(seed=3, sizes=few)) == drawn
    assert list(task.problems(seed=4, sizes=few)) != drawn
    more = list(task.problems(seed=3, sizes={**few, "train": 20}))
    assert more[: len(drawn)] == drawn, "the other splits don't depend on the number of training problems"


# --- each task by its own words ---


def answer_of(name: str, source: str, target: str) -> str | None:
    return TASKS[name].mistake(source.split(), target.split())


def test_problems_are_as_described() -> None:
    assert answer_of("pivot", "a1 b4 c6 d6 e6 f0 g2 *h0 i3", "A4 B3 C6 D0 E1 F2 G2 H0 I3") is None
    assert answer_of("middle-out", "m1+3 m2+4 a1+1 a2+0 b1+2 b2+4", "A2=3 A1=3 M=2 B1=4 B2=3") is None
    assert answer_of("addition", "9 4 9 + 6 6 0", "1 6 0 9") is None
    assert answer_of("addition", "1 0 0 + 0 0 5", "0 1 0 5") is None
    assert answer_of("star-medium", "5-3 7-5 3-1 5-2 from:7 to:1", "7 5 3 1") is None
    assert answer_of("star-medium", "5-3 7-5 3-1 5-2 from:7 to:1", "7 3 1") == "there is no edge 7-3"
    assert answer_of("star-medium", "5-3 7-5 3-1 5-2 from:7 to:1", "7 5 2 5 3 1") == "passes a node twice"
    wrong = answer_of("pivot", "*a1 b4 c6 d6 e6 f0 g2 h0 i3", "A1 B6 C4 D3 E2 F2 G4 H4 I0")
    assert wrong == "token 2 is B6 instead of B5"


@pytest.mark.parametrize("unknown", range(4))  # of the four numbers that the leftmost token adds up
def test_an_end_of_middle_out_is_a_guess_while_a_number_is_unknown(unknown: int) -> None:
    known: dict[tuple[int, ...], Counter[str]] = {}
    for four in itertools.product(range(5), repeat=4):
        others = four[:unknown] + four[unknown + 1 :]
        source = [f"x+{number}" for number in (*four, 0, 0)]
        right = next(
            number
            for number in range(5)
            if "token 1 " not in (TASKS["middle-out"].mistake(source, _with_first(number, four)) or "")
        )
        known.setdefault(others, Counter())[str(right)] += 1
    assert all(guesses == Counter(map(str, range(5))) for guesses in known.values())


def _with_first(number: int, four: Sequence[int]) -> list[str]:
    middle = four[0] + four[1]
    return [
        f"A2={number}",
        f"A1={(middle + four[2]) % 5}",
        f"M={middle % 5}",
        f"B1={middle % 5}",
        f"B2={middle % 5}",
    ]


def test_a_star_has_one_way_and_a_choice_only_at_its_centre() -> None:
    star = Star(degree=3, shortest=3, longest=6, nodes=20)
    chance = random.Random(5)
    for _ in range(50):
        *edges, start, goal = star.draw(chance).source
        neighbours: dict[str, set[str]] = {}
        for first, second in (edge.split("-") for edge in edges):
            neighbours.setdefault(first, set()).add(second)
            neighbours.setdefault(second, set()).add(first)
        counts = Counter(len(others) for others in neighbours.values())
        assert counts[3] == 1
        assert counts[1] == 3
        assert set(counts) == {1, 2, 3}
        assert len(neighbours[start.partition(":")[2]]) == len(neighbours[goal.partition(":")[2]]) == 1


def test_a_sudoku_has_one_solution() -> None:
    """By trying all 288 grids of size four."""
    sudoku = Sudoku(2, 4)
    rows = list(itertools.permutations(range(1, 5)))
    grids = [
        [number for row in four for number in row]
        for four in itertools.product(rows, repeat=4)
        if sudoku.mistake([], [sudoku.token(cell, n) for cell, n in enumerate(itertools.chain(*four))])
        is None
    ]
    assert len(grids) == 288
    solutions = [{sudoku.token(cell, number) for cell, number in enumerate(grid)} for grid in grids]
    for problem in problems("sudoku", 30):
        fitting = [solution for solution in solutions if set(problem.source) <= solution]
        assert fitting == [set(problem.target)]


def test_a_zebra_puzzle_has_one_solution_and_no_clue_too_many() -> None:
    """By checking all solutions with the checker instead of the tables that problems are drawn from."""
    task = TASKS["zebra"]
    orders = list(itertools.permutations(range(1, HOUSES + 1)))
    answers = []
    for houses in itertools.product(orders, repeat=len(KINDS)):
        tokens = [
            (house, kind, name)
            for kind, (names, numbers) in enumerate(zip(KINDS, houses, strict=True))
            for name, house in zip(names.split(), numbers, strict=True)
        ]
        answers.append([f"{house}:{name}" for house, _, name in sorted(tokens)])
    (problem,) = problems("zebra", 1)
    assert [answer for answer in answers if task.mistake(problem.source, answer) is None] == [problem.target]
    for number in range(len(problem.source)):
        fewer = [*problem.source[:number], *problem.source[number + 1 :]]
        assert sum(task.mistake(fewer, answer) is None for answer in answers) > 1


# --- on disk and on the command line ---


def test_the_files_make_a_recipe_that_can_be_prepared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call_here(capsys, "task", "addition", tmp_path / "sums", "--size", "30", "--seed", "7")
    recipe = load_recipe(tmp_path / "sums" / "addition.toml", ["order.name=file"])
    assert order_rule(recipe.order.name).needs == "file"
    prepared = call_here(capsys, "prepare", tmp_path / "sums" / "addition.toml", "order.name=file")
    assert prepared.returncode == 0
    assert "30" in prepared.stdout.decode()
    longer = (tmp_path / "sums" / "longer.source").read_text().splitlines()
    assert {len(line.split()) for line in longer} == {15, 17}


def test_answers_are_checked_line_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources, answers = tmp_path / "sources", tmp_path / "answers"
    sources.write_text("1 2 3 + 4 5 6\n9 9 9 + 0 0 1\n")
    answers.write_text("0 5 7 9\n1 0 0 1\n")
    shown = call_here(capsys, "check", "addition", sources, answers, "--mistakes", "5").stdout
    assert shown.decode() == "50.0 % right: 1 of 2\nline 2: token 4 is 1 instead of 0\n"
    (found,) = json_lines(call_here(capsys, "check", "addition", sources, answers, "--json"))
    assert found == {"task": "addition", "right": 1, "answers": 2, "mistakes": []}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["task", "sum", "folder"], "'sum': no such task; allowed: pivot, middle-out"),
        (["task", "middle-out", "folder", "--size", "20000"], "--size 20000: must be smaller"),
        (["check", "star-medium", "sources", "sources"], "line 1: '1 2 3' is no problem of star-medium"),
        (["check", "pivot", "sources", "empty"], "sources has 1 lines, empty has 0"),
    ],
)
def test_mistakes_of_the_user_are_one_line(
    arguments: list[str],
    complaint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sources").write_text("1 2 3\n")
    Path("empty").write_text("")
    assert_one_line_refusal(call_here(capsys, *arguments), complaint)
    assert not Path("folder").exists()


def test_an_earlier_task_is_replaced_only_by_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call_here(capsys, "task", "pivot", tmp_path, "--size", "3")
    before = (tmp_path / "train.source").read_text()
    again = ["task", "pivot", tmp_path, "--size", "3", "--seed", "2"]
    assert_one_line_refusal(call_here(capsys, *again), "exists already")
    assert (tmp_path / "train.source").read_text() == before
    call_here(capsys, *again, "--force")
    assert (tmp_path / "train.source").read_text() != before
