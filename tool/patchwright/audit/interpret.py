"""Interprets statements and calls of the upstreams for one capability, on three-valued values.

Where it is unknown which branch is taken, both are, and what they disagree on is unknown
afterwards. Loops are run once for what they bind, which is then unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable
from typing import Any

from patchwright.audit.classes import SELF, Classes
from patchwright.audit.externals import ABSENT, PURE_METHODS
from patchwright.audit.lookup import Frame, Lazy, bound_inside
from patchwright.audit.modules import SHORT
from patchwright.audit.pure import BUILTINS, pure
from patchwright.audit.values import (
    NOTHING_KNOWN,
    UNKNOWN,
    Bound,
    ClassOf,
    EnumMember,
    External,
    Fields,
    Function,
    Instance,
    Package,
    Properties,
    V,
    joined,
    merged,
)
from patchwright.smoke.bindings import Module, Modules, bound, in_scope

_STEPS = 1_500
_DEVICE = ("torch.cuda.get_device_capability", "torch.cuda.get_device_properties")
_TRANSPARENT = ("functools.lru_cache", "functools.cache", "functools.wraps", "torch.compile",
                "builtins.staticmethod", "torch.no_grad", "builtins.property")  # fmt: skip


class Interpreter(Classes):
    """Statements, functions and classes for one capability."""

    def __init__(self, modules: Modules, capability: tuple[int, int]) -> None:
        super().__init__(modules, capability)
        self._classes = {}
        self._so_far = {}

    # Statements

    def run(self, body: list[ast.stmt], frame: Frame, *, only: str = "") -> bool:
        """Run statements; return whether the end is reached.

        ``only`` is the one module-level name that is asked for: what binds it not is
        passed over.
        """
        for statement in body:
            if only and only not in bound(statement):
                continue
            self.steps += 1
            if self.steps > _STEPS or not self.statement(statement, frame, only):
                return False
        return True

    def statement(self, node: ast.stmt, frame: Frame, only: str = "") -> bool:  # noqa: PLR0911, PLR0912
        """Run one statement; return whether the one after it is reached."""
        match node:
            case ast.Return(value=value):
                given = V(None) if value is None else self.evaluate(value, frame)
                frame.returned.append(given)
                return False
            case ast.Raise():
                return False
            case ast.Continue() | ast.Break():
                return True
            case ast.If(test=test, body=body, orelse=orelse):
                return self.branch(node, self.evaluate(test, frame), body, orelse, frame, only)
            case ast.Assign(targets=targets, value=value):
                given = self.evaluate(value, frame)
                for target in targets:
                    self.assign(target, given, frame)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.assign(target, self.evaluate(value, frame), frame)
            case ast.AugAssign():
                self.assign(node.target, V(UNKNOWN, self._arch_of(node.target, frame)), frame)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                frame.locals[node.name] = self.decorated(node, frame)
            case ast.ClassDef():
                frame.locals[node.name] = V(ClassOf(frame.module, node))
            case ast.Import() | ast.ImportFrom():
                for name in bound(node) - {"*"}:
                    if not only:
                        frame.locals[name] = V(Lazy(node))
                    elif name == only:
                        frame.locals[name] = self.imported(frame.module, node, name)
            case ast.Global(names=declared):
                # One function alone keeps what it computed; where others set it, anything is.
                for name in declared:
                    if self.rebound(frame.module)[name] > 1:
                        frame.locals[name] = NOTHING_KNOWN
            case ast.Try():
                return self._try(node, frame, only)
            case ast.With(body=body) | ast.AsyncWith(body=body):
                self._forget(bound_by_items(node), frame)
                return self.run(body, frame, only=only)
            case ast.For(body=body) | ast.While(body=body) | ast.AsyncFor(body=body):
                names = bound(node)
                self._forget(names, frame)
                self.run(body, frame, only=only)
                self._forget(names, frame)
            case ast.Match(cases=cases):
                self._forget(bound(node), frame)
                for case in cases:
                    self.run(case.body, frame, only=only)
                self._forget(bound(node), frame)
        return True

    def branch(
        self, node: ast.If, tested: V, body: list[ast.stmt], orelse: list[ast.stmt],
        frame: Frame, only: str,
    ) -> bool:  # fmt: skip
        """Run the branch that is taken, or both."""
        if tested.arch and any(_answers(part) for part in (*body, *orelse)):
            frame.returns_by_arch = True
        if tested.truth is not None:
            taken = body if tested.truth else orelse
            before = dict(frame.locals) if tested.arch else {}
            reached = self.run(taken, frame, only=only)
            if tested.arch:
                self._mark(node, before, frame)
            return reached
        start = dict(frame.locals)
        first = self.run(body, frame, only=only)
        after_first, frame.locals = frame.locals, dict(start)
        second = self.run(orelse, frame, only=only)
        if first and second:
            frame.locals = joined(after_first, frame.locals, arch=tested.arch)
        elif first:
            frame.locals = after_first
        return first or second

    def _mark(self, node: ast.If, before: dict[str, V], frame: Frame) -> None:
        """What a branch sets to a constant because of the GPU depends on the GPU."""
        for part in in_scope([node]):
            if isinstance(part, ast.Assign) and isinstance(part.value, ast.Constant):
                for target in part.targets:
                    name = _target_name(target)
                    value = frame.locals.get(name)
                    if value is not None:
                        frame.locals[name] = V(value.known, arch=True)

    def _try(self, node: ast.Try, frame: Frame, only: str) -> bool:
        start = dict(frame.locals)
        reached = self.run(node.body, frame, only=only)
        if reached:
            reached = self.run(node.orelse, frame, only=only)
        ends = [frame.locals] if reached else []
        for handler in node.handlers:
            frame.locals = dict(start)
            if self.run(handler.body, frame, only=only):
                ends.append(frame.locals)
        if not ends:
            frame.locals = start
            self.run(node.finalbody, frame, only=only)
            return False
        together = ends[0]
        for other in ends[1:]:
            together = joined(together, other)
        frame.locals = together
        return self.run(node.finalbody, frame, only=only)

    def _forget(self, names: frozenset[str], frame: Frame) -> None:
        for name in names:
            frame.locals[name] = NOTHING_KNOWN

    def _arch_of(self, target: ast.expr, frame: Frame) -> bool:
        return self.evaluate(target, frame).arch

    def assign(self, target: ast.expr, value: V, frame: Frame) -> None:
        """Bind what an assignment's target names."""
        match target:
            case ast.Name(id=name):
                frame.locals[name] = value
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                frame.locals[SELF + name] = value
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                given = value.known
                if isinstance(given, tuple | list) and len(given) == len(elts):
                    for part, item in zip(elts, given, strict=True):
                        self.assign(part, V(item, value.arch), frame)
                else:
                    for part in elts:
                        self.assign(part, V(UNKNOWN, value.arch), frame)

    # Calls

    def decorated(self, node: ast.FunctionDef | ast.AsyncFunctionDef, frame: Frame) -> V:
        """Return a function; decorators are taken to change no decision."""
        outer = frame if frame.is_function else None
        return V(Function(frame.module, node, outer, frame.owner))

    def invoke(self, function: Any, args: list[V], kwargs: dict[str, V], arch: bool) -> V:
        """Return what calling a value gives; unknown for what is not understood."""
        match function:
            case Bound(function=inner, args=first, kwargs=given):
                return self.invoke(inner, [*first, *args], {**given, **kwargs}, arch)
            case Function():
                return self.interpreted(function, args, kwargs)
            case ClassOf():
                return self._made(function, args)
            case External(dotted=dotted):
                return self._external(dotted, args, kwargs)
            case Instance(of=of):
                return self.invoke(self.member(of, "__call__", V(function)).known, args, kwargs,
                                   arch)  # fmt: skip
        return NOTHING_KNOWN

    def _made(self, of: ClassOf, args: list[V]) -> V:
        if args and self._is_enum(of):
            for name, value in self._enum_values(of).items():
                if args[0].is_known and value == args[0].known:
                    return V(EnumMember(of, name, value), args[0].arch)
            return V(UNKNOWN, args[0].arch)
        return V(Instance(of))

    def interpreted(self, function: Function, args: list[V], kwargs: dict[str, V]) -> V:
        """Return what an upstream's function returns for these arguments."""
        self.touch(function.module)
        if not self._is_worth(function) or self.is_deep:
            return NOTHING_KNOWN
        if isinstance(function.node, ast.Lambda):
            frame = self.frame_of(function, args, kwargs)
            return self.evaluate(function.node.body, frame)
        question = _question(function, args, kwargs)
        if question is not None:
            found: V = self.ask(
                question, lambda: self._answer(function, args, kwargs), lambda: NOTHING_KNOWN,
                call=True,
            )  # fmt: skip
            return found
        self.depth += 1
        try:
            return self._answer(function, args, kwargs)
        finally:
            self.depth -= 1

    def _answer(self, function: Function, args: list[V], kwargs: dict[str, V]) -> V:
        assert not isinstance(function.node, ast.Lambda)
        frame = self.frame_of(function, args, kwargs)
        with self.inside(function.module):
            reached = self.run(function.node.body, frame)
        if self.steps > _STEPS:
            # What else it may return was not come to.
            return V(UNKNOWN, any(value.arch for value in frame.returned))
        results = frame.returned + ([V(None)] if reached else [])
        result = results[0] if results else NOTHING_KNOWN
        for other in results[1:]:
            result = merged(result, other)
        if frame.returns_by_arch:
            result = V(result.known, arch=True)
        return result

    def _is_worth(self, function: Function) -> bool:
        first, last = function.node.lineno, function.node.end_lineno or function.node.lineno
        return last - first <= SHORT or self.mentions(function.module, first, last)

    def mentions(self, module: Module, first: int, last: int) -> bool:
        """Return whether lines of a module may ask for an architecture; narrowed by the scanner."""
        return True

    def frame_of(self, function: Function, args: list[V], kwargs: dict[str, V]) -> Frame:
        """Return the frame of a call: parameters bound, defaults where nothing is given."""
        node = function.node
        parameters = [*node.args.posonlyargs, *node.args.args]
        frame = Frame(function.module, function.outer, function.owner)
        given = dict(zip((p.arg for p in parameters), args, strict=False)) | kwargs
        outer = function.outer or Frame(function.module)
        defaults = dict(
            zip((p.arg for p in reversed(parameters)), reversed(node.args.defaults), strict=False)
        )
        for one, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
            if default is not None:
                defaults[one.arg] = default
        every = [*parameters, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        for parameter in every:
            if parameter is None:
                continue
            name = parameter.arg
            value = given.get(name)
            if value is None and name in defaults:
                value = self.evaluate(defaults[name], outer)
            frame.locals[name] = value if value is not None else NOTHING_KNOWN
        if not isinstance(node, ast.Lambda):
            frame.names = bound_inside(node)
        return frame

    def _external(self, dotted: str, args: list[V], kwargs: dict[str, V]) -> V:  # noqa: PLR0911, PLR0912
        arch = any(value.arch for value in args)
        head, _, tail = dotted.rpartition(".")
        if dotted in _DEVICE:
            self.looked()
        if dotted == "torch.cuda.get_device_capability":
            return V(self.capability, arch=True)
        if dotted == "torch.cuda.get_device_properties":
            return V(Properties(self.capability), arch=True)
        if dotted in ("torch.cuda.is_available", "torch.cuda.is_initialized"):
            return V(True)
        if dotted == "types.SimpleNamespace":
            return V(Fields(kwargs))
        if dotted == "functools.partial" and args:
            return V(Bound(args[0].known, tuple(args[1:]), kwargs))
        if dotted in _TRANSPARENT or dotted.startswith("functools."):
            if args and isinstance(args[0].known, Function | Bound | External):
                return args[0]
            return V(External("functools.wraps"))
        if dotted in ("importlib.util.find_spec", "importlib.find_spec") and args:
            name = args[0].known
            return V(Package(name)) if isinstance(name, str) and self.modules.owns(name) else V()
        if dotted == "builtins.hasattr" and len(args) == 2:
            owner, name = args[0].known, args[1].known
            if isinstance(owner, External) and f"{owner.dotted}.{name}" in ABSENT:
                return V(known=False)
            return V(UNKNOWN, arch)
        if dotted == "builtins.map" and len(args) == 2 and isinstance(args[1].known, list | tuple):
            found = [self.invoke(args[0].known, [V(a)], {}, arch) for a in args[1].known]
            return V([v.known for v in found], args[1].arch or any(v.arch for v in found))
        if head == "method" and args:
            return self._method(tail, args, kwargs)
        if head == "builtins" and tail in BUILTINS:
            return pure(BUILTINS[tail], args, kwargs)
        if dotted in ("packaging.version.parse", "packaging.version.Version"):
            from packaging.version import Version

            return pure(Version, args, kwargs)
        if dotted == "operator.itemgetter" or head in ABSENT:
            return NOTHING_KNOWN
        if tail == "is_available" and head in ABSENT:
            return V(known=False)
        return V(UNKNOWN, arch=False)

    def _method(self, name: str, args: list[V], kwargs: dict[str, V]) -> V:
        owner = args[0]
        kind: Any = type(owner.known)
        allowed = PURE_METHODS.get(kind, set())
        if name not in allowed:
            return V(UNKNOWN, owner.arch)
        return pure(getattr(owner.known, name), args[1:], kwargs, arch=owner.arch)


def _question(function: Function, args: list[V], kwargs: dict[str, V]) -> Hashable | None:
    """Return what identifies a call; None where a value cannot, or a frame closes around it.

    Types count: 1 and True are equal, but not the same to ``is``.
    """
    if function.outer is not None:
        return None
    named = sorted(kwargs.items())
    values = (*args, *(value for _, value in named))
    question = (
        function.node, *(name for name, _ in named), *values,
        *(type(value.known) for value in values),
    )  # fmt: skip
    try:
        hash(question)
    except TypeError:
        return None
    return question


def _answers(node: ast.stmt) -> bool:
    """Return whether a branch returns a constant: a function's answer then depends on it."""
    return any(
        isinstance(part, ast.Return) and isinstance(part.value, ast.Constant)
        for part in in_scope([node])
    )


def _target_name(target: ast.expr) -> str:
    if isinstance(target, ast.Name):
        return target.id
    if isinstance(target, ast.Attribute):
        return SELF + target.attr
    return ""


def bound_by_items(node: ast.With | ast.AsyncWith) -> frozenset[str]:
    """Return the names that a ``with`` statement itself binds."""
    return frozenset(
        part.id
        for item in node.items
        if item.optional_vars is not None
        for part in ast.walk(item.optional_vars)
        if isinstance(part, ast.Name)
    )
