"""One process at a time writes to a folder."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from anyorder.errors import UserError
from anyorder.system.locks import LOCK_FILE, locked

HOLDER = """
import sys, time
from pathlib import Path
from anyorder.system.locks import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_is_told_who_the_first_is(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    try:
        with pytest.raises(UserError) as refused, locked(tmp_path / "run"):
            pass
        where = f"process {holder.pid} on {socket.gethostname()}"
        assert str(refused.value) == f"{tmp_path / 'run'}: is in use by {where}; wait for it or stop it"
    finally:
        holder.kill()
        holder.communicate()


def test_a_lock_dies_with_its_process(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert (tmp_path / "run" / LOCK_FILE).exists()  # it holds nobody back
    with locked(tmp_path / "run"):
        assert (tmp_path / "run" / LOCK_FILE).read_text().startswith(f"{os.getpid()} ")
    assert not list((tmp_path / "run").iterdir())


def test_an_empty_folder_goes_and_a_used_one_stays(tmp_path: Path) -> None:
    with locked(tmp_path / "a" / "b"):
        pass
    assert not (tmp_path / "a").exists()
    with locked(tmp_path / "a" / "b"):
        (tmp_path / "a" / "b" / "file").touch()
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["file"]


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".model.safetensors.77-abc.unfinished").touch()
    (tmp_path / ".unfinished-3").mkdir()
    (tmp_path / "kept").touch()
    with locked(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_two_locks_of_one_folder_have_names(tmp_path: Path) -> None:
    with locked(tmp_path, name=".dev"), locked(tmp_path, name=".test"):
        pass
