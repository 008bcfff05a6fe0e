"""Verifying: which runs answer for which patch, and what their outcomes mean.

For each patch, tier and context there is one ``Question``. Its ``runs`` must pass and
its ``controls`` must fail by an assertion of the test: red without the patch, green
with it. Runs that several questions share are made once; runs that are on record are
not made at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.applying.chain import Chain, State
from patchwright.applying.verdicts import ApplyVerdict
from patchwright.errors import InputError
from patchwright.evidence import EvidenceStore
from patchwright.patch import Patch
from patchwright.project import Project
from patchwright.series import Selection
from patchwright.smoke.evidenced import Evidenced, Result
from patchwright.smoke.leftovers import anything_left
from patchwright.smoke.run import Run
from patchwright.tiers import CONTEXTS, is_target

if TYPE_CHECKING:
    from patchwright.elsewhere import Elsewhere

BAD = ("failed", "vacuous", "error")


@dataclass(frozen=True)
class Question:
    """What one row of the table asks: patch ``number`` at ``tier`` in ``context``."""

    number: int
    tier: str
    context: str
    runs: tuple[tuple[int, Run], ...] = ()
    controls: tuple[tuple[int, Run], ...] = ()
    trees: State | None = None
    control_trees: State | None = None
    settled: tuple[str, str] | None = None  # verdict and reason, where nothing has to run
    settled_control: str | None = None  # with it: what the control is known to end with
    arch: tuple[str, ...] = ()  # what the patch is for; empty: every architecture
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """The verdict on one question, with what it rests on."""

    question: Question
    verdict: str
    control: str | None = None
    reason: str = ""
    seconds: float = 0.0
    made: frozenset[Run] = frozenset()  # made just now; the others were on record
    logs: tuple[str, ...] = field(default=(), repr=False)
    elsewhere: Elsewhere | None = None  # what another machine found, where it is blocked here


@dataclass(frozen=True)
class Request:
    """What the user asks for; ``numbers`` empty means every selected patch."""

    numbers: tuple[int, ...]
    selection: Selection
    tiers: tuple[str, ...]
    contexts: tuple[str, ...] = ("step", "alone")


class Planner:
    """Turns a request into questions; applies patches, runs nothing."""

    def __init__(self, project: Project, tests: Evidenced) -> None:
        self.project = project
        self.chain = Chain(project)
        self.tests = tests
        self.needs = tests.needs
        self._steps: dict[int, tuple[State, State, Mapping[int, str]]] = {}

    def plan(self, request: Request) -> list[Question]:
        """Return the questions in series order; InputError for an unknown number."""
        series = self.project.series
        picked = request.selection.pick(series)
        in_selection = {patch.number for patch in picked}
        asked = request.numbers or tuple(sorted(in_selection))
        for number in asked:
            series.get(number)  # raises for one that is not in the series
            if number not in in_selection:
                raise InputError(
                    f"patch {number:04d} is asked for, but the selection leaves it out",
                    next_step="drop it from --without, or name it with --only",
                )
        self.project.check_pins(picked)
        self.tests.collect(self._smoke_files(picked))
        self._steps = self._walk(picked)
        questions = []
        for patch in picked:
            if patch.number not in asked:
                continue
            for context in sorted(request.contexts, key=CONTEXTS.index):
                for tier in request.tiers:
                    questions.append(self._question(patch, picked, tier, context))
        return questions

    def _smoke_files(self, patches: Iterable[Patch]) -> list[Path]:
        files = {self.project.root / name for patch in patches for name in patch.smoke}
        return sorted(path for path in files if path.is_file())

    def _question(self, patch: Patch, picked: Sequence[Patch], tier: str, context: str) -> Question:
        notes = self._unmet(patch, picked)
        settled = self._settled_by_files(patch, tier)
        if context == "without":
            return self._without(patch, picked, tier, settled, notes)
        if context == "step":
            before, after, trouble = self._steps[patch.number]
        else:
            closure = set(self.project.series.closure(patch.number))
            chosen = [p for p in picked if p.number in closure]
            before, _ = self._apply(p for p in chosen if p is not patch)
            after, trouble = self._apply(chosen)
        if trouble:
            reason = trouble.get(patch.number) or next(iter(trouble.values()))
            if context == "alone":
                reason = self._undeclared(patch, picked) or reason
            settled = ("error", reason)
        if settled is not None and settled[0] != "blocked":
            # A file that dies on import does so in the control as well.
            dies = not trouble and any(
                self.tests.broken(self.project.root / name) for name in patch.smoke
            )
            return Question(patch.number, tier, context, trees=after, control_trees=before,
                            settled=settled, settled_control="error" if dies else None,
                            notes=notes)  # fmt: skip
        # What is blocked here still names its runs: they may have been made elsewhere.
        tests = self._tests(patch, tier)
        return Question(
            patch.number, tier, context,
            runs=tuple((patch.number, Run(test, tier, after, before)) for test in tests),
            controls=tuple((patch.number, Run(test, tier, before, before)) for test in tests),
            trees=after, control_trees=before,
            settled=settled, arch=patch.arch, notes=notes,
        )  # fmt: skip

    def _without(
        self, left_out: Patch, picked: Sequence[Patch], tier: str,
        settled: tuple[str, str] | None, notes: tuple[str, ...],
    ) -> Question:  # fmt: skip
        """All but one: its own test and those of its dependants must fail, all others pass."""
        rest = [p for p in picked if p is not left_out]
        trees, trouble = self._apply(rest)
        dependants = set(self.project.series.dependants(left_out.number))
        fall = {left_out.number, *dependants}
        undeclared = [reason for number, reason in trouble.items() if number not in dependants]
        if undeclared:
            settled = ("error", undeclared[0])
        if settled is not None and settled[0] not in ("none", "blocked"):
            return Question(left_out.number, tier, "without", trees=trees, settled=settled,
                            notes=notes)  # fmt: skip
        runs, controls = [], []
        for patch in picked:
            by_files = self._settled_by_files(patch, tier)
            if patch.number in trouble or (by_files is not None and by_files[0] != "blocked"):
                continue
            baseline, _ = self._apply(p for p in rest if p is not patch)
            for test in self._tests(patch, tier):
                if patch.number in fall:
                    controls.append((patch.number, Run(test, tier, trees, trees)))
                else:
                    runs.append((patch.number, Run(test, tier, trees, baseline)))
        return Question(
            left_out.number, tier, "without", tuple(runs), tuple(controls), trees=trees,
            settled=settled if any(n == left_out.number for n, _ in controls) else ("none", ""),
            arch=left_out.arch, notes=notes,
        )  # fmt: skip

    def _settled_by_files(self, patch: Patch, tier: str) -> tuple[str, str] | None:
        if not patch.smoke:
            return "unproven", "names no smoke test"
        for name in patch.smoke:
            path = self.project.root / name
            if not path.is_file():
                return "error", _no_file(name, path)
            broken = self.tests.broken(path)
            if broken:
                return "error", f"{name}: {broken}"
        if not self._tests(patch, tier):
            return "none", ""
        need = self.needs.missing(tier)
        return ("blocked", need) if need else None

    def _tests(self, patch: Patch, tier: str) -> list[Path]:
        paths = [self.project.root / name for name in patch.smoke]
        return [path for path in paths if tier in self.tests.tiers(path)]

    def _walk(self, picked: Sequence[Patch]) -> dict[int, tuple[State, State, Mapping[int, str]]]:
        """Return, patch by patch, the trees before and after it and what did not apply so far."""
        state = self.chain.base()
        _, verdicts = self.chain.apply(picked)
        trouble: dict[int, str] = {}
        steps: dict[int, tuple[State, State, Mapping[int, str]]] = {}
        for patch, verdict in zip(picked, verdicts, strict=True):
            before, state = state, state.after(verdict)
            if not verdict.ok:
                trouble[patch.number] = _not_applied(verdict)
            steps[patch.number] = (before, state, dict(trouble))
        return steps

    def _apply(self, patches: Iterable[Patch]) -> tuple[State, Mapping[int, str]]:
        state, verdicts = self.chain.apply(list(patches))
        return state, {v.patch_number: _not_applied(v) for v in verdicts if not v.ok}

    def _undeclared(self, patch: Patch, picked: Sequence[Patch]) -> str:
        """Say which earlier patches it takes; nothing where the selection left needs out."""
        chosen = {p.number for p in picked}
        if not set(self.project.series.closure(patch.number)) <= chosen:
            return ""
        return self.chain.alone(patch.number).reason

    def _unmet(self, patch: Patch, picked: Sequence[Patch]) -> tuple[str, ...]:
        chosen = {p.number for p in picked}
        closure = self.project.series.closure(patch.number)
        return tuple(
            f"{number:04d} needs {need.number:04d} ({need.reason}), which is left out"
            for number in closure if number in chosen
            for need in self.project.series.get(number).depends if need.number not in chosen
        )  # fmt: skip


def _no_file(name: str, path: Path) -> str:
    if "::" in name:
        return f"{name}: the field Smoke names a file; leave out what follows '::'"
    if path.exists():
        return f"{name} is not a file: name the smoke test itself in the field Smoke"
    return f"{name} is missing: write it, or correct the field Smoke"


def _not_applied(verdict: ApplyVerdict) -> str:
    return f"{verdict.patch_number:04d} does not apply: {verdict.verdict}: {verdict.reason}"


def verify(
    project: Project, request: Request, *, jobs: int | None = None,
    on_run: Callable[[Run, Result, int, int], None] | None = None,
) -> list[Answer]:  # fmt: skip
    """Answer every question of a request, making only the runs that are not on record."""
    tests = Evidenced(project, EvidenceStore(project.state_dir / "evidence"), jobs)
    questions = Planner(project, tests).plan(request)
    runs = [
        run
        for question in questions
        if question.settled is None
        for _, run in (*question.runs, *question.controls)
    ]
    results = tests.results(runs, on_run)
    if anything_left(project.cache_dir / "slots"):
        from patchwright.smoke.seats import sweep_seats

        sweep_seats(project.cache_dir / "slots")
    answers = [judge(question, results) for question in questions]
    if any(answer.verdict == "blocked" for answer in answers):
        from patchwright.elsewhere import found_elsewhere

        # Told, never counted: the verdict stays what this machine can say.
        answers = [
            replace(answer, elsewhere=found_elsewhere(tests, answer.question))
            if answer.verdict == "blocked" else answer
            for answer in answers
        ]  # fmt: skip
    if "startup" in request.tiers:
        from patchwright.startup.tier import with_starts

        answers = with_starts(project, answers, project.progress)
    return answers


def judge(question: Question, results: Mapping[Run, Result]) -> Answer:
    """Return the verdict that the outcomes of a question's runs give."""
    if question.settled is not None:
        verdict, reason = question.settled
        return Answer(question, verdict, question.settled_control, reason)
    runs = [(number, results[run]) for number, run in question.runs]
    controls = [(number, results[run]) for number, run in question.controls]
    all_runs = [run for _, run in (*question.runs, *question.controls)]
    device = next((results[run].device for run in all_runs if results[run].device), "")
    if device and question.arch and not is_target(device, question.arch):
        verdict, control, reason = _judge_left_alone(device, question.number, runs, controls)
    else:
        combine = _judge_without if question.context == "without" else _judge_with_control
        verdict, control, reason = combine(question.number, runs, controls)
    return Answer(
        question,
        verdict,
        control,
        reason,
        seconds=sum(results[run].seconds for run in all_runs),
        made=frozenset(run for run in all_runs if results[run].made),
        logs=tuple(results[run].log for run in all_runs if results[run].log),
    )


_Outcomes = Sequence[tuple[int, Result]]


def _worst(results: _Outcomes) -> Result:
    order = ("error", "failed", "blocked", "none", "passed")
    return min((result for _, result in results), key=lambda r: order.index(r.outcome))


def _judge_with_control(
    number: int, runs: _Outcomes, controls: _Outcomes
) -> tuple[str, str | None, str]:
    run = _worst(runs)
    if run.outcome in ("error", "failed", "blocked", "none"):
        return run.outcome, _control_word(controls), run.reason
    broken = next((r for _, r in controls if r.outcome in ("error", "blocked", "none")), None)
    if broken is not None:
        if broken.outcome == "blocked":
            return "blocked", None, broken.reason
        # "none" would mean that the test shows less without the patch: it is broken.
        return "error", "error", f"the control broke: {broken.reason or 'it ran no test'}"
    if all(r.outcome == "passed" for _, r in controls):
        return "vacuous", "passed", f"the smoke test passes without {number:04d} as well"
    return "passed", "failed", ""


def _judge_left_alone(
    device: str, number: int, runs: _Outcomes, controls: _Outcomes
) -> tuple[str, str | None, str]:
    """On a device that the patch is not for: with it and without it all must be green."""
    run = _worst((*runs, *controls))
    if run.outcome in ("error", "blocked", "none"):
        return run.outcome, _control_word(controls), run.reason
    if any(r.outcome == "failed" for _, r in runs):
        return "failed", _control_word(controls), _worst(runs).reason
    if any(r.outcome == "failed" for _, r in controls):
        why = f"{number:04d} changes what {device} does, which its field Arch does not name"
        return "failed", "failed", f"{why}: {_worst(controls).reason}"
    return "passed", "passed", f"left alone on {device} (not a target of {number:04d})"


def _control_word(controls: _Outcomes) -> str | None:
    words = {r.outcome for _, r in controls}
    return next((word for word in ("error", "failed", "passed") if word in words), None)


def _judge_without(
    number: int, runs: _Outcomes, controls: _Outcomes
) -> tuple[str, str | None, str]:
    for other, result in (*runs, *controls):
        if result.outcome == "error":
            return "error", "error", f"{other:04d}: {result.reason}"
    for other, result in runs:
        if result.outcome == "failed":
            why = f"{other:04d} fails without {number:04d} and does not declare the need"
            return "failed", _control_word(controls), f"{why}: {result.reason}"
    for other, result in controls:
        if result.outcome == "passed":
            own = other == number
            verdict = "vacuous" if own else "failed"
            whose = "its own smoke test" if own else f"the smoke test of its dependant {other:04d}"
            return verdict, "passed", f"{whose} passes without {number:04d}"
    blocked = next((r for _, r in (*runs, *controls) if r.outcome == "blocked"), None)
    if blocked is not None:
        return "blocked", None, blocked.reason
    return "passed", "failed", ""
