"""Finds nodes of a syntax tree by the lines that they span.

Only what spans a line is looked into, so that nothing is kept: a map of all nodes is larger
than the tree, and releases hold files of a hundred thousand nodes.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence

from patchwright.smoke.bindings import children

_Entry = tuple[ast.AST, "_Entry | None"]


def on_lines(tree: ast.Module, lines: Sequence[int]) -> Iterator[ast.AST]:
    """Yield the nodes that span one of the lines (sorted, from 1), in ``ast.walk``'s order.

    Nodes without a place of their own, and all within an f-string, count as well.
    """
    todo: deque[tuple[ast.AST, bool]] = deque([(tree, False)])
    while todo:
        node, every = todo.popleft()
        yield node
        # Before Python 3.12, what stands within an f-string is not always where it says.
        every = every or isinstance(node, ast.JoinedStr)
        todo.extend((part, every) for part in children(node) if every or _spans(part, lines))


def around(tree: ast.Module, node: ast.AST) -> list[ast.AST]:
    """Return a node and those above it, the innermost first; empty where it is not there."""
    found = _way(tree, node, (getattr(node, "lineno", 0),)) or _way(tree, node, None)
    chain = []
    while found is not None:
        above, found = found
        chain.append(above)
    return chain


def lines_of(data: bytes, text: str) -> list[int]:
    """Return the lines of a source on which a text begins that stands there as a whole word."""
    if b"\r" in data:
        data = b"\n".join(data.splitlines())
    found: list[int] = []
    line, last = 1, 0
    for match in re.finditer(rb"(?<!\w)%b(?!\w)" % re.escape(text.encode()), data):
        line += data.count(b"\n", last, match.start())
        last = match.start()
        if not found or found[-1] != line:
            found.append(line)
    return found


def _way(tree: ast.Module, node: ast.AST, lines: Sequence[int] | None) -> _Entry | None:
    todo: list[_Entry] = [(tree, None)]
    while todo:
        entry = todo.pop()
        if entry[0] is node:
            return entry
        todo.extend(
            (part, entry) for part in children(entry[0]) if lines is None or _spans(part, lines)
        )
    return None


def _spans(node: ast.AST, lines: Sequence[int]) -> bool:
    first = getattr(node, "lineno", None)
    if first is None:
        return True
    decorators = getattr(node, "decorator_list", None)
    if decorators:
        first = decorators[0].lineno
    at = bisect_left(lines, first)
    return at < len(lines) and lines[at] <= node.end_lineno  # type: ignore[attr-defined]
