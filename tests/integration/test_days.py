"""Anything that people do to a series all day, beside a model (tests/days.py)."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from days import Day, day


class DayMachine(RuleBasedStateMachine):
    """Hypothesis chooses what is done; each step checks everything, the end undoes it all."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="day-")).resolve()
        self.day = Day(self.folder, random.Random(0))

    def teardown(self) -> None:
        try:
            self.day.check_undone()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    @rule(
        what=st.sampled_from(
            ("new", "refresh", "move", "drop", "split", "fold", "renumber", "number", "message",
             "off", "on", "undo", "redo")
        ),
        chance=st.randoms(use_true_random=False),
    )  # fmt: skip
    def step(self, what: str, chance: random.Random) -> None:
        self.day.chance = chance
        getattr(self.day, what)()

    @invariant()
    def nothing_waits(self) -> None:
        assert not (self.day.root / ".patchwright/operations/pending.zip").exists()


def _settings(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, database=None,
        suppress_health_check=list(HealthCheck), print_blob=True,
    )  # fmt: skip


def test_a_morning_is_what_the_model_says_and_can_be_undone() -> None:
    run_state_machine_as_test(DayMachine, settings=_settings(2, 12))


def test_killed_at_random_the_next_command_finds_before_or_after(tmp_path: Path) -> None:
    work = day(tmp_path.resolve(), random.Random(7), 14, kills=True)
    assert sum(work.killed) > 2, work.log


@pytest.mark.slow
def test_days_of_two_hundred_steps() -> None:
    run_state_machine_as_test(DayMachine, settings=_settings(2, 200))


@pytest.mark.slow
def test_a_day_of_kills(tmp_path: Path) -> None:
    work = day(tmp_path.resolve(), random.Random(), 200, kills=True)
    assert min(work.killed) > 5, work.log
