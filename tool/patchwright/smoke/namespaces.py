"""The globals of one upstream module, bound on demand by the module's own statements."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Iterable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

from patchwright.smoke.bindings import STAR, Module, blocks, bound, bound_by
from patchwright.smoke.standins import NOT_GIVEN, REFUSED, StandIn
from patchwright.smoke.stripping import without_annotations

if TYPE_CHECKING:
    from patchwright.smoke.slicing import Slice


class Unbound(Exception):
    """A module does not bind the name."""


class _Names(dict[str, object]):
    """The builtins of a namespace: asked for every name that is not bound yet."""

    def __init__(self, namespace: Namespace) -> None:
        super().__init__(__build_class__=builtins.__build_class__, __import__=namespace.do_import)
        self.namespace = namespace

    def __missing__(self, name: str) -> object:
        return self.namespace.read(name)


class Namespace:
    """The globals of one upstream module, bound on demand."""

    def __init__(self, owner: Slice, module: Module) -> None:
        self.slice = owner
        self.module = module
        self.globals: dict[str, Any] = {
            "__builtins__": _Names(self),
            "__name__": module.dotted,
            "__file__": module.filename,
            "__package__": module.absolute(None, 1),
            "__doc__": None,
        }
        self._done: set[int] = set()
        self._tests: dict[int, bool] = {}
        self._binding: set[str] = set()
        # The line that module-level code is at, and what later lines do to names that
        # it has read: run when it is done, as an import would.
        self._line: float = math.inf
        self._later: list[tuple[ast.stmt, str]] = []

    def do_import(
        self,
        name: str,
        globals: object = None,
        locals: object = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> object:
        """Stand in for ``__import__``."""
        return self.slice.import_hook(self.module, name, fromlist, level)

    def read(self, name: str) -> object:
        """Return the value of a name for code of this module, builtins included."""
        try:
            return self.get(name)
        except Unbound:
            pass
        if name in REFUSED:
            self.slice.refuse(f"the decision calls {name}()")
        if hasattr(builtins, name):
            return getattr(builtins, name)
        return self.slice.refuse(f"the name {name} is not bound in {self.module.path}")

    def get(self, name: str) -> object:
        """Return the value that the module binds to ``name``; Unbound where it does not."""
        stub = self.slice.stub(self.module.dotted, name)
        if stub is not NOT_GIVEN:
            return stub
        if name not in self.globals and name not in self._binding:
            self._binding.add(name)
            try:
                statements = self.module.statements.get(name, ())
                before = [node for node in statements if node.lineno < self._line] or statements
                self._later.extend((node, name) for node in statements if node not in before)
                self._bind(before, name)
            finally:
                self._binding.discard(name)
            while self._line == math.inf and self._later:
                self._later.sort(key=lambda later: later[0].lineno)
                self._bind([self._later[0][0]], self._later.pop(0)[1])
        if name in self.globals:
            return self.globals[name]
        return self._from_star(self.module.statements.get(STAR, ()), name)

    def evaluate(self, expression: ast.expr) -> Any:
        """Return the value of a module-level expression."""
        code = compile(ast.Expression(expression), self.module.filename, "eval", dont_inherit=True)
        return eval(code, self.globals)  # noqa: S307

    def _bind(self, statements: Sequence[ast.stmt], name: str) -> None:
        for statement in statements:
            outer, self._line = self._line, statement.lineno
            try:
                self._bind_by(statement, name)
            finally:
                self._line = outer

    def _bind_by(self, statement: ast.stmt, name: str) -> None:
        if isinstance(statement, ast.If):
            taken = statement.body if self._test(statement) else statement.orelse
            self._bind([node for node in taken if name in bound(node)], name)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            aliases = [a for a in statement.names if bound_by(statement, a) == name]
            made = _with_aliases(statement, aliases)
            self._execute(self.compiled((id(statement), name), [made]), [name])
        elif id(statement) not in self._done:
            self._done.add(id(statement))
            code = self.compiled((id(statement),), [statement])
            self._execute(code, bound(statement))

    def _test(self, statement: ast.If) -> bool:
        if id(statement) not in self._tests:
            test = ast.Expression(statement.test)
            code = self.compiled((id(statement), "test"), test)
            self._tests[id(statement)] = bool(eval(code, self.globals))  # noqa: S307
        return self._tests[id(statement)]

    def compiled(self, key: tuple[object, ...], what: list[ast.stmt] | ast.Expression) -> CodeType:
        """Return code for statements or an expression, compiled once per module.

        ``key`` has the identity of a syntax node that the module keeps.
        """
        known = self.module.compiled
        if key not in known:
            known[key] = (
                compile(what, self.module.filename, "eval", dont_inherit=True)
                if isinstance(what, ast.Expression)
                else compile_statements(what, self.module.filename)
            )
        return known[key]

    def _execute(self, code: CodeType, names: Iterable[str]) -> None:
        exec(code, self.globals)  # noqa: S102
        for name in names:
            # A stub stands for a name also in the module that binds it.
            if name in self.globals and self.slice.is_stubbed(self.module.dotted, name):
                del self.globals[name]

    def _from_star(self, statements: Sequence[ast.stmt], name: str) -> object:
        for statement in statements:
            if isinstance(statement, ast.ImportFrom) and not name.startswith("_"):
                dotted = self.module.absolute(statement.module, statement.level)
                found = self.slice.module(dotted)
                if isinstance(found, StandIn):
                    continue
                try:
                    return getattr(found, name)
                except AttributeError:
                    continue
            inner: list[ast.stmt] = []
            if isinstance(statement, ast.If):
                inner = statement.body if self._test(statement) else statement.orelse
            elif not isinstance(statement, ast.ImportFrom):
                inner = [node for block in blocks(statement) for node in block]
            for node in inner:
                if STAR in bound(node):
                    return self._from_star([node], name)
        raise Unbound(name)


def _with_aliases(node: ast.Import | ast.ImportFrom, aliases: list[ast.alias]) -> ast.stmt:
    made: ast.stmt
    if isinstance(node, ast.Import):
        made = ast.Import(aliases)
    else:
        made = ast.ImportFrom(node.module, aliases, node.level)
    return ast.copy_location(made, node)


def compile_statements(statements: list[ast.stmt], filename: str) -> CodeType:
    tree = ast.Module([without_annotations(node) for node in statements], type_ignores=[])
    return compile(ast.fix_missing_locations(tree), filename, "exec", dont_inherit=True)
