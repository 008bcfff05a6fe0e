"""The search: a pure function from the log so far to the next state, or the answer.

    decide(problem, log) -> Ask | Answer

It walks the same path from the start each time, taking from the log what it knows, and
stops at the first run that is missing. So it can be interrupted anywhere and replayed,
and what a run changes about earlier beliefs (a failure that turns out to come and go) is
taken into account at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from patchwright.bisecting.isolating import Isolation, Side
from patchwright.bisecting.naming import Doubt, Found, bad_in_common, doubt, luck
from patchwright.bisecting.outcomes import (
    Answer,
    Ask,
    Culprit,
    Problem,
    Run,
    State,
)
from patchwright.bisecting.verdicts import FIRM, Needed, Verdict, Verdicts

_ROUNDS = 6  # of leaving out what fails otherwise, or of finding needs, for one culprit


def decide(problem: Problem, log: Sequence[Run]) -> Ask | Answer:
    """Return the next state to probe, or the answer.

    With ``max_probes`` starts made, the answer is what is known by then.
    """
    search = _Search(problem, log)
    try:
        answer = search.solve()
    except Needed as needed:
        probes = sum(run.source == "probe" for run in log)
        if problem.max_probes is None or probes < problem.max_probes:
            return needed.ask
        answer = search.unfinished()
    return search.finished(answer)


class _Search:
    def __init__(self, problem: Problem, log: Sequence[Run]) -> None:
        self.problem = problem
        self.verdicts = Verdicts(problem, log)
        self.base = problem.bottom
        self.needed: tuple[int, ...] = ()
        self.culprits: list[Found] = []
        self.done: list[Culprit] = []
        self.notes: list[str] = []
        # The narrowest range that is known to hold a culprit, and the state it is in.
        self.between = problem.top - problem.bottom
        self.within = problem.top - problem.bottom

    def of(self, state: State, why: str, least: int = 1) -> Verdict:
        return self.verdicts.of(state, why, least)

    # The answer's frame

    def finished(self, answer: Answer) -> Answer:
        verdicts = self.verdicts
        side = verdicts.side_findings() if answer.kind != "starts" else ()
        named = answer.kind == "culprits"
        return replace(
            answer, signature=verdicts.target, needed=self.needed, side=side,
            notes=tuple(self.notes), failure_rate=verdicts.belief.rate,
            confidence=answer.confidence if named else verdicts.confidence(),
        )  # fmt: skip

    def unfinished(self) -> Answer:
        if not self.verdicts.target:
            self.notes.append("the limit was reached before both ends were judged")
            return Answer("untestable", limited=True)
        return self._range(limited=True)

    def _range(self, *, limited: bool = False) -> Answer:
        for found in self.culprits[len(self.done) :]:
            names = " and ".join(f"{n:04d}" for n in found.patches)
            self.notes.append(
                f"{names}: fails with nothing else but its needs; that it is to blame, and "
                "nothing else, was not made sure of"
            )
        return Answer(
            "range", culprits=tuple(self.done), candidates=tuple(sorted(self.between)),
            within=tuple(sorted(self.within)), limited=limited,
        )  # fmt: skip

    # The whole way

    def solve(self) -> Answer:
        early = self._bracket()
        if early is not None:
            return early
        top = self.problem.top
        found = self._by_suspects(top) or self._minimal(self.base, top)
        while True:
            if found.between:
                return self._range()
            self.culprits.append(found)
            shared = bad_in_common(self.verdicts, self.base, self.culprits)
            if shared is not None:
                self.culprits.clear()
                found = self._minimal(self.base, shared)
                continue
            rest, verdict, trouble = self._rest()
            if verdict == "bad":
                # Another one; but first, is this one a culprit at all?
                against = doubt(self.verdicts, self.base, found)
                if against is not None and against.verdict == "bad":
                    self.culprits.remove(found)
                    rest = against.state
                self.between = self.within = rest - self.base
                found = self._minimal(self.base, rest)
                continue
            if verdict == "unclear":
                found.trouble = trouble
            other = self._fails_without_one()
            if other is None:
                kept = self._kept()
                doubted = self._doubted(kept, rest)
                if doubted is None:
                    return self._confirmed(kept, rest)
                found, against = doubted
                if against.verdict == "unclear":
                    self.between = self.within = found.fails - self.base
                    return self._range()
                self.culprits.remove(found)
                other = against.state
            found = self._minimal(self.base, other)

    def _bracket(self) -> Answer | None:
        """Judge the two ends; an answer where there is nothing to search between them."""
        problem, verdicts = self.problem, self.verdicts
        if len(verdicts.runs(problem.top)) < problem.runs:
            raise Needed(Ask(problem.top, "the upper end"))
        upper = self.of(problem.top, "the upper end")
        if upper == "good":
            return Answer("starts")
        if upper == "unclear":
            failed = any(r.outcome.kind == "failed" for r in verdicts.runs(problem.top))
            return Answer("other-failure" if failed else "untestable", within=tuple(problem.top))
        lower = self.of(self.base, "the lower end")
        if lower == "bad":
            return Answer("base-fails")
        return self._cured() if lower == "unclear" else None

    def _cured(self) -> Answer | None:
        """The lower end fails otherwise: find what cures it, and build on that."""
        why = "what cures the other failure of the lower end"
        base, high, cures = self.base, self.problem.top, list[int]()
        while True:
            low, high = self._isolate(base, high, "unclear", ("good", "bad"), why)
            if len(high - low) > 1:
                candidates = tuple(sorted(high - low))
                self.notes.append("the lower end fails otherwise, and no one patch cures it")
                return Answer("untestable", candidates=candidates, within=candidates)
            cures += high - low
            state = self.base | self.problem.closure(cures)
            verdict = self.of(state, why)
            if verdict != "unclear":
                break
            base = state
        self.needed = tuple(sorted(cures))
        if verdict == "bad":
            within = tuple(sorted(state - self.base))
            return Answer("hidden", candidates=self.needed, within=within)
        self.base = state
        self.between = self.within = self.problem.top - state
        return None

    # Finding a smallest failing set

    def _by_suspects(self, top: State) -> Found | None:
        """Try what the traceback names first; None where that does not settle it."""
        for group, why in self.verdicts.likely():
            inside = [n for n in group if n in top - self.base]
            state = self.base | self.problem.closure(inside)
            if not inside or state == top or self.of(state, why) != "bad":
                continue
            if len(state - self.base) > 1:
                self.between = self.within = state - self.base
            rest = self.problem.without(top, inside)
            if len(inside) == 1 and self.of(rest, "all but the suspect") == "good":
                # What fails lies in its closure, and without it nothing does.
                return Found(inside, fails=state)
            return self._minimal(self.base, state)
        return None

    def _minimal(self, low: State, high: State) -> Found:
        """Return patches in ``high`` that fail together, and none of them without the others."""
        found = Found()
        while True:
            low, high = self._isolate(low, high, "good", ("bad",), "between the ends", narrow=True)
            if len(high - low) > 1:
                found.between, found.within = high - low, high - self.base
                return found
            found.patches += high - low
            alone = self.base | self.problem.closure(found.patches) | found.learned
            verdict = self._alone(alone, found)
            if verdict == "unclear" and alone < high:
                alone, verdict = self._learn_needs(alone, high, found)
            if verdict == "bad" or alone >= high:
                found.fails = alone if verdict == "bad" else high
                break
            low = alone
        if len(found.patches) > 1:
            self._drop_unneeded(found)
        return found

    def _alone(self, alone: State, found: Found) -> Verdict:
        names = " and ".join(f"{n:04d}" for n in sorted(found.patches))
        why = f"{names} with nothing but its needs"
        verdict = self.of(alone, why)
        # Before it is said to fail only together with another one: was that start luck?
        return self.of(alone, why, FIRM) if verdict == "good" else verdict

    def _drop_unneeded(self, found: Found) -> None:
        """Make sure that none of the set fails without one of the others."""
        for number in list(found.patches):
            others = [n for n in found.patches if n != number]
            state = self.base | self.problem.closure(others) | found.learned
            if others and number not in state:
                names = " and ".join(f"{n:04d}" for n in others)
                if self.of(state, f"{names} without {number:04d}", FIRM) == "bad":
                    found.patches, found.fails = others, state

    def _learn_needs(self, alone: State, high: State, found: Found) -> tuple[State, Verdict]:
        """Find what a set needs to be tested at all: it fails otherwise without that."""
        why = "what it cannot be tested without"
        verdict: Verdict = "unclear"
        for _ in range(_ROUNDS):
            for group in self._suspects(alone):
                inside = [n for n in group if n in high - alone]
                state = alone | self.problem.closure(inside)
                if inside and state < high and self.of(state, why) == "bad":
                    high = state
                    break
            low, reached = self._isolate(alone, high, "unclear", ("bad",), why)
            if len(reached - low) > 1:
                break
            found.learned |= reached - low
            alone = alone | self.problem.closure(reached - low)
            verdict = self.of(alone, why)
            if verdict != "unclear":
                return alone, verdict
            high = reached
        found.learned |= high - alone - set(found.patches)
        return high, "bad"

    def _suspects(self, state: State) -> tuple[tuple[int, ...], ...]:
        outcome = self.verdicts.outcome(state)
        return outcome.suspects if outcome is not None else ()

    def _isolate(
        self, low: State, high: State, lower: Verdict, upper: tuple[Verdict, ...], why: str,
        *, narrow: bool = False,
    ) -> tuple[State, State]:  # fmt: skip
        def sense(state: State) -> Side:
            verdict = self.of(state, why)
            return "low" if verdict == lower else "high" if verdict in upper else None

        def watch(low: State, high: State) -> None:
            # One patch alone is named when it is confirmed, not before.
            if narrow and len(high - low) > 1:
                self.between, self.within = high - low, high - self.base

        return Isolation(self.problem, low, high, sense, watch).run()

    # Leaving culprits out

    def _left_out(self, found: Found) -> int:
        """Return the one of a set that is left out: the fewest others need it."""
        return min(found.patches, key=lambda n: (len(self.problem.dependants((n,))), -n))

    def _all_but(self, numbers: Iterable[int]) -> State:
        return self.problem.without(self.problem.top, set(numbers) - self.base) | self.base

    def _rest(self) -> tuple[State, Verdict, str]:
        """Return all but the culprits and what depends on them, and whether that starts."""
        out = {self._left_out(found) for found in self.culprits}
        rest = self._all_but(out)
        why = "all but " + " and ".join(f"{n:04d}" for n in sorted(out))
        verdict = self.of(rest, why)
        for _ in range(_ROUNDS):
            if verdict != "unclear" or rest == self.base:
                break
            failing = [s for s in self.verdicts.failed if s <= rest]
            if failing:
                return min(failing, key=lambda s: (len(s), sorted(s))), "bad", ""
            fallen = self._fallen(rest, why)
            if not fallen:
                break
            names = " and ".join(f"{n:04d}" for n in sorted(fallen))
            culprits = " and ".join(f"{n:04d}" for n in sorted(out))
            self.notes.append(f"{names} fails otherwise without {culprits}: an undeclared need")
            rest = self.problem.without(rest, fallen) | self.base
            verdict = self.of(rest, why)
        hides = "the rest fails otherwise without it, so more culprits may hide there"
        return rest, verdict, hides if verdict == "unclear" else ""

    def _fallen(self, rest: State, why: str) -> State:
        """Return the patches that make ``rest`` fail otherwise, now that a culprit is out."""
        for group in self._suspects(rest):
            inside = frozenset(group) & (rest - self.base)
            if inside:
                state = self.problem.without(rest, inside) | self.base
                if self.of(state, why) != "unclear":
                    return inside
        good = [s for s in self.verdicts.relied if s < rest]
        low = max(good, key=lambda s: (len(s), sorted(s)), default=self.base)
        low, high = self._isolate(low, rest, "good", ("unclear",), why)
        return high - low if len(high - low) == 1 else State()

    def _fails_without_one(self) -> State | None:
        """Return a state that lacks one of a set and fails all the same; None for none.

        Either another set is to blame as well, or one of this set is alone and started
        by luck: that is looked at again before anything is said.
        """
        if len(self.culprits) > 1 or self.culprits[0].trouble:
            return None
        patches = self.culprits[0].patches
        for number in patches if len(patches) > 1 else ():
            state = self._all_but((number,))
            if self.of(state, f"all but {number:04d}") != "bad":
                continue
            for member in patches:
                alone = self.base | self.problem.closure((member,))
                self.of(alone, f"{member:04d} alone, once more", 3 * FIRM)
            return state
        return None

    def _kept(self) -> list[Found]:
        """Return the culprits that fail in the whole series too."""
        if len(self.culprits) == 1:
            return list(self.culprits)
        return [found for found in self.culprits if self._still_fails(found)]

    def _doubted(self, kept: Sequence[Found], rest: State) -> tuple[Found, Doubt] | None:
        """Return a culprit that is not to be named, and what speaks against it."""
        for found in kept:
            against = doubt(self.verdicts, self.base, found, rest)
            if against is not None:
                return found, against
        return None

    def _confirmed(self, kept: Sequence[Found], rest: State) -> Answer:
        """Return the answer: each culprit with what shows it."""
        verdicts, chance = self.verdicts, 0.0
        for found in kept:
            self.done.append(self._culprit(found, rest, alone=len(kept) == 1))
            chance += luck(verdicts, self.base, found)
        self.done.sort(key=lambda culprit: culprit.patches)
        clean = sum(map(verdicts.clean, verdicts.runs(rest)))
        return Answer(
            "culprits", culprits=tuple(self.done), confidence=max(0.0, 1 - chance),
            completeness=1 - verdicts.belief.luck(clean),
        )  # fmt: skip

    def _still_fails(self, found: Found) -> bool:
        """Whether a culprit fails in the whole series; another patch may repair it."""
        others = {self._left_out(other) for other in self.culprits if other is not found}
        state = self._all_but(others)
        names = " and ".join(f"{n:04d}" for n in sorted(found.patches))
        if any(n not in state for n in found.patches):
            return True
        if self.of(state, f"{names} without the other culprits") != "good":
            return True
        self.notes.append(
            f"{names} fails on its own, but a later patch of the selection repairs it"
        )
        return False

    def _culprit(self, found: Found, rest: State, *, alone: bool) -> Culprit:
        problem = self.problem
        starts = [] if found.trouble else [rest]
        if alone and not found.trouble and len(found.patches) > 1:
            for number in found.patches:
                state = self._all_but((number,))
                if state != rest and self.of(state, f"all but {number:04d}") == "good":
                    starts.append(state)
        missing = State().union(*(problem.left_out.get(n, State()) for n in found.patches))
        cured: tuple[int, ...] = ()
        if alone and missing:
            names = " and ".join(f"{n:04d}" for n in sorted(missing))
            if self.of(problem.top | missing, f"with {names}, which it needs") == "good":
                cured = tuple(sorted(missing))
        needs = problem.closure(found.patches) - set(found.patches) - problem.bottom
        return Culprit(
            tuple(sorted(found.patches)), tuple(sorted(needs)), tuple(sorted(found.learned)),
            found.fails, tuple(starts), found.trouble, cured,
        )  # fmt: skip
