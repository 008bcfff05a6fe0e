"""Runs with a memory: what is on record is not run again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchwright.applying.chain import State
from patchwright.evidence import COLLECTION, EvidenceStore, Inputs, Subject, new_record
from patchwright.imported import ImportedEvidence
from patchwright.project import Project
from patchwright.smoke.run import Run
from patchwright.smoke.sites import known_site_trees
from patchwright.tiers import Needs

if TYPE_CHECKING:
    from patchwright.smoke.runs import RunResult


@dataclass(frozen=True)
class Result:
    """The outcome of one run; ``made`` tells whether it was made just now.

    ``device`` is the architecture of the device that it ran on (``sm_120``), empty at
    the tiers that need none.
    """

    outcome: str
    reason: str
    seconds: float
    made: bool
    log: str = ""
    device: str = ""


class Evidenced:
    """Smoke tests of one project, their tiers and their outcomes."""

    def __init__(self, project: Project, store: EvidenceStore, jobs: int | None = None) -> None:
        self.project = project
        self.store = store
        self.jobs = jobs
        self.needs = Needs(project.config)
        self._tiers: dict[Path, frozenset[str]] = {}
        self._broken: dict[Path, str] = {}
        self._sha256: dict[Path, str] = {}
        self._sites: dict[State, dict[str, str]] = {}

    @cached_property
    def imported(self) -> ImportedEvidence:
        """The evidence that came from other machines."""
        return ImportedEvidence(self.store.folder / "imported")

    def collect(self, files: Sequence[Path]) -> None:
        """Learn which tiers each smoke file speaks at; a broken file is remembered as such."""
        known = self.recall(files)
        unknown = [path for path in files if path not in known]
        if not unknown:
            return
        from patchwright.smoke.runs import collect

        for path, found in collect(self.project, unknown).items():
            if found.error:
                self._broken[path] = found.error
                self._tiers[path] = frozenset()
                continue
            self._tiers[path] = frozenset(found.tiers)
            tests = tuple(
                {"tier": tier, "test": node}
                for tier, nodes in found.tiers.items()
                for node in nodes
            )
            record = new_record(self._collection(path), outcome="passed", reason="", seconds=0.0,
                                tests=tests)  # fmt: skip
            self.store.keep(record)

    def recall(self, files: Iterable[Path], *, imported: bool = False) -> set[Path]:
        """Return the smoke files whose tiers are on record already.

        ``imported``: what another machine says about a file of the same bytes will do.
        """
        for path in files:
            if path in self._tiers or not path.is_file():
                continue
            inputs = self._collection(path)
            record = self.store.find(inputs.key())
            if record is None and imported:
                found = self.imported.by_subject.get(inputs.subject)
                record = found[-1][1] if found else None
            if record is not None:
                self._tiers[path] = frozenset(str(test["tier"]) for test in record.tests)
        return set(self._tiers)

    def tiers(self, path: Path) -> frozenset[str]:
        """Return the tiers of a collected smoke file."""
        return self._tiers[path]

    def broken(self, path: Path) -> str:
        """Return why a smoke file could not be collected, or an empty text."""
        return self._broken.get(path, "")

    def inputs(self, run: Run) -> Inputs:
        """Return what decides the outcome of a run: the key of its evidence."""
        return Inputs(
            self._name(run.test), self._digest(run.test), run.tier,
            trees=self._site(run.state), baseline=self._site(run.baseline),
            environment=self.environment(run.tier),
        )  # fmt: skip

    def environment(self, tier: str) -> dict[str, str]:
        """Return what a tier adds to the key of its evidence: see ``Inputs``."""
        return self.needs.key(tier)

    def subject(self, run: Run) -> Subject:
        """Return what a run is about: what evidence from elsewhere is matched on."""
        site = [tuple(sorted(self._site(state).items())) for state in (run.state, run.baseline)]
        return Subject(self._name(run.test), self._digest(run.test), run.tier, *site)

    def recorded(self, run: Run) -> Result | None:
        """Return the outcome on record for exactly this run, or None."""
        record = self.store.find(self.inputs(run).key())
        if record is None:
            return None
        return Result(
            record.outcome, record.reason, record.seconds, made=False, log=record.log,
            device=record.inputs.environment.get("device", ""),
        )  # fmt: skip

    def tests_of(self, run: Run) -> tuple[Mapping[str, Any], ...]:
        """Return the tests of a run on record, as in RunResult; none where it is not there."""
        record = self.store.find(self.inputs(run).key())
        return () if record is None else record.tests

    def results(
        self, runs: Iterable[Run], on_run: Callable[[Run, Result, int, int], None] | None = None
    ) -> dict[Run, Result]:
        """Return the outcome of every run; ``on_run`` hears of each that is made, as it ends."""
        results: dict[Run, Result] = {}
        missing = []
        for run in dict.fromkeys(runs):
            result = self.recorded(run)
            # What broke may have been the machine (a full disk, a killed worker): ask again.
            if result is None or result.outcome == "error":
                missing.append(run)
            else:
                results[run] = result

        def ended(run: Run, found: RunResult) -> None:
            # Kept as it ends: an interrupted verify has lost only the run it was in.
            facts = dict(found.machine)
            if found.like is not None:
                facts["as run"] = self.inputs(found.like).key()
            if found.outcome != "blocked":
                inputs = self.inputs(run)
                if found.sha256:
                    # The test may have been edited since it was asked for.
                    inputs = replace(inputs, test_sha256=found.sha256)
                self.store.keep(new_record(
                    inputs, outcome=found.outcome, reason=found.reason,
                    seconds=found.seconds, tests=found.tests, log=found.log,
                    machine=facts, stubs=found.stubs,
                ))  # fmt: skip
            results[run] = Result(
                found.outcome, found.reason, found.seconds, made=found.like is None, log=found.log,
                device=self.environment(run.tier).get("device", ""),
            )  # fmt: skip
            if on_run is not None:
                done = len([r for r in missing if r in results])
                on_run(run, results[run], done, len(missing))

        # The light runs first, on all cores: a compiler takes cores and memory of its own.
        cores = len(os.sched_getaffinity(0))
        for light in (True, False):
            these = [run for run in missing if (run.tier == "static") is light]
            if these:
                # What makes runs takes a repeat, which makes none, as long as all the rest.
                from patchwright.smoke.runs import execute

                jobs = self.jobs or (cores if light else 1)
                execute(self.project, these, jobs=jobs, on_result=ended)
        return results

    def _collection(self, path: Path) -> Inputs:
        return Inputs(self._name(path), self._digest(path), COLLECTION, trees={}, baseline={})

    def _name(self, path: Path) -> str:
        return path.relative_to(self.project.root).as_posix()

    def _digest(self, path: Path) -> str:
        if path not in self._sha256:
            self._sha256[path] = hashlib.sha256(path.read_bytes()).hexdigest()
        return self._sha256[path]

    def _site(self, state: State) -> dict[str, str]:
        if state not in self._sites:
            self._sites[state] = known_site_trees(self.project, state)
        return self._sites[state]
