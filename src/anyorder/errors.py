"""The exception for mistakes of the user, as opposed to bugs."""

from __future__ import annotations


class UserError(Exception):
    """Bad input. The message is one line: the file, line, key or flag, what was given and what is allowed.

    The command line prints it without a traceback and exits with code 2.
    """
