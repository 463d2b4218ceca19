"""Folders that pretend to be models: each is refused in one line, quickly and without taking memory.

`python tests/faults/hostile.py`
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpora import write_corpus
from faults.report import GIGABYTE, Table, command_line, finish, run, warm_up, workplace

MODEL, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"
WRITABLE = "evil-was-here"  # the file that hostile code would write


@dataclass(frozen=True)
class Hostile:
    """What is done to the folder of a model, and what the answer must say."""

    damage: Callable[[Path], None]
    answer: str
    command: tuple[str, ...] = ("generate",)


def _config(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        values = json.loads((folder / CONFIG).read_text())
        change(values)
        (folder / CONFIG).write_text(json.dumps(values))

    return damage


def _header(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """Change the header of the weights; the data stay."""

    def damage(folder: Path) -> None:
        content = (folder / MODEL).read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        values = json.loads(content[8 : 8 + length])
        change(values)
        header = json.dumps(values).encode()
        (folder / MODEL).write_bytes(struct.pack("<Q", len(header)) + header + content[8 + length :])

    return damage


def _content(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


def _link(name: str, target: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return damage


def _pipe(folder: Path) -> None:
    (folder / MODEL).unlink()
    os.mkfifo(folder / MODEL)


def _first(values: dict[str, Any]) -> dict[str, Any]:
    return values[sorted(name for name in values if name != "__metadata__")[0]]


def _overlapping(values: dict[str, Any]) -> None:
    names = [name for name in sorted(values) if name != "__metadata__"]
    values[names[1]]["data_offsets"] = values[names[0]]["data_offsets"]


def _in_recipe(section: str, **keys: object) -> Callable[[Path], None]:
    return _config(lambda values: values["recipe"][section].update(keys))


def _escapes(folder: Path) -> None:
    _in_recipe("data", name="\x1b]0;owned\x07\x1b[2J", licence="\x9b31m")(folder)


def _merges_in_a_circle(folder: Path) -> None:
    values = json.loads((folder / TOKENIZER).read_text())
    values["model"]["vocab"] = {name: number for number, name in enumerate(["x"] * 9)}
    (folder / TOKENIZER).write_text(json.dumps(values))


HOSTILE: dict[str, Hostile] = {
    "a width of a million": Hostile(_in_recipe("model", width=1_000_000, heads=1), "is of shape"),
    "a vocabulary of a billion": Hostile(
        _config(lambda values: values["shape"].update(vocabulary=10**9, target_vocabulary=10**9)), "ids"
    ),
    "a billion layers": Hostile(_in_recipe("model", decoder_layers=10**9), "too few for"),
    "features as wide as memory": Hostile(
        _config(lambda values: values["shape"].update(features=10**12)), MODEL
    ),
    "a header longer than the file": Hostile(
        _content(MODEL, struct.pack("<Q", 2**62) + b"{}"), "a header of"
    ),
    "a shape of 2**60": Hostile(
        _header(lambda values: _first(values).update(shape=[2**30, 2**30])), "broken"
    ),
    "a shape beyond 64 bits": Hostile(_header(lambda values: _first(values).update(shape=[2**70])), "broken"),
    "negative offsets": Hostile(
        _header(lambda values: _first(values).update(data_offsets=[-8, 0])), "broken"
    ),
    "overlapping tensors": Hostile(_header(_overlapping), "broken"),
    "an unknown type": Hostile(_header(lambda values: _first(values).update(dtype="PICKLE")), "broken"),
    "weights with .. in their name": Hostile(
        _header(lambda values: values.update({"../../x": values.pop(sorted(values)[0])})), MODEL
    ),
    "weights that are a pickle": Hostile(_content(MODEL, b"\x80\x04cos\nsystem\n(S'touch x'\ntR."), "broken"),
    "weights that are a pipe": Hostile(_pipe, "is no regular file"),
    "weights that link to a device": Hostile(_link(MODEL, "/dev/zero"), "is no regular file"),
    "weights that link to themselves": Hostile(_link(MODEL, MODEL), "symbolic links"),
    "a config of 100,000 brackets": Hostile(_content(CONFIG, b"[" * 100_000), "nested too deeply"),
    "a config of other bytes": Hostile(_content(CONFIG, b"\xff\xfe\x00"), "not valid UTF-8"),
    "a config that links to itself": Hostile(_link(CONFIG, CONFIG), "symbolic links"),
    "a config that is a device": Hostile(_link(CONFIG, "/dev/zero"), "is no regular file"),
    "a config of format -1": Hostile(_config(lambda values: values.update(format=-1)), "format = -1"),
    "a config of format true": Hostile(_config(lambda values: values.update(format=True)), "not a model's"),
    "a number of 5,000 digits": Hostile(
        _content(CONFIG, b'{"format": ' + b"1" * 5000 + b"}"), "not a model's configuration"
    ),
    "a tokenizer of 100,000 brackets": Hostile(_content(TOKENIZER, b"[" * 100_000), "not a tokenizer"),
    "a tokenizer without words": Hostile(_merges_in_a_circle, TOKENIZER),
    "an order that is code": Hostile(_in_recipe("order", name="evil:order"), "--trust-code", ("score",)),
    "a parser that is a folder": Hostile(
        _in_recipe("order", name="syn", parser="/tmp/evil"), "--trust-code", ("score",)
    ),
    "partners outside its folder": Hostile(_in_recipe("decode", partners=["/etc"], beam=2), "--trust-code"),
    "a reverse model beside it": Hostile(_in_recipe("decode", reverse="../run", beam=2), "--trust-code"),
}


def refuse_all(place: Path) -> Table:
    """Load every hostile folder, with little more memory than torch itself maps."""
    table = Table("a folder with")
    recipe = write_corpus(place)
    warm_up(recipe, place)
    assert run("train", recipe, "train.steps=4", f"run={place / 'run'}", folder=place).code == 0
    (place / "evil.py").write_text(f"import pathlib\npathlib.Path('{WRITABLE}').touch()\n")
    (place / "lines.txt").write_text("a b\n")
    for name, hostile in HOSTILE.items():
        folder = place / "hostile"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(place / "run", folder)
        hostile.damage(folder)
        table.row(name).note(_fault(folder, hostile, place))
    table.row("escapes in its texts").note(_shown_escapes(place))
    return table


def _fault(folder: Path, hostile: Hostile, place: Path) -> str | None:
    command = hostile.command[0]
    given = ["lines.txt"] if command == "generate" else ["--source", "lines.txt", "--target", "lines.txt"]

    def little_memory() -> None:
        most = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + GIGABYTE
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    answer = run(command, folder, *given, folder=place, patience=60, before=little_memory)
    if (place / WRITABLE).exists():
        return "its code was run"
    if (fault := answer.wrong(allowed=(2,))) is not None:
        return fault
    return None if hostile.answer in answer.remarked else f"said {answer.remarked!r}"


def _shown_escapes(place: Path) -> str | None:
    """What is printed for people holds no control characters of the file's."""
    folder = place / "hostile"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(place / "run", folder)
    _escapes(folder)
    answer = run("info", folder, folder=place)
    bad = [character for character in answer.said if character in "\x1b\x07\x9b"]
    return f"{answer.code}: printed {bad!r}" if bad or answer.code else None


if __name__ == "__main__":
    asked = command_line(__doc__ or "", tries=0, minutes=0)
    with workplace(asked.folder) as place:
        finish(refuse_all(place))
