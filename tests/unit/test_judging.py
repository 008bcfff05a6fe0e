"""What the outcomes of runs mean: the verdict on one question."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchwright.applying.chain import State
from patchwright.smoke.evidenced import Result
from patchwright.smoke.runs import Run
from patchwright.verify import Answer, Question, judge

WITH = State((("tiny", "a" * 40),))
BEFORE = State((("tiny", "b" * 40),))


def run_of(number: int, state: State = WITH) -> Run:
    return Run(Path(f"tests/smoke/test_{number:04d}.py"), "static", state, BEFORE)


def result(outcome: str, reason: str = "") -> Result:
    return Result(outcome, reason, 0.5, made=True)


def judged(run: str, control: str, reason: str = "") -> Answer:
    question = Question(
        3, "static", "step", runs=((3, run_of(3)),), controls=((3, run_of(3, BEFORE)),)
    )
    outcomes = {run_of(3): result(run, reason), run_of(3, BEFORE): result(control, reason)}
    return judge(question, outcomes)


@pytest.mark.parametrize(
    ("run", "control", "verdict", "word"),
    [
        ("passed", "failed", "passed", "failed"),
        ("passed", "passed", "vacuous", "passed"),
        ("passed", "error", "error", "error"),
        ("passed", "none", "error", "error"),
        ("passed", "blocked", "blocked", None),
        ("failed", "failed", "failed", "failed"),
        ("failed", "passed", "failed", "passed"),
        ("error", "failed", "error", "failed"),
        ("blocked", "blocked", "blocked", None),
        ("none", "none", "none", None),
    ],
)
def test_red_without_green_with(run: str, control: str, verdict: str, word: str | None) -> None:
    answer = judged(run, control)
    assert (answer.verdict, answer.control) == (verdict, word)


def on_device(
    run: str, control: str, *, context: str = "step", device: str = "sm_90", arch: str = "sm_120"
) -> Answer:
    question = Question(
        3, "gpu", context, runs=((3, run_of(3)),), controls=((3, run_of(3, BEFORE)),),
        arch=(arch,) if arch else (),
    )  # fmt: skip
    outcomes = {
        key: Result(word, "why", 0.5, made=True, device=device)
        for key, word in ((run_of(3), run), (run_of(3, BEFORE), control))
    }
    return judge(question, outcomes)


@pytest.mark.parametrize("context", ["step", "alone", "without"])
@pytest.mark.parametrize(
    ("run", "control", "verdict", "word"),
    [
        ("passed", "passed", "passed", "passed"),
        ("passed", "failed", "failed", "failed"),
        ("failed", "passed", "failed", "passed"),
        ("passed", "error", "error", "error"),
        ("passed", "blocked", "blocked", None),
    ],
)
def test_a_device_that_is_no_target_must_see_no_change(
    run: str, control: str, verdict: str, word: str | None, context: str
) -> None:
    answer = on_device(run, control, context=context)
    assert (answer.verdict, answer.control) == (verdict, word)


def test_a_pass_on_another_device_says_so() -> None:
    assert on_device("passed", "passed").reason == "left alone on sm_90 (not a target of 0003)"
    changed = on_device("passed", "failed")
    assert changed.reason == (
        "0003 changes what sm_90 does, which its field Arch does not name: why"
    )


def test_a_target_must_be_red_without_and_green_with() -> None:
    assert on_device("passed", "passed", device="sm_120").verdict == "vacuous"
    assert on_device("passed", "failed", device="sm_120", arch="sm_120a").verdict == "passed"
    # A patch that names no architecture is for every one.
    assert on_device("passed", "passed", arch="").verdict == "vacuous"


def test_the_inner_error_is_the_reason() -> None:
    assert judged("failed", "failed", "majors [9, 10]").reason == "majors [9, 10]"
    assert judged("passed", "error", "no such gate").reason == "the control broke: no such gate"


def test_seconds_and_made_runs_are_those_of_run_and_control() -> None:
    answer = judged("passed", "failed")
    assert answer.seconds == 1.0
    assert answer.made == {run_of(3), run_of(3, BEFORE)}


def without(others: str, own: str, dependant: str) -> Answer:
    """Leave out 2, which 4 needs; 3 has nothing to do with it."""
    question = Question(
        2, "static", "without",
        runs=((3, run_of(3)),), controls=((2, run_of(2)), (4, run_of(4))),
    )  # fmt: skip
    outcomes = {run_of(3): others, run_of(2): own, run_of(4): dependant}
    return judge(question, {run: result(word, "why") for run, word in outcomes.items()})


def test_leaving_one_out_must_fail_it_and_its_dependants_and_nothing_else() -> None:
    assert without("passed", "failed", "failed").verdict == "passed"


def test_an_undeclared_need_is_named() -> None:
    answer = without("failed", "failed", "failed")
    assert answer.verdict == "failed"
    assert answer.reason == "0003 fails without 0002 and does not declare the need: why"


def test_a_test_that_does_not_miss_its_own_patch_is_vacuous() -> None:
    answer = without("passed", "passed", "failed")
    assert (answer.verdict, answer.reason) == (
        "vacuous", "its own smoke test passes without 0002",
    )  # fmt: skip


def test_a_dependant_that_does_not_miss_its_need_fails() -> None:
    answer = without("passed", "failed", "passed")
    assert answer.verdict == "failed"
    assert answer.reason == "the smoke test of its dependant 0004 passes without 0002"


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_broken_or_blocked_run_is_never_passed(place: int) -> None:
    for word in ("error", "blocked"):
        outcomes = ["passed", "failed", "failed"]
        outcomes[place] = word
        assert without(*outcomes).verdict == word
