"""Narrowing two states, one low and one high, to the smallest step between them.

The invariant is that of delta debugging: ``low`` is part of ``high``, ``sense`` calls one
low and the other high. Each probe of a state between them moves one of the two. With
nothing in the way the cuts are those of ``git bisect``: prefixes of the series, the
middle one first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from patchwright.bisecting.outcomes import Problem, State

Side = Literal["low", "high"] | None
_FEW = 6  # patches between the ends for which leaving out each one is tried

# Told of the two ends, before each probe.
Watcher = Callable[[State, State], None]


class Isolation:
    """One narrowing; ``run`` returns the two ends when no probe brings them closer."""

    def __init__(
        self, problem: Problem, low: State, high: State, sense: Callable[[State], Side],
        watch: Watcher = lambda low, high: None,
    ) -> None:  # fmt: skip
        self.problem = problem
        self.low = low
        self.high = high
        self.sense = sense
        self.watch = watch
        # What makes states unclear (a breaker, or its repair): taken in last of all.
        self.late: set[int] = set()
        self._sides: dict[State, Side] = {}

    def run(self) -> tuple[State, State]:
        """Return (low, high) with one patch between them, or more where all is unclear."""
        while len(self.high - self.low) > 1:
            self.watch(self.low, self.high)
            order = self._order()
            if not self._halve(order) and not self._set_aside(order) and not self._few(order):
                break
        self.watch(self.low, self.high)
        return self.low, self.high

    def _order(self) -> list[int]:
        between = self.high - self.low
        late = self.problem.dependants(self.late) & between
        return sorted(between - late) + sorted(late)

    def _halve(self, order: Sequence[int]) -> bool:
        """Try the cuts left of the first unclear one; return whether an end moved."""
        end = len(order)
        while end > 1:
            cut = end // 2
            if self._moves(self.low.union(order[:cut])):
                return True
            end = cut
        return False

    def _set_aside(self, order: Sequence[int]) -> bool:
        """Every cut down to the first patch is unclear: go around that patch."""
        if order[0] in self.late:
            return False
        self.late.add(order[0])
        return True

    def _few(self, order: Sequence[int]) -> bool:
        """Try to leave out, and to take in, each one of the last few."""
        if len(order) > _FEW:
            return False
        return any(
            self._moves(self.problem.without(self.high, (number,)) | self.low)
            or self._moves(self.low | self.problem.closure((number,)))
            for number in order
        )

    def _moves(self, middle: State) -> bool:
        if not self.low < middle < self.high or self._open(middle):
            return False
        if middle not in self._sides:
            self._sides[middle] = self.sense(middle)
        side = self._sides[middle]
        if side == "low":
            self.low = middle
        elif side == "high":
            self.high = middle
        return side is not None

    def _open(self, state: State) -> bool:
        """Whether a need within reach is missing."""
        needs = self.problem.closure(state - self.low) & self.high
        return not needs <= state
