"""What a terminal gets: text from files can't control it."""

from __future__ import annotations

import io

import pytest
from corpora import call_here
from rich.text import Text

from anyorder.cli.output import SafeConsole, print_error, print_line, visible


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_control_characters_are_shown() -> None:
    assert visible("a\tb\n\x1b[31m\x07\x9b\u202e") == "a\tb\n\\u001b[31m\\u0007\\u009b\\u202e"


def test_a_console_keeps_its_own_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen = Terminal()
    SafeConsole(file=screen, force_terminal=True, color_system="standard").print(
        Text("\x1b[2Jx", style="red")
    )
    assert screen.getvalue() == "\x1b[31m\\u001b[2Jx\x1b[0m\n"


def test_a_pipe_gets_what_was_written_and_a_terminal_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, wanted in ((io.StringIO(), "\x1b[2Jx\n"), (Terminal(), "\\u001b[2Jx\n")):
        monkeypatch.setattr("sys.stdout", stream)
        print_line("\x1b[2Jx")
        assert stream.getvalue() == wanted


def test_errors_are_always_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("x\x1b]0;y\x07: no such file")
    assert capsys.readouterr().err == "anyorder: x\\u001b]0;y\\u0007: no such file\n"


def test_a_long_sentence_is_shown_by_parts(capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"w{number}" for number in range(2000)]
    answer = call_here(capsys, "order", "l2r", " ".join(words))
    assert answer.returncode == 0
    assert len(answer.stdout) < 2000 * 600  # not the square of 2,000
    assert call_here(capsys, "order", "l2r", " ".join(words * 6)).returncode == 2
