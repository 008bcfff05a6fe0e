"""What the modules of an upstream bind at module level, read from their syntax trees.

Shared by the slicer, which executes bindings, and the route finder, which follows them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType

from patchwright.smoke.outcomes import SmokeError
from patchwright.smoke.trees import Trees

STAR = "*"
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_DEFINITIONS = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef})
_NAMING = frozenset({ast.ExceptHandler, ast.MatchAs, ast.MatchStar})
# What binds nothing in the scope around it, or has nothing below.
_CLOSED = frozenset({*_SCOPES, *_COMPREHENSIONS, ast.Constant, ast.Name, ast.alias})
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def bound(statement: ast.stmt) -> frozenset[str]:
    """Return the names that a statement can bind in its own scope (``*`` for a star import).

    The node keeps the answer: syntax trees are shared, and a table asks again and again.
    """
    known: frozenset[str] | None = vars(statement).get("bound_names")
    if known is None:
        known = vars(statement)["bound_names"] = _bound(statement)
    return known


def prepare(tree: ast.Module) -> None:
    """Find out now what evaluations on a syntax tree will ask of all of its statements."""
    for statement in tree.body:
        bound(statement)
        if isinstance(statement, ast.ClassDef):
            for member in statement.body:
                bound(member)


def _bound(statement: ast.stmt) -> frozenset[str]:
    names: set[str] = set()
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        kind = type(node)
        if kind in _DEFINITIONS:
            names.add(node.name)  # type: ignore[attr-defined]
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            names.update(bound_by(node, alias) for alias in node.names)
        elif kind is ast.Name:
            if type(node.ctx) is not ast.Load:  # type: ignore[attr-defined]
                names.add(node.id)  # type: ignore[attr-defined]
        elif kind in _NAMING and node.name:  # type: ignore[attr-defined]
            names.add(node.name)  # type: ignore[attr-defined]
        if kind not in _CLOSED:
            todo.extend(children(node))
    return frozenset(names)


def children(node: ast.AST) -> list[ast.AST]:
    """Return the nodes directly below, as ``ast.iter_child_nodes`` yields them, but faster."""
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            found.extend(part for part in value if isinstance(part, ast.AST))
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def bound_by(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    """Return the name that one alias of an import binds (``import a.b`` binds ``a``)."""
    if alias.asname or isinstance(node, ast.ImportFrom):
        return alias.asname or alias.name
    return alias.name.partition(".")[0]


def blocks(statement: ast.stmt) -> tuple[Sequence[ast.stmt], ...]:
    """Return the statement lists inside a compound statement that share its scope."""
    if isinstance(statement, _SCOPES):
        return ()
    found: list[Sequence[ast.stmt]] = []
    for part in ("body", "orelse", "finalbody"):
        block = getattr(statement, part, None)
        if isinstance(block, list) and block:
            found.append(block)
    for branch in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        found.append(branch.body)
    return tuple(found)


def in_scope(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements and those nested in their blocks, not those of inner scopes."""
    for statement in statements:
        yield statement
        for block in blocks(statement):
            yield from in_scope(block)


def _mutated(statement: ast.stmt) -> str | None:
    """Return the name whose object a statement changes: ``X[k] = v``, ``X.add(v)``, ``X.a = v``."""
    node: ast.expr
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        node = statement.targets[0]
    elif isinstance(statement, ast.AugAssign):
        node = statement.target
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        node = statement.value.func
    else:
        return None
    depth = 0
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
        depth += 1
    return node.id if depth and isinstance(node, ast.Name) else None


@dataclass(frozen=True, eq=False)
class Module:
    """One module of an upstream: its dotted name, its repository path, its syntax tree."""

    dotted: str
    upstream: str
    path: str
    tree: ast.Module
    filename: str
    # What was made of it (by the identity of a syntax node, and for what), so that
    # evaluations share it: a table asks the same of it for each capability.
    compiled: dict[tuple[object, ...], CodeType] = field(default_factory=dict)
    found: dict[tuple[object, ...], ast.FunctionDef] = field(default_factory=dict)

    @property
    def is_package(self) -> bool:
        """Whether this is a package's ``__init__.py``."""
        return self.path.endswith("__init__.py")

    @cached_property
    def statements(self) -> dict[str, tuple[ast.stmt, ...]]:
        """The top-level statements that bind a name or change its object, in order."""
        found: dict[str, list[ast.stmt]] = {}
        imported: set[str] = set()
        for statement in self.tree.body:
            for name in bound(statement):
                found.setdefault(name, []).append(statement)
            if isinstance(statement, ast.Import | ast.ImportFrom):
                imported |= bound(statement)
        for statement in self.tree.body:
            changed = _mutated(statement)
            # An imported object is not this module's to fill: `os.environ[...] = ...`.
            if changed in found and changed not in imported:
                found[changed].append(statement)
        return {
            name: tuple(sorted(dict.fromkeys(group), key=lambda node: node.lineno))
            for name, group in found.items()
        }

    def definitions(self, name: str) -> tuple[Definition, ...]:
        """Return the functions or classes of a name at module level, below ``if`` too."""
        return tuple(
            node
            for node in in_scope(self.statements.get(name, ()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name == name
        )

    def absolute(self, name: str | None, level: int) -> str:
        """Return the absolute dotted name of ``from <level dots><name> import ...``."""
        if level == 0:
            return name or ""
        parts = self.dotted.split(".")
        keep = len(parts) - level + (1 if self.is_package else 0)
        return ".".join([*parts[: max(keep, 0)], *([name] if name else [])])


class Modules:
    """The upstreams' modules by dotted name, read once each."""

    def __init__(self, trees: Trees) -> None:
        self.trees = trees
        self._known: dict[str, Module | None] = {}

    def get(self, dotted: str) -> Module | None:
        """Return a module, or None where no file of the trees is that module."""
        if dotted not in self._known:
            place = self.trees.module(dotted)
            self._known[dotted] = self._read(dotted, *place) if place else None
        return self._known[dotted]

    def owns(self, dotted: str) -> bool:
        """Return whether the top-level package of a dotted name is an upstream's."""
        top = dotted.partition(".")[0]
        return any(top in self.trees.packages(upstream) for upstream in self.trees.upstreams)

    def is_folder(self, dotted: str) -> bool:
        """Return whether modules lie below ``dotted`` though it is no module itself."""
        return self.trees.is_folder(dotted)

    def at(self, upstream: str, path: str) -> Module:
        """Return the module whose source is a repository path.

        Raises SmokeError where the tree has no such module.
        """
        if not self.trees.exists(upstream, path):
            raise SmokeError(f"{upstream}: {path} is not in the tree: the gate moved")
        parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
        for start in range(len(parts)):
            dotted = ".".join(parts[start:])
            if self.trees.module(dotted) == (upstream, path):
                module = self.get(dotted)
                if module is not None:
                    return module
        raise SmokeError(f"{upstream}: {path} is not a module of {upstream}'s packages")

    def _read(self, dotted: str, upstream: str, path: str) -> Module:
        filename = str(self.trees.path(upstream, path))
        tree = self.trees.ast(upstream, path)
        # Shared by all who ask these trees: a syntax tree is the same object for one blob.
        known = self.trees.shared
        module = known.get((dotted, filename))
        if not isinstance(module, Module) or module.tree is not tree:
            module = known[dotted, filename] = Module(dotted, upstream, path, tree, filename)
        return module
