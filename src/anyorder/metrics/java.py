"""Programs in Java that come with pycocoevalcap. A run is a process that ends before its answer is used."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from anyorder.ground.errors import UserError


def find_jar(*parts: str, needed_by: str) -> Path:
    """A program of pycocoevalcap's. Java must be there too, or other metrics would be computed in vain."""
    package = find_spec("pycocoevalcap")
    if package is None or not package.submodule_search_locations:
        raise UserError(f"{needed_by} needs pycocoevalcap: pip install 'anyorder[metrics]'")
    _find_java(needed_by)
    return Path(package.submodule_search_locations[0], *parts)


def run_java(arguments: Sequence[str | Path], *, lines: Sequence[str], needed_by: str) -> list[str]:
    """The lines that a program answers to the given ones."""
    done = subprocess.run(
        # Else Java reads and writes by the locale.
        [_find_java(needed_by), "-Dfile.encoding=UTF-8", *arguments],
        input="".join(f"{line}\n" for line in lines).encode(errors="replace"),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise UserError(f"{needed_by}: Java has failed: {said or f'exit code {done.returncode}'}")
    return done.stdout.decode().split("\n")[:-1]


def _find_java(needed_by: str) -> str:
    java = shutil.which("java")
    if java is None:
        raise UserError(f"{needed_by} needs Java 8 or later, and no `java` is on the path")
    return java
