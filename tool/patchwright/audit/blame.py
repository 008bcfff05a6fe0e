"""Joins a failure with the series: the gate on the way, the patch behind it, what it needs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from patchwright.audit.explain import Failure, Frame, installed_path
from patchwright.audit.gates import Change, Gate, changes
from patchwright.audit.series import Auditor
from patchwright.changes import CorruptPatch
from patchwright.upstreams.layout import PathMap

if TYPE_CHECKING:
    from patchwright.patch import Patch
    from patchwright.series import Selection


@dataclass(frozen=True)
class Place:
    """A frame within an upstream, by repository path."""

    upstream: str
    path: str
    line: int
    function: str


@dataclass(frozen=True)
class Blame:
    """What led to a failure.

    ``route`` are the frames within the upstreams, outermost first, ``module`` the JIT
    generator or function that failed. ``opened`` names each patch with the gate that it
    opens on the route; ``needs`` are sentences.
    """

    route: tuple[Place, ...]
    module: str
    gates: tuple[Gate, ...]
    opened: tuple[tuple[int, Change], ...]
    needs: tuple[str, ...]


def blame(auditor: Auditor, selection: Selection, failure: Failure) -> Blame:
    """Return what of the series led to a failure."""
    route = tuple(p for frame in failure.frames if (p := _place(auditor, frame)) is not None)
    module = next(
        (f"{p.path}::{p.function}" for p in reversed(route) if p.function.startswith("gen_")), ""
    )
    if not module and route:
        module = f"{route[-1].path}::{route[-1].function}"
    picked = selection.pick(auditor.project.series)
    state = auditor.chain.base()
    opened: list[tuple[int, Change]] = []
    _, verdicts = auditor.chain.apply(picked)
    for patch, verdict in zip(picked, verdicts, strict=True):
        before, state = state, state.after(verdict)
        if before == state:
            continue
        for change in changes(auditor.gates(before).gates, auditor.gates(state).gates):
            # A gate stands in the file of a frame, in front of the call that it lets through.
            if change.opened and any(place.path == change.gate.path for place in route):
                opened.append((patch.number, change))
    gates = tuple(
        gate
        for gate in auditor.gates(state).gates
        if any(p.path == gate.path and _names(gate, p.function) for p in route)
        and gate.kind not in ("read", "definition", "environment")
    )
    return Blame(route, module, gates, tuple(opened), _needs(auditor, failure, route, opened))


def _place(auditor: Auditor, frame: Frame) -> Place | None:
    for name, config in auditor.project.config.upstreams.items():
        installed = installed_path(frame.path, config.packages)
        if installed is None:
            continue
        path = PathMap(config.layout).to_repository(os.fsencode(installed))
        if path is not None:
            return Place(name, os.fsdecode(path), frame.line, frame.function)
    return None


def _names(gate: Gate, function: str) -> bool:
    return gate.function.rpartition(".")[2] == function


def _needs(
    auditor: Auditor, failure: Failure, route: tuple[Place, ...], opened: list[tuple[int, Change]]
) -> tuple[str, ...]:
    found: list[str] = []
    if failure.kind == "jit-no-arch":
        wanted = sorted({int(c.partition(".")[0]) for c in auditor.capabilities})
        majors = [m for m in wanted if m not in failure.majors]
        generator = next((p for p in reversed(route) if p.function.startswith("gen_")), None)
        name = generator.function if generator is not None else "the JIT generator"
        listed = ", ".join(map(str, failure.majors))
        found.append(f"{name} must build for major version "
                     f"{' and '.join(map(str, majors))} (it lists {listed})")  # fmt: skip
        if generator is not None:
            found += [
                f"{patch.number:04d} changes {generator.path}: {patch.title}"
                for patch in auditor.project.series.patches
                if _touches(patch, generator.path)
            ]
    for number, _ in dict(opened).items():
        patch = auditor.project.series.get(number)
        found += [
            f"{number:04d} declares a need of {n.number:04d}: {n.reason}" for n in patch.depends
        ]
    return tuple(dict.fromkeys(found))


def _touches(patch: Patch, path: str) -> bool:
    wanted = os.fsencode(path)
    try:
        return any(wanted in (c.old_path, c.new_path) for c in patch.changes)
    except CorruptPatch:
        return False
