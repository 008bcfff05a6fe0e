from __future__ import annotations

import pytest

from patchwright.smoke.outcomes import Blocked, Outcome, SmokeError, UpstreamRefused, worst


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([], "none"),
        (["passed"], "passed"),
        (["passed", "failed"], "failed"),
        (["failed", "blocked", "passed"], "blocked"),
        (["blocked", "failed", "error", "passed"], "error"),
    ],
)
def test_the_worst_outcome_decides(outcomes: list[Outcome], expected: Outcome) -> None:
    assert worst(outcomes) == expected


def test_only_upstreams_refusal_is_an_assertion() -> None:
    assert issubclass(UpstreamRefused, AssertionError)
    assert not issubclass(SmokeError, AssertionError)
    assert not issubclass(Blocked, AssertionError)


def test_a_need_is_told_word_for_word() -> None:
    blocked = Blocked("needs nvcc 12.8 or newer")
    assert blocked.need == str(blocked) == "needs nvcc 12.8 or newer"
