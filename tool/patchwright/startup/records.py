"""Starts on record: evidence of the tier ``startup``, keyed by all that decides a start."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchwright.applying.chain import State
from patchwright.evidence import EvidenceStore, Inputs, Record, new_record
from patchwright.smoke.sites import site_trees
from patchwright.startup.judging import Started
from patchwright.tiers import Needs

if TYPE_CHECKING:
    from patchwright.project import Project
    from patchwright.startup.settings import Settings

TEST = "startup"  # in a test's place
_OUTCOMES = {"started": "passed", "failed": "failed"}


@cache
def _harness() -> str:
    """Return a digest of the code that makes and judges a start."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


class StartRecords:
    """The starts of one project with one probe. ``identity`` is that of the environment."""

    def __init__(self, project: Project, settings: Settings, identity: str) -> None:
        self.project = project
        self.store = EvidenceStore(project.state_dir / "evidence")
        self.settings = settings
        self.identity = identity
        self._needs = Needs(project.config)

    def find(self, state: State) -> Started | None:
        """Return what is on record for a state, or None."""
        if self.settings.by_shell:
            return None  # what a script of the user's does is not in any key
        record = self.store.find(self._inputs(state).key())
        return _started(record) if record is not None else None

    def starts(self, state: State) -> int:
        """Return how many clean starts of a state are on record, without one that failed."""
        return _count(self.store.find(self._inputs(state).key()))

    def keep(self, state: State, started: Started) -> None:
        """Keep the outcome of a start; a failure on record is never replaced by a success.

        Clean starts of the same are counted.

        One that could not be tested is not kept: what was in the way may be gone next time.
        """
        if self.settings.by_shell or started.outcome == "untestable":
            return
        inputs = self._inputs(state)
        known = self.store.find(inputs.key())
        if known is not None and known.outcome == "failed":
            return
        machine = self._needs.machine
        self.store.keep(new_record(
            inputs, outcome=_OUTCOMES[started.outcome], reason=started.detail[:2000],
            seconds=started.seconds, log=started.log, tests=(_facts(started, 1 + _count(known)),),
            machine={"device": machine.devices[0].name} if machine is not None else {},
        ))  # fmt: skip

    def _inputs(self, state: State) -> Inputs:
        shown = State(tuple((n, t) for n, t in state.trees if n in self.settings.upstreams))
        trees = site_trees(self.project, shown)
        environment = {"environment": self.identity} if self.identity else {}
        if (machine := self._needs.machine) is not None:
            first = machine.devices[0]
            environment |= {"device": first.architecture, "device-name": first.name,
                            "devices": str(len(machine.devices)), "driver": machine.driver,
                            "cuda": machine.cuda}  # fmt: skip
        return Inputs(TEST, self.settings.digest(), TEST, trees, trees, _harness(),
                      environment=environment)  # fmt: skip


def _count(record: Record | None) -> int:
    """Return how many clean starts a record stands for."""
    if record is None or record.outcome != "passed":
        return 0
    try:
        return int(record.tests[0].get("starts", 1))
    except (IndexError, ValueError):
        return 1


def _facts(started: Started, starts: int) -> dict[str, Any]:
    return {
        "starts": starts if started.outcome == "started" else 0,
        "kind": started.kind, "signature": started.signature, "stage": started.stage,
        "frames": json.dumps(started.frames), "files": json.dumps(started.files),
        "imported": json.dumps(started.imported),
    }  # fmt: skip


def _started(record: Record) -> Started | None:
    """Return the start that a record tells of; None where it does not tell enough."""
    try:
        facts = record.tests[0]
        frames = tuple((str(f), int(n), str(w)) for f, n, w in json.loads(facts["frames"]))
        return Started(
            "started" if record.outcome == "passed" else "failed",
            str(facts["kind"]), str(facts["signature"]), record.reason, frames,
            tuple(json.loads(facts["files"])), record.seconds, str(facts["stage"]),
            imported=tuple(json.loads(facts["imported"])), log=record.log,
        )  # fmt: skip
    except (IndexError, KeyError, TypeError, ValueError):
        return None
