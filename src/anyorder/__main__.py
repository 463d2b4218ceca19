"""The command `anyorder`, also as `python -m anyorder` and under torchrun."""

from __future__ import annotations

import errno
import sys
from typing import NoReturn

from anyorder.errors import UserError
from anyorder.models.kernels.malloc import keep_memory
from anyorder.system.interruption import INTERRUPTED


def main() -> NoReturn:
    """Run a command; what a person can mend is said in one line, without a traceback."""
    keep_memory()
    try:
        _run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _run() -> NoReturn:
    # Imported here because it takes a while, in which people may press Ctrl-C too.
    import typer

    from anyorder.cli import app

    try:
        # Typer's own answers would be boxes of several lines.
        sys.exit(app(prog_name="anyorder", standalone_mode=False))
    except UserError as error:
        _fail(str(error))
    except typer.Abort:
        sys.exit(INTERRUPTED)
    except OSError as error:
        if error.errno == errno.ENOSPC and error.filename is None:  # what was written to is told by nobody
            sys.stdout = None  # or Python would try again at its end
            _fail(f"output: {error.strerror}")
        if error.filename is None or error.strerror is None:
            raise
        _fail(f"{error.filename}: {error.strerror}")
    except Exception as error:
        # Wrong usage: Typer may carry its own copy of click, so its exceptions are known by what they can do.
        format_message = getattr(error, "format_message", None)
        if format_message is None:
            raise
        context = getattr(error, "ctx", None)
        help_hint = f" (see `{context.command_path} --help`)" if context else ""
        if not format_message():  # a command without its arguments has shown its help instead
            sys.exit(2)
        _fail(f"{format_message()}{help_hint}")


def _fail(message: str) -> NoReturn:
    print(f"anyorder: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
