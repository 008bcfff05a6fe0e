"""What the runs so far say about a state; asks for a run where they do not say enough."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from patchwright.bisecting.beliefs import Belief, belief
from patchwright.bisecting.outcomes import Ask, Outcome, Problem, Run, SideFinding, State

Verdict = Literal["good", "bad", "unclear"]

# Clean runs before a good state is believed against a smaller one that failed, or before
# a patch is said to fail only together with another.
FIRM = 3
_RISK = 0.05  # that a narrowing is led astray by luck; what is named is made sure of after it
_SUSPECTED = 3  # patches of which the audit has to suspect no more, to be worth a start
_UNCLEAR = 3  # runs with another failure, among clean ones, that make a state unclear


class Needed(Exception):
    """A run is missing; the search goes on when it is in the log."""

    def __init__(self, ask: Ask) -> None:
        super().__init__(ask.why)
        self.ask = ask


class Verdicts:
    """The log, read as verdicts. ``good``: the failure that is searched for does not show."""

    def __init__(self, problem: Problem, log: Sequence[Run]) -> None:
        self.problem = problem
        self.log = log
        self._runs: dict[State, list[Run]] = {}
        for run in log:
            self._runs.setdefault(run.state, []).append(run)
        failures = (r.outcome.signature for r in self._runs.get(problem.top, ())
                    if r.outcome.kind == "failed")  # fmt: skip
        self.target = next((s for s in failures if problem.matches(s, s)), "")
        self.failed = frozenset(s for s, runs in self._runs.items() if any(map(self.hit, runs)))
        self.belief: Belief = belief(
            [self.hit(run) for run in self._runs[state] if self.hit(run) or self.clean(run)]
            for state in self.failed
        )
        self.relied: dict[State, int] = {}  # states taken to be good, with their clean runs

    def hit(self, run: Run) -> bool:
        """Whether a run showed the failure that is searched for."""
        return run.outcome.kind == "failed" and bool(self.target) and (
            self.problem.matches(run.outcome.signature, self.target)
        )  # fmt: skip

    @staticmethod
    def clean(run: Run) -> bool:
        """Whether a run started."""
        return run.outcome.kind == "started"

    def runs(self, state: State) -> list[Run]:
        """Return the runs of a state so far."""
        return self._runs.get(state, [])

    def of(self, state: State, why: str, least: int = 1) -> Verdict:
        """Return what a state is; raises Needed where another run has to tell."""
        runs = self.runs(state)
        if state in self.failed:
            return "bad"
        clean = sum(map(self.clean, runs))
        unclear = [run for run in runs if not self.clean(run)]
        if any(run.source == "applying" for run in unclear):
            return "unclear"
        if not clean and len(unclear) >= (2 if self.problem.runs > 1 or self.belief.clean else 1):
            return "unclear"
        if len(unclear) >= _UNCLEAR:
            return "unclear"
        if clean and clean >= self._enough(state, least):
            self.relied[state] = clean
            return "good"
        raise Needed(Ask(state, why))

    def outcome(self, state: State) -> Outcome | None:
        """Return the outcome of the last run of a state that did not start."""
        return next((r.outcome for r in reversed(self.runs(state)) if not self.clean(r)), None)

    def _enough(self, state: State, least: int) -> int:
        if state <= self.problem.top and any(bad < state for bad in self.failed):
            # Either a patch on top repairs it, or this start was luck: look again.
            least = max(least, FIRM + 1)
        goods = math.log2(len(self.problem.top) + 2) + 2
        return self.belief.enough(_RISK / goods, max(least, self.problem.runs))

    def clean_without(self, number: int, state: State) -> int:
        """Return the clean runs of all states that hold ``state`` and not that patch.

        Were ``state`` bad already, all of them would have started by luck.
        """
        found = [
            run for other, runs in self._runs.items() for run in runs
            if state <= other <= self.problem.top and number not in other
            and other not in self.failed and self.clean(run)
        ]  # fmt: skip
        return _starts(found)

    def likely(self) -> Iterator[tuple[Sequence[int], str]]:
        """Yield the patches that the traceback names, first those that the audit suspects."""
        hits = [run.outcome for run in self.runs(self.problem.top) if self.hit(run)]
        named = hits[0].suspects[0] if hits and hits[0].suspects else ()
        suspected = [n for n in named or self.problem.suspected if n in self.problem.suspected]
        if suspected and len(suspected) <= _SUSPECTED and tuple(suspected) != named:
            yield suspected, "the audit suspects it"
        if named:
            yield named, "the traceback names it"

    def points_at(self, number: int, others: State) -> bool:
        """Whether each traceback so far names that patch first, alone, and none of ``others``."""
        groups = [run.outcome.suspects for run in self.log if self.hit(run)]
        return all(
            found[:1] == ((number,),) and others.isdisjoint(n for group in found for n in group)
            for found in groups
        )  # fmt: skip

    def confidence(self) -> float:
        """Return the chance that no state relied on started by luck."""
        return max(0.0, 1 - sum(self.belief.luck(runs) for runs in self.relied.values()))

    def side_findings(self) -> tuple[SideFinding, ...]:
        """Return each other failure once, with the smallest state that showed it."""
        found: dict[str, Run] = {}
        for run in self.log:
            signature = run.outcome.signature
            # The log may know more than this question is about.
            if not run.state <= self.problem.top or run.outcome.kind != "failed":
                continue
            if not self.hit(run):
                first = found.setdefault(signature, run)
                if len(run.state) < len(first.state):
                    found[signature] = run
        return tuple(SideFinding(s, r.outcome.detail, r.state) for s, r in found.items())


def _starts(clean: Sequence[Run]) -> int:
    """Count starts, not runs: one on record is told again for each state of its tree."""
    made: Counter[str] = Counter()
    told: Counter[tuple[str, State]] = Counter()
    for run in clean:
        if run.source == "probe":
            made[run.tree or str(sorted(run.state))] += 1
        else:
            told[run.tree or str(sorted(run.state)), run.state] += 1
    for (tree, _), count in told.items():
        made[tree] = max(made[tree], count)
    return made.total()
