"""Classes of the upstreams for one capability: members, what methods assign, enumerations."""

from __future__ import annotations

import ast
from typing import Any

from patchwright.audit.evaluate import Evaluator
from patchwright.audit.lookup import Frame
from patchwright.audit.values import (
    NOTHING_KNOWN,
    Bound,
    ClassOf,
    EnumMember,
    Function,
    Instance,
    V,
    merged,
)
from patchwright.smoke.bindings import Module, bound

SELF = "self."
_ENUMS = {"Enum", "IntEnum", "StrEnum"}
# Decorators and bases that make a class's annotated names fields.
_WITH_FIELDS = {"dataclass", "NamedTuple", "BaseModel", "Struct", "define", "attrs"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Members = tuple[
    dict[str, ast.FunctionDef | ast.AsyncFunctionDef], dict[str, ast.Assign | ast.AnnAssign]
]


class Classes(Evaluator):
    """Members of classes and objects."""

    _classes: dict[ast.ClassDef, _Members]
    # Of classes that are being looked at: what was found until now.
    _so_far: dict[ast.ClassDef, dict[str, V]]

    def member(self, of: ClassOf, name: str, owner: V | None) -> V:
        """Return an attribute of a class (``owner`` None) or of one of its objects."""
        self.touch(of.module)
        if owner is None and self._is_enum(of):
            values = self._enum_values(of)
            if name in values:
                return V(EnumMember(of, name, values[name]))
        methods, assigned = self._members(of)
        if name in methods:
            return self._as_method(of, methods[name], owner)
        if owner is not None and isinstance(owner.known, Instance):
            attributes = self.attributes(of)
            if name in attributes:
                return attributes[name]
        if name in assigned:
            return self._assigned_to(of, assigned[name], owner)
        for base in of.node.bases:
            found = self.evaluate(base, Frame(of.module)).known
            if isinstance(found, ClassOf) and found != of:
                value = self.member(found, name, owner)
                if value.is_known or value.arch:
                    return value
        return NOTHING_KNOWN

    def _assigned_to(self, of: ClassOf, node: ast.Assign | ast.AnnAssign, owner: V | None) -> V:
        # Whoever makes an object may give a field another value than its default.
        is_open = owner is not None and isinstance(node, ast.AnnAssign)
        if node.value is None or (is_open and _has_fields(of)):
            return NOTHING_KNOWN
        return self.evaluate(node.value, Frame(of.module))

    def _members(self, of: ClassOf) -> _Members:
        """Return a class's own methods and assignments by name, the first of each."""
        known = self._classes.get(of.node)
        if known is None:
            known = self._classes[of.node] = ({}, {})
            for node in of.node.body:
                if isinstance(node, _FUNCTIONS):
                    known[0].setdefault(node.name, node)
                elif isinstance(node, ast.Assign | ast.AnnAssign):
                    for name in bound(node):
                        known[1].setdefault(name, node)
        return known

    def _as_method(
        self, of: ClassOf, node: ast.FunctionDef | ast.AsyncFunctionDef, owner: V | None
    ) -> V:
        function = Function(of.module, node, None, of)
        decorators = {ast.unparse(part) for part in node.decorator_list}
        if "property" in decorators or "cached_property" in decorators:
            return self.interpreted(function, [owner or NOTHING_KNOWN], {})
        if "staticmethod" in decorators or (owner is None and "classmethod" not in decorators):
            return V(function)
        first = V(of) if "classmethod" in decorators else owner
        return V(Bound(function, (first or NOTHING_KNOWN,)))

    def attributes(self, of: ClassOf) -> dict[str, V]:
        """Return what the methods of a class assign to ``self`` and the GPU decides."""
        if self.is_deep:
            return {}
        found: dict[str, V] = self.ask(
            ("attributes", of.node), lambda: self._assigned(of),
            lambda: self._so_far[of.node], call=True, apart=True,
        )  # fmt: skip
        return found

    def _assigned(self, of: ClassOf) -> dict[str, V]:
        found = self._so_far[of.node] = {}
        for node in of.node.body:
            if not isinstance(node, ast.FunctionDef) or not self.interesting(of, node):
                continue
            frame = self.frame_of(Function(of.module, node, None, of), [V(Instance(of))], {})
            with self.inside(of.module):
                self.steps = 0
                self.run(node.body, frame)
            for key, value in frame.locals.items():
                if key.startswith(SELF) and value.arch:
                    name = key.removeprefix(SELF)
                    found[name] = merged(found[name], value) if name in found else value
        return found

    def interesting(self, of: ClassOf, node: ast.FunctionDef) -> bool:
        """Return whether a method may assign what the GPU decides."""
        return _assigns(node) and self.mentions(
            of.module, node.lineno, node.end_lineno or node.lineno
        )

    def _is_enum(self, of: ClassOf) -> bool:
        return any(ast.unparse(base).rpartition(".")[2] in _ENUMS for base in of.node.bases)

    def _enum_values(self, of: ClassOf) -> dict[str, Any]:
        return {
            target.id: node.value.value
            for node in of.node.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def interpreted(self, function: Function, args: list[V], kwargs: dict[str, V]) -> V:
        """Return what a function returns; given by the interpreter."""
        raise NotImplementedError

    def frame_of(self, function: Function, args: list[V], kwargs: dict[str, V]) -> Frame:
        """Return the frame of a call; given by the interpreter."""
        raise NotImplementedError

    def mentions(self, module: Module, first: int, last: int) -> bool:
        """Return whether lines of a module may ask for an architecture."""
        raise NotImplementedError


def _has_fields(of: ClassOf) -> bool:
    """Return whether annotated names of a class are fields: arguments of its constructor."""
    called = [d.func if isinstance(d, ast.Call) else d for d in of.node.decorator_list]
    return any(
        ast.unparse(part).rpartition(".")[2] in _WITH_FIELDS for part in (*called, *of.node.bases)
    )


def _assigns(node: ast.FunctionDef) -> bool:
    """Return whether a method assigns to an attribute of ``self``; the node keeps the answer."""
    known: bool | None = vars(node).get("assigns_self")
    if known is None:
        known = vars(node)["assigns_self"] = any(
            isinstance(part, ast.Attribute)
            and isinstance(part.ctx, ast.Store)
            and isinstance(part.value, ast.Name)
            and part.value.id == "self"
            for part in ast.walk(node)
        )
    return known
