"""A bisection of a project: the question, the probes, the log."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchwright.applying import chain
from patchwright.bisecting.journal import Journal
from patchwright.bisecting.outcomes import Answer, Ask, Outcome, Problem, Run, State
from patchwright.bisecting.planning import plan
from patchwright.bisecting.suspects import Suspects
from patchwright.errors import AnswerNo, InputError
from patchwright.startup.records import StartRecords
from patchwright.startup.starts import Attempt, Starts, finished

if TYPE_CHECKING:
    from patchwright.patch import Patch
    from patchwright.project import Project
    from patchwright.series import Selection
    from patchwright.startup.judging import Started

# Told of each run as it ends, with its number and what it was for.
OnRun = Callable[[Run, int, str], None]


@dataclass(frozen=True)
class Limits:
    """What the user asks of the search: see ``Problem``."""

    good: int | None = None
    bad: int | None = None
    signature: str = ""
    runs: int = 1
    max_probes: int | None = None
    confidence: float = 0.9999


def make_problem(project: Project, selection: Selection, limits: Limits) -> Problem:
    """Return the question about a selection.

    Needs are those that are declared, and those without which a patch does not apply.
    Raises InputError for a bracket outside the selection, AnswerNo where the upper end
    does not apply.
    """
    series = project.series
    picked = selection.pick(series)
    project.check_pins(picked)
    numbers = tuple(patch.number for patch in picked)
    for name, number in (("--good", limits.good), ("--bad", limits.bad)):
        if number is not None and number != 0 and number not in numbers:
            raise InputError(
                f"{name} {number}: the selection does not have that patch",
                next_step=f"it has {', '.join(map(str, numbers)) or 'none'}; --good 0 is the base",
            )
    bottom = frozenset(n for n in numbers if n <= (limits.good or 0))
    top = frozenset(n for n in numbers if limits.bad is None or n <= limits.bad)
    if not bottom < top:
        raise InputError(
            "there is no patch between the two ends",
            next_step="give a --good that is smaller than --bad, and a selection with patches",
        )
    inside = [patch for patch in picked if patch.number in top]
    applied = chain.Chain(project)
    _refuse_conflicts(applied, inside)
    needs = {patch.number: _needs(applied, patch, inside) for patch in inside}
    left_out = {
        n: frozenset(series.closure(n)) - set(numbers) for n in top
        if not set(series.closure(n)) <= set(numbers)
    }  # fmt: skip
    return Problem(
        tuple(sorted(top)), bottom, top, needs, left_out, limits.signature, limits.runs,
        limits.confidence, limits.max_probes,
    )  # fmt: skip


def _refuse_conflicts(applied: chain.Chain, patches: Sequence[Patch]) -> None:
    _, verdicts = applied.apply(patches)
    refused = [verdict for verdict in verdicts if not verdict.ok]
    if refused:
        first = refused[0]
        raise AnswerNo(
            f"{first.patch_number:04d} does not apply ({first.verdict}: {first.reason})"
            + (f", nor do {len(refused) - 1} more" if len(refused) > 1 else ""),
            next_step="correct it, or leave it out with --without; see `patchwright apply`",
        )


def _needs(applied: chain.Chain, patch: Patch, inside: Sequence[Patch]) -> frozenset[int]:
    """Return a patch's needs within the selection, the undeclared textual ones included."""
    numbers = {p.number for p in inside}
    declared = {need.number for need in patch.depends} & numbers
    alone = applied.alone(patch.number)
    return frozenset(declared | (set(alone.undeclared) & numbers))


@dataclass
class Bisection:
    """Makes the runs that the search asks for, and keeps them."""

    project: Project
    problem: Problem
    starts: Starts
    command: str = ""  # the user's own probe; empty: the project's
    directory: Path = field(default_factory=Path)

    def __post_init__(self) -> None:
        """Open the log; what a bisection before this one learned is in it."""
        self.chain = chain.Chain(self.project)
        patches = [self.project.series.get(n) for n in sorted(self.problem.top)]
        self.suspects = Suspects(self.project.config, patches)
        self.records = StartRecords(self.project, self.starts.settings, self.starts.identity)
        self.journal = Journal(self.project.state_dir / "bisect", self._facts())
        self._recalled: set[State] = {run.state for run in self.journal.runs}
        self._agree_on_suspects()

    def forget(self) -> None:
        """Begin anew: what is on record as evidence stays."""
        self.journal.clear()
        self._recalled = set()
        self._agree_on_suspects()

    def _agree_on_suspects(self) -> None:
        """Go the way that the log goes, whatever was audited since."""
        if self.journal.suspected is None:
            self.journal.suspected = self.problem.suspected
        self.problem = replace(self.problem, suspected=self.journal.suspected)

    def _facts(self) -> dict[str, Any]:
        series = self.project.series
        return {
            "probe": self.starts.settings.digest(),
            "files": _named_files(self.command, self.directory),
            "environment": self.starts.identity,
            "base": dict(self.chain.base().trees),
            "patches": {str(patch.number): patch.sha256 for patch in series.patches},
        }

    def solve(self, *, jobs: int = 1, on_run: OnRun = lambda run, number, why: None) -> Answer:
        """Return the answer, making up to ``jobs`` starts at a time.

        What is interrupted is in the log up to the last start that ended.
        """
        under_way: dict[State, tuple[Attempt, str]] = {}
        while True:
            asks = plan(self.problem, self.journal.runs, jobs)
            if isinstance(asks, Answer):
                return asks
            if self._known(asks, on_run):
                continue
            for ask in asks:
                if len(under_way) >= jobs or not self._may_start(len(under_way)):
                    break
                if ask.state in under_way:
                    continue
                attempt = self.starts.begin(self._state(ask.state))
                if attempt is None:
                    break  # another one of these has the devices
                under_way[ask.state] = attempt, ask.why
            for attempt in finished([attempt for attempt, _ in under_way.values()]):
                started = self.starts.finish(attempt)
                if started is None:
                    continue  # another port
                state = next(s for s, (a, _) in under_way.items() if a is attempt)
                _, why = under_way.pop(state)
                self.records.keep(attempt.state, started)
                tree = self._tree(attempt.state)
                self._add(Run(state, self._outcome(started), tree=tree), why, on_run)

    def _known(self, asks: Sequence[Ask], on_run: OnRun) -> bool:
        """Take what needs no start: a state that does not apply, or one that is on record."""
        found = False
        for ask in asks:
            if ask.state in self._recalled:
                continue
            self._recalled.add(ask.state)
            patches = [self.project.series.get(n) for n in sorted(ask.state)]
            state, verdicts = self.chain.apply(patches)
            refused = next((v for v in verdicts if not v.ok), None)
            if refused is not None:
                detail = f"{refused.patch_number:04d} does not apply: {refused.reason}"
                outcome = Outcome("untestable", detail=detail)
                self._add(Run(ask.state, outcome, "applying"), ask.why, on_run)
                found = True
            elif (started := self.records.find(state)) is not None:
                for _ in range(max(1, self.records.starts(state))):
                    self._add(
                        Run(ask.state, self._outcome(started), "record", self._tree(state)),
                        ask.why,
                        on_run,
                    )
                found = True
        return found

    def _may_start(self, under_way: int) -> bool:
        made = sum(run.source == "probe" for run in self.journal.runs)
        return self.problem.max_probes is None or made + under_way < self.problem.max_probes

    def _add(self, run: Run, why: str, on_run: OnRun) -> None:
        self.journal.add(run)
        on_run(run, len(self.journal.runs), why)

    def _state(self, numbers: State) -> chain.State:
        return self.chain.apply([self.project.series.get(n) for n in sorted(numbers)])[0]

    def _tree(self, state: chain.State) -> str:
        wanted = self.starts.settings.upstreams
        return " ".join(f"{name}:{tree}" for name, tree in state.trees if name in wanted)

    def _outcome(self, started: Started) -> Outcome:
        return Outcome(
            started.outcome, started.signature, self.suspects.of(started), started.detail,
            started.seconds, started.log,
        )  # fmt: skip


def _named_files(command: str, directory: Path) -> Mapping[str, str]:
    """Return the digests of the files that a command names: another script, another log."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    found = {}
    for word in words:
        path = directory / word
        if path.is_file():
            found[word] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found
