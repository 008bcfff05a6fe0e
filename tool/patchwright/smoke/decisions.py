"""The decision table: what a gate of an upstream answers for each compute capability.

A gate is data: which upstream, which file, which function or condition. It is evaluated
from the source of the tree under test, once per capability, each time from nothing.
"""

from __future__ import annotations

import ast
import enum
import functools
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from patchwright.smoke.bindings import Module, Modules
from patchwright.smoke.conditions import condition_function, find_class, value_function
from patchwright.smoke.outcomes import Blocked, SmokeError
from patchwright.smoke.simulated_torch import MISSING, Device, Dtype, Tensor, simulated_torch
from patchwright.smoke.slicing import Slice
from patchwright.smoke.trees import Trees

__all__ = [
    "CAPABILITIES", "CAPABILITY", "MISSING", "ConditionGate", "Device", "Dtype", "Expression",
    "FunctionGate", "PerCapability", "Raised", "Tensor", "ValueGate", "decision_table",
]  # fmt: skip

CAPABILITIES = ("8.0", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1")


@dataclass(frozen=True)
class FunctionGate:
    """A function that is called, or a constant that is read.

    ``path`` is a repository path. ``name`` is that of a module-level function or
    constant, ``Class.method``, or ``function.attribute`` (what a decorator attached).
    ``reads`` names an attribute of ``self`` that is the answer, after the call.
    """

    upstream: str
    path: str
    name: str
    reads: str = ""


@dataclass(frozen=True)
class ConditionGate:
    """An ``if`` inside a function, found by a statement that stands directly in its branch.

    ``function`` is a function's name or ``Class.method``. ``assigns`` is the source of
    that statement, in which ``...`` matches any expression or any arguments. In an
    ``else`` branch the condition is the negated test. ``mentions`` is a text that the
    test must contain, where the statement alone is ambiguous. ``enclosing`` is how many
    of the ``if``s around it must hold as well, counted outwards (an ``elif`` stands in
    the ``else`` of the one before it): 0 is the ``if`` alone, -1 all in the function.
    """

    upstream: str
    path: str
    function: str
    assigns: str
    mentions: str = ""
    enclosing: int = 0


@dataclass(frozen=True)
class ValueGate:
    """What a function assigns to ``target`` (``backend``, ``self.use_mha``).

    ``mentions`` is a text that the value's source must contain, where the target alone
    is ambiguous. Locals are as in ConditionGate.
    """

    upstream: str
    path: str
    function: str
    target: str
    mentions: str = ""


@dataclass(frozen=True)
class Raised:
    """The value of a decision that ended in an exception of upstream's code."""

    type: str
    message: str


@dataclass(frozen=True)
class PerCapability:
    """An argument or stub that depends on the simulated (major, minor)."""

    make: Callable[[tuple[int, int]], object]


@dataclass(frozen=True)
class Expression:
    """An argument or local in upstream's own terms: ``Expression("Backend.AUTO")``.

    Evaluated in the gate's module.
    """

    source: str


CAPABILITY = PerCapability(lambda capability: capability)


def decision_table(
    trees: Trees,
    gate: FunctionGate | ConditionGate | ValueGate,
    *args: object,
    cuda: str | None = "12.8",
    names: Mapping[str, object] | None = None,
    stubs: Mapping[str, object] | None = None,
    torch: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    kwargs: Mapping[str, object] | None = None,
    capabilities: tuple[str, ...] = CAPABILITIES,
) -> dict[str, object]:
    """Return the gate's answer by capability (``{"9.0": True, ...}``).

    ``args`` and ``kwargs`` go to a FunctionGate; for a method the first is ``self``, a
    SimpleNamespace of the attributes that the test gives (what it lacks is taken from
    the class). ``names`` are the local names of a ConditionGate, parameters included;
    a local that one plain statement binds before the ``if`` need not be given. A
    condition's answer is a bool. An exception of upstream's code becomes Raised, a
    function its name, an enumeration's member ``Class.MEMBER``.

    ``cuda`` is ``torch.version.cuda``; ``torch`` gives further attributes of the
    simulated torch (``{"cuda.can_device_access_peer": ...}``); ``stubs`` and ``env``
    are those of ``slicing.Slice``.

    Raises SmokeError for a gate that cannot be found, and for whatever the decision
    needs that nobody gives.
    """
    for stub in ("torch (simulated)", *(f"{name} (given by the test)" for name in stubs or ())):
        trees.announce(stub)
    modules = Modules(trees)
    module = modules.at(gate.upstream, gate.path)
    table: dict[str, object] = {}
    for text in capabilities:
        major, _, minor = text.partition(".")
        capability = int(major), int(minor)
        piece = Slice(
            modules,
            known=simulated_torch(capability, cuda=cuda, extra=_fresh(torch or {}, capability)),
            stubs=_fresh(stubs or {}, capability),
            env=env,
        )
        within = functools.partial(piece.expression, module)
        if isinstance(gate, FunctionGate):
            given = _fresh(list(args), capability, within)
            call = _function(piece, module, gate, given, _fresh(kwargs or {}, capability, within))
        else:
            call = _inside(piece, module, gate, _fresh(names or {}, capability, within))
        table[text] = _outcome(piece, call)
    return table


def _outcome(piece: Slice, call: Callable[[], object]) -> object:
    try:
        value = call()
    except (SmokeError, Blocked):
        if piece.gaps:
            raise piece.gaps[0] from None
        raise
    except (Exception, SystemExit) as error:
        if piece.gaps:
            raise piece.gaps[0] from None
        _blame_the_test(piece, error)
        return Raised(type(error).__name__, str(error))
    if piece.gaps:
        # Upstream's own `except` swallowed it: its answer rests on a gap.
        raise piece.gaps[0]
    return _comparable(value)


def _blame_the_test(piece: Slice, error: BaseException) -> None:
    """Raise SmokeError where the test's call or stub is at fault, not upstream's code."""
    files = {space.module.filename for space in piece.namespaces()}
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename not in files:
        trace = trace.tb_next
    if trace is None:
        raise SmokeError(f"the gate cannot be called like this: {error}") from error
    if isinstance(error, AttributeError) and isinstance(error.obj, types.SimpleNamespace):
        raise SmokeError(f"a stub lacks the attribute {error.name} that upstream reads") from error


def _function(
    piece: Slice, module: Module, gate: FunctionGate, args: list[Any], kwargs: dict[str, Any]
) -> Callable[[], object]:
    first, _, rest = gate.name.partition(".")
    owner = find_class(module, first)
    if owner is not None and rest:

        def call() -> object:
            method: Any = piece.member(module, owner, rest)
            if isinstance(method, property):
                method = method.fget
            given = list(args)
            if not isinstance(method, staticmethod) and given:
                given[0] = piece.instance(module, owner, given[0])
            method = getattr(method, "__func__", method)
            value = method(*given, **kwargs)
            return getattr(given[0], gate.reads) if gate.reads else value

        return call

    def read() -> object:
        value: Any = piece.value(module, first)
        for attribute in rest.split(".") if rest else ():
            if not hasattr(value, attribute):
                raise SmokeError(
                    f"{gate.upstream}: {gate.path}: {first} has no {attribute}: the gate moved"
                )
            value = getattr(value, attribute)
        return value(*args, **kwargs) if callable(value) else value

    return read


def _gate_function(
    module: Module, gate: ConditionGate | ValueGate, given: frozenset[str]
) -> ast.FunctionDef:
    if isinstance(gate, ValueGate):
        return value_function(
            module, gate.function, gate.target, mentions=gate.mentions, given=given
        )
    return condition_function(
        module, gate.function, gate.assigns,
        mentions=gate.mentions, enclosing=gate.enclosing, given=given,
    )  # fmt: skip


def _inside(
    piece: Slice, module: Module, gate: ConditionGate | ValueGate, names: dict[str, Any]
) -> Callable[[], object]:
    given = frozenset(names)
    if (gate, given) not in module.found:
        module.found[gate, given] = _gate_function(module, gate, given)
    found = module.found[gate, given]
    owner = find_class(module, gate.function.partition(".")[0])
    if owner is not None and "self" in names:
        names["self"] = piece.instance(module, owner, names["self"])

    def call() -> object:
        value = piece.define(module, found)(**names)
        return value if isinstance(gate, ValueGate) else bool(value)

    return call


def _fresh(
    value: Any, capability: tuple[int, int], within: Callable[[str], object] | None = None
) -> Any:
    """Copy containers and namespaces, so that nothing leaks from one evaluation to the next."""
    if isinstance(value, PerCapability):
        return value.make(capability)
    if isinstance(value, Expression) and within is not None:
        return within(value.source)
    if isinstance(value, types.SimpleNamespace):
        return types.SimpleNamespace(**_fresh(vars(value), capability, within))
    if isinstance(value, Mapping):
        return {key: _fresh(item, capability, within) for key, item in value.items()}
    if type(value) in (list, tuple, set):
        return type(value)(_fresh(item, capability, within) for item in value)
    return value


def _comparable(value: object) -> object:
    """Values of two evaluations compare equal when they mean the same."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if type(value) is list:
        return [_comparable(item) for item in value]
    if type(value) is tuple:
        return tuple(_comparable(item) for item in value)
    if callable(value) and not isinstance(value, type):
        inner = getattr(value, "__wrapped__", value)
        return getattr(inner, "__name__", repr(value))
    return value
