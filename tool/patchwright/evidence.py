"""What was verified, where, and when: one file per run, keyed by what decides its outcome.

A record's key is a digest over everything that can change the outcome at the run's
tier (``Inputs``). Same key, same answer: the run is not made again. A blocked run is
never kept: what was missing may be there the next time.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from patchwright import __version__
from patchwright.errors import PatchwrightError
from patchwright.files import sweep, write_atomically

FORMAT = 1
COLLECTION = "collection"  # in a tier's place: a record of which tests a smoke file has
# Libraries that take part in a run: another version may give another outcome.
_LIBRARIES = ("pytest", "apache-tvm-ffi", "jinja2", "pyelftools")


@cache
def harness_digest() -> str:
    """Return a digest of what smoke tests run on: our fixtures and the libraries they use."""
    digest = hashlib.sha256()
    package = Path(__file__).parent
    # Of the audit, smoke tests use the evaluation of guards alone.
    for path in (*sorted((package / "smoke").glob("*.py")), package / "audit" / "guards.py"):
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    for name in _LIBRARIES:
        digest.update(f"{name} {metadata.version(name)}\n".encode())
    return digest.hexdigest()


class Subject(NamedTuple):
    """What a run is about, wherever it is made: evidence from elsewhere matches on this."""

    test: str
    test_sha256: str
    tier: str
    trees: tuple[tuple[str, str], ...]
    baseline: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Inputs:
    """Everything that can change the outcome of one run.

    ``test`` is the test's path from the project's root and ``test_sha256`` its bytes.
    ``trees`` and ``baseline`` map an upstream to the id of the tree that ran (installed
    layout, files outside the pristine tree included). ``harness`` is the digest of the
    fixtures. ``environment`` holds what the tier adds: ``compiler`` (its identity) at
    the compile tier; ``environment`` (the interpreter and packages that run upstream's
    code) at the import tier; both and ``device`` (its architecture), ``device-name``,
    ``driver`` and ``cuda`` at the gpu tiers, and how many ``devices`` for several.
    """

    test: str
    test_sha256: str
    tier: str
    trees: Mapping[str, str]
    baseline: Mapping[str, str]
    harness: str = field(default_factory=harness_digest)
    python: str = field(default_factory=platform.python_version)
    environment: Mapping[str, str] = field(default_factory=dict)

    def key(self) -> str:
        """Return the record's key: 64 hex digits."""
        # Not asdict, which copies all of it first: a repeat asks for hundreds of keys.
        content = {each.name: getattr(self, each.name) for each in fields(self)}
        text = json.dumps({"format": FORMAT, **content}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def subject(self) -> Subject:
        """What the run is about, without where it is made."""
        return Subject(
            self.test, self.test_sha256, self.tier,
            tuple(sorted(self.trees.items())), tuple(sorted(self.baseline.items())),
        )  # fmt: skip

    @property
    def control(self) -> bool:
        """Whether this is a run without the patch."""
        return self.trees == self.baseline


@dataclass(frozen=True)
class Record:
    """The stored outcome of one run.

    ``log`` is what the run printed, 128 KiB at most. ``when`` is the time it ended, in
    UTC (ISO 8601). ``machine`` holds facts that decide nothing: ``platform``, and at the
    gpu tiers the device's name. ``stubs`` names what stood in for the real thing, such as
    ``torch (stub)``.
    """

    inputs: Inputs
    outcome: str
    reason: str
    seconds: float
    tests: tuple[Mapping[str, Any], ...] = ()
    log: str = field(default="", repr=False)
    when: str = ""
    host: str = ""
    tool: str = __version__
    machine: Mapping[str, str] = field(default_factory=dict)
    stubs: tuple[str, ...] = ()

    @property
    def device(self) -> str:
        """The device that it ran on, for people; empty where none was needed."""
        return self.machine.get("device", "") or self.inputs.environment.get("device", "")


def new_record(inputs: Inputs, *, machine: Mapping[str, str] | None = None, **run: Any) -> Record:
    """Return a record of a run that ended just now on this machine."""
    when = datetime.now(UTC).isoformat(timespec="seconds")
    facts = {"platform": platform.platform(), **(machine or {})}
    return Record(inputs, when=when, host=platform.node(), machine=facts, **run)


class EvidenceStore:
    """The records of one project, as JSON files in ``<project>/.patchwright/evidence``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._swept = False

    def find(self, key: str) -> Record | None:
        """Return the record with this key, or None; a damaged one counts as none."""
        from patchwright.evidence_files import Malformed, read_record

        try:
            record = read_record(self.folder / f"{key}.json")
        except (OSError, Malformed):
            return None
        # A record under another name than its key proves nothing about this one.
        return record if record.inputs.key() == key else None

    def keep(self, record: Record) -> None:
        """Store a record; PatchwrightError where the folder cannot be written."""
        from patchwright.evidence_files import format_record

        if record.outcome == "blocked":
            raise ValueError("a blocked run is not evidence")
        path = self.folder / f"{record.inputs.key()}.json"
        try:
            if not self._swept:
                sweep(self.folder)
                self._swept = True
            write_atomically(path, format_record(record))
        except OSError as error:
            raise PatchwrightError(
                f"the evidence cannot be written: {error.strerror}",
                where=str(path),
                next_step="make the project's .patchwright folder writable",
            ) from error

    def all(self) -> Iterator[Record]:
        """Yield every readable record of this project."""
        for path in sorted(self.folder.glob("*.json")):
            record = self.find(path.stem)
            if record is not None:
                yield record

    def damaged(self) -> dict[Path, str]:
        """Return the files that are not records as we wrote them, and why; they never count."""
        from patchwright.evidence_files import Malformed, read_record

        found = {}
        for path in sorted(self.folder.glob("*.json")):
            try:
                if read_record(path).inputs.key() != path.stem:
                    found[path] = "its name is not the key of what it holds"
            except Malformed as error:
                found[path] = str(error)
            except OSError as error:
                found[path] = error.strerror or str(error)
        return found


def difference(old: Inputs, new: Inputs) -> str:
    """Return in words what changed between the inputs of two runs of one test."""
    words = {
        "test_sha256": "the test changed",
        "trees": "the tree changed",
        "baseline": "the tree of the control changed",
        "harness": "the harness changed",
        "python": f"Python {old.python} then, {new.python} now",
    }
    before, after = asdict(old), asdict(new)
    changed = [text for name, text in words.items() if before[name] != after[name]]
    for name in sorted({*old.environment, *new.environment}):
        then, now = old.environment.get(name, "none"), new.environment.get(name, "none")
        if then != now:
            changed.append(f"{name} {then} then, {now} now")
    return ", ".join(changed)
