"""The values of the audit's evaluation: known, or unknown, and whether the GPU decides them.

Three-valued in the sense of Kleene: what depends on something that is not known is
unknown, unless the known part decides alone. Nothing of an upstream is executed.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from patchwright.smoke.bindings import Module


class _Unknown:
    def __repr__(self) -> str:
        return "?"


UNKNOWN = _Unknown()


# Never changed, but not frozen: millions are made, and a frozen one takes three times as long.
@dataclass(slots=True, unsafe_hash=True)
class V:
    """A value; ``arch`` tells whether the GPU's architecture takes part in it."""

    known: Any = UNKNOWN
    arch: bool = False

    @property
    def is_known(self) -> bool:
        """Whether there is a value."""
        return self.known is not UNKNOWN

    @property
    def truth(self) -> bool | None:
        """The value as a condition; None where it is unknown."""
        if self.known is UNKNOWN:
            return None
        if isinstance(self.known, External | Function | Bound | ClassOf | Package | EnumMember):
            return True
        try:
            return bool(self.known)
        except Exception:
            return None


NOTHING_KNOWN = V()


@dataclass(frozen=True, eq=False)
class Function:
    """A function or lambda of an upstream, with the frame that it closes over."""

    module: Module
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    outer: Any = None
    owner: ClassOf | None = None

    @property
    def name(self) -> str:
        """The function's own name."""
        return getattr(self.node, "name", "<lambda>")


@dataclass(frozen=True, eq=False)
class Bound:
    """A function with some of its arguments: a method, a partial."""

    function: Any
    args: tuple[V, ...] = ()
    kwargs: Mapping[str, V] = field(default_factory=dict)


@dataclass(frozen=True)
class ClassOf:
    """A class of an upstream."""

    module: Module
    node: ast.ClassDef

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClassOf) and other.node is self.node

    def __hash__(self) -> int:
        return id(self.node)


@dataclass(frozen=True)
class Instance:
    """An object of a class; equal only to itself, so comparisons stay unknown."""

    of: ClassOf


@dataclass(frozen=True)
class EnumMember:
    """A member of an enumeration."""

    of: ClassOf
    name: str
    value: Any


@dataclass(frozen=True)
class Package:
    """A module of an upstream."""

    dotted: str


@dataclass(frozen=True)
class External:
    """Something outside the upstreams, by its dotted name."""

    dotted: str


@dataclass(frozen=True, eq=False)
class Fields:
    """``SimpleNamespace(a=..., b=...)``."""

    values: Mapping[str, V]


@dataclass(frozen=True)
class Properties:
    """``torch.cuda.get_device_properties``: the fields that a decision reads."""

    capability: tuple[int, int]


Operator = Callable[[Any, Any], Any]
_OPERATORS: dict[type, Operator] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv, ast.Div: operator.truediv, ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
_COMPARISONS: dict[type, Operator] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_LIMIT = 4096
# What has a meaning beyond its identity here.
_PLAIN = (bool, int, float, str, bytes, tuple, list, set, frozenset, dict, type(None), EnumMember)


def comparable(value: object) -> bool:
    """Return whether comparing this value says something about the real one."""
    return isinstance(value, _PLAIN) or type(value).__module__.startswith("packaging")


def binary(node: ast.operator, left: V, right: V) -> V:
    """Return the result of a binary operator; unknown where it fails or grows large."""
    arch = left.arch or right.arch
    function = _OPERATORS.get(type(node))
    if function is None or not left.is_known or not right.is_known:
        return V(UNKNOWN, arch)
    try:
        if isinstance(node, ast.Mult | ast.LShift) and not _small(left.known, right.known):
            return V(UNKNOWN, arch)
        result = function(left.known, right.known)
        if isinstance(result, str | bytes | list | tuple) and len(result) > _LIMIT:
            return V(UNKNOWN, arch)
    except Exception:
        return V(UNKNOWN, arch)
    return V(result, arch)


def _small(left: object, right: object) -> bool:
    return all(isinstance(v, int | float) and abs(v) < 2**40 for v in (left, right)) and (
        not isinstance(right, int) or right < _LIMIT or isinstance(left, int | float)
    )


def compare(node: ast.cmpop, left: V, right: V) -> V:  # noqa: PLR0911
    """Return the result of one comparison, membership included."""
    arch = left.arch or right.arch
    if isinstance(node, ast.In | ast.NotIn):
        found = _member(left, right)
        if found is None:
            return V(UNKNOWN, arch)
        return V(found == isinstance(node, ast.In), arch)
    if not left.is_known or not right.is_known:
        return V(UNKNOWN, arch)
    if isinstance(node, ast.Is | ast.IsNot) and None in (left.known, right.known):
        same = left.known is right.known
        return V(same == isinstance(node, ast.Is), arch)
    if not (comparable(left.known) and comparable(right.known)):
        return V(UNKNOWN, arch)
    if _holds_unknown(left.known) or _holds_unknown(right.known):
        return V(UNKNOWN, arch)
    try:
        return V(bool(_COMPARISONS[type(node)](left.known, right.known)), arch)
    except Exception:
        return V(UNKNOWN, arch)


def _member(left: V, right: V) -> bool | None:
    if not right.is_known or not left.is_known or not comparable(left.known):
        return None
    try:
        if isinstance(right.known, str):
            return left.known in right.known
        items = list(right.known)
        if left.known in [item for item in items if item is not UNKNOWN]:
            return True
    except Exception:
        return None
    return None if UNKNOWN in items or _holds_unknown(left.known) else False


def _holds_unknown(value: object) -> bool:
    if isinstance(value, tuple | list | set | frozenset):
        return any(item is UNKNOWN or _holds_unknown(item) for item in value)
    return False


def both(values: Iterable[V], *, conjunction: bool) -> V:
    """Return ``and`` (or ``or``) of values: one that decides alone decides, however the rest.

    Where a value that the GPU has no part in decides, the GPU has no part in the result.
    """
    values = list(values)
    arch = any(value.arch for value in values)
    deciding = [v for v in values if v.truth is not None and v.truth is not conjunction]
    if deciding:
        first = deciding[0]
        return V(first.known, arch and all(v.arch for v in deciding))
    if any(v.truth is None for v in values):
        return V(UNKNOWN, arch)
    return V(values[-1].known, arch)


def negated(value: V) -> V:
    """Return ``not value``."""
    return V(UNKNOWN if value.truth is None else not value.truth, value.arch)


def merged(first: V, second: V, *, arch: bool = False) -> V:
    """Return what a value is after one of two branches, it is not known which."""
    same = first.known is second.known
    if not same and comparable(first.known) and comparable(second.known):
        try:
            same = bool(first.known == second.known) and type(first.known) is type(second.known)
        except Exception:
            same = False
    taint = first.arch or second.arch
    return V(first.known, taint) if same else V(UNKNOWN, taint or arch)


def joined(first: Mapping[str, V], second: Mapping[str, V], *, arch: bool = False) -> dict[str, V]:
    """Return the names after one of two branches; one that only one of them binds is that.

    An attribute (``self.x``) may have been something else before: what it is is not known
    then, unless the GPU took part in what it was set to, which is what is looked for.
    """
    found = {}
    for name in (*first, *(name for name in second if name not in first)):
        one, other = first.get(name), second.get(name)
        if one is not None and other is not None:
            found[name] = merged(one, other, arch=arch)
            continue
        value = one or other or NOTHING_KNOWN
        kept = value.arch or not name.startswith("self.")
        found[name] = value if kept else V(UNKNOWN, arch)
    return found


def is_pair(value: object) -> bool:
    """Return whether a value is a capability's form: two integers."""
    return isinstance(value, tuple) and len(value) == 2 and all(type(p) is int for p in value)


def accepted(majors: Any, capability: tuple[int, int]) -> bool | None:
    """Return whether a list of major versions (None: any) holds a capability's."""
    if majors is None:
        return True
    if not isinstance(majors, list | tuple | set | frozenset) or UNKNOWN in majors:
        return None
    return capability[0] in majors
