"""Command lines of all kinds: each answers or refuses in one line, without a traceback and without remains.

`python tests/faults/fuzz.py --seed 1 --tries 10000`
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from corpora import write_corpus
from faults.hostile import HOSTILE
from faults.report import Table, begin, command_line, ended, finish, run, unfinished, warm_up, workplace
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

PATIENCE = 90  # seconds, on a machine that does other things too
ABSURD = (
    *(
        "",
        " ",
        "-1",
        "0",
        "1",
        "2",
        "3.5",
        "nan",
        "inf",
        "-inf",
        "1e309",
        "1e3",
        "99999999999999999999",
        "true",
    ),
    *(
        "null",
        "[]",
        "{}",
        '""',
        "a=b",
        "=",
        "..",
        "/",
        "~",
        "~nobody",
        "/dev/null",
        "/dev/full",
        "/proc/self/mem",
    ),
    *(
        "ü",
        "\u2028",
        "\x1b[31m",
        "\ufeff",
        "日本語",
        "a" * 5000,
        "../../x",
        "l2r",
        "sao",
        "os:system",
        "x:y:z",
    ),
)
KEYS = (
    *("run", "data.root", "data.train.source", "data.dev", "data.cache", "data.max_length", "data.bad_lines"),
    *(
        "text.unit",
        "text.vocabulary",
        "text.source.split",
        "text.bag",
        "order.name",
        "order.parser",
        "order.files",
    ),
    *(
        "search.beam",
        "search.bootstrap_steps",
        "search.refresh",
        "search.learn_from",
        "model.kind",
        "model.width",
    ),
    *(
        "model.heads",
        "model.dropout",
        "model.first",
        "model.share",
        "model.copying",
        "model.clip",
        "canvas.share",
    ),
    *("train.steps", "train.batch_tokens", "train.lr", "train.seed", "train.accumulate", "train.precision"),
    *(
        "train.device",
        "train.init",
        "train.keep",
        "train.average",
        "decode.beam",
        "decode.partners",
        "decode.search",
    ),
    *("decode.max_length", "decode.max_source", "decode.length_penalty", "no.such.key", "train", "model", ""),
)
FLAGS: dict[str, tuple[str, ...]] = {
    "generate": (
        *("--beam", "--n-best", "--search", "--max-length", "--max-source", "--seed", "--top-k", "--top-p"),
        *(
            "--temperature",
            "--at-once",
            "--precision",
            "--device",
            "--partners",
            "--reverse",
            "--svg",
            "--html",
        ),
        *(
            "--trace",
            "--json",
            "--cut",
            "--merge",
            "--parallel",
            "--no-unknown",
            "--length-penalty",
            "--eos-penalty",
        ),
    ),
    "complete": (
        *("--source", "--template", "--prefix", "--suffix", "--draft", "--must", "--forbid", "--in-order"),
        *("--beam", "--json", "--trace", "--svg", "--html", "--max-length", "--device"),
    ),
    "score": (
        *("--source", "--target", "--order", "--parser", "--order-file", "--beam", "--samples", "--seed"),
        *("--total", "--json", "--max-source", "--max-target", "--cut", "--device"),
    ),
    "order": ("--parser", "--order-file", "--corpus", "--seed", "--relations", "--svg", "--json"),
    "orders": (
        *("--split", "--source", "--target", "--lines", "--beam", "--written", "--stored", "--parser"),
        *("--conllu", "--examples", "--svg", "--json"),
    ),
    "evaluate": (
        *(
            "--metrics",
            "--ref",
            "--hyp",
            "--tokenize",
            "--lowercase",
            "--lang",
            "--json",
            "--split",
            "--beam",
        ),
        *("--by", "--all-beams", "--lines", "--again", "--sentences", "--baseline", "--samples", "--seed"),
    ),
    "compare": (
        "--split",
        "--metrics",
        "--baseline",
        "--samples",
        "--format",
        "--output",
        "--json",
        "--html",
    ),
    "init": (
        *("--train-source", "--train-target", "--train-jsonl", "--dev-source", "--dev-target", "--dev-jsonl"),
        *(
            "--source-language",
            "--target-language",
            "--order",
            "--parser",
            "--train-trees",
            "--size",
            "--force",
        ),
    ),
    "prepare": ("--json",),
    "train": ("--resume", "--overwrite", "--dry-run", "--json"),
    "search-orders": ("--output",),
    "average": ("--last", "--output", "--json"),
    "export": ("--precision", "--json"),
    "info": ("--json",),
    "card": ("--output",),
    "features": ("--output", "--json", "--batch", "--device"),
}
BARE = {
    *(
        "--trace",
        "--json",
        "--cut",
        "--merge",
        "--parallel",
        "--no-unknown",
        "--in-order",
        "--total",
        "--relations",
    ),
    *("--written", "--stored", "--lowercase", "--all-beams", "--again", "--sentences", "--force", "--resume"),
    *("--overwrite", "--dry-run"),
}
NEW = ("new", "new/er", "new.svg", "new.jsonl", "new.md", "new.html", "new.npy")  # what a command may write


class World:
    """The files and folders that command lines name, made once."""

    def __init__(self, place: Path, *, seed: int) -> None:
        self.place, self.work = place, place / "work"
        chance = random.Random(seed)
        self.recipe = write_corpus(place)
        self.run = place / "run"
        warm_up(self.recipe, place)
        settings = (
            "order.name=sao",
            "search.method=guided",
            "search.bootstrap_steps=6",
            "search.beam=2",
            "model.dropout=0",
        )
        assert run("train", self.recipe, *settings, f"run={self.run}", folder=place).code == 0
        assert run("evaluate", self.run, "--split", "dev", folder=place).code == 0
        self.models = ["django-small", self.run, place / "run-link"]
        (place / "run-link").symlink_to(self.run)
        for name, hostile in HOSTILE.items():
            folder = place / "hostile" / name
            shutil.copytree(self.run, folder)
            hostile.damage(folder)
            self.models.append(folder)
        for number in range(30):
            self.models.append(_spoiled(shutil.copytree(self.run, place / f"spoiled-{number}"), chance))
        self.files = _files(place / "files", chance)
        self.recipes = [self.recipe, self.recipe, self.recipe, *self._bad_recipes(chance)]

    def _bad_recipes(self, chance: random.Random) -> list[Path]:
        text, made = self.recipe.read_bytes(), []
        for number in range(20):
            path = self.place / f"recipe-{number}.toml"
            path.write_bytes(_changed(text, chance))
            made.append(path)
        return made

    def fresh(self) -> Path:
        """An empty folder to work in, with a copy of a run that may be spoiled."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        return self.work


def _changed(content: bytes, chance: random.Random) -> bytes:
    """Cut, overwrite, repeat or insert some bytes."""
    at = chance.randrange(len(content) + 1)
    some = chance.choice(
        [b"\x00", b"\xff\xfe", b"[" * 5000, b'"', b"{}", b"\n", b"1e999", os.urandom(0), chance.randbytes(20)]
    )
    match chance.randrange(4):
        case 0:
            return content[:at]
        case 1:
            return content[:at] + some + content[at + len(some) :]
        case 2:
            return content[:at] + some + content[at:]
        case _:
            return content[:at] + content[max(0, at - 50) :]


def _spoiled(folder: Path, chance: random.Random) -> Path:
    """Damage one or two files of a run."""
    paths = [path for path in folder.rglob("*") if path.is_file() and "tensorboard" not in str(path)]
    for path in chance.sample(paths, k=chance.randint(1, 2)):
        match chance.randrange(5):
            case 0:
                path.unlink()
            case 1:
                path.unlink()
                path.mkdir()
            case 2:
                path.unlink()
                path.symlink_to(path)
            case _:
                path.write_bytes(_changed(path.read_bytes(), chance))
    return folder


def _files(folder: Path, chance: random.Random) -> list[Path]:
    folder.mkdir()
    words = ["a", "b", "c", "d", "e", "f", "g", "h"]
    lines = (
        "\n".join(" ".join(chance.choices(words, k=chance.randint(1, 6))) for _ in range(5)).encode() + b"\n"
    )
    pairs = b'{"source": "a b", "target": "b a"}\n'
    request = b'{"source": "a b c", "must": ["a"]}\n{"source": "a", "template": "___ b"}\n'
    contents = {
        "lines.txt": lines,
        "again.txt": lines,
        "empty.txt": b"",
        "blank.txt": b"\n\n \n",
        "latin.txt": "caf\xe9\n".encode("latin-1"),
        "nul.txt": b"a\x00b\n\x1b[31mc\n",
        "long.txt": b"a " * 60_000,
        "utf16.txt": "a b".encode("utf-16"),
        "crlf.txt": b"a b\r\nb c\r\n",
        "lines.gz": gzip.compress(lines),
        "broken.gz": gzip.compress(lines)[:-9],
        "not.xz": lines,
        "pairs.jsonl": pairs,
        "bad.jsonl": b'{"source": 1}\n[[[\n{"target": "\\ud800"}\n',
        "deep.jsonl": b"[" * 100_000,
        "requests.jsonl": request,
        "order.txt": b"1 2 3\n2 1\n",
        "bad.npy": b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999, 2, 3), }\n",
        "pickle.npy": b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n",
        "photo.png": b"\x89PNG\r\n\x1a\n" + chance.randbytes(50),
        "trees.conllu": b"1\ta\t_\t_\t_\t_\t9\t_\t_\t_\n\n",
    }
    paths = []
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        paths.append(folder / name)
    return [*paths, folder, folder / "missing.txt"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
REQUEST_KEYS = ("source", "must", "forbid", "template", "prefix", "suffix", "draft", "in_order", "x")
PIECES = st.lists(
    st.sampled_from(["a", "b", "c", " ", "___", "___{1,2}", "___{", "}", "|", "é", "\u200d", "<s>", "<unk>"]),
    max_size=8,
).map("".join)


def values(world: World) -> st.SearchStrategy[str]:
    """Values of flags: paths that are there, paths to write, absurd ones, numbers and text."""
    return st.one_of(
        st.sampled_from([str(path) for path in world.files]),
        st.sampled_from(NEW),
        st.sampled_from(ABSURD),
        st.sampled_from([str(one) for one in world.models]),
        st.integers(-3, 40).map(str),
        PIECES,
        st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=10),
    )


@st.composite
def command_lines(draw: Callable[..., Any], world: World) -> list[str]:
    """A command with what it needs, most of the time, and flags with good or bad values."""
    command = draw(st.sampled_from(sorted(FLAGS)))
    line = [command]
    value = values(world)
    if command in ("train", "prepare"):
        line.append(str(draw(st.sampled_from(world.recipes))))
        line += ["run=new", "train.steps=2", "train.validate_every=1", "model.width=8"]
        line += draw(st.lists(st.tuples(st.sampled_from(KEYS), value).map("=".join), max_size=3))
    elif command == "features":
        line += draw(st.lists(value, max_size=2))
    elif command == "init":
        line += draw(st.lists(st.sampled_from(["new.toml", "/", ""]), max_size=1))
    elif command == "order":
        line += [
            draw(st.sampled_from(["l2r", "r2l", "blt", "cf", "syn", "rnd", "odd", "sao", "x"])),
            draw(PIECES),
        ]
    elif draw(st.integers(0, 9)):
        line.append(str(draw(st.sampled_from(world.models))))
    if command in ("generate", "complete", "export") and draw(st.integers(0, 4)):
        of_kind = {"generate": "lines.txt", "complete": "requests.jsonl", "export": "new"}[command]
        path = world.place / "files" / of_kind if command != "export" else Path(of_kind)
        line.append(str(path) if draw(st.integers(0, 2)) else draw(value))
    if command == "score" and draw(st.integers(0, 4)):
        line += [
            "--source",
            str(world.place / "files/lines.txt"),
            "--target",
            str(world.place / "files/again.txt"),
        ]
    if command == "complete" and draw(st.booleans()):
        request = draw(st.dictionaries(st.sampled_from(REQUEST_KEYS), JSON | PIECES, max_size=4))
        (world.place / "request.jsonl").write_text(json.dumps(request) + "\n")
        line = [command, line[1] if len(line) > 1 else "django-small", str(world.place / "request.jsonl")]
    for flag in draw(st.lists(st.sampled_from(FLAGS[command]), max_size=3)):
        line += [flag] if flag in BARE else [flag, draw(value)]
    return [part for part in line if "\x00" not in part]


def answer_or_refuse(place: Path, *, seed_of_all: int, tries: int, minutes: float) -> Table:
    """Give random command lines; each must end with 0 or 2 and leave nothing unfinished."""
    world = World(place, seed=seed_of_all)
    table = Table("command lines of")

    @seed(seed_of_all)
    @settings(
        max_examples=tries,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(command_lines(world))
    def give(line: list[str]) -> None:
        if time.monotonic() - table.began < 60 * minutes:
            table.row(line[0]).note(_fault(world, line))

    give()
    return table


def _fault(world: World, line: Sequence[str]) -> str | None:
    folder = world.fresh()
    output = world.place / "answer"
    answer = ended(begin(line, output=output, folder=folder), output=output, patience=PATIENCE)
    # complete answers what it can, and refuses each of the other requests in a line.
    fault = answer.wrong(allowed=(0, 2), refusals=100_000 if line[0] == "complete" else 1)
    left = unfinished(folder)
    if fault is None and left:
        fault = f"left {left[:3]}"
    if (
        fault is None
        and answer.code == 2
        and (folder / "new").is_dir()
        and not any((folder / "new").iterdir())
    ):
        fault = "left an empty folder"
    return (
        None if fault is None else f"{json.dumps([part[:80] for part in line], ensure_ascii=False)}: {fault}"
    )


if __name__ == "__main__":
    asked = command_line(__doc__ or "", tries=10_000, minutes=40)
    with workplace(asked.folder) as place:
        finish(answer_or_refuse(place, seed_of_all=asked.seed, tries=asked.tries, minutes=asked.minutes))
