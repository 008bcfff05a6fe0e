"""The static tier on the series to be, and without each patch: which are needed still."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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

    ``outcome`` is ``passed``, ``failed`` or ``error``; ``none`` where the patch has no
    test at the static tier.
    """

    number: int
    outcome: str
    reason: str = ""


@dataclass(frozen=True)
class Trial:
    """What the static tier says: verify's answers, and what happens without each patch."""

    answers: tuple[Answer, ...]
    without: dict[int, Without]


def trial(
    candidate: Project, moves: Iterable[Move],
    on_run: Callable[[Run, Result, int, int], None] | None = None,
) -> Trial:  # fmt: skip
    """Verify the series of ``candidate``, and run each moved patch's test without it."""
    tests = Evidenced(candidate, EvidenceStore(candidate.state_dir / "evidence"))
    questions = Planner(candidate, tests).plan(Request((), Selection(), (TIER,), ("alone",)))
    alone = _runs(candidate, tests, moves)
    runs = [
        run
        for question in questions
        if question.settled is None
        for _, run in (*question.runs, *question.controls)
    ]
    results = tests.results([*runs, *(run for each in alone.values() for run in each)], on_run)
    sweep_seats(candidate.cache_dir / "slots")
    return Trial(tuple(judge(question, results) for question in questions), _ends(alone, results))


def without_each(candidate: Project, moves: Iterable[Move]) -> dict[int, Without]:
    """Run each patch's test without it, on the series of ``candidate``."""
    tests = Evidenced(candidate, EvidenceStore(candidate.state_dir / "evidence"))
    alone = _runs(candidate, tests, moves)
    results = tests.results(run for each in alone.values() for run in each)
    sweep_seats(candidate.cache_dir / "slots")
    return _ends(alone, results)


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


def _ends(alone: Mapping[int, Sequence[Run]], results: Mapping[Run, Result]) -> dict[int, Without]:
    return {
        number: _worst(number, [results[run] for run in each]) for number, each in alone.items()
    }


def _without(chain: Chain, move: Move) -> State:
    """Return the state that has what a patch needs, as far as it is carried, and not the patch."""
    series = chain.project.series
    known = {patch.number for patch in series.patches}
    wanted = {n for need in move.patch.depends if need.number in known
              for n in series.closure(need.number)}  # fmt: skip
    state, _ = chain.apply([p for p in series.patches if p.number in wanted])
    return state


def _worst(number: int, results: Sequence[Result]) -> Without:
    if not results:
        return Without(number, "none")
    worst = min(results, key=lambda result: _WORST_FIRST.index(result.outcome))
    return Without(number, worst.outcome, worst.reason)
