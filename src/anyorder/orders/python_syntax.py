"""How deep each word of a line of Python lies in its syntax tree, as Python's own parser sees it.

In `return f ( x )` the word `return` is the root; the call's brackets lie below it, and `f` and `x` below the
call. What belongs to a node and to none of its children has the node's depth.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise

from anyorder.errors import UserError

PARSER = "python"  # instead of the name of a spaCy pipeline


# Data sets with a target a line, Django's among them, write a line break within a target so.
LINE_BREAK = "_newline_"


# Nodes that know where they stand; the others, such as the list of a function's arguments, add no depth.
PLACED = ast.expr | ast.stmt | ast.excepthandler | ast.keyword | ast.arg | ast.alias


def python_depths(line: int, words: Sequence[str]) -> list[int]:
    """Depths of the words of a target line: 0 for a statement, more for what is inside."""
    rows = [list(row) for breaks, row in groupby(words, key=LINE_BREAK.__eq__) if not breaks]
    text = "\n".join(map(" ".join, rows))
    character_depths = _character_depths(_parsed(line, text), text.encode())
    ends = accumulate((len(word.encode()) + 1 for row in rows for word in row), initial=0)
    spans = pairwise(ends)
    # A word may span nodes, as `:pass` does. A line break belongs to none: it is as high as a statement.
    return [0 if word == LINE_BREAK else min(character_depths[slice(*next(spans))][:-1]) for word in words]


def _character_depths(tree: ast.Module, text: bytes) -> list[int]:
    row_starts = list(accumulate((len(row) + 1 for row in text.split(b"\n")), initial=0))
    found = [0] * (len(text) + 1)  # with an end, like a space after the last word
    waiting: list[tuple[ast.AST, int]] = [(node, 0) for node in tree.body]
    while waiting:
        node, depth = waiting.pop()
        if isinstance(node, PLACED):
            # Parents come before their children, who write over what is theirs.
            start = row_starts[node.lineno - 1] + node.col_offset
            end = row_starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
            found[start:end] = [depth] * (end - start)
            depth += 1
        if not isinstance(node, ast.JoinedStr):  # whose parts have no places of their own before Python 3.12
            waiting.extend((child, depth) for child in ast.iter_child_nodes(node))
    return found


def _parsed(line: int, source: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about "\d" and the like: not ours to judge
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__
        raise UserError(f"order.parser = {PARSER!r}: target line {line} is not Python: {reason}") from None
