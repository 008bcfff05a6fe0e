"""The audit of a series: what each patch does to the gates, and what stands behind them.

A patch is judged by the gates that it opens for the project's architectures; what they
lead to is looked for on the state with all selected patches, so that a later patch may
make whole what an earlier one opens onto.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.audit.gates import Change, Gate, changes
from patchwright.audit.inventory import Inventory, inventory
from patchwright.audit.knowledge import Knowledge, load
from patchwright.audit.routes import Route, Router
from patchwright.audit.sources import Lost, Sources
from patchwright.audit.trees import StoredTrees
from patchwright.smoke.outcomes import SmokeError

if TYPE_CHECKING:
    from patchwright.applying.chain import State
    from patchwright.patch import Patch
    from patchwright.project import Project
    from patchwright.series import Selection

# Verdicts, the worst first.
VERDICTS = ("missing", "poisoned", "hollow", "cannot-tell", "whole", "nothing-new")
SENTENCES = {
    "missing": "leads to code that does not exist on the target",
    "poisoned": "leads to code that traps on the target",
    "hollow": "leads to kernels that are empty on the target",
    "cannot-tell": "cannot tell",
    "whole": "leads to whole code",
    "nothing-new": "leads nowhere new",
}
REFERENCE = "100a"


@dataclass(frozen=True)
class Finding:
    """One thing that stands behind a gate.

    ``kind`` is ``missing``, ``hollow``, ``barrier``, ``code``, ``module`` (it builds) or
    ``unknown``. ``on_path`` tells whether the route comes to it; None: not told.
    ``lines`` is a chain for a person to read.
    """

    kind: str
    sentence: str
    where: str = ""
    on_path: bool | None = None
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judged:
    """One patch: the gates that it changes, what was found behind them, the verdict."""

    number: int
    verdict: str
    why: str
    changes: tuple[Change, ...] = ()
    routes: tuple[Route, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass
class Report:
    """The audit of one selection."""

    patches: list[Judged] = field(default_factory=list)
    unread: list[tuple[str, str, str]] = field(default_factory=list)


class Auditor:
    """Audits states of one project; remembers the gates of each."""

    def __init__(self, project: Project, say: Callable[[str], None] = lambda _: None) -> None:
        from patchwright.applying.chain import Chain
        from patchwright.smoke.trees import SyntaxCache

        self.project = project
        self.say = say
        self.chain = Chain(project)
        self.knowledge: Knowledge = load(project.root)
        self._syntax = SyntaxCache()
        self._trees: dict[State, StoredTrees] = {}
        self._gates: dict[State, Inventory] = {}

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The capabilities of the architectures that the project is for: ``12.0``."""
        return tuple(map(capability_of, self.project.config.arch)) or ("12.0",)

    def trees(self, state: State) -> StoredTrees:
        """Return the trees of a state."""
        if state not in self._trees:
            self._trees[state] = StoredTrees.of(self.project, state, self._syntax)
        return self._trees[state]

    def gates(self, state: State) -> Inventory:
        """Return the gates of a state."""
        if state not in self._gates:
            self.say("evaluating the gates")
            names = tuple(self.project.config.upstreams)
            self._gates[state] = inventory(self.trees(state), names, self.project.cache_dir)
        return self._gates[state]

    def router(self, state: State, capability: str) -> Router:
        """Return what follows gates on a state."""
        return Router(self.trees(state), self.knowledge, capability)

    def series(self, selection: Selection, numbers: Sequence[int] = ()) -> Report:
        """Judge the selected patches (those of ``numbers`` only, where given)."""
        picked = selection.pick(self.project.series)
        self.project.series.check_numbers(numbers)
        final, verdicts = self.chain.apply(picked)
        report = Report()
        state = self.chain.base()
        for patch, verdict in zip(picked, verdicts, strict=True):
            before, state = state, state.after(verdict)
            if numbers and patch.number not in numbers:
                continue
            if not verdict.ok:
                why = f"the patch does not apply: {verdict.reason or verdict.verdict}"
                report.patches.append(Judged(patch.number, "cannot-tell", why))
                continue
            self.say(f"auditing {patch.number:04d}")
            report.patches.append(self._judge(patch, before, state, final))
        report.unread = list(self.gates(final).unread)
        return report

    def _judge(self, patch: Patch, before: State, after: State, final: State) -> Judged:
        found = tuple(changes(self.gates(before).gates, self.gates(after).gates))
        opened = [c for c in found if set(c.opened) & set(self.capabilities)]
        routes: list[Route] = []
        findings: list[Finding] = []
        for capability in self.capabilities:
            router = self.router(final, capability)
            for change in opened:
                if capability in change.opened and change.after is not None:
                    gate = self._in_final(change.after, final)
                    if gate is None or gate.kind == "aot":
                        continue
                    if gate.kind == "jit-list":
                        findings += self._module(final, f"{gate.path}::{gate.function}",
                                                 gate.upstream, capability, None)  # fmt: skip
                        continue
                    route = router.route(gate)
                    routes.append(route)
                    findings += self._behind(route, router, final, capability)
        findings += self._guards(patch, before, after)
        unique = list(dict.fromkeys(findings))
        verdict, why = _verdict(opened, found, unique)
        return Judged(patch.number, verdict, why, found, tuple(routes), tuple(unique))

    def _in_final(self, gate: Gate, final: State) -> Gate | None:
        same = [g for g in self.gates(final).gates if g.identity == gate.identity]
        return min(same, key=lambda g: abs(g.line - gate.line)) if same else None

    def _behind(
        self, route: Route, router: Router, final: State, capability: str
    ) -> list[Finding]:
        from patchwright.audit.routes import describe

        findings = []
        for chain in route.refused:
            end = chain.refusal
            assert end is not None
            place = f"{end.path}:{end.line}"
            findings.append(Finding("missing", end.why, place, True, tuple(describe(chain))))
        for module in route.modules:
            upstream = next(
                c.steps[-1].upstream for c in route.chains if c.module == module
            )
            findings += self._module(final, module, upstream, capability, router.follower.asked)
        return findings

    def _module(
        self, state: State, module: str, upstream: str, capability: str, asked: set[str] | None
    ) -> list[Finding]:
        """Return what the guards take from a module that is built for the target."""
        path, _, name = module.partition("::")
        sources = Sources(self.trees(state), upstream)
        target = f"{capability.replace('.', '')}a"
        try:
            own = sources.of_generator(path, name)
            files = sources.closure(own)
            exports = sources.exports(own)
        except SmokeError as error:
            return [Finding("unknown", f"{name}: {error}", module)]
        findings = [Finding("module", f"{name} builds for {capability}", module)]
        for file in files:
            for lost in sources.lost(file, REFERENCE, target):
                on_path = None
                if asked is not None and lost.function:
                    by = sources.reached_by(lost.function, files)
                    callers = {e for e, f in exports.items() if f in by or e in by}
                    on_path = bool(callers & asked)
                findings.append(_of_guard(lost, name, target, on_path))
        return findings

    def _guards(self, patch: Patch, before: State, after: State) -> list[Finding]:
        """Return what a patch does to the guards of the CUDA files that it changes."""
        upstream = self.chain.upstream(patch)
        findings = []
        for change in patch.changes:
            name = (change.new_path or change.old_path or b"").decode("utf-8", "replace")
            if not name.endswith((".cu", ".cuh", ".h", ".hpp")):
                continue
            for capability in self.capabilities:
                target = f"{capability.replace('.', '')}a"
                counts = []
                for state in (before, after):
                    try:
                        own = Sources(self.trees(state), upstream)
                        counts.append(len(own.lost(name, REFERENCE, target)))
                    except SmokeError:
                        counts.append(0)
                if counts[0] != counts[1]:
                    findings.append(Finding(
                        "guards", f"guards that sm_{REFERENCE} takes and sm_{target} does not: "
                        f"{counts[0]} before, {counts[1]} after", name,
                    ))  # fmt: skip
        return findings


def capability_of(arch: str) -> str:
    """Return the capability of an architecture's name: ``sm_120`` gives ``12.0``.

    Raises ValueError for a text that is none.
    """
    digits = arch.removeprefix("sm_").rstrip("af").replace(".", "")
    if not digits.isdigit() or not 2 <= len(digits) <= 3:
        raise ValueError(f"{arch!r} is not an architecture such as sm_120")
    return f"{int(digits[:-1])}.{digits[-1]}"


def _of_guard(lost: Lost, module: str, target: str, on_path: bool | None) -> Finding:
    place = f"{lost.path}:{lost.line}"
    path = {None: "", True: " (on the route)", False: " (not on the route)"}[on_path]
    if lost.loss == "kernel":
        text = f"the whole body of the kernel {lost.function} is gone on sm_{target}"
        return Finding("hollow", f"{module}: {text}{path}", place, on_path)
    what = "a barrier" if lost.loss == "barrier" else "code"
    inside = f" in {lost.function}" if lost.function else ""
    return Finding(lost.loss, f"{module}: {what}{inside} is gone on sm_{target}{path}", place, on_path)


def _verdict(
    opened: Sequence[Change], found: Sequence[Change], findings: Sequence[Finding]
) -> tuple[str, str]:
    kinds = {f.kind for f in findings}
    missing = [f for f in findings if f.kind == "missing"]
    if missing:
        return "missing", missing[0].sentence
    hollow = [f for f in findings if f.kind == "hollow"]
    on_path = [f for f in hollow if f.on_path]
    if on_path:
        return "hollow", on_path[0].sentence
    if hollow and all(f.on_path is False for f in hollow):
        return "whole", f"{len(hollow)} empty kernel(s) in the module, none on the route: " + hollow[0].sentence
    if hollow:
        return "hollow", hollow[0].sentence
    if "unknown" in kinds and "module" not in kinds:
        return "cannot-tell", next(f.sentence for f in findings if f.kind == "unknown")
    if "module" in kinds:
        names = ", ".join(dict.fromkeys(f.sentence for f in findings if f.kind == "module"))
        return "whole", names
    if opened:
        return "cannot-tell", "the opened gate leads to no JIT module that could be followed"
    guards = [f for f in findings if f.kind == "guards"]
    if guards:
        return "whole", f"{guards[0].where}: {guards[0].sentence}"
    return "nothing-new", "no gate is opened" + (f"; {len(found)} changed" if found else "")


__all__ = ["Auditor", "Finding", "Judged", "Path", "Report", "capability_of"]
