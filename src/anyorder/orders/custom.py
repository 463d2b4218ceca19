"""Orders that a user supplies: a file with one permutation per line, or a function of a list of words.

Both list positions of words, counted from 1. Anything else is refused in one line that says where it comes
from and what is wrong with it.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections import Counter
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from types import ModuleType

from anyorder.errors import UserError

# Longer lists and texts are shortened in messages.
SHOWN_POSITIONS = 5
SHOWN_CHARACTERS = 120


class OrderFile:
    """A file of permutations: row n belongs to line n of the targets."""

    def __init__(self, path: Path) -> None:
        self.path = path
        content = path.read_bytes()
        self.fingerprint = hashlib.sha256(content).hexdigest()
        self._rows = content.splitlines()

    def word_positions(self, line: int, words: Sequence[str]) -> list[int]:
        """The order of the words of a target line."""
        if line > len(self._rows):
            raise UserError(
                f"{self.path}: has {len(self._rows)} lines, but there is a target line {line}; "
                "a permutation for each line is needed"
            )
        where = f"{self.path}:{line}"
        # Invalid bytes can't be a position: they are refused below, with a message that shows them.
        given = self._rows[line - 1].decode("utf-8-sig", errors="replace").split()
        for text in given:
            if not text.isdecimal():
                raise UserError(f"{where}: {_one_line(text)!r} given, must be a position, counted from 1")
        return checked_positions([int(text) for text in given], length=len(words), where=where)


class OrderFunction:
    """A user's function, named `package.module:function`."""

    def __init__(self, name: str, *, split: str) -> None:
        self.name = name
        self.split = split
        module_name, _, function_name = name.partition(":")
        module = _imported(module_name, order_name=name)
        function = getattr(module, function_name, None)
        if not callable(function):
            raise UserError(f"order.name = {name!r}: {module_name} has no function {function_name!r}")
        self._function = function
        code = getattr(module, "__file__", None)  # built-in modules have none
        self.fingerprint = hashlib.sha256(Path(code).read_bytes()).hexdigest() if code else ""

    def word_positions(self, line: int, words: Sequence[str]) -> list[int]:
        """The order of the words of a target line."""
        where = f"order {self.name}, {self.split} line {line}"
        try:
            given = self._function(list(words))
        except (Exception, SystemExit) as error:  # a function that exits would end the command silently
            raise UserError(f"{where}: the function raised {_named(error)}") from error
        return checked_positions(given, length=len(words), where=where)


def checked_positions(given: object, *, length: int, where: str) -> list[int]:
    """Check that a user's order is a permutation of 1 to length, or refuse it. where: its origin."""
    if not isinstance(given, list | tuple) or not all(map(_is_whole_number, given)):
        shown = _one_line(repr(given))
        raise UserError(
            f"{where}: {shown} given, must be a list of whole numbers, the positions counted from 1"
        )
    positions = [int(position) for position in given]
    if len(positions) != length:
        raise UserError(f"{where}: {len(positions)} positions given, must be {length}, one for each word")
    if positions and sorted(positions) == list(range(length)):
        raise UserError(f"{where}: positions are counted from 0, must be counted from 1")
    allowed = range(1, length + 1)
    times = Counter(positions)
    faults = {
        "missing": [position for position in allowed if position not in times],
        "more than once": [position for position in allowed if times[position] > 1],
        "out of range": [position for position in times if position not in allowed],
    }
    complaints = [f"{fault}: {_first_few(at_fault)}" for fault, at_fault in faults.items() if at_fault]
    if complaints:
        raise UserError(f"{where}: not a permutation of 1 to {length}; {'; '.join(complaints)}")
    return positions


def _imported(module_name: str, *, order_name: str) -> ModuleType:
    # Unlike `python -m`, an installed command doesn't search the current directory for modules.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        # The module or its package is missing, not something that the module itself imports.
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise UserError(
                f"order.name = {order_name!r}: no module {error.name!r} in the current directory "
                "or among installed packages"
            ) from None
        raise UserError(
            f"order.name = {order_name!r}: importing {module_name} raised {_named(error)}"
        ) from error


def _is_whole_number(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _named(error: BaseException) -> str:
    message = _one_line(str(error))
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _first_few(positions: Sequence[int]) -> str:
    shown = " ".join(map(str, positions[:SHOWN_POSITIONS]))
    return f"{shown} …" if len(positions) > SHOWN_POSITIONS else shown


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARACTERS else line[: SHOWN_CHARACTERS - 1] + "…"
