"""Which names of a function its gates rest on: what else it binds need not be evaluated."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)


def children(node: ast.AST) -> tuple[ast.AST, ...]:
    """Return the nodes directly below a node; it keeps them, as it is walked again and again."""
    known: tuple[ast.AST, ...] | None = vars(node).get("children")
    if known is None:
        known = vars(node)["children"] = tuple(ast.iter_child_nodes(node))
    return known


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all below it."""
    todo = [node]
    while todo:
        part = todo.pop()
        yield part
        todo.extend(children(part))


def called_name(node: ast.Call) -> str:
    """Return the last part of what is called, empty where that has no name."""
    return str(getattr(node.func, "attr", getattr(node.func, "id", "")))


def names_in(node: ast.AST) -> frozenset[str]:
    """Return the names of an expression; an attribute of ``self`` as ``self.x``."""
    found: set[str] = set()
    todo = [node]
    while todo:
        part = todo.pop()
        if type(part) is ast.Name:
            found.add(part.id)
        elif type(part) is ast.Attribute and type(part.value) is ast.Name:
            found.add(f"self.{part.attr}" if part.value.id == "self" else part.value.id)
        elif type(part) is not ast.Constant:
            todo.extend(children(part))
    return frozenset(found)


def targets_of(node: ast.AST) -> frozenset[str]:
    """Return the names that an assignment binds."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return frozenset(name for part in targets if part is not None for name in names_in(part))


def needed_names(function: _FUNCTIONS, telling: Collection[int]) -> frozenset[str]:
    """Return the names that decide the way through a function, or what is asked there.

    ``telling`` are the expressions that ask, by the identity of their nodes. Names that
    inner functions read count as well: these see the names of the outer one.
    """
    needed: set[str] = set()
    assigned: list[tuple[frozenset[str], frozenset[str]]] = []
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        if id(node) in telling or isinstance(node, _SCOPES):
            needed |= names_in(node)
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            needed |= names_in(node.test)
        if isinstance(node, _ASSIGNMENTS) and node.value is not None:
            assigned.append((targets_of(node), names_in(node.value)))
        todo.extend(children(node))
    while True:
        more = [read for bound, read in assigned if not needed.isdisjoint(bound)]
        grown = needed.union(*more)
        if len(grown) == len(needed):
            return frozenset(needed)
        needed = grown
