"""The pytest plugin that turns what happens in a test into an outcome and a reason.

A test that fails is one whose own assertion failed. Everything else that goes wrong, in
a fixture, while collecting, in upstream's code or in the test's, is an error: it says
nothing about the patch.
"""

from __future__ import annotations

import inspect
import unittest
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from traceback import walk_tb
from types import TracebackType

import pytest

import patchwright
from patchwright.smoke.outcomes import Blocked, Outcome, UpstreamRefused, worst
from patchwright.tiers import TIERS

REASON = 400  # characters
_LINES = 4
_SKIPS: tuple[type[BaseException], ...] = (pytest.skip.Exception, unittest.SkipTest)
_ASSERTIONS: tuple[type[BaseException], ...] = (AssertionError, pytest.fail.Exception)
_PACKAGE = str(Path(patchwright.__file__).parent)


@dataclass(frozen=True)
class Finding:
    """One thing that happened; ``need`` is set where the outcome is ``blocked``."""

    outcome: Outcome
    reason: str = ""
    need: str = ""


@dataclass
class TestRecord:
    """What happened in one test. ``seconds`` counts all of its phases."""

    __test__ = False
    name: str
    tier: str
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0
    finished: bool = False


class Recorder:
    """Records one pytest session on the file ``test``.

    With a ``tier`` only its tests are run. ``sites`` are the folders whose code is
    upstream's.
    """

    def __init__(self, test: Path, tier: str | None, sites: Sequence[Path] = ()) -> None:
        self.test = str(test)
        self.tier = tier
        self.sites = tuple(f"{site}/" for site in sites)
        self.tests: dict[str, TestRecord] = {}
        self.others: list[Finding] = []  # outside any test: collecting, pytest itself

    # Collecting

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", "tier(name): what the test needs")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        chosen, others = [], []
        for item in items:
            mark = item.get_closest_marker("tier")
            tier = mark.args[0] if mark is not None and len(mark.args) == 1 else None
            if tier not in TIERS:
                known = ", ".join(TIERS)
                text = "mark it with its tier: @pytest.mark.tier(...) with one of " + known
                self.others.append(Finding("error", f"{item.name}: {text}"))
            elif inspect.iscoroutinefunction(getattr(item, "obj", None)):
                self.others.append(Finding("error", f"{item.name}: an async test is not run"))
            elif self.tier in (None, tier):
                self.tests[item.nodeid] = TestRecord(item.name, tier)
                chosen.append(item)
                continue
            others.append(item)
        items[:] = chosen
        if others:
            config.hook.pytest_deselected(items=others)

    def pytest_exception_interact(
        self, node: object, call: pytest.CallInfo[object], report: object
    ) -> None:
        if isinstance(report, pytest.CollectReport) and call.excinfo is not None:
            self.others.append(self._broken(call.excinfo.value, "while collecting"))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
            need = reason.removeprefix("Skipped: ") or "skipped"
            self.others.append(Finding("blocked", need, need))

    # Running

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        record = self.tests[item.nodeid]
        record.seconds += call.duration
        if hasattr(report, "wasxfail"):
            record.findings.append(Finding("error", f"{item.name}: xfail is not accepted"))
        elif call.excinfo is not None:
            record.findings.append(self._classify(item.name, call.when, call.excinfo.value))
        elif report.failed:  # such as a strict xfail that passed
            record.findings.append(Finding("error", f"{item.name}: {_short(report.longreprtext)}"))
        elif call.when == "call":
            record.findings.append(Finding("passed"))
        return report

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.tests[nodeid].finished = True

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        # Pytest interrupts itself after an error while collecting: that is known by then.
        if not self.others:
            self.others.append(self._broken(excinfo.value, "pytest was stopped"))

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        self.others.append(self._broken(excinfo.value, "pytest itself was ended"))

    # Judging

    def close(self, exit_code: int) -> None:
        """Add what only the end of the session shows."""
        for record in self.tests.values():
            if self.tier is not None and not (record.finished and record.findings):
                record.findings.append(
                    Finding("error", f"{record.name}: it was not run to its end")
                )
        if exit_code not in (0, 1, 5) and not self.others:
            why = f"pytest ended with status {exit_code}"
            if "[" in self.test or "::" in self.test:
                why = f"pytest runs no file with '[' or '::' in its path: move {self.test}"
            self.others.append(Finding("error", why))

    def _classify(self, name: str, when: str, error: BaseException) -> Finding:
        if isinstance(error, Blocked):
            return Finding("blocked", error.need, error.need)
        if isinstance(error, _SKIPS):
            need = _short(str(error)) or "skipped"
            return Finding("blocked", need, need)
        if when == "call" and isinstance(error, _ASSERTIONS):
            if isinstance(error, UpstreamRefused) or not self._raised_by_upstream(error):
                return Finding("failed", f"{name}: {_message(error)}")
            return self._broken(error, f"{name}: upstream's own assertion")
        return self._broken(error, name if when == "call" else f"{name}, in {when}")

    def _broken(self, error: BaseException, where: str) -> Finding:
        if isinstance(error, pytest.Collector.CollectError) and error.__cause__ is not None:
            error = error.__cause__
        if isinstance(error, Blocked):
            return Finding("blocked", error.need, error.need)
        place = self._place(error.__traceback__)
        text = _message(error, room=REASON - len(where) - len(place) - 5)
        return Finding("error", f"{where}: {text}{place}")

    def _place(self, traceback: TracebackType | None) -> str:
        """Return the innermost frame that is not pytest's or Python's own, in words."""
        frames = list(walk_tb(traceback))
        for frame, line in reversed(frames):
            file, name = frame.f_code.co_filename, frame.f_code.co_name
            shown = next((file[len(s) :] for s in self.sites if file.startswith(s)), None)
            if shown is None and file == self.test:
                shown = Path(file).name
            if shown is not None:
                inside = "" if name == "<module>" else f" in {name}"
                return f" ({shown}:{line}{inside})"
        return ""

    def _raised_by_upstream(self, error: BaseException) -> bool:
        for frame, _ in reversed(list(walk_tb(error.__traceback__))):
            file = frame.f_code.co_filename
            if file.startswith(self.sites):
                return True
            if file == self.test or file.startswith(_PACKAGE):
                return False
        return False


def outcome_of(findings: Sequence[Finding]) -> Finding:
    """Return the finding that decides: the first of the worst outcome."""
    outcome = worst(finding.outcome for finding in findings)
    return next((f for f in findings if f.outcome == outcome), Finding("none"))


def _message(error: BaseException, room: int = REASON) -> str:
    text = str(error)
    if not isinstance(error, _ASSERTIONS):
        return _short(f"{type(error).__name__}: {text}" if text else type(error).__name__, room)
    if not text and (frames := list(walk_tb(error.__traceback__))):
        frame, line = frames[-1]
        text = f"the assertion in line {line} of {frame.f_code.co_name} does not hold"
    return _short(text, room)


def _short(text: str, room: int = REASON) -> str:
    """Return the first lines, cut to ``room`` characters."""
    lines = [line.rstrip() for line in text.strip().splitlines() if line.strip()]
    short = "\n".join(lines[:_LINES])
    return short if len(short) <= room else short[: max(room - 2, 0)] + " …"
