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
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from patchwright import __version__
from patchwright.errors import PatchwrightError
from patchwright.files import write_atomically

FORMAT = 1
# Libraries that take part in a run: another version may give another outcome.
_LIBRARIES = ("pytest", "apache-tvm-ffi", "jinja2", "pyelftools")


@cache
def harness_digest() -> str:
    """Return a digest of what smoke tests run on: our fixtures and the libraries they use."""
    digest = hashlib.sha256()
    package = Path(__file__).parent
    for folder in ("smoke", "audit"):
        for path in sorted((package / folder).glob("*.py")):
            digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    for name in _LIBRARIES:
        digest.update(f"{name} {metadata.version(name)}\n".encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Inputs:
    """Everything that can change the outcome of one run.

    ``test`` is the test's path from the project's root and ``test_sha256`` its bytes.
    ``trees`` and ``baseline`` map an upstream to the id of the tree that ran (installed
    layout, files outside the pristine tree included). ``harness`` is the digest of the
    fixtures. ``environment`` holds what the tier adds: the compiler's identity at the
    compile tier, say.
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
        text = json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Record:
    """The stored outcome of one run."""

    inputs: Inputs
    outcome: str
    reason: str
    seconds: float
    tests: tuple[Mapping[str, Any], ...] = ()
    log: str = ""
    when: str = ""
    host: str = ""
    tool: str = __version__


def new_record(inputs: Inputs, **outcome: Any) -> Record:
    """Return a record of a run that ended just now on this machine."""
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return Record(inputs, when=when, host=platform.node(), **outcome)


class EvidenceStore:
    """The records of one project, as JSON files in ``<project>/.patchwright/evidence``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, key: str) -> Record | None:
        """Return the record with this key, or None; a damaged one counts as none."""
        path = self.folder / f"{key}.json"
        record = _read(path)
        # A record that does not hash to its own name was edited: it proves nothing.
        return record if record is not None and record.inputs.key() == key else None

    def keep(self, record: Record) -> None:
        """Store a record; PatchwrightError where the folder cannot be written."""
        if record.outcome == "blocked":
            raise ValueError("a blocked run is not evidence")
        text = json.dumps({"format": FORMAT, **asdict(record)}, indent=1, sort_keys=True)
        path = self.folder / f"{record.inputs.key()}.json"
        try:
            write_atomically(path, text.encode() + b"\n")
        except OSError as error:
            raise PatchwrightError(
                f"the evidence cannot be written: {error.strerror}",
                where=str(path),
                next_step="make the project's .patchwright folder writable",
            ) from error

    def all(self) -> Iterator[Record]:
        """Yield every readable record of this project."""
        for path in sorted(self.folder.glob("*.json")):
            record = _read(path)
            if record is not None and record.inputs.key() == path.stem:
                yield record


def _read(path: Path) -> Record | None:
    try:
        data = json.loads(path.read_bytes())
        if data.pop("format") != FORMAT:
            return None
        inputs = Inputs(**data.pop("inputs"))
        return Record(inputs, **{**data, "tests": tuple(data.get("tests", ()))})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def difference(old: Inputs, new: Inputs) -> str:
    """Return in words what changed between the inputs of two runs of one test."""
    words = {
        "test_sha256": "the test changed",
        "trees": "the tree changed",
        "baseline": "the tree of the control changed",
        "harness": "the harness changed",
        "python": f"Python {old.python} then, {new.python} now",
        "environment": "the compiler or the environment changed",
    }
    before, after = asdict(old), asdict(new)
    return ", ".join(text for name, text in words.items() if before[name] != after[name])
