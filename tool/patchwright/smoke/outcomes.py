"""What a smoke test and a run can end in, and the exceptions that say so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

Outcome = Literal["passed", "failed", "error", "blocked", "none"]

# The first one that occurs among a run's tests is the run's outcome: a broken test
# says nothing, a missing need leaves the question open, one failure answers it.
_WEIGHT: tuple[Outcome, ...] = ("error", "blocked", "failed", "passed")


class Blocked(Exception):
    """A need of the test is missing here: verdict ``blocked``, never ``passed``.

    ``need`` is what is missing, as a user reads it: "needs nvcc 12.8 or newer".
    """

    def __init__(self, need: str) -> None:
        super().__init__(need)
        self.need = need


class UpstreamRefused(AssertionError):
    """Upstream's own code raised: counts as a failed assertion of the test.

    The message is upstream's own, word for word.
    """


class SmokeError(Exception):
    """The test or the harness is wrong (a gate that is not there): verdict ``error``."""


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the outcome of a run from those of its tests; ``none`` without tests."""
    found = set(outcomes)
    return next((outcome for outcome in _WEIGHT if outcome in found), "none")
