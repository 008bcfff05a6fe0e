"""Evaluates expressions of the upstreams for one compute capability, executing nothing of them.

Names are followed through locals, modules, imports and re-exports; calls of the
upstreams' own functions are interpreted (``interpret.py``). Whatever is not known of a
process on a CUDA device of that capability, such as arguments, environment variables and
configuration, is unknown.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

from patchwright.audit.externals import READS
from patchwright.audit.literals import literal
from patchwright.audit.lookup import Frame, Lookup
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
    binary,
    both,
    compare,
    merged,
    negated,
)

# Names of values that stand for an architecture where nothing else is known of them:
# parameters, attributes of foreign objects.
ARCHITECTURE_NAME = re.compile(
    r"(?:^|_)(?:arch|sm|cc|major|minor|capability|sm_version|device_sm|device_arch|sm_major|"
    r"compute_capability|cuda_arch)s?$"
)
PREDICATE_NAME = re.compile(
    r"(?:^|_)is_(?:sm_?\d+|blackwell|hopper|ampere)\w*$|device_support_pdl$"
)
HAS_SM = re.compile(r"^(?:has|use)_sm_?(\d{2,3})([af]?)$")
_ARCH_TEXT = re.compile(r"(?:sm_?)?(\d{2,3})[af]?")
_NUMBERS = frozenset({70, 75, 80, 86, 87, 89, 90, 100, 101, 103, 110, 120, 121})
_SELF = "self."


class Evaluator(Lookup):
    """Expressions for one capability."""

    # Expressions

    def evaluate(self, node: ast.expr, frame: Frame) -> V:
        """Return the value of an expression."""
        evaluate = _KINDS.get(type(node))
        if evaluate is None:
            return NOTHING_KNOWN
        if literal(node) is None:
            return evaluate(self, node, frame)
        known: V | None = vars(node).get("value_known")
        if known is None:
            known = vars(node)["value_known"] = evaluate(self, node, frame)
        return known

    def _literal(self, node: ast.Constant, frame: Frame) -> V:
        return V(node.value)

    def _name(self, node: ast.Name, frame: Frame) -> V:
        return self._by_name(node, node.id, self.name(node.id, frame))

    def _named_attribute(self, node: ast.Attribute, frame: Frame) -> V:
        return self._by_name(node, node.attr, self._attribute(node, frame))

    def _junction(self, node: ast.BoolOp, frame: Frame) -> V:
        found = [self.evaluate(value, frame) for value in node.values]
        return both(found, conjunction=isinstance(node.op, ast.And))

    def _unary(self, node: ast.UnaryOp, frame: Frame) -> V:
        value = self.evaluate(node.operand, frame)
        if isinstance(node.op, ast.Not):
            return negated(value)
        if isinstance(node.op, ast.USub) and isinstance(value.known, int | float):
            return V(-value.known, value.arch)
        return V(UNKNOWN, value.arch)

    def _binary(self, node: ast.BinOp, frame: Frame) -> V:
        return binary(node.op, self.evaluate(node.left, frame), self.evaluate(node.right, frame))

    def _subscript(self, node: ast.Subscript, frame: Frame) -> V:
        return self._item(self.evaluate(node.value, frame), node.slice, frame)

    def _lambda(self, node: ast.Lambda, frame: Frame) -> V:
        return V(Function(frame.module, node, frame))

    def _walrus(self, node: ast.NamedExpr, frame: Frame) -> V:
        frame.locals[node.target.id] = self.evaluate(node.value, frame)
        return frame.locals[node.target.id]

    def _starred(self, node: ast.Starred | ast.Await, frame: Frame) -> V:
        return V(UNKNOWN, self.evaluate(node.value, frame).arch)

    def _by_name(self, node: ast.expr, name: str, value: V) -> V:
        """A value that is not known, but whose name says which architecture it asks for."""
        if value.is_known or value.arch:
            self.assumed.discard(node)
            return value
        match = HAS_SM.match(name)
        if match is None:
            return value
        self.assumed.add(node)
        self.looked()
        return V(self.machine.builds_for(int(match[1]), match[2]), arch=True)

    def _attribute(self, node: ast.Attribute, frame: Frame) -> V:  # noqa: PLR0911
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            own = frame.locals.get(_SELF + node.attr)
            if own is not None:
                return own
        owner = self.evaluate(node.value, frame)
        name = node.attr
        match owner.known:
            case Package(dotted=dotted):
                return self.package_attribute(dotted, name)
            case External(dotted=dotted):
                return self.external_attribute(f"{dotted}.{name}")
            case Properties(capability=(major, minor)):
                return V({"major": major, "minor": minor}.get(name, UNKNOWN), arch=True)
            case Fields(values=values):
                return values.get(name, NOTHING_KNOWN)
            case Instance(of=of):
                return self.member(of, name, owner)
            case ClassOf():
                return self.member(owner.known, name, None)
            case EnumMember(of=of, name=own_name, value=value):
                if name in ("name", "value"):
                    return V(own_name if name == "name" else value)
                return self.member(of, name, owner)
        if isinstance(owner.known, str | tuple | list | dict | set | frozenset):
            return V(Bound(External(f"method.{name}"), (owner,)), owner.arch)
        return V(UNKNOWN, arch=False)

    def _comparison(self, node: ast.Compare, frame: Frame) -> V:
        operands = [node.left, *node.comparators]
        self.assumed.discard(node)
        values = [self.evaluate(part, frame) for part in operands]
        values = self._with_assumptions(node, operands, values)
        parts = [
            compare(op, left, right)
            for op, left, right in zip(node.ops, values, values[1:], strict=False)
        ]
        return both(parts, conjunction=True) if len(parts) > 1 else parts[0]

    def _with_assumptions(
        self, node: ast.Compare, operands: list[ast.expr], values: list[V]
    ) -> list[V]:
        """Take an unknown operand for the device's architecture, where the comparison says so.

        ``backend in ("120", "121")`` and ``op.arch == 103`` do: the other operand holds
        nothing but architectures, as text or under an architecture's name.
        """
        constants = [v.known for v in values if v.is_known and not v.arch]
        unknown = [i for i, v in enumerate(values) if not v.is_known and not v.arch]
        if len(unknown) != 1 or len(constants) != len(values) - 1:
            return values
        operand = operands[unknown[0]]
        if isinstance(operand, ast.Subscript):
            operand = operand.value
        name = getattr(operand, "attr", getattr(operand, "id", ""))
        named = bool(ARCHITECTURE_NAME.search(str(name)))
        flat = [c for value in constants for c in (value if _is_many(value) else (value,))]
        value = self.machine.as_in(flat, named=named, name=str(name))
        if value is None:
            return values
        self.assumed.add(node)
        self.looked()
        return [V(value, arch=True) if i == unknown[0] else v for i, v in enumerate(values)]

    def _choice(self, node: ast.IfExp, frame: Frame) -> V:
        body, orelse = node.body, node.orelse
        tested = self.evaluate(node.test, frame)
        if tested.truth is not None:
            taken = self.evaluate(body if tested.truth else orelse, frame)
            return V(taken.known, taken.arch or tested.arch)
        first, second = self.evaluate(body, frame), self.evaluate(orelse, frame)
        return merged(first, second, arch=tested.arch)

    def _sequence(self, node: ast.Tuple | ast.List | ast.Set, frame: Frame) -> V:
        elts = node.elts
        values = [self.evaluate(part, frame) for part in elts]
        arch = any(value.arch for value in values)
        if any(isinstance(part, ast.Starred) for part in elts):
            return V(UNKNOWN, arch)
        known = [value.known for value in values]
        if isinstance(node, ast.Set):
            try:
                return V(set(known), arch)
            except TypeError:
                return V(UNKNOWN, arch)
        return V(tuple(known) if isinstance(node, ast.Tuple) else known, arch)

    def _dict(self, node: ast.Dict, frame: Frame) -> V:
        keys, values = node.keys, node.values
        made: dict[Any, Any] = {}
        arch = False
        for key, value in zip(keys, values, strict=True):
            if key is None:
                return V(UNKNOWN, arch)
            found, given = self.evaluate(key, frame), self.evaluate(value, frame)
            arch = arch or found.arch or given.arch
            try:
                made[found.known] = given.known
            except TypeError:
                return V(UNKNOWN, arch)
        return V(made if UNKNOWN not in made else UNKNOWN, arch)

    def _text(self, node: ast.JoinedStr, frame: Frame) -> V:
        values = node.values
        parts: list[Any] = []
        arch = False
        for part in values:
            if isinstance(part, ast.FormattedValue):
                value = self.evaluate(part.value, frame)
                plain = isinstance(value.known, str | int) and part.format_spec is None
                arch = arch or value.arch
                parts.append(str(value.known) if plain else UNKNOWN)
            else:
                parts.append(getattr(part, "value", UNKNOWN))
        return V(UNKNOWN if UNKNOWN in parts else "".join(parts), arch)

    def _item(self, owner: V, index: ast.expr, frame: Frame) -> V:
        if isinstance(index, ast.Slice):
            bounds = [
                None if part is None else self.evaluate(part, frame).known
                for part in (index.lower, index.upper, index.step)
            ]
            if isinstance(owner.known, str | tuple | list) and UNKNOWN not in bounds:
                return V(owner.known[slice(*bounds)], owner.arch)
            return V(UNKNOWN, owner.arch)
        key = self.evaluate(index, frame)
        arch = owner.arch or key.arch
        if not owner.is_known or not key.is_known:
            return V(UNKNOWN, arch)
        try:
            return V(owner.known[key.known], arch)
        except Exception:
            return V(UNKNOWN, arch)

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, frame: Frame
    ) -> V:
        """A comprehension over one known sequence of moderate length."""
        (first, *more) = node.generators
        source = self.evaluate(first.iter, frame)
        items = source.known
        if more or not isinstance(items, list | tuple | set | frozenset | dict) or len(items) > 64:
            return V(UNKNOWN, source.arch)
        if not isinstance(first.target, ast.Name):
            return V(UNKNOWN, source.arch)
        made: list[Any] = []
        arch = source.arch
        for item in items:
            inner = Frame(frame.module, frame, frame.owner, {first.target.id: V(item, source.arch)})
            tests = [self.evaluate(test, inner) for test in first.ifs]
            arch = arch or any(test.arch for test in tests)
            if any(test.truth is None for test in tests):
                return V(UNKNOWN, arch)
            if all(test.truth for test in tests):
                value = self.evaluate(node.elt, inner)
                arch = arch or value.arch
                made.append(value.known)
        return V(made, arch)

    # Given by the interpreter

    def member(self, of: ClassOf, name: str, owner: V | None) -> V:
        """Return an attribute of a class or of one of its objects."""
        raise NotImplementedError

    def invoke(self, function: Any, args: list[V], kwargs: dict[str, V], arch: bool) -> V:
        """Return what calling a value gives."""
        raise NotImplementedError

    def call(self, node: ast.Call, frame: Frame) -> V:
        """Return the value of a call."""
        args = [self.evaluate(part, frame) for part in node.args]
        kwargs = {k.arg: self.evaluate(k.value, frame) for k in node.keywords if k.arg}
        function = self.evaluate(node.func, frame)
        result = self.invoke(function.known, args, kwargs, function.arch)
        if result.is_known or result.arch:
            return result
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        read = READS.get(name)
        if read is not None:
            self.looked()
            return V(read(self.capability), arch=True)
        if PREDICATE_NAME.search(name):
            return V(UNKNOWN, arch=True)
        return result


# By type: expressions are what most of the time goes into.
_KINDS: dict[type[ast.expr], Callable[[Evaluator, Any, Frame], V]] = {
    ast.Constant: Evaluator._literal, ast.Name: Evaluator._name,
    ast.Attribute: Evaluator._named_attribute, ast.BoolOp: Evaluator._junction,
    ast.UnaryOp: Evaluator._unary, ast.BinOp: Evaluator._binary,
    ast.Compare: Evaluator._comparison, ast.IfExp: Evaluator._choice,
    ast.Tuple: Evaluator._sequence, ast.List: Evaluator._sequence, ast.Set: Evaluator._sequence,
    ast.Dict: Evaluator._dict, ast.JoinedStr: Evaluator._text,
    ast.Subscript: Evaluator._subscript, ast.Lambda: Evaluator._lambda,
    ast.NamedExpr: Evaluator._walrus, ast.Starred: Evaluator._starred,
    ast.Await: Evaluator._starred, ast.ListComp: Evaluator._comprehension,
    ast.SetComp: Evaluator._comprehension, ast.GeneratorExp: Evaluator._comprehension,
    # Overridden below Evaluator.
    ast.Call: lambda self, node, frame: self.call(node, frame),
}  # fmt: skip


def _is_many(value: object) -> bool:
    return isinstance(value, list | tuple | set | frozenset) and not _is_capability(value)


def _is_capability(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(p, int) for p in value)
