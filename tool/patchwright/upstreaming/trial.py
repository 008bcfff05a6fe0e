"""The static tier on the series to be, and without each patch: which are needed still."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from patchwright.applying.chain import Chain, State
from patchwright.evidence import EvidenceStore
from patchwright.series import Selection
from patchwright.smoke.evidenced import Evidenced, Result
from patchwright.smoke.runs import Run
from patchwright.smoke.seats import sweep_seats
from patchwright.verify import Answer, Planner, Request, judge

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.upstreaming.moves import Move

TIER = "static"
_WORST_FIRST = ("error", "failed", "blocked", "none", "passed")


@dataclass(frozen=True)
class Without:
    """How a patch's smoke test ends on the new pin without the patch (but with its needs).

    ``outcome`` is ``passed``, ``failed`` (an assertion failed), ``error`` (none failed, but
    tests broke: they cannot judge there) or ``none`` (no test at the static tier).
    ``tests`` are its tests, as in RunResult. ``deciding`` names those that show what the
    patch is for, by failing on the old pin without it; empty where that is not on record.
    """

    number: int
    outcome: str
    reason: str = ""
    tests: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    deciding: tuple[str, ...] = ()

    @property
    def obsolete(self) -> bool:
        """Whether the new pin does without the patch all that the patch is for."""
        if self.outcome == "passed":
            return True
        return bool(self.deciding) and set(self.deciding) <= set(self.ended("passed"))

    def ended(self, outcome: str) -> tuple[str, ...]:
        """Return the names of the tests that ended in ``outcome``."""
        return names(self.tests, outcome)


def names(tests: Iterable[Mapping[str, Any]], outcome: str) -> tuple[str, ...]:
    """Return the names, without that of their file, of the tests that ended in ``outcome``."""
    return tuple(
        str(test["test"]).rpartition("::")[2] for test in tests if test["outcome"] == outcome
    )


@dataclass(frozen=True)
class Trial:
    """What the static tier says: verify's answers, and what happens without each patch."""

    answers: tuple[Answer, ...]
    without: dict[int, Without]


def trial(
    project: Project, candidate: Project, moves: Sequence[Move],
    on_run: Callable[[Run, Result, int, int], None] | None = None,
) -> Trial:  # fmt: skip
    """Verify the series of ``candidate``, and run each moved patch's test without it.

    ``project`` is the one with the old pins. Where the test of a patch that is not carried
    fails there in part, what `verify` recorded on the old pin tells which part it is for.
    """
    tests = _tests(candidate)
    questions = Planner(candidate, tests).plan(Request((), Selection(), (TIER,), ("alone",)))
    alone = _runs(candidate, tests, moves)
    runs = [
        run
        for question in questions
        if question.settled is None
        for _, run in (*question.runs, *question.controls)
    ]
    results = tests.results([*runs, *(run for each in alone.values() for run in each)], on_run)
    without = _ends(tests, alone, results)
    unclear = [
        move for move in moves
        if not move.carried and not without[move.number].obsolete
        and without[move.number].ended("passed")
    ]  # fmt: skip
    for number, deciding in _deciding(project, unclear).items():
        without[number] = replace(without[number], deciding=deciding)
    sweep_seats(candidate.cache_dir / "slots")
    return Trial(tuple(judge(question, results) for question in questions), without)


def without_each(candidate: Project, moves: Iterable[Move]) -> dict[int, Without]:
    """Run each patch's test without it, on the series of ``candidate``."""
    tests = _tests(candidate)
    alone = _runs(candidate, tests, moves)
    results = tests.results(run for each in alone.values() for run in each)
    sweep_seats(candidate.cache_dir / "slots")
    return _ends(tests, alone, results)


def _tests(project: Project) -> Evidenced:
    return Evidenced(project, EvidenceStore(project.state_dir / "evidence"))


def _deciding(project: Project, moves: Sequence[Move]) -> dict[int, tuple[str, ...]]:
    """Return the tests that fail on the old pin without their patch, as far as on record.

    Nothing is run: moving the work trees back to the old pin takes longer than the tests.
    """
    tests = _tests(project)
    alone = _runs(project, tests, moves) if moves else {}
    return {
        number: tuple(name for run in runs for name in names(tests.tests_of(run), "failed"))
        for number, runs in alone.items()
    }


def _runs(candidate: Project, tests: Evidenced, moves: Iterable[Move]) -> dict[int, list[Run]]:
    chain = Chain(candidate)
    moved = tuple(moves)
    files = {candidate.root / name for move in moved for name in move.patch.smoke}
    tests.collect(sorted(path for path in files if path.is_file()))
    found = {}
    for move in moved:
        state = _without(chain, move)
        found[move.number] = [
            Run(path, TIER, state, state)
            for path in (candidate.root / name for name in move.patch.smoke)
            if path.is_file() and not tests.broken(path) and TIER in tests.tiers(path)
        ]
    return found


def _ends(
    tests: Evidenced, alone: Mapping[int, Sequence[Run]], results: Mapping[Run, Result]
) -> dict[int, Without]:
    return {
        number: _worst(number, [results[run] for run in runs],
                       tuple(test for run in runs for test in tests.tests_of(run)))
        for number, runs in alone.items()
    }  # fmt: skip


def _without(chain: Chain, move: Move) -> State:
    """Return the state that has what a patch needs, as far as it is carried, and not the patch."""
    series = chain.project.series
    known = {patch.number for patch in series.patches}
    wanted = {n for need in move.patch.depends if need.number in known
              for n in series.closure(need.number)}  # fmt: skip
    state, _ = chain.apply([p for p in series.patches if p.number in wanted])
    return state


def _worst(number: int, results: Sequence[Result], tests: tuple[Mapping[str, Any], ...]) -> Without:
    if not results:
        return Without(number, "none")
    failed = [str(test["reason"]) for test in tests if test["outcome"] == "failed"]
    if failed:
        # An assertion that fails answers the question, whatever else broke.
        return Without(number, "failed", failed[0], tests)
    worst = min(results, key=lambda result: _WORST_FIRST.index(result.outcome))
    return Without(number, worst.outcome, worst.reason, tests)
