"""The routes of a whole tree that meet a refusal: what upstream itself admits and refuses."""

from __future__ import annotations

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
    auditor: Auditor, state: State, capability: str, say: Callable[[str], None] = lambda _: None
) -> list[Contradiction]:
    """Return the routes of every upstream's gates that send a capability to a refusal."""

    def make() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        gates = admitting(auditor.gates(state).gates, capability)
        for number, gate in enumerate(gates):
            if number % 10 == 0:
                say(f"following gates: {number}/{len(gates)}")
            for chain in auditor.router(state, capability).route(gate).refused:
                end = chain.refusal
                assert end is not None
                found.append({
                    "gate": gate.to_json(), "why": end.why, "place": f"{end.path}:{end.line}",
                    "source": end.source, "when": list(chain.when), "lines": describe(chain),
                })  # fmt: skip
        return found

    import hashlib

    text = f"{code_of_audit()} {state.trees} {capability}"
    root: Path = auditor.project.cache_dir
    key = hashlib.sha256(text.encode()).hexdigest()
    rows = recorded(root / "audit" / "routes" / key[:2] / f"{key}.json", make)
    return [
        Contradiction(capability, Gate.from_json(r["gate"]), r["why"], r["place"], r["source"],
                      tuple(r["when"]), tuple(r["lines"]))
        for r in rows
    ]  # fmt: skip
