"""The modules behind the opened gates of a series, compiled: what their objects show.

Compiled are the sources that the routes come to, and those from which the guards take
something; what exports nothing by name is compiled as well, as nobody can tell. All are
compiled at once, as many as cores and memory allow, each once for all patches; objects
are kept by what they were compiled from, so a run that was stopped goes on where it was.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.audit.behind import Modules, modules_of
from patchwright.audit.cuda_guards import spec_for
from patchwright.audit.kernels import Problem, compared
from patchwright.audit.sources import Sources
from patchwright.audit.standing import Finding
from patchwright.audit.verdicts import BAD
from patchwright.smoke import device_code
from patchwright.smoke.compiler import free_memory
from patchwright.smoke.jit import JitSpec, target
from patchwright.smoke.outcomes import Blocked, SmokeError, UpstreamRefused

if TYPE_CHECKING:
    from patchwright.audit.series import Auditor, Judged, Report
    from patchwright.series import Selection
    from patchwright.smoke.elf import Cubin

REFERENCE = "10.0a"
# What one compiler may need, in bytes, and how long it may take, in seconds: on a busy
# machine the largest sources take half an hour.
_MEMORY = 2 << 30
_DEADLINE = 3600.0
_ERRORS = (SmokeError, UpstreamRefused, Blocked)


@dataclass
class _Module:
    """One module: its specs, which of its sources are compiled, what is known without."""

    entry: str
    specs: tuple[JitSpec, ...] = ()  # of the reference and of the target
    sources: list[Path] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def with_kernels(
    auditor: Auditor, selection: Selection, report: Report, say: Callable[[str], None]
) -> list[Judged]:
    """Return the judgements of a report with what the compiled objects behind them show."""
    of = [tuple(dict.fromkeys(f.where for f in judged.findings if f.kind == "module"))
          for judged in report.patches]  # fmt: skip
    entries = list(dict.fromkeys(entry for group in of for entry in group))
    if not entries:
        return list(report.patches)
    archs = (REFERENCE, f"{auditor.capabilities[0]}a")
    with modules_of(auditor.project, selection) as found:
        modules = [_module(found, entry, archs, report.asked.get(entry)) for entry in entries]
        cubins = _cubins(modules, archs, say)
        made = {m.entry: _shown(m, archs, cubins) for m in modules}
    judged = zip(report.patches, of, strict=True)
    return [_with(one, [finding for entry in group for finding in made[entry]])
            for one, group in judged]  # fmt: skip


def _module(
    found: Modules, entry: str, archs: Sequence[str], asked: frozenset[str] | None
) -> _Module:
    try:
        specs = tuple(spec_for(found.trees, entry, arch, found.knowledge) for arch in archs)
    except _ERRORS as error:
        return _Module(entry, findings=[Finding("unknown", f"{entry}: {error}", entry)])
    made = _Module(entry, specs)
    sources = Sources(found.stored, found.upstream)
    path, _, name = entry.partition("::")
    own = {p.rpartition("/")[2]: p for p in sources.of_generator(path, name)}
    for source in specs[0].sources:
        if source.suffix != ".cu":
            continue
        if _is_worth(sources, own.get(source.name), archs, asked):
            made.sources.append(source)
        else:
            made.findings.append(Finding(
                "object", f"{source.name}: not compiled: no route comes to it, and the guards "
                "take nothing from it", entry, False,
            ))  # fmt: skip
    return made


def _is_worth(
    sources: Sources, path: str | None, archs: Sequence[str], asked: frozenset[str] | None
) -> bool:
    """Return whether a source may show something: on the route, or with something taken."""
    if path is None or asked is None:
        return True
    exports = sources.exports([path])
    reference, own = map(target, archs)
    return (
        not exports
        or not asked.isdisjoint(exports)
        or any(sources.lost(file, reference, own) for file in sources.closure([path]))
    )


def _cubins(
    modules: Sequence[_Module], archs: Sequence[str], say: Callable[[str], None]
) -> dict[tuple[str, str, str], Cubin | str]:
    """Return the objects by module, source and architecture; a text says why there is none."""
    jobs = [(m, source, arch, spec) for m in modules for source in m.sources
            # The target first: it is what is asked about.
            for arch, spec in reversed(list(zip(archs, m.specs, strict=True)))]  # fmt: skip
    free = free_memory()
    cores = len(os.sched_getaffinity(0))
    at_once = max(1, min(cores, len(jobs), cores if free is None else free // _MEMORY))
    say(f"compiling {len(jobs)} objects, {at_once} at a time")
    found: dict[tuple[str, str, str], Cubin | str] = {}
    with ThreadPoolExecutor(at_once) as pool:
        running: dict[Future[Cubin], tuple[str, str, str]] = {}
        start = time.monotonic()
        for module, source, arch, spec in jobs:
            future = pool.submit(device_code.cubin, spec, source.name, arch,
                                 memory=_MEMORY, deadline=_DEADLINE)  # fmt: skip
            running[future] = (module.entry, source.name, arch)
        try:
            for number, future in enumerate(as_completed(running), 1):
                key = running[future]
                try:
                    found[key] = future.result()
                except _ERRORS as error:
                    found[key] = " ".join(str(error).split())
                spent = time.monotonic() - start
                say(f"{number} of {len(jobs)} compiled: {key[1]} for {key[2]} ({spent:.0f} s)")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return found


def _shown(
    module: _Module, archs: Sequence[str], cubins: Mapping[tuple[str, str, str], Cubin | str]
) -> list[tuple[Finding, Problem | None]]:
    """Return the findings in a module's objects, each with the problem that it tells of."""
    rows: list[tuple[Finding, Problem | None]] = [(f, None) for f in module.findings]
    for source in module.sources:
        reference, own = (cubins[module.entry, source.name, arch] for arch in archs)
        if isinstance(reference, str) or isinstance(own, str):
            why = own if isinstance(own, str) else reference
            rows.append((Finding("unknown", f"{source.name}: {why}", module.entry), None))
            continue
        made = compared(source.name, reference, own, major=archs[1].partition(".")[0])
        for problem in made.problems:
            text = f"{source.name}: {problem.sentence}: {', '.join(problem.kernels[:4])}"
            finding = Finding(f"object-{problem.kind}", text.removesuffix(": "), module.entry)
            rows.append((finding, problem))
        rows.append((Finding("object", f"{source.name}: {made.count[1]} kernels, lowest ratio "
                             f"{made.lowest:.3f}", module.entry), None))  # fmt: skip
    return rows


def _with(judged: Judged, rows: Sequence[tuple[Finding, Problem | None]]) -> Judged:
    findings = []
    for finding, problem in rows:
        if problem is not None and on_route(judged, problem) is False:
            text = f"{finding.sentence}, not on the route"
            findings.append(replace(finding, sentence=text, on_route=False))
        else:
            findings.append(finding)
    return with_objects(judged, findings)


def on_route(judged: Judged, problem: Problem) -> bool | None:
    """Whether the route comes to hollow kernels: False where the guards say so of each one."""
    off = [f.sentence for f in judged.findings if f.kind == "hollow" and f.on_route is False]
    names = [name.rpartition("::")[2] for name in problem.kernels]
    known = problem.kind == "hollow" and bool(names)
    return False if known and all(any(f" {n} " in s for s in off) for n in names) else None


def with_objects(judged: Judged, findings: Sequence[Finding]) -> Judged:
    """Return a judgement with the findings in objects; what is bad on the route decides."""
    verdict, why = judged.verdict, judged.why
    for word in ("hollow", "poisoned"):
        bad = [f for f in findings if f.kind == f"object-{word}" and f.on_route is not False]
        if bad and verdict not in BAD:
            verdict, why = word, bad[0].sentence
    return replace(judged, verdict=verdict, why=why, findings=(*judged.findings, *findings))
