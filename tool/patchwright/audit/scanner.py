"""Finds and evaluates the gates of one Python file, once for each capability.

The file is walked as the interpreter would run it, but through every branch that the
GPU could take: what hangs on a platform that is not CUDA (``is_hip()``) is left out, as
are its look-alikes of capabilities.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from patchwright.audit import effects
from patchwright.audit.interpret import Interpreter
from patchwright.audit.lookup import Frame
from patchwright.audit.slices import children, names_in, needed_names, targets_of, walk
from patchwright.audit.values import ClassOf, Function, Instance, V, both, joined, negated
from patchwright.smoke.bindings import Module

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Found:
    """One place of a gate, with its value for one capability."""

    kind: str
    node: ast.AST
    function: str
    condition: str
    value: bool | None
    reached: bool | None
    effect: str
    assumed: bool
    statement: ast.stmt | None = None  # in which a list of architectures stands


@dataclass
class Scan:
    """What one walk of a file found: by place, and the names that the GPU decides."""

    found: dict[tuple[int, int, str], Found] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    # The expressions (by identity of their nodes) that something from the GPU takes part in.
    telling: set[int] = field(default_factory=set)
    needed: dict[int, frozenset[str]] = field(default_factory=dict)

    @cached_property
    def functions(self) -> dict[str, bool]:
        """The functions with gates, each with whether it is a definition itself."""
        found: dict[str, bool] = {}
        for one in self.found.values():
            found[one.function] = found.get(one.function, False) or one.kind == "definition"
        return found

    def names_needed(self, node: _FUNCTIONS) -> frozenset[str]:
        """Return the names of a function that its gates may rest on."""
        if id(node) not in self.needed:
            self.needed[id(node)] = needed_names(node, self.telling)
        return self.needed[id(node)]


class Scanner(Interpreter):
    """An interpreter that takes down the conditions of the file that it scans."""

    lines: Sequence[int] = ()
    _first: Scan | None = None
    _needed: frozenset[str] | None = None
    _inside = True
    _recorded = 0
    _statement: ast.stmt | None = None
    _scanned: Frame | None = None
    _function = ""
    _path: tuple[V, ...] = ()
    _scan = Scan()
    _memo: dict[int, V]

    def scan(
        self, module: Module, lines: Sequence[int], first: Scan | None = None,
        *, inside: bool = True,
    ) -> Scan:  # fmt: skip
        """Return the gates of a module for this capability.

        ``lines`` are those that mention an architecture: functions without any are
        passed over. ``first`` is the scan for another capability: which conditions there
        are is the same for all, so only what it found is evaluated again. Where
        ``inside`` is False, functions and classes are not looked into.
        """
        self.lines, self._first, self._scan, self._inside = lines, first, Scan(), inside
        frame = Frame(module)
        with self.inside(module):
            self._body(module.tree.body, frame, "")
        return self._scan

    def mentions(self, module: Module, first: int, last: int) -> bool:
        """Return whether lines of a module may ask for an architecture."""
        lines = self.marked(module)
        at = bisect_left(lines, first)
        return at < len(lines) and lines[at] <= last

    def marked(self, module: Module) -> Sequence[int]:
        """Return the lines of a module that mention an architecture; given by the inventory."""
        return self.lines

    def evaluate(self, node: ast.expr, frame: Frame) -> V:
        """Return the value of an expression; within one statement it is computed once."""
        if frame is not self._scanned:
            return super().evaluate(node, frame)
        value = self._memo.get(id(node))
        if value is None:
            value = self._memo[id(node)] = super().evaluate(node, frame)
        return value

    # Walking

    def _body(self, body: Sequence[ast.stmt], frame: Frame, function: str) -> None:
        before = self._scanned, self._function, self._path
        self._scanned, self._function, self._path = frame, function, ()
        self.steps = 0
        self._memo = {}
        inner: list[tuple[ast.stmt, Frame]] = []
        try:
            self._block(body, frame, inner)
        finally:
            self._scanned, self._function, self._path = before
        for node, outer in inner if self._inside else ():
            self._inner(node, outer, function)

    def _inner(self, node: ast.stmt, outer: Frame, function: str) -> None:
        if not self.mentions(outer.module, node.lineno, node.end_lineno or 0):
            return
        if isinstance(node, ast.ClassDef):
            of = ClassOf(outer.module, node)
            name = f"{function}.{node.name}" if function else node.name
            self._body(node.body, Frame(outer.module, outer, of), name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{function}.{node.name}" if function else node.name
            around = outer if outer.is_function else None
            made = Function(outer.module, node, around, outer.owner)
            first = []
            if outer.owner is not None and not is_static(node):
                first = [V(Instance(outer.owner))]
            if self._first is not None and not any(
                other == name or other.startswith(f"{name}.") for other in self._first.functions
            ):
                return
            frame = self.frame_of(made, first, {})
            # What a caller may give is not known, whatever the default is.
            for parameter in (*node.args.args[len(first) :], *node.args.kwonlyargs):
                frame.locals[parameter.arg] = V()
            before = self._needed
            self._needed = self._first.names_needed(node) if self._first is not None else None
            self._body(node.body, frame, name)
            self._needed = before

    def _block(  # noqa: PLR0912
        self, body: Sequence[ast.stmt], frame: Frame, inner: list[tuple[ast.stmt, Frame]]
    ) -> None:
        for node in body:
            self.steps = 0
            self._memo = {}
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    if self.mentions(frame.module, _first_line(node), node.end_lineno or 0):
                        self.decorators(node, frame)
                        self.definition(node, frame)
                        inner.append((node, frame))
                    if frame.is_function:
                        self.statement(node, frame)
                case ast.If():
                    self._if(node, frame, inner)
                case ast.Try():
                    self._try_block(node, frame, inner)
                case ast.With() | ast.AsyncWith():
                    for item in node.items:
                        self.look(item.context_expr, node, frame)
                    self._block(node.body, frame, inner)
                case ast.For() | ast.While() | ast.AsyncFor():
                    tested = node.test if isinstance(node, ast.While) else node.iter
                    self.look(tested, node, frame)
                    self._block(node.body, frame, inner)
                    self._block(node.orelse, frame, inner)
                case ast.Match():
                    self.match(node, frame)
                    for case in node.cases:
                        self._block(case.body, frame, inner)
                case _:
                    for part in _expressions(node):
                        self.look(part, node, frame)
                    # A module's names are found when they are read.
                    if frame.is_function and self._binds(node):
                        self.statement(node, frame)

    def _binds(self, node: ast.stmt) -> bool:
        """Return whether a simple statement binds a name that is worth knowing."""
        if isinstance(node, ast.Return | ast.Expr | ast.Raise | ast.Pass):
            return False
        if self._needed is None or isinstance(node, ast.Import | ast.ImportFrom):
            return True
        return not self._needed.isdisjoint(targets_of(node))

    def _try_block(self, node: ast.Try, frame: Frame, inner: list[tuple[ast.stmt, Frame]]) -> None:
        for block in (node.body, *(h.body for h in node.handlers), node.orelse, node.finalbody):
            self._block(block, frame, inner)

    def _if(self, node: ast.If, frame: Frame, inner: list[tuple[ast.stmt, Frame]]) -> None:
        tested = self.evaluate(node.test, frame)
        self.look(node.test, node, frame)
        if tested.truth is not None and not tested.arch:
            # Decided by something else than the GPU: the other branch is another platform's.
            self._block(node.body if tested.truth else node.orelse, frame, inner)
            return
        self.otherwise(node, frame)
        start, path = dict(frame.locals), self._path
        self._path = (*path, tested)
        self._block(node.body, frame, inner)
        after, frame.locals = frame.locals, dict(start)
        self._path = (*path, negated(tested))
        self._block(node.orelse, frame, inner)
        self._path = path
        ends = terminates(node.body), bool(node.orelse) and terminates(node.orelse)
        if ends[0] and not ends[1]:
            self._path = (*path, negated(tested))
        elif ends[1] and not ends[0]:
            self._path, frame.locals = (*path, tested), after
        elif not ends[0]:
            self._join(tested, after, frame, node)

    def _join(self, tested: V, after: dict[str, V], frame: Frame, node: ast.If) -> None:
        if tested.truth is None:
            frame.locals = joined(after, frame.locals, arch=tested.arch)
            return
        if tested.truth:
            frame.locals = after
        if tested.arch:
            self._mark(node, {}, frame)

    def look(self, node: ast.expr, statement: ast.stmt, frame: Frame) -> None:
        """Look at an expression, unless nothing in it can ask for the architecture."""
        self._statement = statement
        if self._first is not None:
            if id(node) in self._first.telling:
                self.expression(node, statement, frame)
            return
        if self.mentions(frame.module, node.lineno, node.end_lineno or node.lineno) or any(
            self._from_gpu(name, frame) for name in _reads(node)
        ):
            before = self._recorded
            self.expression(node, statement, frame)
            if self._recorded != before or any(value.arch for value in self._memo.values()):
                self._scan.telling.add(id(node))

    def _from_gpu(self, name: str, frame: Frame) -> bool:
        inside: Frame | None = frame
        while inside is not None:
            if name in inside.locals:
                return inside.locals[name].arch
            inside = inside.outer
        if name.startswith("self.") and frame.owner is not None:
            return name.removeprefix("self.") in self.attributes(frame.owner)
        return False

    # Recording; what there is to find stands in findings.py

    def record(
        self, kind: str, node: ast.AST, value: V, *, effect: str = "", condition: str = "",
    ) -> None:  # fmt: skip
        """Take down one place with its value for this capability."""
        if kind == "derived":
            return  # It asks for what a gate has set, not for the architecture.
        condition = condition or effects.short(node)
        reached = both([*self._path, value], conjunction=True) if self._path else value
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        key = (line, column, condition)
        before = self._scan.found.get(key)
        if before is not None and before.kind != kind and kind in ("read", "dispatch", "alias"):
            return
        self._recorded += 1
        self._scan.found[key] = Found(
            kind, node, self._function, condition, value.truth, reached.truth, effect,
            any(part in self.assumed for part in walk(node)), self._statement,
        )  # fmt: skip

    def decorators(self, node: ast.ClassDef | _FUNCTIONS, frame: Frame) -> None:
        """Look at the decorators of a definition."""

    def definition(self, node: ast.ClassDef | _FUNCTIONS, frame: Frame) -> None:
        """Look at a definition."""

    def expression(self, node: ast.expr, statement: ast.stmt, frame: Frame) -> None:
        """Look at an expression that a statement evaluates."""

    def match(self, node: ast.Match, frame: Frame) -> None:
        """Look at a ``match``."""

    def otherwise(self, node: ast.If, frame: Frame) -> None:
        """Look at the last ``else`` of a chain."""


def _reads(node: ast.expr) -> frozenset[str]:
    """Return the names in an expression; the node keeps the answer, for every capability."""
    known: frozenset[str] | None = vars(node).get("names_read")
    if known is None:
        known = vars(node)["names_read"] = names_in(node)
    return known


def _first_line(node: ast.ClassDef | _FUNCTIONS) -> int:
    return min([node.lineno, *(part.lineno for part in node.decorator_list)])


def is_static(node: _FUNCTIONS) -> bool:
    return any(ast.unparse(part) == "staticmethod" for part in node.decorator_list)


def _expressions(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.AnnAssign):
        return [node.value] if node.value is not None else []
    return [part for part in children(node) if isinstance(part, ast.expr)]


def terminates(body: Sequence[ast.stmt]) -> bool:
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.If):
        return bool(last.orelse) and terminates(last.body) and terminates(last.orelse)
    return isinstance(last, ast.Return | ast.Raise | ast.Continue | ast.Break)
