"""A task on disk: its problems line by line, an easy order of each answer, and a recipe to train with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anyorder.errors import UserError
from anyorder.system.files import make_folder, write_file
from anyorder.system.progress import Progress
from anyorder.tasks import TASKS
from anyorder.tasks.task import Problem, Task, TooFewProblems

RECIPE = """\
# {title}. Written by `anyorder task {name}`; try other orders of writing:
# anyorder train {path} order.name=l2r run=runs/{name}-l2r
# anyorder train {path} order.name=file run=runs/{name}-file    # {easy_order}
# anyorder train {path} order.name=sao run=runs/{name}-sao      # the model finds its orders

[data]
root = {root}
cache = "cache"
train = {{ source = "train.source", target = "train.target" }}
dev = {{ source = "dev.source", target = "dev.target" }}
test = {{ source = "test.source", target = "test.target" }}
name = "anyorder task {name} --seed {seed}"

[text]
unit = "words"
source = {{ split = "spaces" }}
target = {{ split = "spaces" }}

[order]
files = {{ train = "train.order", dev = "dev.order", test = "test.order" }}  # for order.name = "file"

[model]
width = {width}
hidden = {hidden}
heads = {heads}
encoder_layers = {encoder_layers}
decoder_layers = {decoder_layers}
dropout = 0.0                             # problems are drawn at random: there is no noise to overfit
encoder_positions = "{positions}"
first = "position"                        # the model chooses where to write before it chooses what

[train]
steps = {steps}
batch_tokens = {batch_tokens}
lr = {lr}
warmup = {warmup}
schedule = "cosine"
validate_every = {validate_every}
select = "exact"
keep = 1
"""


@dataclass(frozen=True)
class Written:
    """A task that was written to a folder."""

    recipe: Path
    sizes: dict[str, int]


def find_task(name: str) -> Task:
    """The task of this name."""
    if name not in TASKS:
        raise UserError(f"{name!r}: no such task; allowed: {', '.join(TASKS)}")
    return TASKS[name]


def write_task(
    name: str,
    folder: Path,
    *,
    seed: int,
    train: int | None = None,
    replace: bool = False,
    progress: Progress | None = None,
) -> Written:
    """Write train, dev and test problems, their easy orders, and a recipe.

    train: number of training problems; replace: files of an earlier task may be replaced.
    """
    task = find_task(name)
    recipe = folder / f"{name}.toml"
    if recipe.exists() and not replace:
        raise UserError(f"{recipe}: exists already; give another folder, or --force to replace it")
    sizes = dict(task.sizes) if train is None else {**task.sizes, "train": train}
    drawn: dict[str, list[Problem]] = {split: [] for split in sizes}
    try:
        for number, (split, problem) in enumerate(task.problems(seed=seed, sizes=sizes), start=1):
            drawn[split].append(problem)
            if progress is not None:
                progress("drawing problems", number, sum(sizes.values()))
    except TooFewProblems:
        raise UserError(
            f"--size {sizes['train']}: must be smaller, {name} has too few different problems"
        ) from None
    make_folder(folder)
    for split, problems in drawn.items():
        _write_lines(folder / f"{split}.source", [problem.source for problem in problems])
        _write_lines(folder / f"{split}.target", [problem.target for problem in problems])
        _write_lines(folder / f"{split}.order", [list(map(str, problem.easy)) for problem in problems])
    text = RECIPE.format(
        **vars(task.settings),
        title=task.title[0].upper() + task.title[1:],
        name=name,
        easy_order=task.easy_order,
        path=recipe,
        root=json.dumps(str(folder), ensure_ascii=False),
        seed=seed,
        validate_every=max(1, task.settings.steps // 4),
    )
    write_file(recipe, text.encode())
    return Written(recipe=recipe, sizes=sizes)


def _write_lines(path: Path, lines: Sequence[Sequence[str]]) -> None:
    write_file(path, "".join(f"{' '.join(tokens)}\n" for tokens in lines).encode())


def check_answers(name: str, sources: Sequence[str], answers: Sequence[str]) -> dict[int, str]:
    """Check answers by the rules of a task; returns what is wrong with them, by line, counted from 1."""
    task = find_task(name)
    mistakes: dict[int, str] = {}
    for line, (source, answer) in enumerate(zip(sources, answers, strict=True), start=1):
        try:
            mistake = task.mistake(source.split(), answer.split())
        except (ValueError, LookupError, StopIteration):
            raise UserError(f"line {line}: {source!r} is no problem of {name}") from None
        if mistake is not None:
            mistakes[line] = mistake
    return mistakes
