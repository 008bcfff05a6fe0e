"""The log on disk: written after every run, so that nothing is ever started twice.

One file per question in ``.patchwright/bisect``. Its name is a digest of what decides the
outcomes (patches, pins, probe, environment); the bracket and the limits are not part of
it, so that asking otherwise uses what is known. What each start printed lies beside it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from patchwright.bisecting.outcomes import Outcome, Run
from patchwright.errors import InputError, PatchwrightError
from patchwright.files import sweep, write_atomically

FORMAT = 1


class Journal:
    """The runs of one question, the oldest first."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """``facts`` are what decides the outcomes; ``folder`` is that of all questions."""
        text = json.dumps({"format": FORMAT, **facts}, sort_keys=True)
        self.key = hashlib.sha256(text.encode()).hexdigest()[:32]
        self.facts = dict(facts)
        self.path = folder / f"{self.key}.json"
        self.logs = folder / self.key
        self.runs: list[Run] = []
        # What the audit made suspect when the question was first asked: a part of its path.
        self.suspected: tuple[int, ...] | None = None
        if self.path.exists():
            self.runs, self.suspected = read(self.path)

    def clear(self) -> None:
        """Forget every run."""
        self.runs, self.suspected = [], None
        self.path.unlink(missing_ok=True)

    def add(self, run: Run) -> None:
        """Take a run; it is on disk when this returns. Raises PatchwrightError."""
        self.runs.append(run)
        try:
            if run.outcome.log:
                text = run.outcome.log.encode("utf-8", "backslashreplace")
                write_atomically(self.log_of(len(self.runs)), text)
            sweep(self.path.parent)
            write_atomically(self.path, self.format())
        except OSError as error:
            raise PatchwrightError(
                f"the log of the bisection cannot be written: {error.strerror}",
                where=str(self.path), next_step="make room, or make the folder writable; what "
                "was written before is kept, and the same command goes on from there",
            ) from error  # fmt: skip

    def log_of(self, number: int) -> Path:
        """Return where the log of run ``number`` (the first is 1) lies, if it has one."""
        return self.logs / f"{number:03d}.log"

    def format(self) -> bytes:
        """Return the file's bytes."""
        content = {
            "format": FORMAT, "facts": self.facts, "suspected": list(self.suspected or ()),
            "runs": [_data(r) for r in self.runs],
        }  # fmt: skip
        return json.dumps(content, indent=1).encode() + b"\n"


def read(path: Path) -> tuple[list[Run], tuple[int, ...]]:
    """Return the runs of a log and what the audit made suspect; InputError where it is none."""
    try:
        content = json.loads(path.read_bytes())
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']!r}, this version reads {FORMAT}")
        suspected = tuple(map(int, content.get("suspected", ())))
        return [_run(data) for data in content["runs"]], suspected
    except OSError as error:
        raise InputError(
            f"the log cannot be read: {error.strerror}", where=str(path), next_step="name another"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"this is no log of a bisection: {error}", where=str(path),
            next_step="begin anew with --fresh",
        ) from error  # fmt: skip


def _data(run: Run) -> dict[str, Any]:
    outcome = run.outcome
    return {
        "state": sorted(run.state), "outcome": outcome.kind, "signature": outcome.signature,
        "suspects": [list(group) for group in outcome.suspects], "detail": outcome.detail,
        "seconds": round(outcome.seconds, 3), "source": run.source, "tree": run.tree,
    }  # fmt: skip


def _run(data: Mapping[str, Any]) -> Run:
    if data["outcome"] not in ("started", "failed", "untestable"):
        raise ValueError(f"{data['outcome']!r} is no outcome")
    if data["source"] not in ("probe", "record", "applying"):
        raise ValueError(f"{data['source']!r} is no source")
    suspects: Sequence[Sequence[int]] = data["suspects"]
    return Run(
        frozenset(map(int, data["state"])),
        Outcome(
            data["outcome"], str(data["signature"]), tuple(tuple(map(int, g)) for g in suspects),
            str(data["detail"]), float(data["seconds"]),
        ),
        data["source"],
        str(data.get("tree", "")),
    )  # fmt: skip
