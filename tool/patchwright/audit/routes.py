"""Routes that meet a refusal: what a gate admits a capability to, joined over the upstreams."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from patchwright.audit import effects, nodes
from patchwright.audit.chains import Chain, Follower, Step
from patchwright.audit.gates import FEEDING, Gate
from patchwright.audit.knowledge import Knowledge
from patchwright.audit.marks import Marks
from patchwright.audit.uses import Start, Uses
from patchwright.smoke.bindings import Module, in_scope
from patchwright.smoke.outcomes import SmokeError

# Kinds whose branches lead somewhere in Python.
_LEADING = frozenset({"predicate", "alias", "comparison", "parameter", "constant", "table"})


@dataclass(frozen=True)
class Route:
    """What one gate admits one capability to; ``chains`` are shortest first."""

    gate: Gate
    capability: str
    chains: tuple[Chain, ...]
    asked: frozenset[str] = frozenset()  # the names of all functions called on the way

    @property
    def refused(self) -> tuple[Chain, ...]:
        """The chains that end in a refusal."""
        return tuple(chain for chain in self.chains if chain.refusal is not None)

    @property
    def modules(self) -> tuple[str, ...]:
        """The JIT modules that build for the capability, as path::generator."""
        return tuple(sorted({c.module for c in self.chains if c.module and c.refusal is None}))


class Router:
    """Follows gates on one state for one capability."""

    def __init__(self, uses: Uses, knowledge: Knowledge, capability: str, marks: Marks) -> None:
        """``marks`` hold the names that depend on the GPU, as the inventory found them."""
        self.modules = uses.modules
        self.uses = uses
        self.capability = capability
        major, _, minor = capability.partition(".")
        self.follower = Follower(self.modules, (int(major), int(minor)))
        self.follower.marked = self._marked  # type: ignore[method-assign]
        self.follower.prepare(knowledge)
        self.follower.methods = self.uses.methods  # type: ignore[method-assign]
        self._known: dict[tuple[int, tuple[int, ...]], tuple[list[Chain], set[str]]] = {}
        self._marks = marks

    def _marked(self, module: Module) -> Sequence[int]:
        """Return the lines that make a long function worth evaluating, as in the inventory."""
        return self._marks.lines((module.upstream, module.path))

    def route(self, gate: Gate) -> Route:
        """Return what a gate admits this capability to."""
        best: dict[tuple[str, str, str], Chain] = {}
        asked: set[str] = set()
        for start in self.starts(gate):
            chains, names = self._follow(start)
            asked |= names
            for chain in chains:
                end = chain.refusal
                key = (chain.module, end.name if end else "", end.why if end else "")
                if key not in best or len(chain.steps) < len(best[key].steps):
                    best[key] = chain
        ordered = sorted(best.values(), key=lambda c: (c.refusal is None, len(c.steps)))
        return Route(gate, self.capability, tuple(ordered), frozenset(asked))

    def starts(self, gate: Gate) -> Iterator[Start]:
        """Yield the statements that a gate lets the capability come to."""
        if gate.kind in FEEDING and gate.kind != "definition":
            return
        try:
            module = self.modules.at(gate.upstream, gate.path)
        except SmokeError:
            return
        seen: set[int] = set()
        for start in self._of_gate(gate, module):
            key = id(start.body[0])
            if key not in seen and len(seen) < 60:
                seen.add(key)
                yield start
                for more in self._configured(start):
                    if id(more.body[0]) not in seen:
                        seen.add(id(more.body[0]))
                        yield more

    def _of_gate(self, gate: Gate, module: Module) -> Iterator[Start]:
        for node in nodes.on_lines(module.tree, (gate.line,)):
            if isinstance(node, ast.If | ast.While) and _is(node.test, gate):
                place = self.uses.place(module, node)
                if place is not None:
                    body = tuple(node.body)
                    if _only_raises(node.body):
                        # A refusal: what is let through is what comes after it.
                        body = tuple(node.orelse or self.uses.rest(module, node))
                    if body:
                        yield Start(module, *place, body, node.lineno)
            elif isinstance(node, ast.expr) and _is(node, gate):
                yield from self.uses.around(module, node, gate.condition, 0)
            elif (
                gate.kind == "definition"
                and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and node.lineno == gate.line
            ):
                yield from self.uses.of_name(gate.upstream, node.name)

    def _configured(self, start: Start) -> Iterator[Start]:
        """Yield the places that ask for what a branch sets."""
        for node in in_scope(start.body):
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
                continue
            value, target = node.value.value, node.targets[0]
            if not isinstance(target, ast.Attribute):
                continue
            if isinstance(value, str):
                yield from self.uses.of_text(start.module.upstream, value)
            elif value is True:
                yield from self.uses.of_name(start.module.upstream, target.attr)

    def _follow(self, start: Start) -> tuple[list[Chain], set[str]]:
        key = (id(start.function.node), tuple(id(part) for part in start.body))
        if key not in self._known:
            first = Step(start.module.upstream, start.module.path, start.line, start.name)
            chains = self.follower.follow(start.function, start.body, first)
            self._known[key] = chains, self.follower.asked
        return self._known[key]


def admitting(gates: Iterable[Gate], capability: str, upstream: str = "") -> list[Gate]:
    """Return the gates that decide by architecture and let a capability through."""
    return [
        gate
        for gate in gates
        if gate.kind in _LEADING
        and (not upstream or gate.upstream == upstream)
        and gate.decides()
        and gate.admits(capability)
    ]


def describe(chain: Chain) -> list[str]:
    """Return a chain for a person to read, one step a line."""
    lines = []
    for before, step in zip((None, *chain.steps), chain.steps, strict=False):
        at = f"called at {before.path.rpartition('/')[2]}:{step.called_at}, " if before else ""
        lines.append(f"{step.upstream}: {step.path}:{step.line} {step.function}"
                     + (f"  ({at.rstrip(', ')})" if at else ""))  # fmt: skip
    if chain.refusal is not None:
        lines.append(chain.refusal.why)
        if chain.refusal.source:
            lines.append(f"source: {chain.refusal.source}")
    return lines


def _is(node: ast.expr, gate: Gate) -> bool:
    return node.lineno == gate.line and effects.short(node) == gate.condition


def _only_raises(body: list[ast.stmt]) -> bool:
    return any(isinstance(part, ast.Raise) for part in body)
