"""What is verified of the patches to be sent: at the pin, on record; on main, run now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from patchwright.applying.chain import State
from patchwright.evidence import EvidenceStore
from patchwright.series import Selection
from patchwright.smoke.evidenced import Evidenced, Result
from patchwright.smoke.runs import Run
from patchwright.smoke.seats import sweep_seats
from patchwright.tiers import DEFAULT_TIERS
from patchwright.upstreaming.mainline import testable
from patchwright.verify import BAD, Answer, Planner, Question, Request, judge

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.upstreaming.fitting import Step
    from patchwright.upstreaming.mainline import Mainline


@dataclass(frozen=True)
class Row:
    """One line of the evidence table.

    ``place`` is the tree, for people; ``verdict`` one of verify's words, or ``no record``.
    ``control`` is how the run without the patch ended.
    """

    number: int
    place: str
    tier: str
    verdict: str
    control: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Proof:
    """The evidence table, why it does not do, and what a reader must know about it."""

    rows: tuple[Row, ...]
    refusals: tuple[str, ...]
    notes: tuple[str, ...] = ()


def prove(
    project: Project, main: Mainline, steps: Sequence[Step], *,
    tiers: Sequence[str] = DEFAULT_TIERS,
    on_run: Callable[[Run, Result, int, int], None] | None = None,
) -> Proof:  # fmt: skip
    """Read what is on record at the pin, and run the smoke tests on main.

    On main each patch is run with what it needs and without itself. ``tiers`` limits both.
    What is not on record at the pin is not run here: that is for ``verify``.
    """
    tests = Evidenced(project, EvidenceStore(project.state_dir / "evidence"))
    planner = Planner(project, tests)
    asked = [step for step in steps if step.asked]
    rows: list[Row] = []
    refusals: list[str] = []
    for step in asked:
        found = _at_pin(planner, step, tiers)
        rows += found
        refusals += _judged_at_pin(step, found)
    if refusals:
        return Proof(tuple(rows), tuple(refusals))
    questions, lent = _questions(planner, main, asked, tiers)
    runs = [run for q in questions for _, run in (*q.runs, *q.controls)]
    results = tests.results(runs, on_run)
    sweep_seats(project.cache_dir / "slots")
    answers = [judge(question, results) for question in questions]
    rows += [_row(answer, main.name) for answer in answers]
    for step in asked:
        own = [a for a in answers if a.question.number == step.patch.number]
        refusals += _judged_on_main(step, own, main)
    notes = (
        f"{' and '.join(lent)} {'is a submodule' if len(lent) == 1 else 'are submodules'} of "
        f"{main.branch}: the tests ran with the pin's files there",
    )
    return Proof(tuple(rows), tuple(refusals), notes if lent else ())


def _at_pin(planner: Planner, step: Step, tiers: Sequence[str]) -> list[Row]:
    from patchwright.elsewhere import found_elsewhere

    number = step.patch.number
    tests = planner.tests
    config = planner.project.upstream(step.verdict.upstream)
    place = f"{config.name} {config.version} (the pin)"
    rows = []
    for question in planner.plan(Request((number,), Selection(), tuple(tiers), ("alone",))):
        if question.settled is not None:
            answer = judge(question, {})
            row = _row(answer, place)
            elsewhere = found_elsewhere(tests, question) if row.verdict == "blocked" else None
            if elsewhere is not None:
                row = Row(number, f"{place}, on another machine", row.tier, elsewhere.verdict,
                          reason=elsewhere.why)  # fmt: skip
            rows.append(row)
            continue
        runs = {run for _, run in (*question.runs, *question.controls)}
        known = {run: result for run in runs if (result := tests.recorded(run)) is not None}
        if len(known) == len(runs):
            rows.append(_row(judge(question, known), place))
        else:
            rows.append(Row(number, place, question.tier, "no record"))
    return rows


def _judged_at_pin(step: Step, rows: Sequence[Row]) -> list[str]:
    number = step.patch.number
    missing = [row.tier for row in rows if row.verdict == "no record"]
    if missing:
        return [
            f"{number:04d} has no evidence on record at tier {', '.join(missing)}, which this "
            f"machine can run: run `patchwright verify {number} --context alone`"
        ]
    bad = [row for row in rows if row.verdict in BAD]
    if bad:
        return [f"{number:04d} is {r.verdict} at tier {r.tier} on {r.place}: {r.reason}"
                for r in bad]  # fmt: skip
    if not any(row.verdict == "passed" for row in rows):
        why = next((row.reason for row in rows if row.reason), "no test speaks at these tiers")
        return [f"{number:04d} has no passing evidence: {why}"]
    return []


def _questions(
    planner: Planner, main: Mainline, steps: Iterable[Step], tiers: Sequence[str]
) -> tuple[list[Question], tuple[str, ...]]:
    project, tests = planner.project, planner.tests
    questions = []
    lent: tuple[str, ...] = ()
    for step in steps:
        name, number = step.verdict.upstream, step.patch.number
        others = [p for n in project.series.closure(number)
                  if (p := project.series.get(n)).upstream != name]  # fmt: skip
        state, _ = planner.chain.apply(others)
        pristine = planner.chain.base().tree(name)
        both = []
        for tree in (step.after, step.before):
            whole, lent = testable(project.store, tree, pristine, main.submodules)
            both.append(State(tuple(sorted((dict(state.trees) | {name: whole}).items()))))
        project.store.flush()
        after, before = both
        files = [project.root / smoke for smoke in step.patch.smoke]
        for tier in tiers:
            paths = [path for path in files if tier in tests.tiers(path)]
            need = tests.needs.missing(tier) if paths else ""
            questions.append(Question(
                number, tier, "alone",
                runs=() if need else tuple((number, Run(p, tier, after, before)) for p in paths),
                controls=(
                    () if need else tuple((number, Run(p, tier, before, before)) for p in paths)
                ),
                trees=after, control_trees=before, arch=step.patch.arch,
                settled=("none", "") if not paths else ("blocked", need) if need else None,
            ))  # fmt: skip
    return questions, lent


def _judged_on_main(step: Step, answers: Sequence[Answer], main: Mainline) -> list[str]:
    number = step.patch.number
    refusals = []
    for answer in answers:
        tier = answer.question.tier
        if answer.verdict == "vacuous":
            refusals.append(
                f"{number:04d}: its smoke test passes on {main.name} without it (tier {tier}): "
                "upstream has what it does, in other words"
            )
        elif answer.verdict in BAD:
            refusals.append(
                f"{number:04d} fails its own smoke test on {main.name} (tier {tier}, "
                f"{answer.verdict}): {answer.reason}"
            )
    if not refusals and not any(answer.verdict == "passed" for answer in answers):
        refusals.append(f"{number:04d}: no tier of its smoke test could run on {main.name} here")
    return refusals


def _row(answer: Answer, place: str) -> Row:
    question = answer.question
    return Row(
        question.number, place, question.tier, answer.verdict, answer.control or "", answer.reason
    )
