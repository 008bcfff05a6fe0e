"""What was sent, version by version: ``.patchwright/sent/NNNN.json``, of this machine only."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from patchwright.errors import InputError, PatchwrightError
from patchwright.files import sweep, write_atomically

if TYPE_CHECKING:
    from patchwright.project import Project

_FORMAT = 1


@dataclass(frozen=True)
class Sent:
    """One version: ``base`` is main's commit then, ``tip`` ours; ``fork`` has no login.

    ``patches`` are the numbers then, ``address`` the pull request, where it is known.
    """

    version: int
    base: str
    tip: str
    branch: str = ""
    fork: str = ""
    address: str = ""
    patches: tuple[int, ...] = ()


def read_sent(project: Project, number: int) -> tuple[Sent, ...]:
    """Return the versions that were sent of the series that starts with a patch."""
    path = _path(project, number)
    try:
        found = json.loads(path.read_bytes())
        if found["format"] != _FORMAT:
            raise ValueError("another format")
        return tuple(Sent(**{**v, "patches": tuple(v["patches"])}) for v in found["versions"])
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"this is not a record of what was sent: {error}", where=str(path),
            next_step="remove it; a new version then has no range-diff",
        ) from error  # fmt: skip


def keep_sent(project: Project, number: int, sent: Sent) -> None:
    """Put a version on record, in place of an earlier record of the same version."""
    others = [s for s in read_sent(project, number) if s.version != sent.version]
    versions = [dataclasses.asdict(s) for s in sorted([*others, sent], key=lambda s: s.version)]
    path = _path(project, number)
    try:
        sweep(path.parent, path.name)
        data = json.dumps({"format": _FORMAT, "versions": versions}, indent=1) + "\n"
        write_atomically(path, data.encode())
    except OSError as error:
        raise PatchwrightError(
            f"what was sent cannot be put on record: {error.strerror}", where=str(path),
            next_step="make the project's .patchwright folder writable, and send again: a branch "
            "that stands there already is left as it is",
        ) from error  # fmt: skip


def _path(project: Project, number: int) -> Path:
    return project.state_dir / "sent" / f"{number:04d}.json"
