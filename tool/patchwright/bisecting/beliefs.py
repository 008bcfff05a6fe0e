"""How sure one may be of a clean run, judged by what the bad states did.

One failure proves a state bad. A clean run proves less where the failure comes and goes.
Let p be the chance that a bad state shows it. Before any run p is spread evenly over
0..1; the runs of the states that were seen to fail narrow that down. The chance that a
bad state gives n clean runs in a row is then the mean of (1-p)^n.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_MOST = 40  # clean runs; more are never asked for, the confidence says what is missing
_SHOWS = 0.7  # a failure that shows less often than this is looked for with more runs


@dataclass(frozen=True)
class Belief:
    """``failures`` and ``clean`` count the runs of all states that were seen to fail."""

    failures: int
    clean: int

    @property
    def rate(self) -> float | None:
        """The share of runs that showed the failure."""
        runs = self.failures + self.clean
        return self.failures / runs if runs else None

    def luck(self, runs: int) -> float:
        """Return the chance that a bad state gives that many clean runs and no other."""
        # Beta(failures + 1, clean + 1): the mean of (1-p)^n is a product of n factors.
        mean = 1.0
        for n in range(runs):
            mean *= (self.clean + 1 + n) / (self.failures + self.clean + 2 + n)
        return mean

    def enough(self, risk: float, least: int) -> int:
        """Return how many clean runs bring the luck below ``risk``; ``least`` at least."""
        runs = least
        # Without a clean run on a bad state nothing says that it comes and goes.
        while self.clean and runs < _MOST and self.luck(runs) > risk:
            runs += 1
        return runs

    def before_naming(self, risk: float, choices: int) -> int:
        """Return the clean runs after which a patch is named: one of ``choices`` patches.

        Though nothing may have shown yet that the failure comes and goes, it may: it is
        taken to show in at least 7 of 10 runs, unless the runs say that it shows less often.
        """
        runs = int(math.log(choices / risk) / -math.log(1 - _SHOWS))
        return self.enough(risk, max(1, runs))


def belief(states: Iterable[Sequence[bool]]) -> Belief:
    """Return the belief from each state's runs, True for one that showed the failure."""
    failures = clean = 0
    for runs in states:
        if any(runs):
            failures += sum(runs)
            clean += len(runs) - sum(runs)
    return Belief(failures, clean)
