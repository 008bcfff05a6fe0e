"""Simulated series for the search: a truth, and how many starts it takes to find it.

No process runs. A truth says what a state of patches does; ``solve`` plays the part of
the probes. Used by the unit tests of the search and by bench/bisect.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from patchwright.bisecting.outcomes import Answer, Outcome, Problem, Run, State
from patchwright.bisecting.search import decide

TARGET = "error | RuntimeError | comm.py:get | no architectures"
GOOD = Outcome("started")
UNTESTABLE = Outcome("untestable")
UNCURED = Outcome("failed", "error | OSError | | no such device")


@dataclass(frozen=True)
class Truth:
    """What a state does. Every set of ``failing`` fails when all of it is there.

    ``repaired`` maps a culprit to a later patch that repairs it. ``breakers`` maps a
    patch to the later one that repairs what it breaks: between the two a state fails as
    ``broken`` says. ``hidden_needs`` are needs that nothing declares: without them a
    patch fails otherwise. ``textual`` are needs without which it does not apply.
    ``cure``: without this patch nothing works. ``rate`` is the chance that a failure
    shows. ``trace`` are the suspects that the failure's traceback gives.
    """

    failing: tuple[frozenset[int], ...]
    repaired: Mapping[int, int] = field(default_factory=dict)
    breakers: Mapping[int, int] = field(default_factory=dict)
    broken: Outcome = UNTESTABLE
    hidden_needs: Mapping[int, int] = field(default_factory=dict)
    textual: Mapping[int, int] = field(default_factory=dict)
    cure: int | None = None
    uncured: Outcome = UNCURED
    rate: float = 1.0
    trace: tuple[tuple[int, ...], ...] = ()

    def outcome(self, state: State, chance: random.Random) -> tuple[Outcome, bool]:
        """Return what one probe of ``state`` says, and whether it took a start."""
        if any(n in state and need not in state for n, need in self.textual.items()):
            return Outcome("untestable", detail="does not apply"), False
        for number, need in self.hidden_needs.items():
            if number in state and need not in state:
                return Outcome("failed", f"import-error | {number}", detail="no such name"), True
        if self.cure is not None and self.cure not in state:
            return self.uncured, True
        if any(u in state and r not in state for u, r in self.breakers.items()):
            return self.broken, True
        for group in self.failing:
            repaired = any(self.repaired.get(n) in state for n in group)
            if group <= state and not repaired and chance.random() < self.rate:
                return Outcome("failed", TARGET, suspects=self.trace), True
        return GOOD, True


def problem(size: int, **how: object) -> Problem:
    """Return the question about ``size`` patches on a good base."""
    numbers = tuple(range(1, size + 1))
    made = Problem(numbers, State(), State(numbers))
    return replace(made, **how)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Solved:
    answer: Answer
    log: tuple[Run, ...]

    @property
    def probes(self) -> int:
        """Starts that were made."""
        return sum(run.source == "probe" for run in self.log)

    def beyond_bracket(self, question: Problem) -> int:
        ends = {question.bottom, question.top}
        return sum(run.source == "probe" and run.state not in ends for run in self.log)

    @property
    def names(self) -> set[frozenset[int]]:
        return {frozenset(c.patches) for c in self.answer.culprits}


def solve(
    question: Problem, truth: Truth, seed: int = 0,
    watch: Callable[[list[Run]], None] = lambda log: None,
) -> Solved:  # fmt: skip
    """Let the search find a truth; AssertionError where it goes on for ever."""
    chance = random.Random(seed)
    log: list[Run] = []
    while True:
        found = decide(question, log)
        if isinstance(found, Answer):
            return Solved(found, tuple(log))
        outcome, start = truth.outcome(found.state, chance)
        log.append(Run(found.state, outcome, "probe" if start else "applying"))
        watch(log)
        assert len(log) < 2000, found


def git_bisect_runs(size: int, culprit: int) -> int:
    """Return how many runs ``git bisect run`` makes on a line of commits."""
    low, high, runs = 0, size, 0
    while high - low > 1:
        middle = low + (high - low) // 2
        runs += 1
        if middle >= culprit:
            high = middle
        else:
            low = middle
    return runs
