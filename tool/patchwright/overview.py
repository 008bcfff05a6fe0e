"""The series at a glance: how each patch applies, and what is on record for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from patchwright.applying.verdicts import ApplyVerdict
from patchwright.elsewhere import found_elsewhere
from patchwright.evidence import EvidenceStore, Record, difference
from patchwright.patch import Patch
from patchwright.project import Project
from patchwright.series import Selection
from patchwright.smoke.evidenced import Evidenced, Result
from patchwright.smoke.run import Run
from patchwright.status import Known, unproven
from patchwright.tiers import TIERS
from patchwright.verify import Planner, Question, Request, judge


@dataclass(frozen=True)
class PatchOverview:
    """One patch: how it applies in the selection, and its evidence by tier and context."""

    patch: Patch
    apply: ApplyVerdict
    tree: str  # its upstream's tree after it
    evidence: Mapping[str, Mapping[str, Known]] = field(default_factory=dict)


def overview(project: Project, selection: Selection) -> list[PatchOverview]:
    """Return the selected patches in order. Runs nothing; imports a pin not yet imported.

    Raises InputError for a patch that was made for another version than its pin.
    """
    tests = Evidenced(project, EvidenceStore(project.state_dir / "evidence"))
    planner = Planner(project, tests)
    picked = selection.pick(project.series)
    project.check_pins(picked)
    _, verdicts = planner.chain.apply(picked)
    state = planner.chain.base()
    evidence = _evidence(project, planner, selection, picked)
    rows = []
    for patch, verdict in zip(picked, verdicts, strict=True):
        state = state.after(verdict)
        tree = state.tree(verdict.upstream)
        rows.append(PatchOverview(patch, verdict, tree, evidence.get(patch.number, {})))
    return rows


def _evidence(
    project: Project, planner: Planner, selection: Selection, picked: Sequence[Patch]
) -> dict[int, dict[str, dict[str, Known]]]:
    with_tests = [p for p in picked if p.smoke]
    found: dict[int, dict[str, dict[str, Known]]] = {
        p.number: unproven() for p in picked if not p.smoke
    }
    files = [project.root / name for p in with_tests for name in p.smoke]
    known = planner.tests.recall(files, imported=True)
    ready = [p for p in with_tests if all(project.root / name in known for name in p.smoke)]
    for patch in with_tests:
        if patch not in ready:
            found[patch.number] = {"static": {"step": Known("missing", "not verified yet")}}
    if ready:
        numbers = tuple(p.number for p in ready)
        records: dict[tuple[str, str], list[Record]] = {}
        for record in planner.tests.store.all():
            records.setdefault((record.inputs.test, record.inputs.tier), []).append(record)
        for question in planner.plan(Request(numbers, selection, TIERS)):
            what = _known(planner.tests, question, records)
            if what.verdict in ("missing", "stale", "blocked"):
                elsewhere = found_elsewhere(planner.tests, question)
                if elsewhere is not None:
                    what = Known(elsewhere.verdict, elsewhere.why, elsewhere.source)
            if what.verdict != "none":
                tiers = found.setdefault(question.number, {})
                tiers.setdefault(question.tier, {})[question.context] = what
    starts = [p.number for p in picked if not p.smoke or p in ready]
    for number, context, what in _starts(project, planner, selection, starts):
        found.setdefault(number, {}).setdefault("startup", {}).setdefault(context, what)
    return found


def _starts(
    project: Project, planner: Planner, selection: Selection, numbers: Sequence[int]
) -> Iterator[tuple[int, str, Known]]:
    """Yield what starts on record say, by patch and context."""
    if not project.config.startup or not numbers:
        return
    if not any(record.inputs.tier == "startup" for record in planner.tests.store.all()):
        return
    from patchwright.startup.tier import on_record

    questions = planner.plan(Request(tuple(numbers), selection, ("startup",)))
    for question, verdict, why in on_record(project, questions):
        yield question.number, question.context, Known(verdict, why)


def _known(
    tests: Evidenced, question: Question, records: Mapping[tuple[str, str], Sequence[Record]]
) -> Known:
    results: dict[Run, Result] = {}
    for _, run in (*question.runs, *question.controls):
        if question.settled is not None:
            break
        result = tests.recorded(run)
        if result is None:
            inputs = tests.inputs(run)
            older = records.get((inputs.test, inputs.tier), ())
            if not older:
                return Known("missing", "not verified yet")
            latest = max(older, key=lambda record: record.when)
            return Known("stale", difference(latest.inputs, inputs))
        results[run] = result
    answer = judge(question, results)
    return Known(answer.verdict, answer.reason)
