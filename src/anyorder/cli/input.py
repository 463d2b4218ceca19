"""What commands read from stdin."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from anyorder.ground.errors import UserError

BYTE_ORDER_MARK = "\ufeff"  # that some programs put before UTF-8


def stdin_lines() -> Iterator[str]:
    """Lines as they come, in UTF-8 whatever the locale says."""
    if sys.stdin is None:
        raise UserError("stdin: is closed; give a file")
    # A reader of its own: Python aborts at its end if a thread still waits inside that of sys.stdin.
    with os.fdopen(sys.stdin.fileno(), "rb", closefd=False) as lines:
        for number, line in enumerate(lines, start=1):
            try:
                text = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
                yield text.removeprefix(BYTE_ORDER_MARK) if number == 1 else text
            except UnicodeDecodeError as error:
                raise UserError(f"stdin:{number}: not valid UTF-8 ({error.reason})") from None
