"""Before a patch is named: was what starts without it luck?

A failure of a state proves that some of its patches fail, not which. What tells a patch
from its needs, and from a base that fails now and then, are the starts without it; they
are repeated until luck is no explanation. The state that is started again is what remains
of the failing one without the patch: for a patch without needs that is the lower end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from patchwright.bisecting.outcomes import NOTHING, State
from patchwright.bisecting.verdicts import Verdicts

_SET = 8  # clean starts without one of a set, before all of it is said to be needed
_TRACE_MISLEADS = 0.1  # chance; no more than a guess


@dataclass
class Found:
    """A set that fails together, or (``between`` not empty) one that is not closed in."""

    patches: list[int] = field(default_factory=list)
    learned: set[int] = field(default_factory=set)
    fails: State = NOTHING
    between: State = NOTHING
    within: State = NOTHING
    trouble: str = ""


@dataclass(frozen=True)
class Doubt:
    """``state`` lacks the patch and is bad, or gives no answer."""

    state: State
    verdict: Literal["bad", "unclear"]


def doubt(verdicts: Verdicts, base: State, found: Found, rest: State | None = None) -> Doubt | None:
    """Return what speaks against naming a set; None where nothing does.

    ``rest`` is a state that starts without one of it, if there is one. Raises Needed for a
    run that has to tell.
    """
    for number in found.patches:
        left = _left(verdicts, base, found, number)
        wanted = _wanted(verdicts, base, found, number)
        for state in (left, rest or left):
            missing = wanted - verdicts.clean_without(number, left)
            if missing <= 0 or number in state or not left <= state:
                continue
            clean = sum(map(verdicts.clean, verdicts.runs(state)))
            verdict = verdicts.of(state, f"without {number:04d}, once more", clean + missing)
            if verdict == "bad":
                return Doubt(state, "bad")
        if verdicts.clean_without(number, left) < wanted:
            return Doubt(left, "unclear")
    return None


def bad_in_common(verdicts: Verdicts, base: State, culprits: Sequence[Found]) -> State | None:
    """Return what several sets have in common, where that fails alone; None else.

    Sets that share a patch are rare; one patch that now and then starts gives them.
    """
    common = frozenset.intersection(*(found.fails for found in culprits)) - base
    if len(culprits) < 2 or not common:
        return None
    state = base | common
    problem = verdicts.problem
    enough = verdicts.belief.before_naming(1 - problem.confidence, len(problem.top - base))
    verdict = verdicts.of(state, "what the sets found have in common", 2 * enough)
    return state if verdict == "bad" else None


def luck(verdicts: Verdicts, base: State, found: Found) -> float:
    """Return the chance that what is said of a set is luck."""
    total = 0.0
    for number in found.patches:
        clean = verdicts.clean_without(number, _left(verdicts, base, found, number))
        traced = _traced(verdicts, base, found, number)
        total += verdicts.belief.luck(clean) * (_TRACE_MISLEADS if traced else 1)
    return total


def _left(verdicts: Verdicts, base: State, found: Found, number: int) -> State:
    return verdicts.problem.without(found.fails, (number,)) | base


def _wanted(verdicts: Verdicts, base: State, found: Found, number: int) -> int:
    """Return how many clean starts without the patch are enough."""
    problem, belief = verdicts.problem, verdicts.belief
    if len(found.patches) > 1:
        return belief.enough(1 - problem.confidence, _SET)
    if _traced(verdicts, base, found, number):
        # All but it, and once more what remains: with what fails, three starts.
        return 3 if _left(verdicts, base, found, number) == base else 2
    return belief.before_naming(1 - problem.confidence, len(problem.top - base))


def _traced(verdicts: Verdicts, base: State, found: Found, number: int) -> bool:
    """Whether all tracebacks speak for the patch and against what it needs."""
    needs = _left(verdicts, base, found, number) - base
    return (
        len(found.patches) == 1 and not verdicts.belief.clean
        and verdicts.points_at(number, needs)
    )  # fmt: skip
