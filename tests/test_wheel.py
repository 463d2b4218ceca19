"""The wheel holds everything that an installed package needs."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from corpora import PATIENCE, QUIET, learned, sentences, write_lines

import anyorder

ROOT = Path(__file__).parent.parent


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
    assert {"anyorder/page.html", "anyorder/py.typed"} <= names
    modules = {
        f"anyorder/{path.relative_to(ROOT / 'src/anyorder')}"
        for path in (ROOT / "src/anyorder").rglob("*.py")
    }
    assert modules <= names
    assert not [name for name in names if name.startswith("tests")]
    assert f"anyorder-{anyorder.__version__}.dist-info/licenses/LICENSE" in names


def test_the_installed_command_generates(programs: Path, tmp_path: Path) -> None:
    where = run(programs / "python", "-c", "import anyorder; print(anyorder.__file__)", cwd=tmp_path)
    assert Path(where.stdout.strip()).is_relative_to(programs.parent)
    lines = sentences(5, seed=8)
    answer = run(
        programs / "anyorder", "generate", learned().run, write_lines(tmp_path / "lines", lines), cwd=tmp_path
    )
    assert answer.returncode == 0, answer.stderr
    wanted = [best.text for (best,) in anyorder.load(str(learned().run)).generate(lines)]
    assert answer.stdout.splitlines() == wanted


def test_the_installed_command_refuses_in_one_line(programs: Path, tmp_path: Path) -> None:
    answer = run(programs / "anyorder", "info", "nowhere", cwd=tmp_path)
    assert (answer.returncode, answer.stderr) == (2, "anyorder: nowhere: no such folder\n")
