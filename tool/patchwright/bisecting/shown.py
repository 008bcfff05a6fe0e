"""What the static tier shows already: a patch that fails without a need needs no start.

A gate that is opened onto a module which refuses the architecture is shown by the smoke
test of the patch, in seconds and without a server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.series import Selection
    from patchwright.smoke.run import Run
    from patchwright.verify import Answer

_TIERS = ("static",)
_CONTEXTS = ("step",)


@dataclass(frozen=True)
class Shown:
    """A patch whose smoke test fails in the selection.

    ``missing`` are the declared needs that the selection leaves out, with the reasons
    that were declared; ``cured`` tells whether the test passes with them.
    """

    number: int
    reason: str
    missing: tuple[tuple[int, str], ...] = ()
    cured: bool = False


def shown(
    project: Project, selection: Selection, say: Callable[[str], None] = lambda text: None
) -> tuple[Shown, ...]:
    """Return the patches of a selection that the static tier shows to fail in it.

    Only what a patch brings in counts: a test that fails in the same words without it, and
    one that fails because of another patch found here, say nothing about it. Runs what is
    not on record. Patches without a smoke test show nothing.
    """
    failed = [a for a in _answers(project, selection, (), say) if a.verdict == "failed"]
    own = [answer for answer in failed if _brings_it_in(project, answer)]
    dependants = set[int]().union(*(project.series.dependants(a.question.number) for a in own))
    return tuple(
        _explained(project, selection, answer, say)
        for answer in own if answer.question.number not in dependants
    )  # fmt: skip


def _brings_it_in(project: Project, answer: Answer) -> bool:
    """Whether some test fails with the patch and passes, or fails otherwise, without it."""
    from patchwright.evidence import EvidenceStore
    from patchwright.smoke.evidenced import Evidenced

    tests = Evidenced(project, EvidenceStore(project.state_dir / "evidence"))

    def failures(runs: Sequence[tuple[int, Run]]) -> dict[str, str]:
        found = {}
        for _, run in runs:
            record = tests.store.find(tests.inputs(run).key())
            for test in record.tests if record is not None else ():
                if test.get("outcome") == "failed":
                    found[str(test["test"])] = str(test.get("reason", ""))
        return found

    before = failures(answer.question.controls)
    return any(before.get(test) != reason
               for test, reason in failures(answer.question.runs).items())  # fmt: skip


def _answers(
    project: Project, selection: Selection, numbers: tuple[int, ...], say: Callable[[str], None]
) -> list[Answer]:
    from patchwright.verify import Request, verify

    request = Request(numbers, selection, _TIERS, _CONTEXTS)
    return verify(
        project, request,
        on_run=lambda run, result, done, total: say(f"{run.test.stem}: {result.outcome}"),
    )  # fmt: skip


def _explained(
    project: Project, selection: Selection, answer: Answer, say: Callable[[str], None]
) -> Shown:
    series, number = project.series, answer.question.number
    picked = {patch.number for patch in selection.pick(series)}
    missing = tuple(
        (need.number, need.reason)
        for inside in series.closure(number)
        for need in series.get(inside).depends if need.number not in picked
    )  # fmt: skip
    cured = False
    if missing:
        with_needs = picked.union(*(series.closure(n) for n, _ in missing))
        again = _answers(project, replace(selection, only=frozenset(with_needs), to=None,
                                          without=frozenset()), (number,), say)  # fmt: skip
        cured = all(a.verdict == "passed" for a in again)
    return Shown(number, answer.reason, missing, cured)
