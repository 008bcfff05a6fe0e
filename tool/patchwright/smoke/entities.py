"""What an expression in an upstream's source can stand for."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from patchwright.smoke.bindings import Module


@dataclass(frozen=True, eq=False)
class Scope:
    """Where names are looked up: a module, or a function or class body inside one."""

    module: Module
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | None = None
    parent: Scope | None = None

    @property
    def owner(self) -> Class | None:
        """The class that the function is a method of."""
        if isinstance(self.node, ast.FunctionDef | ast.AsyncFunctionDef) and self.parent:
            outer = self.parent
            if isinstance(outer.node, ast.ClassDef):
                return Class(outer)
        return None


@dataclass(frozen=True)
class Function:
    """A function of an upstream; ``scope`` is the one inside it."""

    scope: Scope

    @property
    def node(self) -> ast.FunctionDef | ast.AsyncFunctionDef:
        """The definition."""
        assert isinstance(self.scope.node, ast.FunctionDef | ast.AsyncFunctionDef)
        return self.scope.node

    @property
    def name(self) -> str:
        """The qualified name within the module: ``Class.method``, ``getter.inner``."""
        names: list[str] = []
        scope: Scope | None = self.scope
        while scope is not None and scope.node is not None:
            names.append(scope.node.name)
            scope = scope.parent
        return ".".join(reversed(names))


@dataclass(frozen=True)
class Class:
    """A class of an upstream; ``scope`` is the one inside it."""

    scope: Scope


@dataclass(frozen=True)
class Instance:
    """An object of an upstream's class."""

    of: Class


@dataclass(frozen=True)
class Package:
    """A module of an upstream."""

    dotted: str


@dataclass(frozen=True)
class Fields:
    """``SimpleNamespace(a=..., b=...)``."""

    call: ast.Call
    scope: Scope


@dataclass(frozen=True)
class External:
    """Something outside the upstreams, by its dotted name."""

    dotted: str


@dataclass(frozen=True)
class Unknown:
    """Decided at run time."""

    why: str


Entity = Function | Class | Instance | Package | Fields | External | Unknown
Found = frozenset[Entity]
NOTHING: Found = frozenset()
