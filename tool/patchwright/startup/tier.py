"""Verify's startup tier: the server starts with each patch, in its place and alone.

There is no control: few patches are meant to cure a start. Where the start fails without
the patch as well, the reason says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from patchwright.applying.chain import State
from patchwright.startup.judging import Started
from patchwright.startup.records import StartRecords
from patchwright.startup.settings import from_config
from patchwright.startup.starts import Starts, blocked

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.verify import Answer, Question

_TIER = "startup"


def with_starts(
    project: Project, answers: Sequence[Answer], say: Callable[[str], None] = lambda text: None
) -> list[Answer]:
    """Return the answers with those at the startup tier given by starts.

    A patch whose smoke test has a test of this tier keeps that test's answer. Without a
    declared probe nothing changes.
    """
    if not project.config.startup:
        return list(answers)
    settings = from_config(project.config)
    need = blocked(project, settings)
    with Starts(project, settings) as starts:
        made = _Made(project, starts, say) if not need else None
        return [
            _answer(answer, made, need)
            if answer.question.tier == _TIER and answer.verdict in ("none", "unproven") else answer
            for answer in answers
        ]  # fmt: skip


def on_record(
    project: Project, questions: Sequence[Question]
) -> Iterator[tuple[Question, str, str]]:
    """Yield those of the questions whose start is on record: verdict and reason; runs none."""
    settings = from_config(project.config)
    if blocked(project, settings):
        return
    with Starts(project, settings) as starts:
        records = StartRecords(project, settings, starts.identity)
    for question in questions:
        started = records.find(question.trees) if question.trees is not None else None
        if started is not None and question.tier == _TIER:
            verdict, reason = _verdict(question, started)
            yield question, verdict, reason


class _Made:
    """Starts by state: each is made once, and what is on record is not made."""

    def __init__(self, project: Project, starts: Starts, say: Callable[[str], None]) -> None:
        self.starts = starts
        self.say = say
        self.records = StartRecords(project, starts.settings, starts.identity)
        self.known: dict[State, Started] = {}

    def get(self, state: State, what: str) -> Started:
        if state not in self.known:
            started = self.records.find(state)
            if started is None:
                self.say(f"starting {what}")
                started = self.starts.run(state)
                self.records.keep(state, started)
            self.known[state] = started
        return self.known[state]


def _answer(answer: Answer, made: _Made | None, need: str) -> Answer:
    question = answer.question
    if question.trees is None:
        return answer
    if made is None:
        return replace(answer, verdict="blocked", reason=need)
    what = f"{question.number:04d} ({question.context})"
    started = made.get(question.trees, what)
    logs = (started.log,) if started.log else ()
    verdict, reason = _verdict(question, started)
    if verdict == "failed" and question.context != "without" and question.control_trees:
        before = made.get(question.control_trees, f"{what} without it")
        if before.signature == started.signature:
            reason = f"{reason}; it fails the same way without {question.number:04d}"
    return replace(answer, verdict=verdict, reason=reason, seconds=started.seconds, logs=logs)


def _verdict(question: Question, started: Started) -> tuple[str, str]:
    if question.context != "without":
        return _judged(started)
    # The series without one patch may fail to start: only a failure says something.
    if started.outcome == "started":
        return "passed", ""
    return "failed", f"the rest does not start without it: {started.detail}"


def _judged(started: Started) -> tuple[str, str]:
    verdicts = {"started": "passed", "failed": "failed", "untestable": "error"}
    reason = f"{started.kind}: {started.detail}" if started.outcome != "started" else ""
    return verdicts[started.outcome], reason
