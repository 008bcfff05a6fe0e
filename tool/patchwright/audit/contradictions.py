"""The routes of a whole tree that meet a refusal: what upstream itself admits and refuses."""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchwright.audit.gates import Gate
from patchwright.audit.routes import admitting, describe
from patchwright.audit.verdicts import code_of_audit, recorded

if TYPE_CHECKING:
    from patchwright.applying.chain import State
    from patchwright.audit.series import Auditor


@dataclass(frozen=True)
class Contradiction:
    """A gate that admits a capability, and the end that refuses it; ``lines`` is the chain."""

    capability: str
    gate: Gate
    why: str
    place: str
    source: str
    when: tuple[str, ...]
    lines: tuple[str, ...]


def contradictions(
    auditor: Auditor, state: State, say: Callable[[str], None] = lambda _: None
) -> list[Contradiction]:
    """Return the routes of every upstream's gates that send a capability to a refusal.

    The capabilities are the project's, one after the other in the result.
    """

    def make() -> list[dict[str, Any]]:
        found: dict[str, list[dict[str, Any]]] = {c: [] for c in auditor.capabilities}
        gates = auditor.gates(state).gates
        wanted = [g for g in gates if any(admitting([g], c) for c in found)]
        # Gate by gate, not capability by capability: syntax trees are made again less often.
        for number, gate in enumerate(wanted):
            if number % 10 == 0:
                say(f"following gates: {number}/{len(wanted)}")
            for capability in found:
                if admitting([gate], capability):
                    found[capability] += _refused(auditor, state, capability, gate)
        return [row for rows in found.values() for row in rows]

    text = f"{code_of_audit()} {state.trees} {auditor.capabilities}"
    root: Path = auditor.project.cache_dir
    key = hashlib.sha256(text.encode()).hexdigest()
    collecting = gc.isenabled()
    # Collecting goes through all syntax trees again and again: two thirds of parsing's time.
    gc.disable()
    try:
        rows = recorded(root / "audit" / "routes" / key[:2] / f"{key}.json", make)
    finally:
        if collecting:
            gc.enable()
    return [
        Contradiction(r["capability"], Gate.from_json(r["gate"]), r["why"], r["place"],
                      r["source"], tuple(r["when"]), tuple(r["lines"]))
        for r in rows
    ]  # fmt: skip


def _refused(auditor: Auditor, state: State, capability: str, gate: Gate) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for chain in auditor.router(state, capability).route(gate).refused:
        end = chain.refusal
        assert end is not None
        found.append({
            "capability": capability, "gate": gate.to_json(), "why": end.why,
            "place": f"{end.path}:{end.line}", "source": end.source, "when": list(chain.when),
            "lines": describe(chain),
        })  # fmt: skip
    return found
