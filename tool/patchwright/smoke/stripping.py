"""Removes annotations from a copy of a statement: they decide nothing, and evaluating
them would ask for every type that upstream's signatures name."""

from __future__ import annotations

import ast
import copy
from typing import TypeVar

# Annotations that dataclasses give a meaning to.
_MEANT = ("ClassVar", "InitVar", "KW_ONLY")
_Statement = TypeVar("_Statement", bound=ast.stmt)


def without_annotations(statement: _Statement) -> ast.stmt:
    """Return a copy without annotations; fields of classes keep ``object`` as theirs."""
    stripped = _Stripper().visit(copy.deepcopy(statement))
    assert isinstance(stripped, ast.stmt)
    return stripped


class _Stripper(ast.NodeTransformer):
    def __init__(self) -> None:
        self.scope: str = "module"

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
        return self._inside("function", node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._inside("class", node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if self.scope == "class" and not any(word in ast.unparse(node) for word in _MEANT):
            node.annotation = ast.copy_location(ast.Name("object", ast.Load()), node.annotation)
        elif self.scope == "module":
            # A module-level annotation would be evaluated; a function's never is.
            if node.value is None:
                return ast.copy_location(ast.Pass(), node)
            return ast.copy_location(ast.Assign([node.target], node.value), node)
        return self.generic_visit(node)

    def _inside(self, scope: str, node: ast.AST) -> ast.AST:
        outer, self.scope = self.scope, scope
        try:
            return self.generic_visit(node)
        finally:
            self.scope = outer
