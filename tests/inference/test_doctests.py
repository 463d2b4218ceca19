"""The examples in the documentation of the public functions give what they say."""

from __future__ import annotations

import doctest
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from corpora import write_corpus

import anyorder

MODULES = [
    "anyorder",
    "anyorder.api",
    "anyorder.inference.generator",
    "anyorder.inference.hypothesis",
]
# Methods that belong to the public classes but are plain data, or made for the command line.
WITHOUT_EXAMPLE = {"Generator.load", "Generator.answer", "Generator.load_other_models"}


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples of training find a recipe of small data in the working directory."""
    write_corpus(tmp_path)
    monkeypatch.chdir(tmp_path)
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0
    assert results.failed == 0


def test_everything_public_is_there_and_explained() -> None:
    for name in anyorder.__all__:
        value = getattr(anyorder, name)
        if callable(value):
            assert inspect.getdoc(value), name
    assert set(anyorder.__all__) <= set(dir(anyorder))
    with pytest.raises(AttributeError, match="no attribute 'generat'"):
        _ = anyorder.generat  # type: ignore[attr-defined]


def test_the_overview_mentions_what_a_model_can_do() -> None:
    overview = anyorder.__doc__ or ""
    for task in ("generate", "complete", "score", "train", "evaluate"):
        assert task in overview.lower()


def test_public_functions_have_examples() -> None:
    methods = {
        f"Generator.{name}": method
        for name, method in inspect.getmembers(anyorder.Generator, inspect.isroutine)
        if not name.startswith("_")
    }
    functions = {name: getattr(anyorder, name) for name in ("load", "train", "evaluate", "order_positions")}
    for name, function in (methods | functions).items():
        if name not in WITHOUT_EXAMPLE:
            assert ">>> " in (inspect.getdoc(function) or ""), name


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, anyorder; anyorder.Hypothesis; anyorder.ORDERS; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
