"""Making runs: what verify asks for, and nothing about what the outcomes mean.

    found = collect(project, files)                 # {file: Collected}
    results = execute(project, runs, jobs=2)        # {run: RunResult}

Runs are grouped by state; each job has a prepared worker process and two site folders
that are moved by tree difference.
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchwright.smoke.alike import Alike, Reads
from patchwright.smoke.devices import Lease
from patchwright.smoke.isolation import run_environment
from patchwright.smoke.outcomes import Outcome
from patchwright.smoke.protocol import Place, Request, sources_of
from patchwright.smoke.run import Run
from patchwright.smoke.seats import Seat, WorkerDied, take_seat
from patchwright.smoke.shares import Shares, tier_environment
from patchwright.smoke.sites import site_tree, site_trees

if TYPE_CHECKING:
    from patchwright.applying.chain import State
    from patchwright.project import Project

__all__ = ["Collected", "Run", "RunResult", "collect", "deadline_of", "execute", "site_trees"]

_STATIC_DEADLINE = 120.0  # seconds; nothing is compiled there


@dataclass(frozen=True)
class RunResult:
    """The outcome of one run.

    ``reason`` is the inner error, at most a few lines; ``needs`` what is missing where
    the outcome is ``blocked``; ``log`` what the run printed, cut in the middle beyond
    128 KiB; ``tests`` one mapping per test: ``test`` (pytest's node id), ``outcome``,
    ``reason``, ``seconds``. ``sha256`` is that of the test file's bytes as they ran.
    ``stubs`` names what stood in for the real thing (``torch (stub)``), ``machine`` what
    it ran on, where the tier needs more than a CPU (``device``: its name). ``read`` are
    the files that it read of the tree and of the baseline, None where nobody can tell;
    ``like`` is the run that was made, where this one would have read the same.
    """

    outcome: Outcome
    reason: str = ""
    seconds: float = 0.0
    log: str = field(default="", repr=False)
    needs: tuple[str, ...] = ()
    tests: tuple[Mapping[str, Any], ...] = ()
    sha256: str = ""
    stubs: tuple[str, ...] = ()
    machine: Mapping[str, str] = field(default_factory=dict)
    read: Reads | None = field(default=None, repr=False)
    like: Run | None = None


@dataclass(frozen=True)
class Collected:
    """The tests of a smoke file: tier to pytest's node ids; ``error`` where it has none."""

    tiers: Mapping[str, tuple[str, ...]]
    error: str = ""


def deadline_of(project: Project, tier: str) -> float:
    """Return how long a run may take, in seconds.

    ``smoke-deadline`` holds for every tier; a static run, which compiles nothing, gets
    120 s of it at most.
    """
    limit = project.config.smoke_deadline
    return min(limit, _STATIC_DEADLINE) if tier == "static" else limit


def collect(project: Project, files: Iterable[Path]) -> dict[Path, Collected]:
    """Return the tests of each smoke file, by tier.

    The files are imported without any tree. One that dies on import, or has a test
    without a tier, is an error with the inner message.
    """
    found = {}
    with ExitStack() as stack:
        seat = take_seat(project.cache_dir / "slots", project.pins_key)
        stack.callback(seat.close)
        for file in files:
            answer = _ask(seat, _request(project, seat, file, ""))
            found[file] = _collected(answer)
    return found


def execute(
    project: Project,
    runs: Sequence[Run],
    *,
    jobs: int = 1,
    on_result: Callable[[Run, RunResult], None] | None = None,
) -> dict[Run, RunResult]:
    """Make every run and return the results; ``on_result`` hears of each as it ends.

    Whatever ends this function, an exception from ``on_result`` or Ctrl-C included,
    leaves no process behind. Raises PatchwrightError where the cache cannot be written
    or the states cannot be laid side by side.
    """
    results: dict[Run, RunResult] = {}

    def ended(run: Run, result: RunResult) -> None:
        results[run] = result
        if on_result is not None:
            on_result(run, result)

    with ExitStack() as stack:
        work = _Work(project, runs, stack)
        for _ in range(min(max(jobs, 1), len(work.queue))):
            seat = take_seat(project.cache_dir / "slots", project.pins_key)
            stack.callback(seat.close)
            # Where every core has a seat of its own, nobody could do it meanwhile.
            seat.ahead = jobs < len(os.sched_getaffinity(0))
            work.seats.append(seat)
        # Called first of all: no seat is waited for while another one still runs.
        stack.callback(_dismiss, work.seats)
        while work.goes_on():
            for seat in work.heard_of():
                for run, result in work.finish(seat):
                    ended(run, result)
    return results


class _Work:
    """What the seats do: the run that each is at, and the next one, whose trees lie ready."""

    def __init__(self, project: Project, runs: Sequence[Run], stack: ExitStack) -> None:
        self.project = project
        self.queue = _Queue(runs)
        self.seats: list[Seat] = []
        self._alike = Alike(project)
        self._shares = Shares(project)
        # Called last of all: no device is given back before the run on it is gone.
        stack.callback(self._shares.close)
        self._selector = stack.enter_context(selectors.DefaultSelector())
        self._at: dict[Seat, tuple[Run, Lease]] = {}
        self._next: dict[Seat, tuple[Run, list[Place]]] = {}
        self._answers: dict[Seat, dict[str, Any]] = {}

    def goes_on(self) -> bool:
        """Have every seat do what it can, and return whether there is anything to wait for."""
        for seat in self.seats:
            self._occupy(seat)
        for seat in self._at:
            self._lay_out(seat)
        return bool(self._at or self._next)

    def heard_of(self) -> list[Seat]:
        """Wait a second at most and return the seats whose run has ended."""
        ready = {key.fileobj for key, _ in self._selector.select(timeout=1.0)}
        for seat in self._at:
            answer = _answer(self._selector, seat, seat in ready)
            if answer is not None:
                self._answers[seat] = answer
        return list(self._answers)

    def finish(self, seat: Seat) -> list[tuple[Run, RunResult]]:
        """Have the seat go on; return the result of the run that ended, and of those like it."""
        answer = self._answers.pop(seat)
        run, lease = self._at.pop(seat)
        self._shares.give_back(lease)
        result = replace(_result(answer, ()), machine=lease.facts)
        # The next run need not wait until the trees of this one were looked at.
        if seat in self._next and not self._alike.same(run, result, self._next[seat][0]):
            self._occupy(seat)
        result = replace(_result(answer, seat.undo()), machine=lease.facts)
        others = [o for o in self.queue.waiting() if self._alike.same(run, result, o)]
        self.queue.drop(others)
        for other in [o for o in self._next if self._alike.same(run, result, self._next[o][0])]:
            others.append(self._next.pop(other)[0])
        self._occupy(seat)
        return [(run, result), *((other, replace(result, like=run)) for other in others)]

    def _occupy(self, seat: Seat) -> None:
        """Have an idle seat begin its next run, unless that waits for a device."""
        if seat in self._at:
            return
        self._lay_out(seat)
        if seat not in self._next:
            return
        run, places = self._next[seat]
        lease = self._shares.take(run.tier)
        if lease is None:
            return
        del self._next[seat]
        seat.send(_run_request(self.project, seat, run, places, lease))
        seat.begin()
        self._at[seat] = run, lease
        self._selector.register(seat, selectors.EVENT_READ)

    def _lay_out(self, seat: Seat) -> None:
        """Have the trees of a seat's next run lie ready, where there is one and room for it."""
        if seat in self._next or not seat.can_lay_out:
            return
        run = self.queue.next(seat)
        if run is None and seat not in self._at:
            # A run that lies ready elsewhere need not wait for the one before it.
            busy = next((other for other in self._next if other in self._at), None)
            run = self._next.pop(busy)[0] if busy is not None else None
        if run is not None:
            self._next[seat] = run, _laid_out(self.project, seat, run)


class _Queue:
    """Hands out runs so that each seat stays on one state as long as possible."""

    def __init__(self, runs: Iterable[Run]) -> None:
        groups: dict[State, list[Run]] = {}
        for run in dict.fromkeys(runs):
            groups.setdefault(run.state, []).append(run)
        self._groups = list(groups.values())
        self._own: dict[Seat, list[Run]] = {}

    def __len__(self) -> int:
        return sum(map(len, (*self._groups, *self._own.values())))

    def waiting(self) -> list[Run]:
        """Return the runs that no seat has begun."""
        return [run for runs in (*self._groups, *self._own.values()) for run in runs]

    def drop(self, runs: Sequence[Run]) -> None:
        """Take runs out: they need not be made."""
        for group in (*self._groups, *self._own.values()):
            group[:] = [run for run in group if run not in runs]
        self._groups = [group for group in self._groups if group]

    def next(self, seat: Seat) -> Run | None:
        own = self._own.setdefault(seat, [])
        if not own and self._groups:
            own += self._groups.pop(0)
        if not own:
            longest = max(self._own.values(), key=len)
            half = len(longest) // 2
            own += longest[len(longest) - half :]
            del longest[len(longest) - half :]
        return own.pop(0) if own else None


def _laid_out(project: Project, seat: Seat, run: Run) -> list[Place]:
    places: list[Place] = []
    for name, state in (("tree", run.state), ("baseline", run.baseline)):
        if places and state == run.state:
            places.append(places[0])
        else:
            tree = site_tree(project, state)
            places.append(seat.place(project.store, name, tree, state.trees))
    return places


def _run_request(
    project: Project, seat: Seat, run: Run, places: Sequence[Place], lease: Lease
) -> Request:
    request = _request(project, seat, run.test, run.tier, *places)
    more = tier_environment(project.config, run.tier) | lease.environment
    return replace(request, environment={**request.environment, **more})


def _request(
    project: Project, seat: Seat, test: Path, tier: str,
    tree: Place | None = None, baseline: Place | None = None,
) -> Request:  # fmt: skip
    site = tree.site if tree is not None else None
    folder = seat.folder_of(tier)
    return Request(
        test=test.resolve(),
        tier=tier,
        deadline=deadline_of(project, tier or "static"),
        folder=folder,
        environment=run_environment(tier, folder, project.cache_dir, site, os.environ),
        sources=sources_of(project.config),
        tree=tree,
        baseline=baseline,
    )


def _ask(seat: Seat, request: Request) -> dict[str, Any]:
    seat.send(request)
    try:
        while True:
            answer = seat.receive()
            if answer is not None:
                return answer
    except WorkerDied:
        return _dead(seat)


def _answer(selector: selectors.BaseSelector, seat: Seat, has_said: bool) -> dict[str, Any] | None:
    """Return the answer of a seat at work, None while there is none."""
    try:
        if seat.overdue and not has_said:
            raise WorkerDied
        answer = seat.receive() if has_said else None
    except WorkerDied:
        selector.unregister(seat)
        return _dead(seat)
    if answer is not None:
        selector.unregister(seat)
    return answer


def _dismiss(seats: Iterable[Seat]) -> None:
    for seat in seats:
        seat.dismiss()


def _dead(seat: Seat) -> dict[str, Any]:
    hung = seat.overdue
    seat.end_worker(grace=0.0 if hung else 5.0)
    words = f": {said}" if (said := seat.last_words()) else ""
    how = "hung" if hung else "died"
    return {"outcome": "error", "reason": f"the process that forks the tests {how}{words}"}


def _result(answer: Mapping[str, Any], changed: Sequence[str]) -> RunResult:
    outcome, reason = answer["outcome"], answer["reason"]
    if changed:
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        wrote = f"wrote into the tree: {', '.join(changed[:3])}{more}"
        reason = f"{wrote} ({reason})" if outcome == "error" else wrote
        outcome = "error"
    return RunResult(
        outcome,
        reason,
        answer.get("seconds", 0.0),
        answer.get("log", ""),
        tuple(answer.get("needs", ())),
        tuple(answer.get("tests", ())),
        answer.get("sha256", ""),
        tuple(answer.get("stubs", ())),
        read=_reads(answer.get("read")),
    )


def _reads(found: Sequence[Sequence[str]] | None) -> Reads | None:
    if found is None:
        return None
    tree, baseline = (frozenset(map(os.fsencode, paths)) for paths in found)
    return Reads(tree, baseline)


def _collected(answer: Mapping[str, Any]) -> Collected:
    tiers = {tier: tuple(nodes) for tier, nodes in answer.get("tiers", {}).items()}
    if answer["outcome"] == "blocked":
        why = f"skips all of its tests: {answer['reason']}; skip inside them, by their tiers"
        return Collected({}, why)
    if answer["outcome"] == "error":
        return Collected({}, answer["reason"])
    return Collected(tiers) if tiers else Collected({}, "it has no tests")
