"""The guards: every preprocessor branch on the GPU architecture, evaluated per target.

Evaluation is three-valued (Kleene): a macro that is neither nvcc's nor given is unknown,
and so is what depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from patchwright.c_syntax import (
    Binary,
    Call,
    Conditional,
    CSyntaxError,
    Name,
    Node,
    Number,
    Unary,
    arithmetic,
    parse,
    without_comments,
)

TARGETS = ("80", "89", "90a", "100a", "103a", "120", "120f", "120a", "121a")
_TARGET = re.compile(r"(?:sm_)?(\d+)(\d)([af]?)")
_ARCHITECTURE = re.compile(r"\b__CUDA_ARCH(?:__|_FEAT_\w+|_SPECIFIC__|_FAMILY_SPECIFIC__)(?!\w)")
_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b(.*)")
_DEFINED = re.compile(r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))")
# What every device compilation of nvcc 13.0 defines besides the architecture.
_COMPILER = {"__CUDACC__": 1, "__NVCC__": 1, "__CUDACC_VER_MAJOR__": 13, "__CUDACC_VER_MINOR__": 0}


@dataclass(frozen=True)
class Guard:
    """One directive whose group of branches asks for the architecture.

    ``line`` is 1-based, ``directive`` the word after ``#``, ``condition`` its text on
    one line (empty for ``else``). ``taken`` tells by target whether this branch is the
    one of its group that is taken, None where that is unknown; the directives around it
    are left out of account there and taken in in ``reached``.
    """

    line: int
    directive: str
    condition: str
    taken: Mapping[str, bool | None]
    reached: Mapping[str, bool | None]


def architecture_macros(target: str) -> dict[str, int]:
    """Return the macros that nvcc 13 defines for a target (``90a``, ``sm_120f``), by its ``-D``s.

    ``__CUDA_ARCH_SPECIFIC__`` and the ``FEAT`` macro belong to ``a`` targets,
    ``__CUDA_ARCH_FAMILY_SPECIFIC__`` to ``a`` and ``f``. Raises ValueError for a text
    that names no target.
    """
    match = _TARGET.fullmatch(target)
    if match is None:
        raise ValueError(f"{target!r} is not an architecture such as 90a or 120")
    number, suffix = match[1] + match[2], match[3]
    value = int(number) * 10
    macros = {"__CUDA_ARCH__": value}
    if suffix:
        macros["__CUDA_ARCH_FAMILY_SPECIFIC__"] = value
    if suffix == "a":
        macros["__CUDA_ARCH_SPECIFIC__"] = value
        macros[f"__CUDA_ARCH_FEAT_SM{number}_ALL"] = 1
    return macros


def guards(
    text: str,
    targets: Iterable[str] = TARGETS,
    *,
    macros: Mapping[str, int | None] | None = None,
    by_target: Mapping[str, Mapping[str, int | None]] | None = None,
    also: str = "",
) -> tuple[Guard, ...]:
    """Return the architecture guards of a CUDA source, in order.

    A directive counts when its own condition names one of nvcc's architecture macros
    (or a name that matches the regular expression ``also``), an ``else`` when a branch
    before it does. ``macros`` are further macros by value, those of the module's ``-D``
    flags for example; None is a macro that is surely not defined. ``by_target`` gives
    those that differ by target, such as the ones that CUTLASS derives.
    """
    known = {
        target: {
            **_COMPILER,
            **architecture_macros(target),
            **(macros or {}),
            **(by_target or {}).get(target, {}),
        }
        for target in targets
    }
    counted = re.compile(f"{_ARCHITECTURE.pattern}|{also}") if also else _ARCHITECTURE
    found: list[Guard] = []
    groups: list[_Group] = []
    for line, directive, condition in _directives(text):
        if directive == "endif":
            if groups:
                groups.pop()
            continue
        if directive.startswith("if"):
            groups.append(_Group(dict.fromkeys(known, True)))
        if not groups:
            continue
        group = groups[-1]
        value = {target: group.branch(directive, condition, known, target) for target in known}
        own = bool(counted.search(condition))
        group.asked |= own
        if own or (directive == "else" and group.asked):
            outer = {
                target: _all(part.current.get(target) for part in groups[:-1]) for target in known
            }
            reached = {target: _all((value[target], outer[target])) for target in known}
            found.append(Guard(line, directive, condition, value, reached))
        group.current = value
    return tuple(found)


def branches(text: str) -> list[tuple[int, int, str]]:
    """Return every conditional branch: line of its directive, of the one that ends it, condition.

    Inner ones come before those around them. An ``else`` has the conditions before it, negated.
    """
    found: list[tuple[int, int, str]] = []
    open_: list[tuple[int, list[str]]] = []
    for line, directive, condition in _directives(text):
        if not directive.startswith("if"):
            if not open_:
                continue
            first, conditions = open_.pop()
            found.append((first, line, conditions[-1]))
            if directive == "endif":
                continue
            own = _as_if(directive, condition)
            if directive == "else":
                own = " && ".join(f"!({c})" for c in conditions)
            open_.append((line, [*conditions, own]))
        else:
            open_.append((line, [_as_if(directive, condition)]))
    return found


class _Group:
    """The branches between an ``#if`` and its ``#endif``."""

    def __init__(self, current: dict[str, bool | None]) -> None:
        self.current = current
        self.asked = False
        self._before: dict[str, list[bool | None]] = {}

    def branch(
        self,
        directive: str,
        condition: str,
        known: Mapping[str, Mapping[str, int | None]],
        target: str,
    ) -> bool | None:
        """Return whether a branch is the taken one: its condition holds and none before did."""
        before = self._before.setdefault(target, [])
        own: bool | None = True
        if directive != "else":
            own = evaluate(_as_if(directive, condition), known[target])
        taken = _all([own, *(None if part is None else not part for part in before)])
        before.append(own)
        return taken


def evaluate(condition: str, macros: Mapping[str, int | None]) -> bool | None:
    """Return the value of an ``#if`` condition; None where an unknown macro decides it.

    Architecture macros that ``macros`` lacks are not defined; any other macro that it
    lacks is unknown.
    """
    text = _DEFINED.sub(lambda match: f" defined({match[1] or match[2]}) ", condition)
    try:
        value = _value(parse(text), macros)
    except CSyntaxError:
        return None
    return None if value is None else bool(value)


def _value(node: Node, macros: Mapping[str, int | None]) -> int | None:  # noqa: PLR0911
    match node:
        case Number(value):
            return value
        case Name(name):
            # An undefined macro counts as 0.
            return (macros[name] or 0) if name in macros else _undefined(name)
        case Call(Name("defined"), (Name(name),)):
            if name in macros:
                return int(macros[name] is not None)
            return _undefined(name)
        case Unary(operator, operand):
            return _unary(operator, _value(operand, macros))
        case Conditional(test, then, otherwise):
            chosen, values = _value(test, macros), (_value(then, macros), _value(otherwise, macros))
            if chosen is None:
                return values[0] if values[0] == values[1] else None
            return values[0 if chosen else 1]
        case Binary(operator, left, right):
            return _binary(operator, _value(left, macros), _value(right, macros))
    return None


def _undefined(name: str) -> int | None:
    return 0 if _ARCHITECTURE.fullmatch(name) else None


def _unary(operator: str, value: int | None) -> int | None:
    if value is None:
        return None
    return {"-": -value, "+": value, "!": int(not value), "~": ~value}.get(operator)


def _binary(operator: str, left: int | None, right: int | None) -> int | None:
    # One side may decide alone, whatever the other is.
    if operator in ("&&", "||"):
        deciding = operator == "||"
        sides = [None if side is None else bool(side) for side in (left, right)]
        if deciding in sides:
            return int(deciding)
        return None if None in sides else int(not deciding)
    if left is None or right is None:
        return None
    return arithmetic(operator, left, right)


def _all(values: Iterable[bool | None]) -> bool | None:
    found = list(values)
    if False in found:
        return False
    return None if None in found else True


def _as_if(directive: str, condition: str) -> str:
    name = condition.partition(" ")[0]
    if directive.endswith("ndef"):
        return f"!defined({name})"
    if directive.endswith("def"):
        return f"defined({name})"
    return condition


def _directives(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line, word, rest) of each conditional directive, continuations joined."""
    lines = without_comments(text).split("\n")
    number = 0
    while number < len(lines):
        first, line = number + 1, lines[number]
        while line.rstrip("\r").endswith("\\") and number + 1 < len(lines):
            number += 1
            line = line.rstrip("\r")[:-1] + " " + lines[number]
        number += 1
        match = _DIRECTIVE.match(line)
        if match is not None:
            yield first, match[1], " ".join(match[2].split())
