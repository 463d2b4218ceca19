"""The entry point of `anyorder`, of `python -m anyorder` and of torchrun."""

from __future__ import annotations

import errno
import sys
from typing import NoReturn

from anyorder.errors import UserError
from anyorder.models.kernels.malloc import keep_memory
from anyorder.system.interruption import INTERRUPTED

SHOWN = 200  # characters of an error of torch's


def main() -> NoReturn:
    """Run a command; a user's mistake is reported in one line, without a traceback."""
    keep_memory()
    try:
        _run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _run() -> NoReturn:
    # Imported inside the function, because a user may press Ctrl-C during the import too.
    import typer

    from anyorder.cli import app

    try:
        # Not standalone: Typer would report errors in boxes of several lines.
        sys.exit(app(prog_name="anyorder", standalone_mode=False))
    except UserError as error:
        _fail(str(error))
    except typer.Abort:
        sys.exit(INTERRUPTED)
    except OSError as error:
        if error.errno == errno.ENOSPC and error.filename is None:  # stdout, most likely
            sys.stdout = None  # or Python would write to it again at exit
            _fail(f"output: {error.strerror}")
        if error.filename is None or error.strerror is None:
            raise
        _fail(f"{error.filename}: {error.strerror}")
    except Exception as error:
        if _is_out_of_memory(error):
            _fail(
                f"not enough memory: {str(error).splitlines()[0][:SHOWN] if str(error) else 'none is left'}"
            )
        # Wrong usage. Typer may have its own copy of click, so its exceptions are recognised by their method.
        format_message = getattr(error, "format_message", None)
        if format_message is None:
            raise
        context = getattr(error, "ctx", None)
        help_hint = f" (see `{context.command_path} --help`)" if context else ""
        if not format_message():  # a command without its arguments has printed its help
            sys.exit(2)
        _fail(f"{format_message()}{help_hint}")


def _is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out: Python, NumPy and a GPU say so by a class, torch on a CPU in words."""
    phrases = (
        "not enough memory",
        "can't allocate memory",
        "Storage size calculation overflowed",
        "out of memory",
    )
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in phrases)
    )


def _fail(message: str) -> NoReturn:
    from anyorder.cli.output import print_error

    print_error(message)
    sys.exit(2)


if __name__ == "__main__":
    main()
