"""A gate: a place where an upstream decides by GPU architecture, and what it decides.

``values`` holds for each capability True, False or None: what the condition is on a CUDA
device of that capability, None where something else decides as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

CAPABILITIES = ("8.0", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1")

# Kinds in the order of reports, with what each is.
KINDS = {
    "predicate": "a condition that calls a predicate of the architecture",
    "alias": "a condition that reads a name derived from the architecture",
    "comparison": "a comparison of the capability",
    "parameter": "a comparison of an argument that holds an architecture",
    "import": "an import that the architecture decides",
    "table": "a dictionary keyed by the capability",
    "dispatch": "a call that is handed the architecture",
    "otherwise": "the last else of a chain of conditions on the architecture",
    "jit-list": "the major versions that a JIT module is built for",
    "decorator": "the capabilities that an operator accepts",
    "backend": "the backends of an operator, each with what it accepts",
    "flags": "compiler flags of one fixed architecture",
    "gencode": "a text of compiler flags for an architecture",
    "aot": "a condition of the ahead-of-time build",
    "arch-list": "a list of architectures by name",
    "arch-table": "a table of records with many such lists, told in sum",
    "environment": "the variable that sets the architectures to build for",
    "constant": "a module-level name that the architecture decides",
    "definition": "a predicate, where it is defined",
    "read": "a place where the capability is read",
}
# What feeds decisions, and is none itself.
FEEDING = frozenset({"definition", "read"})

Values = Mapping[str, bool | None]


@dataclass(frozen=True)
class Gate:
    """One gate; lines are 1-based, ``path`` is a repository path.

    ``reached`` is ``values`` with the conditions around it in the same function taken
    in. ``effect`` says what follows. ``assumed`` marks a value that rests on what a
    name is taken to mean.
    """

    kind: str
    upstream: str
    path: str
    line: int
    end_line: int
    function: str
    condition: str
    values: Values = field(default_factory=dict)
    reached: Values = field(default_factory=dict)
    effect: str = ""
    assumed: bool = False

    @property
    def place(self) -> str:
        """``path:line``."""
        return f"{self.path}:{self.line}"

    @property
    def identity(self) -> tuple[str, str, str, str, str]:
        """What stays when lines move."""
        return (self.upstream, self.path, self.function, self.kind, self.condition)

    def admits(self, capability: str) -> bool:
        """Return whether the gate may let a capability through that its function comes to."""
        return self.lets_through(capability) is not False and (
            self.refuses or self.reached.get(capability) is not False
        )

    @property
    def refuses(self) -> bool:
        """Whether the condition is one to refuse by: it lets through where it is false."""
        return self.kind == "otherwise" or self.effect.startswith("then raises")

    def lets_through(self, capability: str) -> bool | None:
        """Return whether the gate lets a capability through; None where something else decides."""
        value = self.values.get(capability)
        return not value if self.refuses and value is not None else value

    def decides(self) -> bool:
        """Return whether the architecture makes a difference."""
        return len(set(self.values.values())) > 1

    def to_json(self) -> dict[str, Any]:
        """Return the gate as JSON values."""
        return {
            "kind": self.kind, "upstream": self.upstream, "path": self.path, "line": self.line,
            "end_line": self.end_line, "function": self.function, "condition": self.condition,
            "values": dict(self.values), "reached": dict(self.reached), "effect": self.effect,
            "assumed": self.assumed,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Gate:
        """Return the gate that ``to_json`` wrote."""
        return cls(**data)


@dataclass(frozen=True)
class Change:
    """What a series does to one gate: ``before`` or ``after`` is None where there is none."""

    before: Gate | None
    after: Gate | None

    @property
    def gate(self) -> Gate:
        """The gate as it is, or as it was where it is gone."""
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def opened(self) -> tuple[str, ...]:
        """The capabilities that the condition newly lets through."""
        return self._moved(opened=True)

    @property
    def closed(self) -> tuple[str, ...]:
        """The capabilities that it no longer lets through."""
        return self._moved(opened=False)

    def _moved(self, *, opened: bool) -> tuple[str, ...]:
        if self.after is None or (self.before is None and not self.after.decides()):
            return ()
        found = []
        for capability in self.after.values:
            # Where there was no gate, nothing was let through by it.
            old = self.before.lets_through(capability) if self.before is not None else False
            new = self.after.lets_through(capability)
            if (
                (old is False and new is not False)
                if opened
                else (old is not False and new is False)
            ):
                found.append(capability)
        return tuple(found)

    @property
    def word(self) -> str:
        """``opens``, ``closes``, ``moves``, ``adds``, ``removes`` or ``rewrites``."""
        if self.before is None:
            return "adds"
        if self.after is None:
            return "removes"
        if self.opened and self.closed:
            return "moves"
        if self.opened:
            return "opens"
        return "closes" if self.closed else "rewrites"


def changes(before: Iterable[Gate], after: Iterable[Gate]) -> list[Change]:
    """Return the gates that differ; a condition that was rewritten is paired with its old self."""
    old, new = _by_identity(before), _by_identity(after)
    found: list[Change] = []
    for key in old.keys() & new.keys():
        for one, other in zip(old[key], new[key], strict=False):
            if (one.values, one.effect) != (other.values, other.effect):
                found.append(Change(one, other))
    gone = [g for key, group in old.items() for g in group[len(new.get(key, ())) :]]
    come = [g for key, group in new.items() for g in group[len(old.get(key, ())) :]]
    for gate in come:
        partner = _partner(gate, gone)
        if partner is not None:
            gone.remove(partner)
        found.append(Change(partner, gate))
    found += [Change(gate, None) for gate in gone]
    return sorted(found, key=lambda c: (c.gate.upstream, c.gate.path, c.gate.line, c.gate.kind))


def _by_identity(gates: Iterable[Gate]) -> dict[tuple[str, ...], list[Gate]]:
    table: dict[tuple[str, ...], list[Gate]] = {}
    for gate in gates:
        table.setdefault(gate.identity, []).append(gate)
    return table


def _partner(gate: Gate, gone: Sequence[Gate]) -> Gate | None:
    """The removed gate of the same function and kind whose condition is the most alike."""
    rated = [
        (SequenceMatcher(None, other.condition, gate.condition, autojunk=False).ratio(), other)
        for other in gone
        if (other.upstream, other.path, other.function) == (gate.upstream, gate.path, gate.function)
        and (other.kind in FEEDING) == (gate.kind in FEEDING)
    ]
    best = max(rated, key=lambda pair: pair[0], default=None)
    return best[1] if best is not None and best[0] > 0.35 else None
