"""What stands behind a JIT module without compiling it: what the guards take from its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from patchwright.audit.sources import Lost, Sources
from patchwright.smoke.outcomes import SmokeError

REFERENCE = "100a"


@dataclass(frozen=True)
class Finding:
    """One thing that stands behind a gate.

    ``kind`` is ``missing`` (a refusal), ``module`` (it builds), ``hollow``, ``barrier``
    or ``code`` (what the guards take), ``guards`` (what a patch does to them),
    ``object`` and ``object-...`` (from compiled objects) or ``unknown``. ``on_route``
    tells whether the route comes to it; None: nobody asks for the module by name.
    ``lines`` is a chain for a person to read.
    """

    kind: str
    sentence: str
    where: str = ""
    on_route: bool | None = None
    lines: tuple[str, ...] = ()


def behind_module(
    sources: Sources, module: str, capabilities: Sequence[str], asked: frozenset[str] | None
) -> list[Finding]:
    """Return what the guards take from a module (``path::generator``) on the targets.

    ``asked`` are the functions that the route calls, None where no route is known.
    """
    path, _, name = module.partition("::")
    targets = [f"{c.replace('.', '')}a" for c in capabilities]
    shown = ", ".join(f"sm_{t}" for t in targets)
    try:
        own = sources.of_generator(path, name)
        lost = {
            (one.path, one.line): (one, source)
            for source in own
            for file in sources.closure([source])
            for target in targets
            for one in sources.lost(file, REFERENCE, target)
        }
        findings = [Finding("module", f"{name} builds for {', '.join(capabilities)}", module)]
        exports = sources.exports(own)
        groups: dict[tuple[str, str, bool | None], list[Lost]] = {}
        for one, source in lost.values():
            # Without exports it is not known by which name a kernel is asked for.
            known = asked is not None and bool(exports)
            on_route = _comes_to(sources, one, source, asked or frozenset()) if known else None
            kernel = one.function if one.loss == "kernel" else ""
            groups.setdefault((one.loss, kernel, on_route), []).append(one)
    except SmokeError as error:
        return [Finding("unknown", f"{name}: {error}", module)]
    for (loss, kernel, on_route), members in groups.items():
        place = f"{members[0].path}:{members[0].line}"
        end = {None: "", True: ", on the route", False: ", not on the route"}[on_route]
        if loss == "kernel":
            text = f"{name}: the whole body of the kernel {kernel} is gone on {shown}{end}"
            findings.append(Finding("hollow", text, place, on_route))
            continue
        where = ", ".join(dict.fromkeys(m.function or m.path for m in members))
        what = "barrier(s)" if loss == "barrier" else "piece(s) of code"
        text = f"{name}: {len(members)} {what} gone on {shown}{end}: {where}"
        findings.append(Finding(loss, text, place, on_route))
    return findings


def _comes_to(sources: Sources, lost: Lost, source: str, asked: frozenset[str]) -> bool:
    """Whether a function that is asked for, exported by this source, can come to the loss."""
    exports = {n: f for n, f in sources.exports([source]).items() if n in asked}
    if not exports or not lost.function:
        return bool(exports)
    by = sources.reached_by(lost.function, sources.closure([source]))
    return any(function in by for function in exports.values())
