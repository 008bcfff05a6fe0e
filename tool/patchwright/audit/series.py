"""The audit of a series: what each patch does to the gates, and what stands behind them.

A patch is judged by the gates that it opens for the project's architectures; what they
lead to is looked for on the state with all selected patches, so that a later patch may
make whole what an earlier one opens onto.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from patchwright.audit.gates import Change, Gate, changes
from patchwright.audit.inventory import Inventory, inventory
from patchwright.audit.knowledge import Knowledge, load
from patchwright.audit.routes import Route, Router, describe
from patchwright.audit.sources import Sources
from patchwright.audit.standing import REFERENCE, Finding, behind_module
from patchwright.audit.trees import StoredTrees
from patchwright.audit.uses import Corpus, Uses
from patchwright.smoke.bindings import Modules
from patchwright.smoke.outcomes import SmokeError

if TYPE_CHECKING:
    from patchwright.applying.chain import State
    from patchwright.patch import Patch
    from patchwright.project import Project
    from patchwright.series import Selection

# Bytes of source whose syntax trees are kept while routes are followed: a byte makes 30 to 40
# of them.
_LARGEST = 12_000_000
# Verdicts, the worst first.
VERDICTS = ("missing", "poisoned", "hollow", "lost", "cannot-tell", "whole", "nothing-new")
SENTENCES = {
    "missing": "leads to code that does not exist on the target",
    "poisoned": "leads to code that traps on the target",
    "hollow": "leads to kernels that are empty on the target",
    "lost": "leads to kernels that lose barriers on the target",
    "cannot-tell": "cannot tell",
    "whole": "leads to whole code",
    "nothing-new": "leads nowhere new",
}


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
class _Opened:
    """What one patch changes, and where that leads on the final state."""

    before: State
    after: State
    changes: tuple[Change, ...]
    routes: list[Route] = field(default_factory=list)
    modules: dict[tuple[str, str], list[str]] = field(default_factory=dict)


@dataclass
class Report:
    """The audit of one selection."""

    patches: list[Judged] = field(default_factory=list)
    unread: list[tuple[str, str, str]] = field(default_factory=list)
    # Of each module, what the routes of the whole selection call on their way to it.
    asked: Mapping[str, frozenset[str]] = field(default_factory=dict)


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
        self._blobs: dict[str, bytes] = {}
        self._uses: dict[State, Uses] = {}
        self._corpora: dict[State, dict[str, Corpus]] = {}
        self._routers: dict[tuple[State, str], Router] = {}

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The capabilities of the architectures that the project is for: ``12.0``."""
        return tuple(map(capability_of, self.project.config.arch)) or ("12.0",)

    def trees(self, state: State) -> StoredTrees:
        """Return the trees of a state."""
        if state not in self._trees:
            self._trees[state] = StoredTrees.of(self.project, state, self._syntax, self._blobs)
        return self._trees[state]

    def gates(self, state: State) -> Inventory:
        """Return the gates of a state."""
        if state not in self._gates:
            self.say("evaluating the gates")
            names = tuple(self.project.config.upstreams)
            self._gates[state] = inventory(self.trees(state), names, self.project.cache_dir)
        return self._gates[state]

    def router(self, state: State, capability: str) -> Router:
        """Return what follows gates on a state: ask for each gate anew, it may be another one."""
        if sum(len(self._blobs.get(oid, b"")) for oid in self._syntax.known) > _LARGEST:
            self._forget()
        key = (state, capability)
        if key not in self._routers:
            if state not in self._uses:
                trees = self.trees(state)
                corpora = self._corpora.setdefault(state, {})
                self._uses[state] = Uses(trees, Modules(trees), corpora)
            marks = self.gates(state).marks(self.trees(state), self.project.cache_dir)
            self._routers[key] = Router(self._uses[state], self.knowledge, capability, marks)
        return self._routers[key]

    def _forget(self) -> None:
        """Let go of all syntax trees, and of what was made of them."""
        self._routers.clear()
        self._uses.clear()
        self._syntax.known.clear()
        self._blobs.clear()
        for trees in self._trees.values():
            trees.shared.clear()
        gc.collect()

    def series(self, selection: Selection, numbers: Sequence[int] = ()) -> Report:
        """Judge the selected patches (those of ``numbers`` only, where given)."""
        picked = selection.pick(self.project.series)
        self.project.series.check_numbers(numbers)
        final, verdicts = self.chain.apply(picked)
        report = Report()
        opened: dict[int, _Opened] = {}
        state = self.chain.base()
        for patch, verdict in zip(picked, verdicts, strict=True):
            before, state = state, state.after(verdict)
            if verdict.ok:
                self.say(f"auditing {patch.number:04d}")
                opened[patch.number] = self._opened(before, state, final)
        asked = report.asked = _asked(opened.values())
        for patch, verdict in zip(picked, verdicts, strict=True):
            if numbers and patch.number not in numbers:
                continue
            if not verdict.ok:
                why = f"the patch does not apply: {verdict.reason or verdict.verdict}"
                report.patches.append(Judged(patch.number, "cannot-tell", why))
                continue
            report.patches.append(self._judge(patch, opened[patch.number], asked, final))
        report.unread = list(self.gates(final).unread)
        return report

    def _opened(self, before: State, after: State, final: State) -> _Opened:
        found = tuple(changes(self.gates(before).gates, self.gates(after).gates))
        made = _Opened(before, after, found)
        for capability in self.capabilities:
            for change in found:
                if capability not in change.opened or change.after is None:
                    continue
                gate = self._in_final(change.after, final)
                if gate is None or gate.kind == "aot":
                    continue
                if gate.kind == "jit-list":
                    module = f"{gate.path}::{gate.function}"
                    made.modules.setdefault((gate.upstream, module), []).append(capability)
                else:
                    made.routes.append(self.router(final, capability).route(gate))
        return made

    def _judge(
        self, patch: Patch, made: _Opened, asked: Mapping[str, frozenset[str]], final: State
    ) -> Judged:
        findings: list[Finding] = []
        modules = {key: list(found) for key, found in made.modules.items()}
        for route in made.routes:
            for chain in route.refused:
                end = chain.refusal
                assert end is not None
                place = f"{end.path}:{end.line}"
                findings.append(Finding("missing", end.why, place, True, tuple(describe(chain))))
            for chain in route.chains:
                if chain.module and chain.refusal is None:
                    key = (chain.steps[-1].upstream, chain.module)
                    modules.setdefault(key, []).append(route.capability)
        for (upstream, module), found in modules.items():
            sources = Sources(self.trees(final), upstream)
            capabilities = [c for c in self.capabilities if c in found]
            findings += behind_module(sources, module, capabilities, asked.get(module))
        findings += self._guards(patch, made.before, made.after)
        unique = _without_repeats(findings)
        opened = [c for c in made.changes if set(c.opened) & set(self.capabilities)]
        verdict, why = _verdict(opened, made.changes, unique)
        return Judged(patch.number, verdict, why, made.changes, tuple(made.routes), tuple(unique))

    def _in_final(self, gate: Gate, final: State) -> Gate | None:
        same = [g for g in self.gates(final).gates if g.identity == gate.identity]
        return min(same, key=lambda g: abs(g.line - gate.line)) if same else None

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


def _asked(every: Iterable[_Opened]) -> dict[str, frozenset[str]]:
    """Return for each module what the routes of the whole selection ask of it."""
    found: dict[str, set[str]] = {}
    for made in every:
        for route in made.routes:
            for module in route.modules:
                found.setdefault(module, set()).update(route.asked)
    return {module: frozenset(names) for module, names in found.items()}


def _without_repeats(findings: Iterable[Finding]) -> list[Finding]:
    """One finding for each sentence: the one with the shortest chain."""
    best: dict[tuple[str, str, str], Finding] = {}
    for finding in findings:
        key = (finding.kind, finding.sentence, finding.where)
        if key not in best or len(finding.lines) < len(best[key].lines):
            best[key] = finding
    return list(best.values())


def _verdict(
    opened: Sequence[Change], found: Sequence[Change], findings: Sequence[Finding]
) -> tuple[str, str]:
    def of(kind: str) -> list[Finding]:
        return [f for f in findings if f.kind == kind]

    hollow = of("hollow")
    answers: list[tuple[str, list[Finding]]] = [
        ("missing", of("missing")),
        ("hollow", [f for f in hollow if f.on_route is not False]),
        ("lost", [f for f in of("barrier") if f.on_route is not False]),
    ]
    for word, reasons in answers:
        if reasons:
            return word, reasons[0].sentence
    built = ", ".join(f.sentence for f in of("module"))
    if built and hollow:
        return "whole", f"{built}; not on the route: {', '.join(f.sentence for f in hollow)}"
    if built:
        return "whole", built
    for kind, word in (("unknown", "cannot-tell"), ("guards", "whole")):
        if reasons := of(kind):
            return word, "; ".join(f"{f.sentence} ({f.where})" for f in reasons)
    if opened:
        return "nothing-new", "the opened gate leads to no JIT module and to no refusal"
    return "nothing-new", "no gate is opened" + (f", {len(found)} changed" if found else "")
