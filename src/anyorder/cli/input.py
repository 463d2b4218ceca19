"""What commands read from stdin."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from anyorder.errors import UserError


def stdin_lines() -> Iterator[str]:
    """Lines as they come, in UTF-8 whatever the locale says."""
    if sys.stdin is None:
        raise UserError("stdin: is closed; give a file")
    # A reader of its own: Python aborts at its end if a thread still waits inside that of sys.stdin.
    with os.fdopen(sys.stdin.fileno(), "rb", closefd=False) as lines:
        for number, line in enumerate(lines, start=1):
            try:
                # Some programs put a byte-order mark before the first line.
                coding = "utf-8-sig" if number == 1 else "utf-8"
                yield line.removesuffix(b"\n").removesuffix(b"\r").decode(coding)
            except UnicodeDecodeError as error:
                raise UserError(f"stdin:{number}: not valid UTF-8 ({error.reason})") from None
