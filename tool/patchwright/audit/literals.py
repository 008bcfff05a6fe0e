"""Literals without a name in them: tables of data, which releases hold by the megabyte.

What they are is the same for every capability, so it is found once, and kept by the node.
"""

from __future__ import annotations

import ast

from patchwright.audit.slices import children

_HOLDERS = frozenset({ast.Tuple, ast.List, ast.Set, ast.Dict})
_LEAVES = frozenset({ast.Constant, ast.Load})


def literal(node: ast.AST) -> tuple[ast.expr, ...] | None:
    """Return the sequences and the texts in a literal, in order; None for anything else."""
    if type(node) not in _HOLDERS:
        return None
    if "literal" not in vars(node):
        vars(node)["literal"] = _found(node)
    known: tuple[ast.expr, ...] | None = vars(node)["literal"]
    return known


def _found(node: ast.AST) -> tuple[ast.expr, ...] | None:
    found: list[ast.expr] = []
    todo = [node]
    while todo:
        part = todo.pop()
        kind = type(part)
        if kind in _HOLDERS:
            if kind is not ast.Dict:
                found.append(part)  # type: ignore[arg-type]
            todo.extend(reversed(children(part)))
        elif kind not in _LEAVES:
            return None
        elif kind is ast.Constant and isinstance(part.value, str):  # type: ignore[attr-defined]
            found.append(part)  # type: ignore[arg-type]
    return tuple(found)
