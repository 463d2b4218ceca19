"""The one exception that is a person's to mend, not a bug."""

from __future__ import annotations


class UserError(Exception):
    """Bad input: one line that names the file, line, key or flag, what was given and what is allowed.

    Surfaces print the line without a traceback and exit with code 2.
    """
