"""The wheel holds everything that an installed package needs."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from importlib.util import find_spec
from pathlib import Path

import pytest
from corpora import PATIENCE, QUIET, learned, sentences, write_lines

import anyorder

ROOT = Path(__file__).parent.parent
BASE = ""  # instead of the name of an extra

# Modules that are not called as their distribution is; pydantic pins its core to one version.
DISTRIBUTIONS = {
    "prometheus_client": "prometheus-client",
    "PIL": "pillow",
    "MeCab": "mecab-python3",
    "pydantic_core": "pydantic",
}


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in QUIET.items() if name != "PYTHONPATH"}
    return subprocess.run(
        list(map(str, arguments)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # A build backend that is there need not be downloaded.
    how = ["--no-isolation"] if find_spec("hatchling") else []
    built = run(sys.executable, "-m", "build", "--wheel", *how, "--outdir", folder, ROOT, cwd=folder)
    assert built.returncode == 0, built.stdout + built.stderr
    (found,) = folder.glob("*.whl")
    return found


def test_builds_are_the_same_to_the_last_byte(tmp_path: Path) -> None:
    how = ["--no-isolation"] if find_spec("hatchling") else []
    builds = []
    for name in ("one", "two"):
        built = run(sys.executable, "-m", "build", *how, "--outdir", tmp_path / name, ROOT, cwd=tmp_path)
        assert built.returncode == 0, built.stdout + built.stderr
        builds.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert sorted(path.rpartition(".")[2] for path in builds[0]) == ["gz", "whl"]
    assert builds[0] == builds[1]


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel; it borrows the packages that are used here."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    flags = ["--no-deps", "--no-index", "--disable-pip-version-check"]
    installed = run(
        sys.executable, "-m", "pip", "--python", programs / "python", "install", *flags, wheel, cwd=folder
    )
    assert installed.returncode == 0, installed.stderr
    (packages,) = folder.glob("lib/python*/site-packages")
    # The lines of a .pth are only searched for packages: an editable anyorder among them isn't found.
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    return programs


def test_the_wheel_holds_what_is_no_python(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"anyorder/viz/page.html", "anyorder/evaluation/report.html", "anyorder/py.typed"} <= names
    assert {"anyorder/viz/assets/player.js", "anyorder/viz/assets/studio.html"} <= names
    modules = {
        f"anyorder/{path.relative_to(ROOT / 'src/anyorder')}"
        for path in (ROOT / "src/anyorder").rglob("*.py")
    }
    assert modules <= names
    assert not [name for name in names if name.startswith("tests")]
    assert f"anyorder-{anyorder.__version__}.dist-info/licenses/LICENSE" in names


def requirements(wheel: Path) -> dict[str, set[str]]:
    """The distributions that the wheel asks for, by extra."""
    with zipfile.ZipFile(wheel) as files:
        metadata = files.read(f"anyorder-{anyorder.__version__}.dist-info/METADATA")
    found: dict[str, set[str]] = {BASE: set()}
    for line in message_from_bytes(metadata).get_all("Requires-Dist", []):
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        name = re.match(r"[\w.-]+", line)
        assert name is not None, line
        found.setdefault(extra[1] if extra else BASE, set()).add(name[0].lower())
    return found


class _TypeImports(ast.NodeTransformer):
    def visit_If(self, node: ast.If) -> ast.AST | None:
        is_for_types = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return None if is_for_types else self.generic_visit(node)


def without_type_imports(tree: ast.AST) -> ast.AST:
    """The tree without what stands below `if TYPE_CHECKING`."""
    return _TypeImports().visit(tree)


def imported(tree: ast.AST) -> Iterator[str]:
    """Top-level modules from outside that some code imports, however deep inside, types aside."""
    for node in ast.walk(without_type_imports(tree)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module]
        tops = {name.partition(".")[0] for name in names}
        yield from tops - sys.stdlib_module_names - {"anyorder"}


def test_whatever_is_imported_is_asked_for(wheel: Path) -> None:
    asked_for = requirements(wheel)
    missing = []
    for path in (ROOT / "src/anyorder").rglob("*.py"):
        code = path.read_text(encoding="utf-8")
        # A file that can do without a package says which extra brings it.
        extras = re.findall(r"anyorder\[(\w+)\]", code)
        allowed = asked_for[BASE].union(*(asked_for[extra] for extra in extras))
        missing += [
            f"{path.name}: {module}"
            for module in imported(ast.parse(code))
            if DISTRIBUTIONS.get(module, module).lower() not in allowed
        ]
    assert missing == []
    assert {"torch", "numpy", "typer"} <= asked_for[BASE]
    assert asked_for["syntax"] == {"spacy"}


def test_the_installed_command_generates(programs: Path, tmp_path: Path) -> None:
    where = run(programs / "python", "-c", "import anyorder; print(anyorder.__file__)", cwd=tmp_path)
    assert Path(where.stdout.strip()).is_relative_to(programs.parent)
    lines = sentences(5, seed=8)
    answer = run(
        programs / "anyorder", "generate", learned().run, write_lines(tmp_path / "lines", lines), cwd=tmp_path
    )
    assert answer.returncode == 0, answer.stderr
    wanted = [best.text for (best,) in anyorder.load(learned().run).generate(lines)]
    assert answer.stdout.splitlines() == wanted


def test_the_installed_command_refuses_in_one_line(programs: Path, tmp_path: Path) -> None:
    answer = run(programs / "anyorder", "info", "nowhere", cwd=tmp_path)
    complaint = "anyorder: nowhere: no such folder; by name there is django-small\n"
    assert (answer.returncode, answer.stderr) == (2, complaint)


def test_the_installed_package_has_its_model(programs: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "lines", ["return the length of soup ."])
    answer = run(programs / "anyorder", "generate", "django-small", source, cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (0, "return len ( soup )\n")
