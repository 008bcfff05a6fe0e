"""Joins a failure with the series: the gate on the way, the patch behind it, what it needs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from patchwright.audit.explain import Failure, Frame, installed_path
from patchwright.audit.gates import Change, Gate, changes
from patchwright.audit.series import Auditor
from patchwright.changes import CorruptPatch
from patchwright.upstreams.layout import PathMap

if TYPE_CHECKING:
    from patchwright.applying.chain import State
    from patchwright.patch import Patch
    from patchwright.series import Selection


_NUMBER = re.compile(r"\d+")


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
    opens on the route; ``needs`` are sentences. ``stale`` says why the log cannot come
    from the selected series, where it cannot.
    """

    route: tuple[Place, ...]
    module: str
    gates: tuple[Gate, ...]
    opened: tuple[tuple[int, Change], ...]
    needs: tuple[str, ...]
    stale: str = ""


def blame(auditor: Auditor, selection: Selection, failure: Failure) -> Blame:
    """Return what of the series led to a failure."""
    route = tuple(p for frame in failure.frames if (p := _place(auditor, frame)) is not None)
    picked = selection.pick(auditor.project.series)
    final, _ = auditor.chain.apply(picked)
    generator = _generator(auditor, failure, route)
    module = f"{generator[0]}::{generator[1]}" if generator is not None else ""
    if not module and route:
        module = f"{route[-1].path}::{route[-1].function}"
    opened: list[tuple[int, Change]] = []
    for number, change in _openings(auditor, selection, generator, route):
        # A gate stands in the file of a frame, in front of the call that it lets through.
        if any(place.path == change.gate.path for place in route):
            opened.append((number, change))
        elif not route and generator is not None:
            way = _way(auditor, final, change, module)
            if way:
                opened.append((number, change))
                route = way
    gates = tuple(
        gate
        for gate in auditor.gates(final).gates
        if any(p.path == gate.path and _names(gate, p.function) for p in route)
        and gate.kind not in ("read", "definition", "environment")
    )
    return Blame(
        route, module, gates, tuple(opened), _needs(auditor, failure, generator, opened),
        _stale(auditor, final, failure, generator),
    )  # fmt: skip


def _generator(
    auditor: Auditor, failure: Failure, route: tuple[Place, ...]
) -> tuple[str, str] | None:
    """Return path and name of the JIT generator that failed.

    Without a traceback it is the one whose list of major versions at the pin is the
    message's, where there is one alone.
    """
    for place in reversed(route):
        if place.function.startswith("gen_"):
            return place.path, place.function
    if failure.kind != "jit-no-arch" or route:
        return None
    found = {
        (gate.path, gate.function)
        for gate in auditor.gates(auditor.chain.base()).gates
        if gate.kind == "jit-list" and _majors(gate) == failure.majors
    }
    return found.pop() if len(found) == 1 else None


def _majors(gate: Gate) -> tuple[int, ...]:
    return tuple(int(n) for n in _NUMBER.findall(gate.condition))


def _openings(
    auditor: Auditor, selection: Selection, generator: tuple[str, str] | None,
    route: tuple[Place, ...],
) -> Iterator[tuple[int, Change]]:  # fmt: skip
    """Yield the gates that patches open which change a file of the route.

    Without a route those count that declare a need of a patch to the generator.
    """
    picked = selection.pick(auditor.project.series)
    own = {p.number for p in auditor.project.series.patches
           if generator is not None and _touches(p, generator[0])}  # fmt: skip
    state = auditor.chain.base()
    _, verdicts = auditor.chain.apply(picked)
    for patch, verdict in zip(picked, verdicts, strict=True):
        before, state = state, state.after(verdict)
        if before == state or not (
            any(_touches(patch, place.path) for place in route)
            if route
            else any(need.number in own for need in patch.depends)
        ):
            continue
        for change in changes(auditor.gates(before).gates, auditor.gates(state).gates):
            if change.opened:
                yield patch.number, change


def _way(auditor: Auditor, final: State, change: Change, module: str) -> tuple[Place, ...]:
    """Return the functions from an opened gate to a module; none where it leads elsewhere."""
    for capability in auditor.capabilities:
        if capability in change.opened and change.after is not None:
            for chain in auditor.router(final, capability).route(change.after).chains:
                last = chain.steps[-1]
                if module in (chain.module, f"{last.path}::{last.function}"):
                    return tuple(Place(s.upstream, s.path, s.line, s.function) for s in chain.steps)
    return ()


def _stale(
    auditor: Auditor, final: State, failure: Failure, generator: tuple[str, str] | None
) -> str:
    """Say why a log cannot come from the selected series: there the module builds."""
    if failure.kind != "jit-no-arch" or generator is None:
        return ""
    own = [
        gate for gate in auditor.gates(final).gates
        if gate.kind == "jit-list" and (gate.path, gate.function) == generator
    ]  # fmt: skip
    if not own or any(_majors(gate) == failure.majors for gate in own):
        return ""
    listed = " or ".join(str(list(_majors(gate))) for gate in own)
    return (
        f"in the series as selected {generator[1]} lists {listed}, the log says "
        f"{list(failure.majors)}: something older ran, such as another copy of the package on "
        "the path, an environment that was not rebuilt or a patch left out"
    )


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
    auditor: Auditor, failure: Failure, generator: tuple[str, str] | None,
    opened: list[tuple[int, Change]],
) -> tuple[str, ...]:  # fmt: skip
    found: list[str] = []
    if failure.kind == "jit-no-arch":
        wanted = sorted({int(c.partition(".")[0]) for c in auditor.capabilities})
        majors = [m for m in wanted if m not in failure.majors]
        name = generator[1] if generator is not None else "the JIT generator"
        listed = ", ".join(map(str, failure.majors))
        found.append(f"{name} must build for major version "
                     f"{' and '.join(map(str, majors))} (it lists {listed})")  # fmt: skip
        if generator is not None:
            found += [
                f"{patch.number:04d} changes {generator[0]}: {patch.title}"
                for patch in auditor.project.series.patches
                if _touches(patch, generator[0])
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
