"""Removes annotations from a copy of a statement: they decide nothing, and evaluating
them would ask for every type that upstream's signatures name.

The copy shares its expressions with the original, which stays as it is: syntax trees are
shared, and whole modules are stripped for one decision.
"""

from __future__ import annotations

import ast
import copy
from typing import Literal, TypeVar

# Annotations that dataclasses give a meaning to.
_MEANT = ("ClassVar", "InitVar", "KW_ONLY")
_Scope = Literal["module", "class", "function"]
_Branch = TypeVar("_Branch", ast.ExceptHandler, ast.match_case)


def without_annotations(statement: ast.stmt) -> ast.stmt:
    """Return a copy without annotations; fields of classes keep ``object`` as theirs."""
    return _stripped(statement, "module")


def _stripped(node: ast.stmt, scope: _Scope) -> ast.stmt:
    if isinstance(node, ast.AnnAssign):
        return _assignment(node, scope)
    if not hasattr(node, "body") and not hasattr(node, "cases"):
        return node
    made = copy.copy(node)
    if isinstance(made, ast.FunctionDef | ast.AsyncFunctionDef):
        scope = "function"
        made.returns = None
        made.args = _bare(made.args)
    elif isinstance(made, ast.ClassDef):
        scope = "class"
    for part in ("body", "orelse", "finalbody"):
        if inner := getattr(made, part, None):
            setattr(made, part, [_stripped(statement, scope) for statement in inner])
    if isinstance(made, ast.Try | ast.TryStar):
        made.handlers = [_branch(handler, scope) for handler in made.handlers]
    elif isinstance(made, ast.Match):
        made.cases = [_branch(case, scope) for case in made.cases]
    return made


def _branch(node: _Branch, scope: _Scope) -> _Branch:
    made = copy.copy(node)
    made.body = [_stripped(statement, scope) for statement in node.body]
    return made


def _assignment(node: ast.AnnAssign, scope: _Scope) -> ast.stmt:
    if scope == "module":
        # A module-level annotation would be evaluated; a function's never is.
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign([node.target], node.value), node)
    if scope == "class" and not any(word in ast.unparse(node) for word in _MEANT):
        node = copy.copy(node)
        node.annotation = ast.copy_location(ast.Name("object", ast.Load()), node.annotation)
    return node


def _bare(arguments: ast.arguments) -> ast.arguments:
    made = copy.copy(arguments)
    for part in ("posonlyargs", "args", "kwonlyargs"):
        setattr(made, part, [_unannotated(argument) for argument in getattr(made, part)])
    made.vararg = made.vararg and _unannotated(made.vararg)
    made.kwarg = made.kwarg and _unannotated(made.kwarg)
    return made


def _unannotated(argument: ast.arg) -> ast.arg:
    if argument.annotation is None:
        return argument
    made = copy.copy(argument)
    made.annotation = None
    return made
