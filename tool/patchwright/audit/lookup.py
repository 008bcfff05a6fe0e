"""Looks up names of the upstreams for one compute capability: locals, modules, imports.

What a result depends on is noted by module, so that it can be kept as long as those
modules stay the same.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from patchwright.audit.answers import Answers
from patchwright.audit.externals import Machine
from patchwright.audit.values import NOTHING_KNOWN, ClassOf, EnumMember, External, Package, V
from patchwright.smoke.bindings import STAR, Module, Modules, bound, bound_by, in_scope
from patchwright.smoke.outcomes import SmokeError

_PLAIN = (type(None), bool, int, float, str, bytes, tuple, EnumMember)
_GLOBAL = re.compile(rb"^[ \t]+global[ \t]+([\w, \t]+)", re.MULTILINE)


@dataclass
class Frame:
    """Where names are looked up: the locals of one function, or a module's top level."""

    module: Module
    outer: Frame | None = None
    owner: ClassOf | None = None
    locals: dict[str, V] = field(default_factory=dict)
    names: frozenset[str] = frozenset()  # what the function binds: never a module's name
    returned: list[V] = field(default_factory=list)
    returns_by_arch: bool = False

    @property
    def is_function(self) -> bool:
        """Whether this is the frame of a function, not of a module or a class body."""
        return bool(self.names) or bool(self.locals)


@dataclass(frozen=True)
class Lazy:
    """An import in a function, looked up when the name is read."""

    node: ast.Import | ast.ImportFrom


def rebound_in(data: bytes) -> Counter[str]:
    """Return the names that functions of a source declare ``global``, and how many do."""
    # Most sources have none, and a plain search is faster.
    found = _GLOBAL.findall(data) if b" global" in data or b"\tglobal" in data else []
    return Counter(name.strip().decode() for name in b",".join(found).split(b",") if name.strip())


def bound_inside(node: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
    """Return the names that a function's body binds; the node keeps the answer."""
    known: frozenset[str] | None = vars(node).get("bound_inside")
    if known is None:
        known = frozenset(name for part in node.body for name in bound(part))
        vars(node)["bound_inside"] = known
    return known


class Lookup(Answers):
    """Names for one capability; remembers what modules bind."""

    def __init__(self, modules: Modules, capability: tuple[int, int]) -> None:
        super().__init__()
        self.modules = modules
        self.machine = Machine(capability)
        self.capability = capability
        # Nodes whose value rests on what a name is taken to mean.
        self.assumed: set[ast.AST] = set()
        # Which module's names were evaluated with which others': what a result depends on.
        self.needs: dict[str, set[str]] = {}
        self._within: list[str] = []

    # Names

    def module_name(self, module: Module, name: str) -> V:
        """Return what a module binds to a name at its top level."""
        self.touch(module)

        def answer() -> V:
            with self.inside(module):
                return self._module_name(module, name)

        found: V = self.ask((module.dotted, name), answer, lambda: NOTHING_KNOWN)
        return found

    def touch(self, module: Module) -> None:
        """Note that what is being evaluated depends on a module."""
        if self._within:
            self.needs.setdefault(self._within[-1], set()).add(module.dotted)

    @contextmanager
    def inside(self, module: Module) -> Iterator[None]:
        """Note what is touched meanwhile as needed by a module."""
        self.touch(module)
        self._within.append(module.dotted)
        try:
            yield
        finally:
            self._within.pop()

    def needed_by(self, module: Module) -> set[str]:
        """Return the modules that a module's values depend on, itself included."""
        found, todo = {module.dotted}, [module.dotted]
        while todo:
            for other in self.needs.get(todo.pop(), ()):
                if other not in found:
                    found.add(other)
                    todo.append(other)
        return found

    def _module_name(self, module: Module, name: str) -> V:
        statements = [s for s in module.statements.get(name, ()) if name in bound(s)]
        if statements:
            frame = Frame(module)
            self.run(statements, frame, only=name)
            found = frame.locals.get(name, NOTHING_KNOWN)
            # What a function may set later is not what it is set to first. An object is kept:
            # what it does is the same then, and routes lead through it.
            if name in self.rebound(module) and isinstance(found.known, _PLAIN):
                return V(arch=found.arch)
            return found
        for star in in_scope(module.statements.get(STAR, ())):
            if isinstance(star, ast.ImportFrom) and star.names[0].name == STAR:
                source = self.modules_get(module.absolute(star.module, star.level))
                if source is not None and not name.startswith("_"):
                    found = self.module_name(source, name)
                    if found.is_known or found.arch:
                        return found
        return NOTHING_KNOWN

    def rebound(self, module: Module) -> Mapping[str, int]:
        """Return the names that functions of a module declare ``global``, and how many do."""
        known: Counter[str] | None = vars(module).get("rebound")
        if known is None:
            data = self.modules.trees.read(module.upstream, module.path)
            known = vars(module)["rebound"] = rebound_in(data)
        return known

    def modules_get(self, dotted: str) -> Module | None:
        """Return an upstream's module; None for one that is not there or does not parse."""
        try:
            return self.modules.get(dotted)
        except SmokeError:
            return None

    def imported(self, module: Module, node: ast.Import | ast.ImportFrom, name: str) -> V:
        """Return what an import binds to ``name``."""
        for alias in node.names:
            if bound_by(node, alias) != name:
                continue
            if isinstance(node, ast.ImportFrom):
                dotted = module.absolute(node.module, node.level)
                return self.package_attribute(dotted, alias.name)
            dotted = alias.name if alias.asname else name
            return self._package(dotted)
        return NOTHING_KNOWN

    def _package(self, dotted: str) -> V:
        if self.modules.owns(dotted):
            return V(Package(dotted))
        return V(External(dotted))

    def package_attribute(self, dotted: str, name: str) -> V:
        """Return an attribute of a module, an upstream's or a foreign one."""
        if not self.modules.owns(dotted):
            return self.external_attribute(f"{dotted}.{name}")
        module = self.modules_get(dotted)
        if module is not None and (name in module.statements or STAR in module.statements):
            found = self.module_name(module, name)
            if found.is_known or found.arch or name in module.statements:
                return found
        if self.modules.trees.module(f"{dotted}.{name}") is not None:
            return V(Package(f"{dotted}.{name}"))
        return NOTHING_KNOWN

    def external_attribute(self, dotted: str) -> V:
        """Return a fact of the machine, or the foreign name itself."""
        if dotted in self.machine.constants:
            return V(self.machine.constants[dotted])
        return V(External(dotted))

    def name(self, name: str, frame: Frame) -> V:
        """Return what a name stands for in a frame."""
        inside: Frame | None = frame
        while inside is not None:
            if name in inside.locals:
                value = inside.locals[name]
                if isinstance(value.known, Lazy):
                    value = self.imported(frame.module, value.known.node, name)
                    inside.locals[name] = value
                return value
            if name in inside.names:
                return NOTHING_KNOWN
            inside = inside.outer
        module = frame.module
        if name in module.statements or STAR in module.statements:
            found = self.module_name(module, name)
            if found.is_known or found.arch or name in module.statements:
                return found
        if hasattr(builtins, name):
            return V(External(f"builtins.{name}"))
        return NOTHING_KNOWN

    def run(self, body: list[ast.stmt], frame: Frame, *, only: str = "") -> bool:
        """Run statements; return whether the end is reached. Given by the interpreter."""
        raise NotImplementedError
